-- Audit branches and the tags of past publishes of one table, with how many rows each snapshot has.
select
    refs.name,
    refs.type,
    snapshots.committed_at,
    snapshots.summary['wap_run'] as run_id,
    snapshots.summary['total-records'] as row_count
from {{ ref('dim_policies') }}.refs as refs
inner join {{ ref('dim_policies') }}.snapshots as snapshots
    on refs.snapshot_id = snapshots.snapshot_id
order by snapshots.committed_at
