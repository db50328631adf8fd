{#-
    The events of a raw log for a model with `materialized='scd2'`: its columns, and the columns of
    the log.

        {{ config(materialized='scd2', unique_key='customer_id') }}
        {{ change_events(ref('raw_shop__customers'), columns={
            'customer_id': 'cast(id as bigint)', 'name': 'name'}) }}

    args:
        log: the raw table
        columns: SQL by name; by default all columns of the log unchanged, including added ones
        partial: whether rows may omit columns; False saves time if none does
        widen: whether a column that is a plain `cast(column as type)` gets a wider type when values
            need it, as with `exact_cast` in staging
-#}
{% macro change_events(log, columns=none, partial=true, widen=true) -%}
    {%- set columns = columns or _own_columns(log) -%}
    {#- Only a build queries the data; `dbt compile` and unit tests (inputs are CTEs) do not. -#}
    {%- if widen and execute and adapter.wap.is_building() and not log.is_cte -%}
        {%- set table = none if should_full_refresh() else load_relation(this) -%}
        {%- set columns = adapter.wap.widened_events(
            model, columns, table, log, var("scd2_restate", none)) -%}
    {%- endif -%}
    {#- An event omits a column if it omits a column of the log that the column is made of. -#}
    {%- set absent = [] -%}
    select
        {%- for name, expression in columns.items() %}
        {#- A plain cast of the log's text fails on a value that is invalid or would be rounded. #}
        {%- set cast = adapter.wap.plain_cast(expression) %}
        {{ adapter.wap.checked_cast(cast[0], cast[1], name) if cast else expression }} as {{ adapter.quote(name) }},
        {%- do absent.append(adapter.wap.absent_column(name, expression)) %}
        {%- endfor %}
        {%- if partial %}
        if(_absent is null, null, array_compact(array({{ absent | join(", ") }}))) as _absent,
        {%- endif %}
        {#- The row of a full load's file deletes all keys that the load does not contain. #}
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
