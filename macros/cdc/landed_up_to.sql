{#-
    The load date of the newest landing file that a raw table has, as a timestamp: an expression.

    raw  the raw table's relation
-#}
{% macro landed_up_to(raw) -%}
    (select cast(max(_load_date) as timestamp) from {{ raw }} where _kind = 'file')
{%- endmacro %}
