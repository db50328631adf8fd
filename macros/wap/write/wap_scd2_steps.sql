{#-
    Change events as steps of their keys, see wap_scd2_versions.

    args:
        source: SQL of rows as the model selects them
-#}
{% macro wap_scd2_events(history, source) -%}
    {%- set said = adapter.wap_quoted(history["payload"] | sort)
        + (["sort_array(_absent) as _absent"] if history["partial"] else []) -%}
    select
        {{ adapter.wap_quoted(history["keys"] + history["payload"]) | join(", ") }},
        {%- if history["partial"] %}
        _absent,
        {%- endif %}
        _op,
        {#- All deletes of one sequence say the same, whatever row they show. #}
        if(_op = 'delete', '', sha2(to_json(
            struct({{ said | join(", ") or "1 as one" }})
        ), 256)) as _said,
        _op = 'delete' as _clears,
        {{ _wap_scd2_place("_sequence", "_file_path", "_row", "_part") }} as _at,
        {{ _wap_scd2_time(history["grain"], "_event_time") }} as _time,
        {{ "if(_load = 'full', _load_date, null)" if history["loads"] else "cast(null as date)" }}
            as _held_on,
        cast(null as {{ history["grain"] }}) as _head_from,
        cast(null as int) as _head_version,
        cast(null as string) as _head_flag
    from ({{ source }})
    where _op not in ('truncate', 'full_load')
{%- endmacro %}

{#-
    Current versions as the first steps of their keys; the events that follow have a greater
    sequence and take effect later.

    args:
        source: SQL of current rows of the history
-#}
{% macro wap_scd2_heads(history, source) -%}
    select
        {{ adapter.wap_quoted(history["keys"] + history["payload"]) | join(", ") }},
        {%- if history["partial"] %}
        cast(null as array<string>) as _absent,
        {%- endif %}
        'head' as _op,
        '' as _said,
        change_flag = 'D' as _clears,
        {{ _wap_scd2_place("_sequence", "''", "0", "0") }} as _at,
        _event_time as _time,
        cast(null as date) as _held_on,
        valid_from as _head_from,
        version as _head_version,
        change_flag as _head_flag
    from ({{ source }})
{%- endmacro %}

{#-
    What deletes more than one key: truncates, and full loads, which delete what they do not hold.
    The files of one load date are one load.

    returns: SQL of one row: `resets`, array of (at, time, load_date) in their order
-#}
{% macro wap_scd2_resets(history, source) -%}
    select sort_array(collect_list(struct(at, time, load_date))) as resets
    from (
        select
            {{ _wap_scd2_place("_sequence", "_file_path", "_row", "_part") }} as at,
            {{ _wap_scd2_time(history["grain"], "_event_time") }} as time,
            cast(null as date) as load_date
        from (
            select
                *,
                row_number() over (
                    partition by _sequence order by _file_path, _row desc, _part desc
                ) as _copy
            from ({{ source }})
            where _op = 'truncate'
        )
        where _copy = 1
        {%- if history["loads"] %}
        union all
        select
            {{ _wap_scd2_place("min(_sequence)", "''", "0", "0") }} as at,
            {{ _wap_scd2_time(history["grain"], "to_timestamp(_load_date || 'T00:00:00Z')") }}
                as time,
            _load_date as load_date
        from ({{ source }})
        where _op = 'full_load' and _sequence is not null
        group by _load_date
        {%- endif %}
    )
{%- endmacro %}

{% macro _wap_scd2_place(sequence, file_path, row, part) -%}
    named_struct(
        'sequence', {{ sequence }},
        'file_path', {{ file_path }},
        'row', cast({{ row }} as bigint),
        'part', cast({{ part }} as int)
    )
{%- endmacro %}

{#- A time at the history's grain; days are those of UTC, whatever the session's zone. -#}
{% macro _wap_scd2_time(grain, expression) -%}
    {%- if grain == "date" -%}
    cast(to_utc_timestamp({{ expression }}, current_timezone()) as date)
    {%- else -%}
    {{ expression }}
    {%- endif -%}
{%- endmacro %}

{#-
    The whole history from the whole log. A version that the published table has keeps its number.

    args:
        published: renders to the published state of the table; None if there is none
-#}
{% macro wap_scd2_whole(history, published=none) -%}
    {%- set met = wap_scd2_met(history) -%}
    {{ _wap_scd2_numbered(
        dict(history, partial=met["partial"]), published,
        wap_scd2_resets(history, history["sql"]) if met["resets"] else none) }}
{%- endmacro %}

{#- What has the columns of the history, and no rows. -#}
{% macro wap_scd2_shape(history) -%}
    {%- set nothing = "select * from (" ~ history["sql"] ~ ") where false" -%}
    {{ _wap_scd2_numbered(dict(history, sql=nothing, partial=false)) }}
{%- endmacro %}

{#- Whether a log has what few logs have: resets, and events that leave columns out. -#}
{% macro wap_scd2_met(history) %}
    {%- set found = _wap_scd2_one(
        "select count_if(_op in ('truncate', 'full_load')), "
        ~ ("count(_absent)" if history["partial"] else "0")
        ~ " from (" ~ history["sql"] ~ ")") -%}
    {{ return({"resets": found[0] > 0, "partial": found[1] > 0}) }}
{% endmacro %}

{% macro _wap_scd2_numbered(history, published=none, resets=none) -%}
    {%- set names = adapter.wap_quoted(wap_scd2_columns(history)) -%}
    {%- set surrogate = history["surrogate_key"] -%}
    {%- set versions = wap_scd2_versions(
        history, wap_scd2_events(history, history["sql"]), resets) -%}
    {%- set batch = "(select max(_batch) from (" ~ history["sql"] ~ "))" -%}
    {%- if not surrogate -%}
    select {{ names | reject("equalto", "`_batch`") | join(", ") }}, {{ batch }} as _batch
    from ({{ versions }})
    {%- else -%}
    {%- set kept = published and _wap_scd2_has(surrogate) -%}
    {%- set number = adapter.quote(surrogate) -%}
    select
        {%- for name in names %}
        {%- if name == number %}
        cast(
            {%- if kept %}
            coalesce(known.{{ number }}, (select max({{ number }}) from {{ published }}), 0)
            + if(known.{{ number }} is null, row_number() over (
                partition by known.{{ number }} is null
            {%- else %}
            row_number() over (
            {%- endif %}
                order by versions.valid_from, {{ _wap_scd2_of("versions", history["keys"]) }}
            ) {%- if kept %}, 0){% endif %} as bigint
        ) as {{ number }},
        {%- elif name == "`_batch`" %}
        {{ batch }} as _batch
        {%- else %}
        versions.{{ name }},
        {%- endif %}
        {%- endfor %}
    from ({{ versions }}) as versions
    {%- if kept %}
    left join {{ published }} as known
        on {{ _wap_scd2_same("versions", "known", history["keys"] + ["valid_from"]) }}
    {%- endif %}
    {%- endif %}
{%- endmacro %}

{#- Columns of the history, in order. -#}
{% macro wap_scd2_columns(history) %}
    {%- set first = [history["surrogate_key"]] if history["surrogate_key"] else [] -%}
    {{ return(first + history["keys"] + history["payload"] + _wap_scd2_made()
        + _wap_scd2_kept()) }}
{% endmacro %}

{% macro _wap_scd2_has(column) %}
    {{ return(column in adapter.get_columns_in_relation(this) | map(attribute="name") | list) }}
{% endmacro %}

{% macro _wap_scd2_of(table, columns) -%}
    {%- for column in columns -%}
    {{ table }}.{{ adapter.quote(column) }}{{ ", " if not loop.last }}
    {%- endfor -%}
{%- endmacro %}

{% macro _wap_scd2_same(one, other, columns) -%}
    {%- for column in columns -%}
    {{ one }}.{{ adapter.quote(column) }} = {{ other }}.{{ adapter.quote(column) }}
    {{- " and " if not loop.last }}
    {%- endfor -%}
{%- endmacro %}
