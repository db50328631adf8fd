{#- The layout of a model's table by its config, without the columns. -#}
{% macro wap_layout() %}
    {%- set layout = {
        "partition_by": _wap_partitions(),
        "properties": _wap_properties(),
        "given": _wap_properties(),
        "format_version": config.get("format_version"),
    } -%}
    {#- Without this config, keep the table's sort order: maintenance may have set it. -#}
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
    {#- Otherwise the rows go to a branch of the new table, and its main is empty. #}
    {%- set properties = dict(_wap_properties(), **{"write.wap.enabled": "false"}) %}
    {#- A clone keeps the location of the live table, and what protects the files that it shares
        with it; a new table gets its own path. #}
    {%- if adapter.wap.live(relation) is none %}
    location {{ wap_string(_wap_location(relation)) }}
    {%- else %}
        {%- for guard in ("gc.enabled", "write.metadata.delete-after-commit.enabled") %}
            {%- do properties.pop(guard, none) %}
        {%- endfor %}
    {%- endif %}
    {%- if config.get("format_version") %}
        {%- do properties.update({"format-version": config.get("format_version")}) %}
    {%- endif %}
    tblproperties (
        {%- for key, value in properties.items() %}
        {{ wap_string(key) }} = {{ wap_string(value) }}{{ "," if not loop.last }}
        {%- endfor %}
    )
{% endmacro %}

{% macro _wap_partitions() %}
    {{ return(adapter.wap.list(config.get("partition_by") or _wap_default("partition_by"))) }}
{% endmacro %}

{% macro _wap_properties() %}
    {%- set properties = dict(_wap_default("tblproperties") or {}) -%}
    {%- if config.get("wap_write_mode", "auto") != "auto" -%}
        {%- for what in ("merge", "update", "delete") -%}
            {%- do properties.update({"write." ~ what ~ ".mode": config.get("wap_write_mode")}) -%}
        {%- endfor -%}
    {%- endif -%}
    {{ return(dict(properties, **(config.get("tblproperties") or {}))) }}
{% endmacro %}

{#- The default of a part of the layout, by materialization. -#}
{% macro _wap_default(name) %}
    {{ return(_wap_history_layout()[name] if config.get("materialized") == "scd2" else none) }}
{% endmacro %}

{#-
    The layout of a history: a partition of the current versions, because a run without late rows
    reads no others, and merge-on-read, so that a run writes only the changes.
-#}
{% macro _wap_history_layout() %}
    {{ return({
        "partition_by": ["is_current"],
        "tblproperties": dict({
            "write.merge.mode": "merge-on-read",
            "write.update.mode": "merge-on-read",
            "write.delete.mode": "merge-on-read",
        }, **adapter.wap.kept_properties(model)),
    }) }}
{% endmacro %}

{% macro _wap_location(relation) %}
    {%- set root = config.get("location_root") -%}
    {%- if root -%}
        {{ return(root.rstrip("/") ~ "/" ~ relation.identifier) }}
    {%- endif -%}
    {{ return(adapter.wap.location(relation)) }}
{% endmacro %}

{#- A text as a Spark string literal. -#}
{% macro wap_string(value) %}
    {{- return("'" ~ (value | string).replace("\\", "\\\\").replace("'", "\\'") ~ "'") -}}
{% endmacro %}
