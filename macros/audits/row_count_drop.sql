{#-
    The candidate has not lost more than a share of the published rows. Passes while nothing is
    published.

    max_drop     the share of rows that may be lost, from 0 (none) to 1 (all): 0.002 is one in 500
    accepted     load dates whose drop somebody has checked; version control has the history of this
                 list. Accept a single new drop with `dbt run-operation wap_accept`.
    date_column  the column whose greatest value is the candidate's load date

    data_tests:
      - row_count_drop:
          arguments:
            max_drop: 0.002
            accepted: ["2022-09-14"]
-#}
{% test row_count_drop(model, max_drop, accepted=[], date_column='as_of') %}

{%- if max_drop is not number or not 0 <= max_drop <= 1 -%}
    {% do exceptions.raise_compiler_error(
        "row_count_drop: max_drop is '" ~ max_drop ~ "'; it must be a number from 0 to 1"
    ) %}
{%- endif -%}

{%- set published = wap_published(model) if execute -%}

with candidate as (

    select
        count(*) as row_count,
        cast(max({{ date_column }}) as date) as load_date
    from {{ model }}

),

published as (

    select count(*) as row_count
    from {{ published or model }}

)

select
    published.row_count as published_rows,
    candidate.row_count as candidate_rows,
    candidate.load_date,
    concat_ws(
        ', or permanently by ',
        'dbt run-operation wap_accept',
        'accepted: ["' || cast(candidate.load_date as string) || '"] of row_count_drop'
    ) as accept_with
from candidate
cross join published
where candidate.row_count < published.row_count * (1 - {{ max_drop }})
{%- for date in accepted %}
    and not (candidate.load_date <=> date '{{ date }}')
{%- endfor %}

{% endtest %}
