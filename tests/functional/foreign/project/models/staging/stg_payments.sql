select
    id as payment_id,
    order_id,
    method,
    cents / 100 as amount,
    cast(updated_at as timestamp) as updated_at
from {{ ref('raw_payments') }}
