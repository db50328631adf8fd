with latest as (

    select * from {{ ref('cdc_insurance__policies') }}
    where not _is_deleted

),

final as (

    select
        cast(policy_id as bigint) as policy_id,

        location_name as area,
        business_type,
        state_code,
        region_name,

        {{ exact_cast('insured_value', 'decimal(18, 2)', ref('cdc_insurance__policies')) }}
            as insured_value,
        cast(earthquake as boolean) as covers_earthquake,
        cast(flood as boolean) as covers_flood,

        cast(expiry_date as date) as expires_on,

        -- Columns that the source adds later, as text.
        {{ added_columns('raw_insurance__policies') }},

        row_hash,
        cast(_load_date as timestamp) as loaded_at,
        {{ landed_up_to(ref('raw_insurance__policies')) }} as as_of
    from latest

)

select * from final
