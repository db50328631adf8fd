{#-
    The landing entry of a raw table's model; empty if there is none.

    raw  the raw table's relation
-#}
{% macro landing_entry(raw) %}
    {%- if not execute -%}{{ return({}) }}{%- endif -%}
    {%- if raw is string -%}
        {%- do exceptions.raise_compiler_error(
            "A test with a `where` cannot read the landing entry of its model; give the values of "
            ~ "the landing entry as arguments"
        ) -%}
    {%- endif -%}
    {%- for node in graph.nodes.values() -%}
        {%- if node.resource_type == 'model' and node.schema == raw.schema
                and node.alias == raw.identifier -%}
            {{ return(node.config.get('meta', {}).get('landing') or {}) }}
        {%- endif -%}
    {%- endfor -%}
    {{ return({}) }}
{% endmacro %}
