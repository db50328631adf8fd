-- The product list as it was at a moment: business time by the history, not by Iceberg snapshots.
select
    product_id,
    product_name,
    price
from {{ ref('dim_products') }} as history
where {{ scd2_valid_at("timestamp '2024-02-01'", 'history', 'effective_start', 'effective_end') }}
order by product_id
