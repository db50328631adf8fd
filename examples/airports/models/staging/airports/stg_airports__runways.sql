with latest as (

    select * from {{ ref('cdc_airports__runways') }}
    where not _is_deleted

),

final as (

    select
        cast(id as bigint) as runway_id,
        cast(airport_ref as bigint) as airport_id,

        airport_ident,
        cast(length_ft as bigint) as length_ft,
        cast(width_ft as bigint) as width_ft,
        surface,
        cast(lighted as boolean) as is_lighted,
        cast(closed as boolean) as is_closed,

        le_ident,
        cast(le_latitude_deg as double) as le_latitude_deg,
        cast(le_longitude_deg as double) as le_longitude_deg,
        cast(le_elevation_ft as bigint) as le_elevation_ft,
        cast(le_heading_degt as double) as le_heading_deg_true,
        cast(le_displaced_threshold_ft as bigint) as le_displaced_threshold_ft,

        he_ident,
        cast(he_latitude_deg as double) as he_latitude_deg,
        cast(he_longitude_deg as double) as he_longitude_deg,
        cast(he_elevation_ft as bigint) as he_elevation_ft,
        cast(he_heading_degt as double) as he_heading_deg_true,
        cast(he_displaced_threshold_ft as bigint) as he_displaced_threshold_ft,

        -- Columns that the source adds later, as text.
        {{ added_columns('raw_airports__runways') }},

        row_hash,
        cast(_load_date as timestamp) as loaded_at,
        {{ landed_up_to(ref('raw_airports__runways')) }} as as_of
    from latest

)

select * from final
