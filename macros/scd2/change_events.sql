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
    {%- if widen and execute and adapter.wap.is_building() and not log.is_cte -%}
        {%- set table = none if should_full_refresh() else load_relation(this) -%}
        {%- set columns = adapter.wap.widened_events(
            model, columns, table, log, var("scd2_restate", none)) -%}
    {%- endif -%}
    {#- A column is left out of an event if one that it is made of is. -#}
    {%- set absent = [] -%}
    select
        {%- for name, expression in columns.items() %}
        {#- A plain cast of the log's text fails where it would round, as it does on other values
            that are not of the type. #}
        {%- set cast = adapter.wap.plain_cast(expression) %}
        {{ adapter.wap.checked_cast(cast[0], cast[1], name) if cast else expression }} as {{ adapter.quote(name) }},
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

{% macro _own_columns(relation) %}
    {%- set found = {} -%}
    {%- for column in adapter.get_columns_in_relation(relation) if not column.name.startswith("_") -%}
        {%- do found.update({column.name: adapter.quote(column.name)}) -%}
    {%- endfor -%}
    {{ return(found) }}
{% endmacro %}
