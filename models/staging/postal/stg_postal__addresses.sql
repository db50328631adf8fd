with latest as (

    select * from {{ ref('cdc_postal__addresses') }}
    where not _is_deleted

),

final as (

    select
        cast(customer_id as bigint) as customer_id,

        street,
        postal_code,
        city,
        country_code,

        -- Columns that the source adds later, as text.
        {{ added_columns('raw_postal__addresses') }},

        row_hash,
        _event_time as changed_at
    from latest

)

select * from final
