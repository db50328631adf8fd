{#-
    Each version begins, and ends after it began.

    data_tests:
      - scd2_in_order
-#}
{% test scd2_in_order(model, valid_from='dbt_valid_from', valid_to='dbt_valid_to') %}

select *
from {{ model }}
where {{ valid_from }} is null or {{ valid_to }} <= {{ valid_from }}

{% endtest %}
