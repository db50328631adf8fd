{{
    config(
        materialized='incremental',
        incremental_strategy='merge',
        unique_key='payment_id'
    )
}}

select * from {{ ref('stg_payments') }}
{% if is_incremental() %}
where updated_at >= (select max(updated_at) from {{ this }})
{% endif %}
