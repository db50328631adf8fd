{#-
    Each key has at most one current version.

    data_tests:
      - scd2_one_current:
          arguments: {key: product_id}

    args:
        key: the key column, or a list
        valid_to: column with the end of a version; NULL or 9999-12-31 if it is current
-#}
{% test scd2_one_current(model, key, valid_to='dbt_valid_to') %}

select
    {{ _scd2_keys(key) }},
    count(*) as current_versions
from {{ model }}
where {{ valid_to }} is null or cast({{ valid_to }} as string) >= '9999-12-31'
group by {{ _scd2_keys(key) }}
having count(*) > 1

{% endtest %}

{% macro _scd2_keys(key, table=none) -%}
    {%- set keys = [key] if key is string else key -%}
    {%- if not keys -%}
        {%- do exceptions.raise_compiler_error("scd2: key is empty; it must be a column or a list of columns") -%}
    {%- endif -%}
    {%- for name in keys -%}
        {{ table ~ "." if table }}{{ name }}{{ ", " if not loop.last }}
    {%- endfor -%}
{%- endmacro %}
