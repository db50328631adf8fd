"""The statement that several tests share, and the queries that may be in it."""

from __future__ import annotations

import sqlite3

import pytest
from helpers.audited_queries import QUERIES

from sparkwap.audits.shared_statement import (
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
NOT_NULLS = [
    "select other from s.t where id is null",
    "select id from s.t where id is null and other > 0",
    "select id from s.t where not id is null",
    "select id from s.t version as of 5 where id is null",
    "select id from s.t as t where id is null",
    "select distinct id from s.t where id is null",
    "select /*+ repartition(3) */ id from s.t where id is null",
    "select id from t where id is null",
    "select * from (select * from s.t where other > 0) dbt_subquery where id is null",
]


def test_rows_without_a_value_are_counted_in_one_scan_of_their_table() -> None:
    sql = statement([NULLS[0], NULLS[2].replace("id", "other"), "select * from s.t where id > 9"])
    assert sql.lower().replace(" . ", ".").count(" from s.t") == 2
    assert "struct(0 as at, count_if(id is null) as found), struct(1 as at, count_if(other" in sql
    assert "select 2 as at, count(*) as found from (\nselect * from s.t where id > 9\n)" in sql


@pytest.mark.parametrize("sql", NULLS)
def test_the_spellings_of_rows_without_a_value(sql: str) -> None:
    assert "count_if" in statement([sql])


@pytest.mark.parametrize("sql", NOT_NULLS)
def test_every_other_query_is_counted_as_it_is_written(sql: str) -> None:
    assert statement([sql]) == f"select 0 as at, count(*) as found from (\n{sql}\n) as audited"


def test_each_query_has_its_number() -> None:
    lake = sqlite3.connect(":memory:")
    lake.execute("create table t (id, other, s)")
    lake.execute("insert into t values (1, 1, 'a'), (1, null, 'c'), (null, 2, 'b')")
    queries = list(QUERIES.values())
    found = dict(lake.execute(statement(queries)).fetchall())
    alone = [lake.execute(f"select count(*) from ({sql}\n)").fetchone()[0] for sql in queries]
    assert [found[at] for at in range(len(queries))] == alone
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
