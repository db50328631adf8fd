{#-
    The model has rows. Rejects an empty source file.

    data_tests:
      - not_empty
-#}
{% test not_empty(model) %}

select 'no rows' as problem
from (select count(*) as row_count from {{ model }}) as counted
where row_count = 0

{% endtest %}
