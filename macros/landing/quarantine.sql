{#-
    The unusable rows of a raw table: the whole query of a `quarantine_` model. It does not contain
    rows that a replay has corrected.

    raw  the raw table's relation

    quarantine_crm__customers.sql:
        {{ quarantine(ref('raw_crm__customers')) }}
-#}
{% macro quarantine(raw) %}
{%- set runs = _quarantine_runs() -%}

with bad as (

    {{ open_bad_rows(raw) }}

),

-- A row that fails again in a replay keeps its first run.
first_seen as (

    select
        _file_path,
        _row,
        min_by(_run, _batch) as run_id
    from {{ raw }}
    where _kind = 'bad'
    group by _file_path, _row

),

final as (

    select
        bad._file_path as file_path,
        bad._row as line,
        bad._load_date as load_date,

        bad._error as reason,
        bad._raw as raw_text,

        first_seen.run_id,
        {% if runs -%}
        coalesce(runs.started_at, timestamp '{{ run_started_at.strftime("%Y-%m-%d %H:%M:%S") }}Z')
        {%- else -%}
        timestamp '{{ run_started_at.strftime("%Y-%m-%d %H:%M:%S") }}Z'
        {%- endif %} as first_seen_at
    from bad
    inner join first_seen
        on bad._file_path = first_seen._file_path and bad._row = first_seen._row
    {%- if runs %}
    -- A run may have several rows, such as that of a check before its first table.
    left join (
        select
            run_id,
            min(started_at) as started_at
        from {{ runs }}
        group by run_id
    ) as runs on first_seen.run_id = runs.run_id
    {%- endif %}

)

select * from final
{% endmacro %}

{#- The ledger's table of runs, for their times; none before the end of the first run. -#}
{% macro _quarantine_runs() %}
    {%- if execute -%}
        {{ return(adapter.get_relation(database=none, schema='wap_ledger', identifier='runs')) }}
    {%- endif -%}
    {{ return(none) }}
{% endmacro %}
