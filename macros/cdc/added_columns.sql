{#-
    The columns of a `cdc_` table that are not in its landing entry, because the source added them
    later: as text, for a select list. So the model has a new column before its entry names it.

    raw  name of the raw model, whose entry names all other columns

    stg_crm__customers.sql:
        select
            cast(customer_id as bigint) as customer_id,
            full_name,
            {{ added_columns('raw_crm__customers') }}
        from {{ ref('cdc_crm__customers') }}
        where not _is_deleted
-#}
{% macro added_columns(raw) -%}
    {#- The graph is empty while dbt parses, and in a linter. -#}
    {%- set known = _entry_columns(raw) if graph.get("nodes") else [] -%}
    * except ({{ (adapter.wap.quoted(known) + cdc_columns()) | join(", ") }})
{%- endmacro %}

{% macro _entry_columns(raw) %}
    {%- for node in graph.nodes.values() if node.name == raw and node.resource_type == "model" -%}
        {{ return(node.config.get("meta", {}).get("landing", {}).get("columns", {}) | list) }}
    {%- endfor -%}
    {%- do exceptions.raise_compiler_error("added_columns: no model is named '" ~ raw ~ "'; give the name of the raw model") -%}
{% endmacro %}
