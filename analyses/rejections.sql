-- Which tables the gate has held back, and why.
select
    runs.started_at,
    nodes.branch,
    concat(nodes.schema, '.', nodes.name) as relation,
    nodes.verdict,
    nodes.reason
from wap_ledger.nodes as nodes
inner join wap_ledger.runs as runs on nodes.run_id = runs.run_id
where nodes.verdict <> 'published'
order by runs.started_at desc, relation asc
