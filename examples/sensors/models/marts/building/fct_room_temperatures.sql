with readings as (

    select * from {{ ref('stg_building__readings') }}

),

final as (

    select
        room,
        cast(measured_at as date) as measured_on,

        count(*) as readings,
        min(temperature_c) as min_temperature_c,
        cast(avg(temperature_c) as decimal(5, 1)) as avg_temperature_c,
        max(temperature_c) as max_temperature_c
    from readings
    group by room, cast(measured_at as date)

)

select * from final
