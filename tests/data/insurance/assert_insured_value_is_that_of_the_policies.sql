-- The mart groups; it neither loses nor doubles a policy on its way through the join with states.
with staged as (

    select
        count(*) as policies,
        sum(insured_value) as insured_value
    from {{ ref('stg_insurance__policies') }}

),

reported as (

    select
        sum(policies) as policies,
        sum(insured_value) as insured_value
    from {{ ref('fct_insured_value') }}

)

select
    staged.policies,
    reported.policies as reported_policies,
    staged.insured_value,
    reported.insured_value as reported_insured_value
from staged
cross join reported
where staged.policies <> reported.policies
    or staged.insured_value <> reported.insured_value
