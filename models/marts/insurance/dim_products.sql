with history as (

    select * from {{ ref('snp_insurance__products') }}

),

final as (

    select
        product_id,
        cast({{ scd2_version('product_id') }} as int) as version,

        product_name,
        category,
        price,

        dbt_valid_from as effective_start,
        dbt_valid_to as effective_end,
        dbt_valid_to is null as is_current
    from history

)

select * from final
