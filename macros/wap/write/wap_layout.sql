{#- What a model's config says of its table beside the columns. -#}
{% macro wap_layout() %}
    {%- set layout = {
        "partition_by": _wap_partitions(),
        "properties": _wap_properties(),
        "given": _wap_properties(),
        "format_version": config.get("format_version"),
    } -%}
    {#- An order that nobody configured may have been set for maintenance; it is left alone. -#}
    {%- if config.get("sort_by") is not none -%}
        {%- do layout.update({"sort_by": adapter.wap.list(config.get("sort_by"))}) -%}
    {%- endif -%}
    {%- if config.persist_relation_docs() -%}
        {%- do layout.update({"comment": model.description or ""}) -%}
    {%- endif -%}
    {{ return(layout) }}
{% endmacro %}

{#- The clauses of `create table` between the columns and the query. -#}
{% macro wap_table_clauses(relation) %}
    using iceberg
    {%- set partitions = _wap_partitions() %}
    {%- if partitions %}
    partitioned by ({{ partitions | join(", ") }})
    {%- endif %}
    {%- if config.persist_relation_docs() and model.description %}
    comment {{ wap_string(model.description) }}
    {%- endif %}
    {#- A clone stays where the live table is; a new table gets a path of its own. #}
    {%- if adapter.wap.live(relation) is none %}
    location {{ wap_string(_wap_location(relation)) }}
    {%- endif %}
    {%- set properties = dict(_wap_properties()) %}
    {%- if config.get("format_version") %}
        {%- do properties.update({"format-version": config.get("format_version")}) %}
    {%- endif %}
    {%- if properties %}
    tblproperties (
        {%- for key, value in properties.items() %}
        {{ wap_string(key) }} = {{ wap_string(value) }}{{ "," if not loop.last }}
        {%- endfor %}
    )
    {%- endif %}
{% endmacro %}

{% macro _wap_partitions() %}
    {{ return(adapter.wap.list(config.get("partition_by") or _wap_default("partition_by"))) }}
{% endmacro %}

{% macro _wap_properties() %}
    {{ return(dict(_wap_default("tblproperties") or {}, **(config.get("tblproperties") or {}))) }}
{% endmacro %}

{#- Part of the layout that a materialization has where the model says nothing. -#}
{% macro _wap_default(name) %}
    {{ return(_wap_history_layout()[name] if config.get("materialized") == "scd2" else none) }}
{% endmacro %}

{#-
    Layout of a history: closed versions apart from the current ones, which is all that a run reads
    unless rows are late, and changes beside the files, so that what is written is what changed.
-#}
{% macro _wap_history_layout() %}
    {{ return({
        "partition_by": ["is_current"],
        "tblproperties": {
            "write.merge.mode": "merge-on-read",
            "write.update.mode": "merge-on-read",
            "write.delete.mode": "merge-on-read",
        },
    }) }}
{% endmacro %}

{% macro _wap_location(relation) %}
    {%- set root = config.get("location_root") -%}
    {%- if root -%}
        {{ return(root.rstrip("/") ~ "/" ~ relation.identifier) }}
    {%- endif -%}
    {{ return(adapter.wap.location(relation)) }}
{% endmacro %}

{#- Any text as a Spark string literal. -#}
{% macro wap_string(value) %}
    {{- return("'" ~ (value | string).replace("\\", "\\\\").replace("'", "\\'") ~ "'") -}}
{% endmacro %}
