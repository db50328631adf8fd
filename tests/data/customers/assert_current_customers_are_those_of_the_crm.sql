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

),

only_in_history as (

    select * from history
    except
    select * from staged

),

only_staged as (

    select * from staged
    except
    select * from history

)

select * from only_in_history
union all
select * from only_staged
