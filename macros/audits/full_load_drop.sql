{#-
    No full load among the files that a raw table has just read has lost more than a part of the
    rows that the full load before it had, and none is empty. On a raw table it holds a truncated or
    header-only file before anything is made of it; `row_count_drop` looks at what was made of it.

    max_drop  the part that may go, from 0 (none) to 1 (all but an empty file)
    accepted  load dates whose drop was looked into and found right; the list is the record of
              that, in version control (a drop of today:
              dbt run-operation wap_accept)

    data_tests:
      - full_load_drop:
          arguments:
            max_drop: 0.2
            accepted: ["2022-09-14"]
-#}
{% test full_load_drop(model, max_drop, accepted=[]) %}

{%- if max_drop is not number or not 0 <= max_drop <= 1 -%}
    {% do exceptions.raise_compiler_error(
        "full_load_drop: max_drop is '" ~ max_drop ~ "'; it is a number from 0 to 1"
    ) %}
{%- endif -%}

with loads as (

    select
        _load_date,
        sum(_file_rows) as row_count,
        max(_batch) as _batch
    from {{ model }}
    -- A second delivery of the same bytes was not read.
    where _kind = 'file' and _load = 'full' and _error is null
    group by _load_date

),

compared as (

    select
        *,
        lag(row_count) over (order by _load_date) as rows_before,
        max(_batch) over () as newest
    from loads

)

select
    _load_date,
    row_count,
    rows_before,
    'dbt run-operation wap_accept, or for good by accepted: ["'
    || cast(_load_date as string) || '"] of full_load_drop' as accept_with
from compared
where _batch = newest
    and (row_count = 0 or row_count < rows_before * (1 - {{ max_drop }}))
{%- for date in accepted %}
    and _load_date <> date '{{ date }}'
{%- endfor %}

{% endtest %}
