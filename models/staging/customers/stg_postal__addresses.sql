with latest as (

    select * from {{ ref('cdc_postal__addresses') }}
    where not _is_deleted

),

final as (

    select
        {{ typed_columns({
            'customer_id': 'bigint',
            'street': 'string',
            'postal_code': 'string',
            'city': 'string',
            'country_code': 'string',
        }) }},

        row_hash,
        _event_time as changed_at
    from latest

)

select * from final
