import json
import sqlite3
from itertools import permutations

import pytest
from helpers.audited_queries import ACCEPTED, UNDERSTOOD, UNIQUE
from hypothesis import given
from hypothesis import strategies as st

from sparkwap.audits.shared_scan import Proof, read, statement

ALONE = {
    "an aggregate": "select count(*) from t where id > 0",
    "an aggregate in a condition": "select * from t where id > max(other)",
    "a window": "select * from t where row_number() over (order by id) > 1",
    "chance": "select * from t where rand() < 0.5",
    "the present": "select * from t where day > current_date",
    "the present by a function": "select * from t where day > now()",
    "another state": "select * from t version as of 5 where id is null",
    "another branch": "select * from t with ('branch' = 'main') where id is null",
    "two tables": "select * from t, u where id is null",
    "a join": "select * from t join u on t.id = u.id where id is null",
    "a subquery": "select * from t where id in (select id from u)",
    "a union": "select * from t where id is null union all select * from u",
    "a limit": "select * from t where id is null limit 5",
    "a sample": "select * from t tablesample (5 rows) where id is null",
    "a distinct": "select distinct id from t where id is null",
    "a count of groups": ACCEPTED.replace("value_field not in", "n_records > 1 or value_field in"),
    "groups of another size": UNIQUE.replace("> 1", "> 2"),
    "groups by a number": UNIQUE.replace("group by id", "group by 1"),
    "a query that nobody reads": "with a as (select * from u) select * from t where id is null",
    "a column that is not there": "select * from (select id from t) where s is null",
    "a hint": "select /*+ repartition(3) */ * from t where id is null",
    "an open bracket": "select * from t where (id is null",
    "an open comment": "select * from t where id is null /*",
    "two statements": "select * from t where id is null; select 1",
    "a function of the user": "select * from t where our.check(id)",
    "a quoted function": "select * from t where `check`(id)",
    "a parameter": "select * from t where id = :id",
    "a function for a table": "select * from range(5) where id is null",
    "groups that are renamed": """
        with g as (select s from t group by s), h as (select 'a' as s from g)
        select * from h where s = 'a'
    """,
    "groups with names exchanged": """
        select * from (select x as y, y as x from (select id as x, s as y from t group by id, s))
        where x = 1
    """,
    "a column that is called true": """
        select * from (select s as true, count(*) as n from t group by s) where true
    """,
    "a key by its table": """
        with o as (select * from t)
        select o.id, count(*) as n from o group by o.id having count(*) > 1
    """,
    "a name in another case": "with O as (select * from t) select * from o where id is null",
    "a name in double quotes": 'select * from t where "n" > 1',
    "a query of two names": "with a as (select * from t), A as (select * from a) select * from A",
    "a query that is defined twice": """
        with a as (select * from t), a as (select * from u) select * from a where id is null
    """,
    "a column that is renamed": "select other from (select other as id from t where s is null)",
    "a name that a count has too": """
        select * from (select s, count(*) as s from t group by s) where s in ('a')
    """,
    "a keyword for an alias": "select * from (select * from t) left where id is null",
    "rows of a list": "select * from t where id in (values 1, 2)",
    "rows of a table": "select * from t where id in (table u)",
    "today": "select * from t where day > date 'today'",
    "the file of a row": "with a as (select * from t) select * from a where _file is null",
    "no query": "show tables",
    "nothing": "",
}


@pytest.mark.parametrize("sql", UNDERSTOOD.values(), ids=UNDERSTOOD)
def test_the_shapes_that_are_understood(sql: str) -> None:
    assert read(sql) is not None


@pytest.mark.parametrize("sql", ALONE.values(), ids=ALONE)
def test_a_query_of_another_shape_runs_alone(sql: str) -> None:
    assert read(sql) is None


def test_a_name_of_the_query_itself_is_no_table() -> None:
    proof = read("with `orders` as (select * from t) select * from orders where id is null")
    assert proof == Proof("t", ("id is null",), names=(("t",),))


def test_a_column_that_is_only_selected_has_to_exist() -> None:
    proof = read("select other from t where id is null")
    assert proof is not None
    assert "other" in proof.aggregate()


def test_the_tests_of_one_table_share_its_scan() -> None:
    proofs = [Proof("a", ("x",)), Proof("b", ("y",)), Proof("a", keys=("k",))]
    first, second = statement(proofs).split("\nunion all\n")
    assert first.endswith("from a")
    assert "struct(0 as at, count(if(x, 1, null)) as found)" in first
    assert "struct(2 as at, count(1) - count(distinct struct(k)) " in first
    assert second == "select inline(array(struct(1 as at, count(if(y, 1, null)) as found))) from b"


ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(0, 3),
        st.none() | st.integers(-1, 2),
        st.sampled_from([None, *"abc"]),
    ),
    max_size=5,
)


@given(ROWS, st.sampled_from([sql for name, sql in UNDERSTOOD.items()]))
def test_a_proof_is_zero_exactly_if_the_query_returns_no_row(
    rows: list[tuple[object, ...]], sql: str
) -> None:
    database = sqlite3.connect(":memory:")
    database.create_function("struct", -1, lambda *values: json.dumps(values))
    database.create_function("if", 3, lambda test, yes, no: yes if test else no)
    database.execute("create table t (id integer, other integer, s text)")
    database.executemany("insert into t values (?, ?, ?)", rows)
    proof = read(sql)
    assert proof is not None
    (found,) = database.execute(f"select {proof.aggregate()} from {proof.relation}").fetchone()
    assert (found == 0) == (database.execute(sql).fetchone() is None)


@pytest.mark.parametrize("names", permutations(["id", "s"]))
def test_the_columns_of_groups_are_their_keys(names: tuple[str, str]) -> None:
    listed = ", ".join(names)
    proof = read(f"select {listed} from t group by id, s having count(*) > 1")
    assert proof is not None
    assert sorted(proof.keys) == ["id", "s"]
    assert read(f"select {names[0]} from t group by id, s having count(*) > 1") is None
