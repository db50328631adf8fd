with latest as (

    select * from {{ ref('cdc_crm__customers') }}
    where not _is_deleted

),

final as (

    select
        {{ typed_columns({
            'customer_id': 'bigint',
            'full_name': 'string',
            'email': 'string',
            'segment': 'string',
        }) }},

        row_hash,
        _event_time as changed_at
    from latest

)

select * from final
