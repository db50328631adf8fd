{#-
    A raw table holds no row that cannot be used: wrong number of fields, a value that is not of
    its type, an unknown operation, no key. The rows that fail say why in `_error`.

    data_tests:
      - no_bad_rows
-#}
{% test no_bad_rows(model) %}

select *
from {{ model }}
where _error is not null

{% endtest %}
