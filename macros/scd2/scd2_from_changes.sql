{#-
    A history from the snapshots of a table of latest states: the versions are computed from
    Iceberg's changelog, without a table of their own. For a view or an analysis. docs/history.md
    has the limits: the history begins with the rows of the oldest kept snapshot, and the table must
    be written copy-on-write (Iceberg's default).

        {{ config(materialized='view') }}
        {{ scd2_from_changes(ref('stg_shop__customers'), 'customer_id', ['name', 'city']) }}

    args:
        state: a table with one row per key
        key: the key column, or a list
        columns: the columns whose change starts a version
        valid_from: column of the table with the start of a row's state; by default, and for
            deletions, the time of the commit
-#}
{% macro scd2_from_changes(state, key, columns, valid_from=none) -%}
    {%- set keys = ([key] if key is string else key) | join(", ") -%}
    with changes as (

        select
            {{ keys }},
            {{ columns | join(", ") }},
            {%- if valid_from %}
            {{ valid_from }} as _from,
            {%- endif %}
            changes._change_type = 'DELETE' as _deleted,
            changes._change_ordinal as _ordinal,
            snapshots.committed_at as _committed_at
        from {{ state }}.changes as changes
        inner join {{ state }}.snapshots as snapshots
            {#- Without coalesce, Spark pushes down a filter on a column that the files lack. #}
            on coalesce(changes._commit_snapshot_id, 0) = snapshots.snapshot_id

        union all

        {#- For the keys that no kept snapshot has changed. #}
        select
            {{ keys }},
            {{ columns | join(", ") }},
            {%- if valid_from %}
            {{ valid_from }} as _from,
            {%- endif %}
            false as _deleted,
            cast(null as int) as _ordinal,
            cast(null as timestamp) as _committed_at
        from {{ state }}

    ),

    numbered as (

        select
            *,
            min(_ordinal) over (partition by {{ keys }}) as _first,
            (
                select min(snapshots.committed_at)
                from {{ state }}.snapshots as snapshots
                inner join {{ state }}.history as history
                    on snapshots.snapshot_id = history.snapshot_id
                where history.is_current_ancestor
            ) as _since
        from changes

    ),

    {#-
        The oldest kept snapshot has, of each key, the row that the first later change deletes or
        replaces, or the present row.
    #}
    events as (

        select
            {{ keys }},
            {{ columns | join(", ") }},
            _deleted and not _oldest as _gone,
            if(_oldest, -1, _ordinal) as _change_ordinal,
            if(
                _deleted and not _oldest, _committed_at,
                {{ "_from" if valid_from else "if(_oldest, _since, _committed_at)" }}
            ) as _at
        from (
            select
                *,
                explode(
                    case
                        when _first is null then array(true)
                        when _deleted and _ordinal = _first and _committed_at > _since
                            then array(true, false)
                        else array(false)
                    end
                ) as _oldest
            from numbered
            where _first is null or _ordinal is not null
        )

    ),

    {#- A rewritten file has its unchanged rows in the changelog too, as deleted and inserted. #}
    states as (

        select
            *,
            {#- By default, times in JSON have milliseconds. #}
            if(_gone, null, to_json(
                struct({{ columns | join(", ") }}),
                map(
                    'timestampFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSSXXX',
                    'timestampNTZFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS'
                )
            )) as _state
        from (
            select
                *,
                row_number() over (
                    partition by {{ keys }}, _change_ordinal order by _gone
                ) as _rank
            from events
        )
        where _rank = 1

    ),

    changed as (

        select *
        from (
            select
                *,
                lag(_state) over (partition by {{ keys }} order by _change_ordinal) as _before
            from states
        )
        where not (_state <=> _before)

    ),

    versions as (

        select
            {{ keys }},
            {{ columns | join(", ") }},
            _gone,
            _at as valid_from,
            lead(_at) over (partition by {{ keys }} order by _change_ordinal) as valid_to
        from changed

    )

    select
        {{ keys }},
        {{ columns | join(", ") }},
        valid_from,
        valid_to,
        valid_to is null as is_current,
        cast(row_number() over (partition by {{ keys }} order by valid_from) as int) as version
    from versions
    where not _gone
{%- endmacro %}
