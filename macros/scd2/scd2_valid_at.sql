{% macro scd2_valid_at(moment, history, valid_from='dbt_valid_from', valid_to='dbt_valid_to') -%}
    ({{ history }}.{{ valid_from }} <= {{ moment }}
    and ({{ history }}.{{ valid_to }} is null or {{ moment }} < {{ history }}.{{ valid_to }}))
{%- endmacro %}
