with policies as (

    select * from {{ ref('dim_policies') }}

),

final as (

    select
        region_name,
        business_type,

        count(*) as policy_count,
        sum(insured_value) as insured_value,
        sum(if(covers_earthquake, insured_value, 0)) as earthquake_value,
        sum(if(covers_flood, insured_value, 0)) as flood_value
    from policies
    group by region_name, business_type

)

select * from final
