{#-
    No value of the column is smaller than a minimum. NULLs pass: they are for not_null.

    data_tests:
      - at_least:
          arguments: {minimum: 0}
-#}
{% test at_least(model, column_name, minimum) %}

{%- if minimum is not number -%}
    {% do exceptions.raise_compiler_error(
        "at_least: minimum is '" ~ minimum ~ "'; it is a number"
    ) %}
{%- endif -%}

select *
from {{ model }}
where {{ column_name }} < {{ minimum }}

{% endtest %}
