{#-
    The load date of the newest landing file of a raw table, as a timestamp expression.

    raw  the raw table's relation
-#}
{% macro landed_up_to(raw) -%}
    (select cast(max(_load_date) as timestamp) from {{ raw }} where _kind = 'file')
{%- endmacro %}
