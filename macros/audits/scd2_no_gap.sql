{#-
    A version ends when the next version of its key begins. For histories whose keys are never
    deleted, or whose deletions are versions (`deletes: record`).

    data_tests:
      - scd2_no_gap:
          arguments: {key: product_id}

    args:
        key: the key column, or a list
        expire: `day_before` if the end of a version still belongs to it
-#}
{% test scd2_no_gap(
    model, key, valid_from='dbt_valid_from', valid_to='dbt_valid_to', expire='next_start'
) %}

with versions as (

    select
        {{ _scd2_keys(key) }},
        {{ valid_from }},
        {{ _scd2_next_start(valid_to, expire) }} as ended,
        lead({{ valid_from }}) over (
            partition by {{ _scd2_keys(key) }}
            order by {{ valid_from }}, {{ valid_to }} nulls last
        ) as next_valid_from
    from {{ model }}

)

select *
from versions
where next_valid_from > ended

{% endtest %}
