{#-
    What a model says of its history, checked; all faults are told at once.

    returns: dict of
        sql                  the model's query: one row per event
        keys, payload        columns of the query, by what they are
        tracked              those of the payload whose change makes a version
        types                type of each column
        grain                timestamp or date
        open_end             SQL: the end of a version that is current
        expire               next_start or day_before
        deletes              close or record
        delete_when          SQL: whether an event's row counts as deleted; None for never
        surrogate_key        name of its column; None for none
        partial              whether events may leave columns out (`_absent`)
        loads                whether full loads can tell what is gone (`_load`, `_load_date`)
-#}
{% macro wap_scd2_settings(sql) %}
    {%- set faults = [] -%}
    {%- set types = {} -%}
    {%- for column in wap_query_columns(sql) -%}
        {%- do types.update({column["name"]: column["type"]}) -%}
    {%- endfor -%}
    {%- set keys = adapter.wap_list(config.get("unique_key")) or [] -%}
    {%- set own = _wap_scd2_payload(types, keys) -%}
    {%- set tracked = adapter.wap_list(config.get("tracked_columns")) or own -%}
    {%- set end = config.get("open_end") -%}
    {%- set surrogate = config.get("surrogate_key", false) -%}
    {%- set history = {
        "sql": sql,
        "keys": keys,
        "payload": own,
        "tracked": tracked,
        "types": types,
        "grain": config.get("grain", "timestamp"),
        "expire": config.get("expire", "next_start"),
        "deletes": config.get("deletes", "close"),
        "delete_when": config.get("delete_when"),
        "surrogate_key": "version_key" if surrogate is sameas true else (surrogate or none),
        "partial": "_absent" in types,
        "loads": "_load" in types and "_load_date" in types,
    } -%}
    {%- for name, legal in _wap_scd2_choices().items() -%}
        {%- if history[name] not in legal -%}
            {%- do faults.append(
                name ~ " is '" ~ history[name] ~ "'; legal values: " ~ legal | join(", ")) -%}
        {%- endif -%}
    {%- endfor -%}
    {%- if history["expire"] == "day_before" and history["grain"] != "date" -%}
        {%- do faults.append("expire 'day_before' needs grain 'date': days have a day before") -%}
    {%- endif -%}
    {%- if end is not none and end | string != "9999-12-31" -%}
        {%- do faults.append("open_end is '" ~ end ~ "'; legal values: null, '9999-12-31'") -%}
    {%- endif -%}
    {%- if not keys -%}{%- do faults.append("unique_key is missing") -%}{%- endif -%}
    {%- for name in keys + tracked + _wap_scd2_log_columns() if name not in types -%}
        {%- do faults.append("the query has no column " ~ name) -%}
    {%- endfor -%}
    {%- for name in own if name in _wap_scd2_made() + [history["surrogate_key"]] -%}
        {%- do faults.append("the query's column " ~ name ~ " has the name of one that is made") -%}
    {%- endfor -%}
    {%- if faults -%}
        {%- do exceptions.raise_compiler_error(
            "The history " ~ model.name ~ " cannot be built; nothing was written. Correct: "
            ~ faults | join("; ") ~ ". The columns are those that change_events() selects; "
            ~ "docs/history.md lists the settings.") -%}
    {%- endif -%}
    {%- do history.update({"open_end": _wap_scd2_open_end(history["grain"], end)}) -%}
    {{ return(history) }}
{% endmacro %}

{#- The payload: what is neither key nor the log's own, whose names begin with an underscore. -#}
{% macro _wap_scd2_payload(types, keys) %}
    {%- set found = [] -%}
    {%- for name in types if name not in keys and not name.startswith("_") -%}
        {%- do found.append(name) -%}
    {%- endfor -%}
    {{ return(found) }}
{% endmacro %}

{% macro _wap_scd2_choices() %}
    {{ return({
        "grain": ["timestamp", "date"],
        "expire": ["next_start", "day_before"],
        "deletes": ["close", "record"],
    }) }}
{% endmacro %}

{% macro _wap_scd2_log_columns() %}
    {{ return(["_op", "_sequence", "_event_time", "_file_path", "_row", "_part", "_batch"]) }}
{% endmacro %}

{#- Columns that are made, as readers see them. -#}
{% macro _wap_scd2_made() %}
    {{ return(
        ["valid_from", "valid_to", "is_current", "version", "change_flag", "row_hash"]) }}
{% endmacro %}

{#-
    Columns that the next run needs: the last that was seen of a key, on its current row only, and
    the log's batch up to which the row was built.
-#}
{% macro _wap_scd2_kept() %}
    {{ return(["_sequence", "_event_time", "_batch"]) }}
{% endmacro %}

{% macro _wap_scd2_open_end(grain, end) %}
    {%- if end is none -%}{{ return("cast(null as " ~ grain ~ ")") }}{%- endif -%}
    {{ return("cast('9999-12-31' as " ~ grain ~ ")") }}
{% endmacro %}

{#-
    Layout of a history: closed versions apart from the current ones, which is all that a run reads
    unless rows are late, and changes beside the files, so that what is written is what changed.
-#}
{% macro wap_scd2_layout() %}
    {{ return({
        "partition_by": ["is_current"],
        "tblproperties": {
            "write.merge.mode": "merge-on-read",
            "write.update.mode": "merge-on-read",
            "write.delete.mode": "merge-on-read",
        },
    }) }}
{% endmacro %}
