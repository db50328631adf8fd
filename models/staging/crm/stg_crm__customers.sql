with latest as (

    select * from {{ ref('cdc_crm__customers') }}
    where not _is_deleted

),

final as (

    select
        cast(customer_id as bigint) as customer_id,

        full_name,
        email,
        segment,

        -- Columns that the source adds later, as text.
        {{ added_columns('raw_crm__customers') }},

        row_hash,
        _event_time as changed_at
    from latest

)

select * from final
