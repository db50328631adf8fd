{#-
    The `key` of the landing entry of the model whose table a relation is.

    raw  the raw table's relation
-#}
{% macro landing_key(raw) %}
    {%- if not execute -%}{{ return([]) }}{%- endif -%}
    {%- set key = landing_entry(raw).get('key') -%}
    {%- if not key -%}
        {%- do exceptions.raise_compiler_error(
            "No landing entry with a key belongs to " ~ raw ~ "; give the argument `key`"
        ) -%}
    {%- endif -%}
    {{ return(key) }}
{% endmacro %}
