{{ config(enabled=false) }}
select order_id from {{ ref('stg_orders') }}
