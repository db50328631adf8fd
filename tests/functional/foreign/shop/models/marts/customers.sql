with orders as (
    select customer_id, count(*) as orders, sum(amount) as amount from {{ ref('orders') }} group by 1
),

visits as (
    select customer_id, count(*) as visits from {{ source('web', 'visits') }} group by 1
)

select c.customer_id, c.first_name, coalesce(o.orders, 0) as orders, o.amount, v.visits
from {{ ref('stg_customers') }} c
left join orders o on c.customer_id = o.customer_id
left join visits v on c.customer_id = v.customer_id
