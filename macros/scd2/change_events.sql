{#-
    The events of a raw log, as a model with `materialized='scd2'` selects them: columns, and the
    log's own.

        {{ config(materialized='scd2', unique_key='customer_id') }}
        {{ change_events(ref('raw_shop__customers'), columns={
            'customer_id': 'cast(id as bigint)', 'name': 'name'}) }}

    args:
        log: the raw table
        columns: SQL by name; absent: the log's columns as they are, added ones included
        partial: whether rows may leave columns out; False saves time where none does
        widen: whether a column that is a plain `cast(column as type)` gets a wider type once values
            need one, as by `widened` in staging
-#}
{% macro change_events(log, columns=none, partial=true, widen=true) -%}
    {%- set columns = columns or _own_columns(log) -%}
    {#- Only a build asks the data: not `dbt compile`, nor a unit test, whose inputs are CTEs. -#}
    {%- if widen and execute and adapter.wap_is_building() and not log.is_cte -%}
        {%- set columns = _widened_events(log, columns) -%}
    {%- endif -%}
    {#- A column is left out of an event if one that it is made of is. -#}
    {%- set absent = [] -%}
    select
        {%- for name, expression in columns.items() %}
        {#- A plain cast of the log's text fails where it would round, as it does on other values
            that are not of the type. #}
        {%- set cast = adapter.wap_plain_cast(expression) %}
        {{ adapter.wap_checked_cast(cast[0], cast[1], name) if cast else expression }} as {{ adapter.quote(name) }},
        {%- set words = modules.re.findall('[A-Za-z_][A-Za-z0-9_]*', expression) | unique %}
        {%- do absent.append(
            "if(arrays_overlap(_absent, array('" ~ words | join("', '") ~ "')), '"
            ~ name ~ "', null)") %}
        {%- endfor %}
        {%- if partial %}
        if(_absent is null, null, array_compact(array({{ absent | join(", ") }}))) as _absent,
        {%- endif %}
        {#- A full load tells by its file's row that what it does not hold is gone. #}
        if(_kind = 'file', 'full_load', _op) as _op,
        _sequence,
        _event_time,
        _file_path,
        _row,
        _part,
        _batch,
        _load,
        _load_date
    from {{ log }}
    where _kind = 'row' or (_kind = 'file' and _load = 'full')
{%- endmacro %}

{#-
    The columns with a wider type where values that the history has not seen yet need one, or where
    it has a wider one already. The summary of the run tells of it.
-#}
{% macro _widened_events(log, columns) %}
    {%- set table = none if should_full_refresh() else load_relation(this) -%}
    {%- set standing = {} -%}
    {%- if table is not none -%}
        {%- for column in adapter.get_columns_in_relation(table) -%}
            {%- do standing.update({column.name: column.dtype}) -%}
        {%- endfor -%}
    {%- endif -%}
    {%- set fitting, narrow, questions = dict(columns), [], [] -%}
    {%- for name, expression in columns.items() -%}
        {%- set cast = adapter.wap_plain_cast(expression) -%}
        {%- set wide = adapter.wap_wider(cast[1]) if cast else none -%}
        {%- if wide is not none -%}
            {%- set value, type = cast -%}
            {%- do fitting.update({name: "cast(" ~ value ~ " as " ~ wide ~ ")"}) -%}
            {%- if standing.get(name) != wide -%}
                {%- do narrow.append({"name": name, "type": type, "wide": wide}) -%}
                {%- do questions.append(
                    "count_if(" ~ value ~ " is not null and try_cast(" ~ value ~ " as " ~ type
                    ~ ") is null)") -%}
            {%- endif -%}
        {%- endif -%}
    {%- endfor -%}
    {%- if questions -%}
        {%- set seen = -1 if table is none or wap_scd2_restated(model.name)
            else wap_scd2_marks(table)["batch"] -%}
        {%- set counts = run_query(
            "select " ~ questions | join(", ") ~ " from " ~ log ~ " where _kind = 'row' "
            ~ "and _batch > " ~ seen).rows[0].values() -%}
        {%- for one in narrow -%}
            {%- if counts[loop.index0] -%}
                {%- do adapter.wap_tell(
                    model.unique_id, "column " ~ one["name"] ~ ": " ~ counts[loop.index0]
                    ~ " values are no " ~ one["type"] ~ "; its type is now " ~ one["wide"]) -%}
            {%- else -%}
                {%- do fitting.update({one["name"]: columns[one["name"]]}) -%}
            {%- endif -%}
        {%- endfor -%}
    {%- endif -%}
    {{ return(fitting) }}
{% endmacro %}

{% macro _own_columns(relation) %}
    {%- set found = {} -%}
    {%- for column in adapter.get_columns_in_relation(relation) if not column.name.startswith("_") -%}
        {%- do found.update({column.name: adapter.quote(column.name)}) -%}
    {%- endfor -%}
    {{ return(found) }}
{% endmacro %}
