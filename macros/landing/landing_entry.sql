{#-
    The landing entry of the model whose table a relation is; empty without one.

    raw  the raw table's relation
-#}
{% macro landing_entry(raw) %}
    {%- if not execute -%}{{ return({}) }}{%- endif -%}
    {%- if raw is string -%}
        {%- do exceptions.raise_compiler_error(
            "A test with a `where` does not know its model; give what the landing entry has as "
            ~ "an argument"
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
