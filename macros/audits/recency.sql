{#-
    The newest value of a date or timestamp column is not older than an interval, as in dbt_utils:
    for the whole model, or for each value of other columns.

    field                  the column
    datepart, interval     the maximum age, for example `day` and 3
    ignore_time_component  compare dates
    group_by_columns       a list of columns; each of their values must be fresh
    reference              not in dbt_utils: the time to compare with. `now`, or `newest`, the
                           newest value in the model: then the groups are compared with each other,
                           and the time of the audit does not matter

    data_tests:
      - recency:
          arguments:
            field: load_date
            datepart: day
            interval: 0
            group_by_columns: [entity]
            reference: newest
-#}
{% test recency(
    model, field, datepart, interval, ignore_time_component=false, group_by_columns=[], reference='now'
) %}

{%- if reference not in ['now', 'newest'] -%}
    {% do exceptions.raise_compiler_error(
        "recency: reference is '" ~ reference ~ "'; legal values: now, newest"
    ) %}
{%- endif -%}
{%- if interval is not integer or interval < 0 -%}
    {% do exceptions.raise_compiler_error(
        "recency: interval is '" ~ interval ~ "'; it must be a whole number, 0 or more"
    ) %}
{%- endif -%}
{%- set type = "date" if ignore_time_component else "timestamp" -%}
{%- set groups = group_by_columns | join(", ") -%}

with groups as (

    select
        {% if groups %}{{ groups }},{% endif %}
        cast(max({{ field }}) as {{ type }}) as newest
    from {{ model }}
    {% if groups %}group by {{ groups }}{% endif %}

),

compared as (

    select
        *,
        {% if reference == 'now' %}cast({{ wap_now() }} as {{ type }})
        {%- else %}max(newest) over (){% endif %} as reference
    from groups

)

select *
from compared
-- A group without values fails.
where newest is null or newest < dateadd({{ datepart }}, -{{ interval }}, reference)

{% endtest %}
