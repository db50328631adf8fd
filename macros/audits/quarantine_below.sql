{#-
    No load that the published raw table does not have has more bad rows than a threshold. Fails
    with the bad rows; their `_error` has the reason. Rows that a replay has corrected do not count.

    threshold  a number of rows, or a share of each load's rows below 1; by default the `threshold`
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

with loads as (

    select
        _batch,
        sum(_file_rows) as row_count
    from {{ model }}
    where _kind = 'file' and {{ unpublished_loads(model) }}
    group by _batch

),

bad as (

    select
        bad.*,
        loads.row_count as rows_in_load,
        count(*) over (partition by bad._batch) as bad_rows_in_load
    from ({{ open_bad_rows(model) }}) as bad
    inner join loads on bad._batch = loads._batch

)

select *
from bad
where bad_rows_in_load > {{ limit }}{{ ' * rows_in_load' if 0 < limit < 1 }}

{% endtest %}
