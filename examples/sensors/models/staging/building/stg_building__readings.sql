with latest as (

    select * from {{ ref('cdc_building__readings') }}
    where not _is_deleted

),

final as (

    select
        reading_id,
        room,

        {{ exact_cast('temperature_c', 'decimal(5, 1)', ref('cdc_building__readings')) }}
            as temperature_c,
        cast(humidity_pct as bigint) as humidity_pct,

        cast(measured_at as timestamp) as measured_at,

        -- Columns that the source adds later, as text.
        {{ added_columns('raw_building__readings') }},

        row_hash,
        _event_time as changed_at
    from latest

)

select * from final
