-- How far each metric of a candidate was from those of the candidates published before it: the
-- formula of the anomaly audits with their defaults, over what they have measured.
with published as (

    select distinct
        nodes.schema,
        nodes.name,
        coalesce(cast(nodes.candidate_snapshot as string), nodes.candidate_metadata) as candidate
    from wap_ledger.nodes as nodes
    left semi join wap_ledger.publishes as made
        on nodes.run_id = made.run_id
            and nodes.schema = made.schema
            and nodes.name = made.name
            and made.action = 'publish'
            and (made.publish_id, made.schema, made.name) not in (
                select
                    undone.publish_id,
                    undone.schema,
                    undone.name
                from wap_ledger.publishes as undone
                where undone.action = 'rollback'
            )
    where nodes.verdict = 'published'

),

measured as (

    select
        metrics.*,
        published.candidate is not null as is_published
    from wap_ledger.metrics as metrics
    left join published
        on metrics.schema = published.schema
            and metrics.name = published.name
            and metrics.candidate = published.candidate

),

before as (

    select
        *,
        -- A window frame would count the rejected ones too.
        slice(reverse(collect_list(if(is_published, value, null)) over (
            partition by schema, name, metric, scope
            order by measured_at
            rows between unbounded preceding and 1 preceding
        )), 1, 30) as history
    from measured

),

averaged as (

    select
        *,
        aggregate(history, 0D, (total, one) -> total + one)
        / nullif(size(history), 0) as mean_before
    from before

),

spread as (

    select
        *,
        sqrt(
            aggregate(history, 0D, (total, one) -> total + power(one - mean_before, 2))
            / nullif(size(history) - 1, 0)
        ) as spread_before
    from averaged

)

select
    measured_at,
    concat(schema, '.', name) as relation,
    metric,
    value,
    is_published,
    state,
    size(history) as samples,
    mean_before as mean,
    spread_before as spread,
    (value - mean_before) / nullif(spread_before, 0) as score
from spread
order by measured_at desc, relation asc, metric asc
