{#-
    The columns of a `cdc_` table that its source has added since its landing entry was written, as
    text, for a select list. So a new column flows through, until the entry and the model name it.

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
    {#- dbt fills the graph before it compiles; while it parses, or under a linter, there is none. -#}
    {%- set known = _entry_columns(raw) if graph.get("nodes") else [] -%}
    * except ({{ (adapter.wap.quoted(known) + cdc_columns()) | join(", ") }})
{%- endmacro %}

{% macro _entry_columns(raw) %}
    {%- for node in graph.nodes.values() if node.name == raw and node.resource_type == "model" -%}
        {{ return(node.config.get("meta", {}).get("landing", {}).get("columns", {}) | list) }}
    {%- endfor -%}
    {%- do exceptions.raise_compiler_error("added_columns: there is no model '" ~ raw ~ "'") -%}
{% endmacro %}
