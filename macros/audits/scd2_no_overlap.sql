{#-
    No two versions of a key are valid at one time. A gap is no fault: a key may be deleted and
    come back.

    data_tests:
      - scd2_no_overlap:
          arguments: {key: product_id}
-#}
{% test scd2_no_overlap(model, key, valid_from='dbt_valid_from', valid_to='dbt_valid_to') %}

with versions as (

    select
        {{ key }},
        {{ valid_from }},
        {{ valid_to }},
        lead({{ valid_from }}) over (
            partition by {{ key }}
            order by {{ valid_from }}, {{ valid_to }} nulls last
        ) as next_valid_from
    from {{ model }}

)

select *
from versions
where next_valid_from is not null
    and ({{ valid_to }} is null or next_valid_from < {{ valid_to }})

{% endtest %}
