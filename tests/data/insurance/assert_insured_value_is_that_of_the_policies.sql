-- The mart groups; it neither loses nor doubles a policy on its way through the join with states.
with staged as (

    select
        count(*) as policy_count,
        sum(insured_value) as insured_value
    from {{ ref('stg_insurance__policies') }}

),

reported as (

    select
        sum(policy_count) as policy_count,
        sum(insured_value) as insured_value
    from {{ ref('fct_insured_value') }}

)

select
    staged.policy_count,
    reported.policy_count as reported_policy_count,
    staged.insured_value,
    reported.insured_value as reported_insured_value
from staged
cross join reported
where staged.policy_count <> reported.policy_count
    or staged.insured_value <> reported.insured_value
