{#-
    Rows in = rows kept + superseded + quarantined. Each row of a raw table is in the state, or was
    superseded by an event of its key that is in the state, or is in quarantine; state and
    quarantine have no other rows. Compares positions in files, not counts.

    raw    the raw table
    state  the `cdc_` table, which has the origin of each row
    key    the key columns; by default those of the landing entry

    On the quarantine model:
    data_tests:
      - rows_add_up:
          arguments: {raw: ref('raw_crm__customers'), state: ref('cdc_crm__customers')}
-#}
{% test rows_add_up(model, raw, state, key=none) %}

{%- set names = key if key is not none else landing_key(raw) -%}
{%- set place = ['_sequence', '_file_path', '_row', '_part'] -%}

with log as (

    select * from {{ raw }} where _kind = 'row'

),

state as (

    select * from {{ state }}

),

quarantined as (

    select file_path, line from {{ model }}

),

-- A repeated message counts as kept: the state has the file of its first copy.
lost as (

    select log._file_path, log._row, 'a row that is neither kept nor superseded' as problem
    from log
    left anti join state
        on {% for name in names %}log.{{ adapter.quote(name) }} = state.{{ adapter.quote(name) }} and {% endfor %}
            log._sequence <= state._sequence
    where log._op <> 'truncate'

),

lost_bad as (

    select bad._file_path, bad._row, 'a bad row that is not in quarantine' as problem
    from ({{ open_bad_rows(raw) }}) as bad
    left anti join quarantined
        on bad._file_path = quarantined.file_path and bad._row = quarantined.line

),

invented as (

    select state._file_path, state._row, 'a row of the state that was never read' as problem
    from state
    left anti join log
        on {% for name in place %}state.{{ name }} = log.{{ name }}{{ ' and ' if not loop.last }}{% endfor %}

),

invented_bad as (

    select quarantined.file_path, quarantined.line, 'quarantined, but not bad' as problem
    from quarantined
    left anti join ({{ open_bad_rows(raw) }}) as bad
        on quarantined.file_path = bad._file_path and quarantined.line = bad._row

),

twice as (

    select log._file_path, log._row, 'a row that is quarantined and used' as problem
    from log
    left semi join quarantined
        on log._file_path = quarantined.file_path and log._row = quarantined.line

)

select * from lost
union all
select * from lost_bad
union all
select * from invented
union all
select * from invented_bad
union all
select * from twice

{% endtest %}
