{#-
    The candidate has not lost more than a part of the rows that readers of main have now. Passes
    when nothing is published yet.

    max_drop     the part that may go, from 0 (none) to 1 (all): 0.002 is one row in five hundred
    accepted     load dates whose drop was looked into and found right; the list is the record of
                 that, in version control (a drop of today:
                 dbt run-operation wap_accept)
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
        "row_count_drop: max_drop is '" ~ max_drop ~ "'; it is a number from 0 to 1"
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
        ', or for good by ',
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
