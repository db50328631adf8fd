{#-
    A condition for the rows of a raw table whose load (`_batch`) the published table does not have.

    raw  the raw table's relation
-#}
{% macro unpublished_loads(raw) -%}
    {%- if execute and raw is string -%}
        {%- do exceptions.raise_compiler_error(
            "A test with a `where` cannot compare its model with the published table; leave it out"
        ) -%}
    {%- endif -%}
    {%- set published = wap_published(raw) if execute -%}
    {%- if published -%}
        _batch > (select coalesce(max(_batch), 0) from {{ published }})
    {%- else -%}
        true
    {%- endif -%}
{%- endmacro %}
