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
-#}
{% macro change_events(log, columns=none, partial=true) -%}
    {%- set columns = columns or _own_columns(log) -%}
    {#- A column is left out of an event if one that it is made of is. -#}
    {%- set absent = [] -%}
    select
        {%- for name, expression in columns.items() %}
        {{ expression }} as {{ adapter.quote(name) }},
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
