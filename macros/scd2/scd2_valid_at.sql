{#-
    Whether a version of a history is valid at a moment, for a point-in-time join.

        from {{ ref('fct_orders') }} as orders
        left join {{ ref('dim_customers') }} as customers
            on orders.customer_id = customers.customer_id
            and {{ scd2_valid_at('orders.ordered_at', 'customers', 'valid_from', 'valid_to') }}
-#}
{% macro scd2_valid_at(
    moment, history, valid_from='dbt_valid_from', valid_to='dbt_valid_to', expire='next_start'
) -%}
    ({{ history }}.{{ valid_from }} <= {{ moment }}
    and ({{ history }}.{{ valid_to }} is null
    or {{ moment }} < {{ _scd2_end(history ~ "." ~ valid_to, expire) }}))
{%- endmacro %}
