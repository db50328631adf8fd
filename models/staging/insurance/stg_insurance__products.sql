with latest as (

    select * from {{ ref('cdc_insurance__products') }}
    where not _is_deleted

),

final as (

    select
        product_id,

        product_name,
        category,
        {{ exact_cast('price', 'decimal(18, 2)', ref('cdc_insurance__products')) }} as price,

        -- Columns that the source adds later, as text.
        {{ added_columns('raw_insurance__products') }},

        row_hash,
        cast(_load_date as timestamp) as loaded_at,
        {{ landed_up_to(ref('raw_insurance__products')) }} as as_of
    from latest

)

select * from final
