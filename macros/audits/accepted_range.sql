{#-
    Every value of the column is in a range, as in dbt_utils. NULLs pass: they are for not_null.

    min_value, max_value  the bounds: a number, or SQL; at least one of them
    inclusive             whether a bound itself is in the range

    columns:
      - name: price
        data_tests:
          - accepted_range:
              arguments: {min_value: 0}
-#}
{% test accepted_range(model, column_name, min_value=none, max_value=none, inclusive=true) %}

{%- if min_value is none and max_value is none -%}
    {% do exceptions.raise_compiler_error(
        "accepted_range: there is neither min_value nor max_value; it needs one of them"
    ) %}
{%- endif -%}
{%- set equal = "=" if inclusive -%}

select *
from {{ model }}
where false
{%- if min_value is not none %}
    or not {{ column_name }} >{{ equal }} {{ min_value }}
{%- endif %}
{%- if max_value is not none %}
    or not {{ column_name }} <{{ equal }} {{ max_value }}
{%- endif %}

{% endtest %}
