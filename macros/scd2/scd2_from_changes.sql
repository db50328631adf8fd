{#-
    A history from the snapshots of a table of latest states: the versions are computed from
    Iceberg's changelog, without a table of their own. For a view or an analysis. docs/history.md
    has the limits: the history begins at the oldest snapshot that has not expired, and the table
    must be written copy-on-write (Iceberg's default).

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
            changes._change_type = 'DELETE' as _gone,
            changes._change_ordinal,
            {%- if valid_from %}
            if(changes._change_type = 'DELETE', snapshots.committed_at, {{ valid_from }}) as _at
            {%- else %}
            snapshots.committed_at as _at
            {%- endif %}
        from {{ state }}.changes as changes
        inner join {{ state }}.snapshots as snapshots
            {#- Without coalesce, Spark pushes down a filter on a column that the files lack. #}
            on coalesce(changes._commit_snapshot_id, 0) = snapshots.snapshot_id

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
            from changes
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
