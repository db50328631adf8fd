{#-
    Each key has at most one current version.

    data_tests:
      - scd2_one_current:
          arguments: {key: product_id}
-#}
{% test scd2_one_current(model, key, valid_to='dbt_valid_to') %}

select
    {{ key }},
    count(*) as current_versions
from {{ model }}
where {{ valid_to }} is null
group by {{ key }}
having count(*) > 1

{% endtest %}
