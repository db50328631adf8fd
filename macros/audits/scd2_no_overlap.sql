{#-
    No two versions of a key are valid at the same time. Gaps pass, because a key may be deleted and
    inserted again; see scd2_no_gap.

    data_tests:
      - scd2_no_overlap:
          arguments: {key: product_id}

    args:
        key: the key column, or a list
        expire: `day_before` if the end of a version still belongs to it
-#}
{% test scd2_no_overlap(
    model, key, valid_from='dbt_valid_from', valid_to='dbt_valid_to', expire='next_start'
) %}

with versions as (

    {{ _scd2_versions(model, key, valid_from, valid_to, expire) }}

)

select *
from versions
where next_valid_from is not null
    and (ended is null or next_valid_from < ended)

{% endtest %}
