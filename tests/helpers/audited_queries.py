"""Queries of tests, over a table `t (id, other, s)`."""

UNIQUE = """
select
    id as unique_field,
    count(*) as n_records
from t
where id is not null
group by id
having count(*) > 1
"""
ACCEPTED = """
with all_values as (
    select s as value_field, count(*) as n_records
    from t
    group by s
)
select * from all_values where value_field not in ('a', 'b')
"""
RELATED = """
with child as (select id as from_field from t where id is not null),
parent as (select other as to_field from t)
select from_field
from child
left join parent on child.from_field = parent.to_field
where parent.to_field is null
"""
FILTERED = "(select * from t where other > 0) dbt_subquery"
QUERIES = {
    "not null": "select id\nfrom t\nwhere id is null",
    "not null of some rows": f"select * from {FILTERED} where id is null",
    "unique": UNIQUE,
    "unique of some rows": UNIQUE.replace("from t", f"from {FILTERED}"),
    "accepted values": ACCEPTED,
    "accepted values of some rows": ACCEPTED.replace("from t", f"from {FILTERED}"),
    "a range": """
        with meet_condition as (select * from t),
        validation_errors as (select * from meet_condition where false or not id >= 0.5)
        select * from validation_errors
    """,
    "an expression": "select 1 from t where not(id > 0)",
    "keys of two columns": """
        with validation_errors as (select id, s from t group by id, s having count(*) > 1)
        select * from validation_errors
    """,
    "a function": "select * from t where coalesce(id, 0) = 0 or length(s) > 1",
    "groups": "select s, count(*) as n from t group by s",
    "relationships": RELATED,
}
