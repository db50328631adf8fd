"""What is made of histories: joins of several, history from snapshots, point-in-time joins."""

from __future__ import annotations

import pytest
from helpers.lake import SparkReader
from helpers.project import Project

from .conftest import MakeHistories

CUSTOMERS = "(1, 'Ann', 10, 30), (1, 'Anna', 30, null), (2, 'Bob', 10, 20), (2, 'Bob', 25, null)"
ADDRESSES = "(1, 'Rome', 20, 40), (2, 'Oslo', 15, null), (3, 'Bonn', 10, 20)"
HISTORY = """
    select id, {column}, date_add(date '2024-01-01', f) as valid_from,
        date_add(date '2024-01-01', t) as valid_to
    from values {rows} as t (id, {column}, f, t)
"""
JOIN = """
    select id, name, city, datediff(valid_from, '2024-01-01') as f,
        datediff(valid_to, '2024-01-01') as t, is_current, version
    from (
        {{{{ scd2_join('id', [
            {{'history': ref('customers'), 'columns': ['name']}},
            {{'history': ref('addresses'), 'columns': {{'city': 'town'}}}},
        ], how='{how}') }}}}
    )
"""
STATE = """
    {{ config(
        materialized='incremental', incremental_strategy='merge', unique_key='id',
        post_hook="{{ 'delete from ' ~ this ~ ' where id = 3' if env_var('V') == '3' }}") }}
    select id, if(id = 1, 'one', {{ env_var('V') }} || '') as name,
        timestamp '2024-01-01' + make_dt_interval({{ env_var('V') }}) as changed_at
    from range(1, {{ 4 if env_var('V') == '1' else 3 }})
"""
PAST = """
    {{{{ config(materialized='view') }}}}
    {{{{ scd2_from_changes(ref('state'), 'id', ['name']{}) }}}}
"""
MODELS = {
    "customers": HISTORY.format(column="name", rows=CUSTOMERS),
    "addresses": HISTORY.format(column="town", rows=ADDRESSES),
    "outer_join": JOIN.format(how="outer"),
    "inner_join": JOIN.format(how="inner"),
    "state": STATE,
    "by_commit": PAST.format(""),
    "by_column": PAST.format(", valid_from='changed_at'"),
}


@pytest.fixture(scope="module")
def tools(make_histories: MakeHistories) -> Project:
    project = make_histories("tools", MODELS)
    with pytest.MonkeyPatch.context() as patch:
        for version in "123":
            patch.setenv("V", version)
            project.dbt("build", *(["-s", "state"] if version < "3" else [])).succeeded()
    return project


def ordered(*rows: tuple[object, ...]) -> list[tuple[object, ...]]:
    """Rows in the reader's order."""
    return sorted(rows, key=repr)


def test_outer_join_keeps_the_gaps_of_one_source(tools: Project, spark: SparkReader) -> None:
    assert spark.rows(f"select * from {tools.schema}.outer_join") == ordered(
        (1, "Ann", None, 10, 20, False, 1),
        (1, "Ann", "Rome", 20, 30, False, 2),
        (1, "Anna", "Rome", 30, 40, False, 3),
        (1, "Anna", None, 40, None, True, 4),
        (2, "Bob", None, 10, 15, False, 1),
        (2, "Bob", "Oslo", 15, 20, False, 2),
        (2, "Bob", "Oslo", 25, None, True, 4),
        (2, None, "Oslo", 20, 25, False, 3),
        (3, None, "Bonn", 10, 20, False, 1),
    )


def test_inner_join_has_rows_where_all_sources_have(tools: Project, spark: SparkReader) -> None:
    assert spark.rows(f"select * from {tools.schema}.inner_join") == ordered(
        (1, "Ann", "Rome", 20, 30, False, 1),
        (1, "Anna", "Rome", 30, 40, False, 2),
        (2, "Bob", "Oslo", 15, 20, False, 1),
        (2, "Bob", "Oslo", 25, None, True, 2),
    )


def test_history_from_snapshots(tools: Project, spark: SparkReader) -> None:
    columns = "id, name, is_current, version, valid_to is null"
    assert spark.rows(f"select {columns} from {tools.schema}.by_commit") == [
        (1, "one", True, 1, True),
        (2, "1", False, 1, False),
        (2, "2", False, 2, False),
        (2, "3", True, 3, True),
        (3, "1", False, 1, False),
    ]


def test_history_from_snapshots_by_a_column_of_the_table(
    tools: Project, spark: SparkReader
) -> None:
    columns = "name, day(valid_from), day(valid_to)"
    assert spark.rows(f"select {columns} from {tools.schema}.by_column where id < 3") == [
        ("1", 2, 3),
        ("2", 3, 4),
        ("3", 4, None),
        ("one", 2, None),
    ]


def test_a_history_from_snapshots_keeps_its_keys_after_an_erasure(
    tools: Project, spark: SparkReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("V", "3")
    mark = "columns: [{name: id, config: {meta: {subject: customer}}}]"
    tools.write({"models/state.yml": f"models: [{{name: state, {mark}}}]\n"})
    others = ("customers", "addresses", "outer_join", "inner_join")
    ignore = [f"{tools.schema}.{name}.id" for name in others]
    asked = {"subject": "customer", "keys": ["2"], "ignore": ignore, "confirm": True}
    done = tools.operation("wap_erase", **asked).succeeded()
    assert "former versions of ALL keys are lost" in done.text
    columns = "id, name, is_current, version, valid_to is null"
    for view in ("by_commit", "by_column"):
        assert spark.rows(f"select {columns} from {tools.schema}.{view}") == [
            (1, "one", True, 1, True)
        ]
