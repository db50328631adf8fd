with latest as (

    select * from {{ ref('cdc_building__readings') }}
    where not _is_deleted

),

final as (

    select
        {{ typed_columns(widened({
            'reading_id': 'string',
            'room': 'string',
            'measured_at': 'timestamp',
            'temperature_c': 'decimal(5, 1)',
            'humidity_pct': 'int',
        }, ref('cdc_building__readings'))) }},

        row_hash,
        _event_time as changed_at
    from latest

)

select * from final
