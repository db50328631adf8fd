-- What readers of main were given, and when: one row a publish or rollback.
select
    published_at,
    action,
    branch,
    run_id,
    count(*) as tables
from wap_ledger.publishes
group by published_at, action, branch, run_id
order by published_at desc
