with latest as (

    select * from {{ ref('cdc_insurance__policies') }}
    where not _is_deleted

),

final as (

    select
        {{ typed_columns(widened({
            'policy_id': 'bigint',
            'location_name': 'string as area',
            'state_code': 'string',
            'region_name': 'string',
            'business_type': 'string',
            'insured_value': 'decimal(18, 2)',
            'earthquake': 'boolean as covers_earthquake',
            'flood': 'boolean as covers_flood',
            'expiry_date': 'date as expires_on',
        }, ref('cdc_insurance__policies'))) }},

        row_hash,
        cast(_load_date as timestamp) as loaded_at,
        {{ landed_up_to(ref('raw_insurance__policies')) }} as as_of
    from latest

)

select * from final
