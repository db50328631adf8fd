with policies as (

    select * from {{ ref('stg_insurance__policies') }}

),

states as (

    select * from {{ ref('us_states') }}

),

final as (

    select
        policies.policy_id,

        policies.area,
        policies.business_type,
        policies.state_code,
        states.state_name,
        -- The deliveries spell regions freely (`East`, `WEST`); the state decides.
        states.region_name,

        policies.insured_value,
        policies.covers_earthquake,
        policies.covers_flood,

        policies.expires_on,
        policies.loaded_at
    from policies
    left join states on policies.state_code = states.state_code

)

select * from final
