with latest as (

    select * from {{ ref('cdc_airports__runways') }}
    where not _is_deleted

),

final as (

    select
        {{ typed_columns(widened({
            'id': 'bigint as runway_id',
            'airport_ref': 'bigint as airport_id',
            'airport_ident': 'string',
            'length_ft': 'int',
            'width_ft': 'int',
            'surface': 'string',
            'lighted': 'boolean as is_lighted',
            'closed': 'boolean as is_closed',
            'le_ident': 'string',
            'le_latitude_deg': 'double',
            'le_longitude_deg': 'double',
            'le_elevation_ft': 'int',
            'le_heading_degT': 'double as le_heading_deg_true',
            'le_displaced_threshold_ft': 'int',
            'he_ident': 'string',
            'he_latitude_deg': 'double',
            'he_longitude_deg': 'double',
            'he_elevation_ft': 'int',
            'he_heading_degT': 'double as he_heading_deg_true',
            'he_displaced_threshold_ft': 'int',
        }, ref('cdc_airports__runways'))) }},

        row_hash,
        cast(_load_date as timestamp) as loaded_at,
        {{ landed_up_to(ref('raw_airports__runways')) }} as as_of
    from latest

)

select * from final
