with latest as (

    select * from {{ ref('cdc_airports__airport_frequencies') }}
    where not _is_deleted

),

final as (

    select
        {{ typed_columns(widened({
            'id': 'bigint as frequency_id',
            'airport_ref': 'bigint as airport_id',
            'airport_ident': 'string',
            'type': 'string as frequency_type',
            'description': 'string',
            'frequency_mhz': 'decimal(12, 4)',
        }, ref('cdc_airports__airport_frequencies'))) }},

        row_hash,
        cast(_load_date as timestamp) as loaded_at,
        {{ landed_up_to(ref('raw_airports__airport_frequencies')) }} as as_of
    from latest

)

select * from final
