{#-
    The newest load of a raw table has at most as many bad rows as a threshold. Fails with the bad
    rows; their `_error` has the reason. Rows that a replay has corrected do not count.

    threshold  a number of rows, or a share of the load's rows below 1; by default the `threshold`
               of the landing entry, or 0

    data_tests:
      - quarantine_below
      - quarantine_below:
          arguments: {threshold: 0.01}
-#}
{% test quarantine_below(model, threshold=none) %}

{%- set limit = threshold if threshold is not none else landing_entry(model).get('threshold', 0) -%}
{%- if limit is not number or limit < 0 or (limit > 1 and limit is not integer) -%}
    {% do exceptions.raise_compiler_error(
        "quarantine_below: threshold is '" ~ limit
        ~ "'; it must be a number of rows, or a share of them below 1"
    ) %}
{%- endif -%}

with files as (

    select
        _batch,
        sum(_file_rows) as row_count
    from {{ model }}
    where _kind = 'file'
    group by _batch

),

newest as (

    select
        max(_batch) as _batch,
        max_by(row_count, _batch) as row_count
    from files

),

bad as (

    select
        bad.*,
        newest.row_count as rows_in_load,
        count(*) over () as bad_rows_in_load
    from ({{ open_bad_rows(model) }}) as bad
    inner join newest on bad._batch = newest._batch

)

select *
from bad
where bad_rows_in_load > {{ limit }}{{ ' * rows_in_load' if 0 < limit < 1 }}

{% endtest %}
