with extracts as (

    select distinct load_date
    from {{ ref('stg_airports__deliveries') }}
    where entity = 'airport_frequencies'

),

history as (

    select * from {{ ref('snp_airports__airport_frequencies') }}

),

final as (

    select
        extracts.load_date,
        history.frequency_type,

        count(*) as frequencies
    from extracts
    inner join history on {{ scd2_valid_at('extracts.load_date', 'history') }}
    group by extracts.load_date, history.frequency_type

)

select * from final
