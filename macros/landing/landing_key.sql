{#-
    The `key` of the landing entry of a raw table's model.

    raw  the raw table's relation
-#}
{% macro landing_key(raw) %}
    {%- if not execute -%}{{ return([]) }}{%- endif -%}
    {%- set key = landing_entry(raw).get('key') -%}
    {%- if not key -%}
        {%- do exceptions.raise_compiler_error(
            raw ~ " has no landing entry with a key; give the argument `key`"
        ) -%}
    {%- endif -%}
    {{ return(key) }}
{% endmacro %}
