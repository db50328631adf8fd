"""The statement that several tests share, and the queries that may be in it."""

from __future__ import annotations

import sqlite3

import pytest
from helpers.audited_queries import QUERIES

from sparkwap.audits.shared_statement import (
    Changed,
    is_enclosed,
    is_volatile,
    may_read_others,
    statement,
)

NULLS = [
    "select id\nfrom s.t\nwhere id is null",
    "select * from s.`t` where `id` is null -- a comment",
    "SELECT id FROM s.t WHERE id IS NULL",
]
UNIQUE = (
    "\nselect\n    id as unique_field,\n    count(*) as n_records\n\nfrom s.t\n"
    "where id is not null\ngroup by id\nhaving count(*) > 1\n"
)
ACCEPTED = """
with all_values as (

    select
        kind as value_field,
        count(*) as n_records

    from s.t
    group by kind

)

select *
from all_values
where value_field not in (
    'a','b, (c)','it''s'
)
"""
KNOWN = {
    "select * from s.t where not (id >= 0.5 -- a comment\n)": "count_if(\nnot (id >= 0.5 ",
    "select 1 from s.t where false or not id >= 1": "count_if(\nfalse or not id >= 1\n)",
    "select * from s.t where exists(list, x -> x > 1)": "count_if(\nexists(list, x -> x > 1)\n)",
    "select i from s.t where id > 0": "count_if(\nid > 0\n) + 0 * count(i) as found",
    "select ID from s.t where id is null": "count_if(\nid is null\n) + 0 * count(ID) as found",
    "select x from s.t where exists(a, x -> x > 1)": "count_if(\nexists(a, x -> x > 1)\n) + 0 *",
    UNIQUE: "count(id) - count(distinct id)",
    UNIQUE.replace("id", "`a b`"): "count(`a b`) - count(distinct `a b`)",
    ACCEPTED: "count_if(kind not in ('a' , 'b, (c)' , 'it''s'))",
    ACCEPTED.replace(
        "'a','b, (c)','it''s'", "1, -2 , true"
    ): "count_if(kind not in (1 , - 2 , true))",
}
OTHERS = [
    UNIQUE.replace("> 1", "> 2"),
    UNIQUE.replace("where id", "where other"),
    UNIQUE.replace("group by id", "group by id, other"),
    UNIQUE.replace("from s.t", "from (select * from s.t where other > 0) dbt_subquery"),
    UNIQUE + "limit 1",
    ACCEPTED.replace("'a'", "other"),
    ACCEPTED.replace("'a'", "(select 1)"),
    ACCEPTED.replace("'a'", "0.5"),
    ACCEPTED.replace("'a'", '"a"'),
    ACCEPTED.replace("group by kind", "group by other"),
    "select * from s.t where id > 0 limit 1",
    "select * from s.t where id > 0 order by id",
    "select * from s.t where id > 0 union all select * from s.t where id > 1",
    "select * from s.t where id in (select id from s.other)",
    "select * from s.t where id > 0 |> limit 1",
    "select * from s.t where id > 0 group by all",
    "select sum(id) from s.t where id > 0",
    "select distinct id from s.t where id > 0",
    "select * from s.t join s.u where t.id > 0",
]
NOT_NULLS = [
    "select id from s.t version as of 5 where id is null",
    "select id from s.t as t where id is null",
    "select distinct id from s.t where id is null",
    "select /*+ repartition(3) */ id from s.t where id is null",
    "select id from t where id is null",
    "select * from (select * from s.t where other > 0) dbt_subquery where id is null",
]


def sent(*queries: str) -> str:
    return statement(dict(enumerate(queries)))


def test_rows_without_a_value_are_counted_in_one_scan_of_their_table() -> None:
    sql = sent(NULLS[0], NULLS[2].replace("id", "other"), "select * from s.t where id > 9")
    assert sql.lower().replace(" . ", ".").count(" from s.t") == 1
    assert "struct('0' as at, count_if(\nid is null\n) as found), struct('1' as at" in sql
    assert "struct('2' as at, count_if(\nid > 9\n) as found)" in sql


@pytest.mark.parametrize("sql", NULLS)
def test_the_spellings_of_rows_without_a_value(sql: str) -> None:
    assert "count_if" in sent(sql)


@pytest.mark.parametrize("sql", KNOWN)
def test_the_forms_that_one_scan_answers(sql: str) -> None:
    found = sent(sql)
    assert found.startswith(f"select inline(array(struct('0' as at, {KNOWN[sql]}")
    assert found.endswith("from s . t")


@pytest.mark.parametrize("sql", [*NOT_NULLS, *OTHERS])
def test_every_other_query_is_counted_as_it_is_written(sql: str) -> None:
    assert sent(sql) == f"select '0' as at, count(*) as found from (\n{sql}\n) as audited"


def test_added_rows_are_read_in_place_of_the_table() -> None:
    new = Changed("p.new")
    sql = statement({0: NULLS[0], 1: NULLS[2], 2: NULLS[0]}, {0: new, 2: Changed()})
    assert "struct('0' as at, count_if(\nid is null\n) as found))) from p.new" in sql
    assert "struct('1' as at, count_if(\nid IS NULL\n) as found))) from s . t" in sql
    assert "select '2' as at, 0 as found" in sql


def test_of_the_table_only_the_keys_of_added_rows_are_read() -> None:
    sql = statement({1: UNIQUE}, {1: Changed("p.new", (1, 9), "p.gone", (-5, 5))})
    assert (
        "from (select * from s . t as present left semi join (select id from p.new) as changed "
        "on present.id = changed.id where (present.id between 1 and 9)) as of_keys\n"
        "where id is not null" in sql
    )
    assert "between" not in statement({1: UNIQUE}, {1: Changed("p.new")})


def test_each_query_has_its_number() -> None:
    lake = sqlite3.connect(":memory:")
    lake.execute("create table t (id, other, s)")
    lake.execute("insert into t values (1, 1, 'a'), (1, null, 'c'), (null, 2, 'b')")
    queries = list(QUERIES.values())
    found = dict(lake.execute(sent(*queries)).fetchall())
    alone = [lake.execute(f"select count(*) from ({sql}\n)").fetchone()[0] for sql in queries]
    assert [found[str(at)] for at in range(len(queries))] == alone
    assert 0 in alone
    assert max(alone) > 0


@pytest.mark.parametrize(
    ("sql", "enclosed"),
    [
        ("select * from t where (id is null)", True),
        ("select ')' from t where s = ';' -- )", True),
        ("select `)` from t", True),
        ("select * from t) x, (select 1", False),
        ("select 1) as audited union all (select 2", False),
        ("select * from t where (id is null", False),
        ("select * from t; select 1", False),
        ("select * from t where s = 'a", False),
        ("select * from t /* open", False),
        ("select * from t -- \\", False),
    ],
)
def test_a_query_stays_in_its_brackets(sql: str, enclosed: bool) -> None:
    assert is_enclosed(sql) == enclosed


@pytest.mark.parametrize(
    ("sql", "others"),
    [
        ("select id from s.t where id is null", False),
        ("select t.id from lake.S.`T` as t, s.parent", False),
        ("with child as (select a.b from s.t as a) select * from child", False),
        ("select * from s.t where id in (select id from s.unknown)", True),
        ("select * from s.t where id in (select id from S.Unknown)", True),
        ("select * from s.t where id in (select id from identifier(:name))", True),
        ("select * from s.t join global_temp.kept", True),
        ("select * from s.t join spark_catalog.default.kept", True),
        ("select * from s.t join parquet.`/lake/s/unknown`", True),
    ],
)
def test_a_query_that_may_read_a_table_that_dbt_does_not_know(sql: str, others: bool) -> None:
    lake = {"s": frozenset({("s", "t"), ("s", "parent"), ("s", "unknown")})}
    known = [("s", "t"), ("s", "parent")]
    assert may_read_others(sql, known, lambda one: lake.get(one, frozenset())) == others


@pytest.mark.parametrize(
    ("sql", "volatile"),
    [
        ("select * from s.t where at > current_timestamp()", True),
        ("select * from s.t where at > CURRENT_TIMESTAMP - interval 1 day", True),
        ("select * from s.t where rand(7) > 0.5", True),
        ("select * from s.t where now () < at", True),
        ("select * from s.t where known_now > 0 and randomized", False),
        ("select current_price, uuid from s.t", False),
    ],
)
def test_a_query_whose_answer_changes_by_itself(sql: str, volatile: bool) -> None:
    assert is_volatile(sql) == volatile
