{#-
    Each version has a start, and its end is after its start.

    data_tests:
      - scd2_in_order

    args:
        expire: `day_before` if the end of a version still belongs to it
-#}
{% test scd2_in_order(
    model, valid_from='dbt_valid_from', valid_to='dbt_valid_to', expire='next_start'
) %}

select *
from {{ model }}
where {{ valid_from }} is null
    or {{ _scd2_next_start(valid_to, expire) }} <= {{ valid_from }}

{% endtest %}
