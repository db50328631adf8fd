select id as order_id, customer_id, {{ money.cents_to_euros('cents') }} as amount, ordered_at
from {{ ref('raw_orders') }}
