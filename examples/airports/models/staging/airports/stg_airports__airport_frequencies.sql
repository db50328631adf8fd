with latest as (

    select * from {{ ref('cdc_airports__airport_frequencies') }}
    where not _is_deleted

),

final as (

    select
        cast(id as bigint) as frequency_id,
        cast(airport_ref as bigint) as airport_id,

        airport_ident,
        type as frequency_type,
        description,
        {{ exact_cast(
            'frequency_mhz', 'decimal(12, 4)', ref('cdc_airports__airport_frequencies')
        ) }} as frequency_mhz,

        -- Columns that the source adds later, as text.
        {{ added_columns('raw_airports__airport_frequencies') }},

        row_hash,
        cast(_load_date as timestamp) as loaded_at,
        {{ landed_up_to(ref('raw_airports__airport_frequencies')) }} as as_of
    from latest

)

select * from final
