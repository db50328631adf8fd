with extracts as (

    -- Not from the history: an extract that changed nothing has a state too.
    select distinct load_date
    from {{ ref('stg_airports__deliveries') }}
    where entity = 'runways'

),

history as (

    select * from {{ ref('snp_airports__runways') }}

),

final as (

    select
        extracts.load_date,
        history.is_lighted,
        history.is_closed,

        count(*) as runways,
        coalesce(sum(history.length_ft), 0) as total_length_ft
    from extracts
    inner join history on {{ scd2_valid_at('extracts.load_date', 'history') }}
    group by extracts.load_date, history.is_lighted, history.is_closed

)

select * from final
