{#-
    Every value of the column is in a range, as in dbt_utils. NULLs pass; use not_null for them.

    min_value, max_value  the bounds: a number, or SQL; at least one of the two
    inclusive             whether the bounds belong to the range

    columns:
      - name: price
        data_tests:
          - accepted_range:
              arguments: {min_value: 0}
-#}
{% test accepted_range(model, column_name, min_value=none, max_value=none, inclusive=true) %}

{%- if min_value is none and max_value is none -%}
    {% do exceptions.raise_compiler_error(
        "accepted_range: neither min_value nor max_value is given; give at least one of them"
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
