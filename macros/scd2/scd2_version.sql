{% macro scd2_version(key, valid_from='dbt_valid_from') -%}
    row_number() over (partition by {{ key }} order by {{ valid_from }})
{%- endmacro %}
