{#-
    The newest value of a date or timestamp column is not older than some days: for the whole
    model, or for each value of another column.

    days       whole days that it may be behind
    reference  behind what: `now`, or `newest`, the newest value in the model, so that the groups
               have to keep up with each other whenever the audit runs
    group_by   a column; each of its values must be fresh

    columns:
      - name: load_date
        data_tests:
          - not_older_than:
              arguments: {days: 0, reference: newest, group_by: entity}
-#}
{% test not_older_than(model, column_name, days, reference='now', group_by=none) %}

{%- if reference not in ['now', 'newest'] -%}
    {% do exceptions.raise_compiler_error(
        "not_older_than: reference is '" ~ reference ~ "'; legal values: now, newest"
    ) %}
{%- endif -%}
{%- if days is not integer or days < 0 -%}
    {% do exceptions.raise_compiler_error(
        "not_older_than: days is '" ~ days ~ "'; it is a whole number of 0 or more"
    ) %}
{%- endif -%}

with groups as (

    select
        {% if group_by %}{{ group_by }} as group_value,{% endif %}
        cast(max({{ column_name }}) as date) as newest
    from {{ model }}
    {% if group_by %}group by {{ group_by }}{% endif %}

),

compared as (

    select
        *,
        {% if reference == 'now' %}current_date(){% else %}max(newest) over (){% endif %} as reference
    from groups

)

select *
from compared
-- No value at all is not fresh.
where newest is null or datediff(reference, newest) > {{ days }}

{% endtest %}
