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

    {{ _scd2_versions(model, key, valid_from, valid_to, expire) }}

)

select *
from versions
where next_valid_from > ended

{% endtest %}
