with latest as (

    select * from {{ ref('cdc_insurance__products') }}
    where not _is_deleted

),

final as (

    select
        {{ typed_columns(widened({
            'product_id': 'string',
            'product_name': 'string',
            'category': 'string',
            'price': 'decimal(18, 2)',
        }, ref('cdc_insurance__products'))) }},

        row_hash,
        cast(_load_date as timestamp) as loaded_at,
        {{ landed_up_to(ref('raw_insurance__products')) }} as as_of
    from latest

)

select * from final
