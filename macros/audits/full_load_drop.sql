{#-
    No full load that the published raw table does not have is empty, or has lost more than a share
    of the rows of the previous full load. It rejects a truncated or header-only file before other
    models read it; use `row_count_drop` on those models.

    max_drop  the share of rows that may be lost, from 0 (none) to 1 (all, but no empty file)
    accepted  load dates whose drop somebody has checked; version control has the history of this
              list. Accept a single new drop with `dbt run-operation wap_accept`.

    data_tests:
      - full_load_drop:
          arguments:
            max_drop: 0.2
            accepted: ["2022-09-14"]
-#}
{% test full_load_drop(model, max_drop, accepted=[]) %}

{%- if max_drop is not number or not 0 <= max_drop <= 1 -%}
    {% do exceptions.raise_compiler_error(
        "full_load_drop: max_drop is '" ~ max_drop ~ "'; it must be a number from 0 to 1"
    ) %}
{%- endif -%}

with loads as (

    select
        _load_date,
        sum(_file_rows) as row_count,
        max(_batch) as _batch
    from {{ model }}
    -- A second delivery of the same bytes is not read.
    where _kind = 'file' and _load = 'full' and _error is null
    group by _load_date

),

compared as (

    select
        *,
        lag(row_count) over (order by _load_date) as rows_before
    from loads

)

select
    _load_date,
    row_count,
    rows_before,
    'dbt run-operation wap_accept, or permanently by accepted: ["'
    || cast(_load_date as string) || '"] of full_load_drop' as accept_with
from compared
where {{ unpublished_loads(model) }}
    and (row_count = 0 or row_count < rows_before * (1 - {{ max_drop }}))
{%- for date in accepted %}
    and _load_date <> date '{{ date }}'
{%- endfor %}

{% endtest %}
