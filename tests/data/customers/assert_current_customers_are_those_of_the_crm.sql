-- The last version of a history and the state are computed apart, from the same messages.
with history as (

    select
        customer_id,
        full_name,
        email,
        segment
    from {{ ref('hst_crm__customers') }}
    where is_current

),

staged as (

    select
        customer_id,
        full_name,
        email,
        segment
    from {{ ref('stg_crm__customers') }}

)

select * from (
    select * from history
    except
    select * from staged
)
union all
select * from (
    select * from staged
    except
    select * from history
)
