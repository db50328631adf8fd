{#-
    Versions from the steps of keys, each key's steps in their order.

    A step is an event, or a version that is already known (`_head_from` is set) and that events
    follow. Rules, in this order:
      - copies of one message count once, where they stand in the first file that brought them
      - a truncate, or a full load that does not hold the key, deletes it
      - columns that a partial event leaves out keep their value
      - a step that is later in the order and earlier in time happened at its predecessor's time
      - of several steps at one time the last counts
      - a step that changes no tracked column makes no version

    args:
        history: see wap_scd2_settings
        steps: SQL, see wap_scd2_events and wap_scd2_heads
        resets: SQL of one row with the array `resets`, see wap_scd2_resets; None for none
    returns: SQL of keys, payload, the columns made, `_sequence` and `_event_time`
-#}
{% macro wap_scd2_versions(history, steps, resets=none) -%}
    {%- set key = adapter.wap_quoted(history["keys"]) | join(", ") -%}
    {%- set payload = adapter.wap_quoted(history["payload"]) -%}
    with told as (

        {{ steps }}

    ),

    told_once as (

        select *
        from (
            select
                *,
                row_number() over (
                    partition by {{ key }}, _at.sequence, _op, _said
                    order by _at.file_path, _at.row desc, _at.part desc
                ) as _copy
            {#- By key, so that all windows below find the rows where they are. #}
            from (select * from told distribute by {{ key }})
        )
        where _copy = 1

    ),

    {% set source = "told_once" -%}
    {%- if resets is not none -%}
    {{ _wap_scd2_cleared(history, source, resets) }},

    {% set source = "cleared" -%}
    {%- endif -%}
    {%- if history["partial"] -%}
    {{ _wap_scd2_filled(history, source) }},

    {% set source = "filled" -%}
    {%- endif -%}
    judged as (

        select
            *,
            {{ wap_scd2_hash(history["tracked"]) }} as row_hash,
            _clears
            {%- if history["delete_when"] %} or coalesce(({{ history["delete_when"] }}), false)
            {%- endif %} as _gone
        from {{ source }}

    ),

    timed as (

        select
            *,
            if(_gone, null, row_hash) as _state,
            coalesce(
                _head_from,
                max(_time) over (
                    partition by {{ key }} order by _at
                    rows between unbounded preceding and current row
                )
            ) as _from,
            max(_time) over (partition by {{ key }}) as _last_time,
            max(_at.sequence) over (partition by {{ key }}) as _last_sequence
        from judged

    ),

    settled as (

        select *
        from (
            select
                *,
                lead(_from) over (partition by {{ key }} order by _at) as _next_from
            from timed
        )
        where _next_from is null or _next_from > _from

    ),

    changed as (

        select *
        from (
            select
                *,
                lag(_state) over (partition by {{ key }} order by _at) as _state_before
            from settled
        )
        where _head_from is not null or not (_state <=> _state_before)

    ),

    versions as (

        select
            *,
            {%- if history["deletes"] == "record" %}
            last_value(
                if(_clears and _head_from is null, null, struct({{ (payload + ["row_hash"]) | join(", ") }})), true
            ) over (
                partition by {{ key }} order by _at
                rows between unbounded preceding and current row
            ) as _image,
            {%- endif %}
            lead(_from) over (partition by {{ key }} order by _at) as _until,
            lag(_state) over (partition by {{ key }} order by _at) as _prior,
            max(_head_version) over (partition by {{ key }}) as _first_version,
            count_if({{ "not _gone" if history["deletes"] == "close" else "true" }}) over (
                partition by {{ key }} order by _at
                rows between unbounded preceding and current row
            ) as _number
        from changed

    )

    select
        {{ key }},
        {%- for column in payload + ["row_hash"] if history["deletes"] == "record" %}
        _image.{{ column }} as {{ column }},
        {%- endfor %}
        {%- for column in payload + ["row_hash"] if history["deletes"] == "close" %}
        {{ column }},
        {%- endfor %}
        _from as valid_from,
        coalesce(
            {{ "date_sub(_until, 1)" if history["expire"] == "day_before" else "_until" }},
            {{ history["open_end"] }}
        ) as valid_to,
        _until is null as is_current,
        cast(coalesce(_first_version, 1) + _number - 1 as int) as version,
        case
            when _head_flag is not null then _head_flag
            when _gone then 'D'
            when _prior is null then 'I'
            else 'U'
        end as change_flag,
        if(_until is null, _last_sequence, null) as _sequence,
        if(_until is null, _last_time, null) as _event_time
    from versions
    {%- if history["deletes"] == "close" %}
    where not _gone
    {%- endif %}
{%- endmacro %}

{#-
    The tracked columns as one value: null-safe, free of collisions, as each value keeps its name,
    and the same after a column that is NULL was added.
-#}
{% macro wap_scd2_hash(columns) -%}
    sha2(to_json(
        struct({{ adapter.wap_quoted(columns | sort) | join(", ") or "1 as one" }}),
        map('ignoreNullFields', 'true')
    ), 256)
{%- endmacro %}

{#- Steps with a deletion after each step that was the last before a reset. -#}
{% macro _wap_scd2_cleared(history, source, resets) -%}
    {%- set key = adapter.wap_quoted(history["keys"]) | join(", ") -%}
    {%- set carried = adapter.wap_quoted(history["keys"] + history["payload"])
        + (["_absent"] if history["partial"] else []) -%}
    {%- set head = ["_head_from", "_head_version", "_head_flag"] -%}
    followed as (

        select
            *,
            lead(_at) over (partition by {{ key }} order by _at) as _next_at,
            lead(_time) over (partition by {{ key }} order by _at) as _next_time,
            collect_set(_held_on) over (partition by {{ key }}) as _held
        from {{ source }}

    ),

    met as (

        {#- The first reset between a step and the next; behind it there is nothing to delete. #}
        select
            followed.*,
            get(filter(
                found.resets,
                one -> one.at > followed._at
                and (followed._next_at is null or one.at < followed._next_at)
            ), 0) as _reset
        from followed
        cross join ({{ resets }}) as found

    ),

    cleared as (

        select
            {{ carried | join(", ") }},
            {%- for column in head %}
            if(_is_reset, null, {{ column }}) as {{ column }},
            {%- endfor %}
            _is_reset or _clears as _clears,
            if(_is_reset, _reset.at, _at) as _at,
            case
                when not _is_reset then _time
                {#- A load that holds the key replaces its row, at the time of the new one. #}
                when _next_at is not null and array_contains(_held, _reset.load_date)
                    then _next_time
                else _reset.time
            end as _time
        from met
        lateral view explode(
            if(_reset is null or _clears, array(false), array(false, true))
        ) as _is_reset

    )
{%- endmacro %}

{#- Steps with each column as last stated since the key was deleted. -#}
{% macro _wap_scd2_filled(history, source) -%}
    {%- set key = adapter.wap_quoted(history["keys"]) | join(", ") -%}
    lived as (

        select
            *,
            count_if(_clears) over (
                partition by {{ key }} order by _at
                rows between unbounded preceding and current row
            ) as _life
        from {{ source }}

    ),

    filled as (

        select
            {{ key }},
            {%- for column in history["payload"] %}
            {%- set quoted = adapter.quote(column) %}
            (last_value(
                {#- A version that is known states all, a recorded deletion too. #}
                if(
                    _head_from is null and (
                        _clears
                        or coalesce(array_contains(_absent, {{ wap_string(column) }}), false)
                    ),
                    null, struct({{ quoted }} as stated)
                ), true
            ) over (
                partition by {{ key }}, _life order by _at
                rows between unbounded preceding and current row
            )).stated as {{ quoted }},
            {%- endfor %}
            _head_from, _head_version, _head_flag, _clears, _at, _time
        from lived

    )
{%- endmacro %}
