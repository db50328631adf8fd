"""Reading a lake in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparkwap import landing
from sparkwap.catalog.model import LedgerRows
from sparkwap.core import dbt_cli
from sparkwap.core.errors import ConfigError
from sparkwap.landing import raw_models
from sparkwap.page import queries, raw_tables
from sparkwap.publish.lake import Lake

BRANCH = "pr_1"
NOW = datetime.now(UTC)


def ids(*values: int, **more: Any) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64()), **more})


@pytest.fixture
def described(tmp_path: Path) -> dbt_cli.LakePlace:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    return dbt_cli.LakePlace(
        "lake", {"type": "sql", "uri": uri, "warehouse": f"{tmp_path}/warehouse"}
    )


@pytest.fixture
def lake(described: dbt_cli.LakePlace) -> Iterator[Lake]:
    lake = Lake("lake", dict(described.properties))
    lake.ensure_schema("s")
    yield lake
    lake.close()


def table(lake: Lake, name: str, rows: pa.Table, schema: str = "s") -> None:
    lake.catalog.create_table((schema, name), rows.schema).append(rows)


def test_reading_creates_no_lake(described: dbt_cli.LakePlace, tmp_path: Path) -> None:
    with queries.opened(described) as lake:
        assert lake is None
    assert list(tmp_path.iterdir()) == []


def test_only_the_last_days_of_the_ledger_are_read(lake: Lake) -> None:
    def rows(name: str, time: str) -> LedgerRows:
        ages = {"old": NOW - timedelta(days=40), "new": NOW - timedelta(days=2)}
        return LedgerRows(name, [{"run_id": k, time: at} for k, at in ages.items()])

    lake.ledger.append(
        [
            rows("runs", "ended_at"),
            rows("nodes", "built_at"),
            rows("tests", "executed_at"),
            rows("metrics", "measured_at"),
        ]
    )
    found = queries.recent_history(lake, 30, NOW)
    for part in (found.runs, found.nodes, found.tests, found.metrics):
        assert [row["run_id"] for row in part] == ["new"]
    assert len(queries.recent_history(lake, 90, NOW).tests) == 2


def test_an_empty_lake_has_no_history(lake: Lake) -> None:
    assert queries.recent_history(lake, 30, NOW) == queries.RecentHistory((), (), (), ())
    assert queries.branch_overviews(lake) == []
    assert queries.versioned(lake) == []


def test_a_branch_is_compared_with_main(lake: Lake) -> None:
    table(lake, "a", ids(1, 2))
    table(lake, "b", ids(1))
    lake.branches.open(("s", "a"), BRANCH)
    lake.catalog.load_table(("s", "a")).append(ids(3), branch=BRANCH)
    lake.branches.open(("s", "b"), BRANCH)
    lake.ensure_schema("s__pr_1", BRANCH)
    table(lake, "c", ids(1, 2, 3), "s__pr_1")
    lake.branches.clone(("s", "b"), "s__pr_1")
    with lake.catalog.load_table(("s__pr_1", "b")).update_schema() as update:
        update.union_by_name(pa.schema({"vat": pa.string()}))
    (one,) = queries.branch_overviews(lake)
    assert (one.name, len(one.open.tables), len(one.open.side)) == (BRANCH, 2, 2)
    found = {one.name: one for one in queries.compare(lake, BRANCH, "main")}
    assert found["s.a"].change == "+1 rows"
    assert found["s.a"].written == "1 commit (append): 1 in, 0 out"
    assert found["s.b"].change == "column vat added (string); same number of rows"
    assert found["s.c"].change == "new table"
    swapped = {one.name: one for one in queries.compare(lake, "main", BRANCH)}
    assert swapped["s.a"].change == "-1 rows"
    assert swapped["s.c"].change == "missing"


def test_a_branch_without_writes_is_the_same(lake: Lake) -> None:
    table(lake, "a", ids(1, 2))
    lake.branches.open(("s", "a"), BRANCH)
    (one,) = queries.compare(lake, BRANCH, "main")
    assert (one.same, one.change, one.written) == (True, "the same snapshot", "")


def test_an_unknown_branch_is_an_error(lake: Lake) -> None:
    with pytest.raises(ConfigError, match="There is no audit branch 'pr_9'"):
        queries.compare(lake, "pr_9", "main")


# Histories of keys


@pytest.fixture
def people(lake: Lake) -> queries.Versioned:
    times = [datetime(2026, 1, day) for day in (1, 5, 1)]
    rows = ids(
        7, 7, 8,
        city=pa.array(["Rome", "Oslo", "Bonn"]),
        tags=pa.array([["a"], [], None]),
        address=pa.array([{"zip": 1}, None, None]),
        _loaded_at=pa.array([1, 2, 3]),
        valid_from=pa.array([times[0], times[1], times[2]], pa.timestamp("us")),
        valid_to=pa.array([times[1], None, None], pa.timestamp("us")),
    )  # fmt: skip
    table(lake, "people", rows)
    table(lake, "plain", ids(1))
    lake.ensure_schema("s__pr_1", BRANCH)
    table(lake, "people", rows, "s__pr_1")
    (found,) = queries.versioned(lake)
    return found


def test_tables_with_versions_are_found_by_their_columns(people: queries.Versioned) -> None:
    assert (people.name, people.start, people.end) == ("s.people", "valid_from", "valid_to")
    assert people.keys == ("id", "city"), "other columns cannot be counted or are no keys"


def test_keys_with_most_versions_come_first(lake: Lake, people: queries.Versioned) -> None:
    assert queries.keys(lake, people, "id") == [("7", 2), ("8", 1)]


def test_the_versions_of_a_key_are_oldest_first(lake: Lake, people: queries.Versioned) -> None:
    found = queries.versions(lake, people, "id", "7", people.columns)
    assert [row["city"] for row in found] == ["Rome", "Oslo"]
    assert queries.versions(lake, people, "id", "9", people.columns) == []
    assert len(queries.versions(lake, people, "city", "Bonn", people.columns)) == 1


def test_a_value_of_another_type_is_an_error(lake: Lake, people: queries.Versioned) -> None:
    with pytest.raises(ValueError, match="seven"):
        queries.versions(lake, people, "id", "seven", people.columns)


def test_each_offered_key_is_found(lake: Lake) -> None:
    at = datetime(2026, 1, 1, 6)
    rows = ids(
        1, 2,
        local=pa.array([at, None], pa.timestamp("us")),
        at=pa.array([at, None], pa.timestamp("us", "UTC")),
        day=pa.array([at.date(), None]),
        raw=pa.array([b"x", None]),
    )  # fmt: skip
    table(lake, "times", rows)
    times = queries.Versioned(("s", "times"), "at", "at", tuple(rows.column_names))
    for key in ("local", "at", "day"):
        ((value, _),) = queries.keys(lake, times, key)
        assert len(queries.versions(lake, times, key, value, times.columns)) == 1
    with pytest.raises(ValueError, match="raw"):
        queries.versions(lake, times, "raw", "x", times.columns)


# Quarantine


def test_the_quarantine_has_the_bad_rows_and_the_number_of_good_ones(
    lake: Lake, tmp_path: Path
) -> None:
    lines = [("row", None), ("bad", "amount is not a bigint: x"), ("bad", "gone"), ("file", None)]
    rows = pa.table(
        {
            "_kind": pa.array([kind for kind, _ in lines]),
            "_error": pa.array([error for _, error in lines]),
            "_raw": pa.array(["", "a,x", "b,y", ""]),
            "_file_path": pa.array(["a.csv"] * 4),
            "_row": pa.array([1, 2, 3, 0], pa.int64()),
            "_batch": pa.array([1, 1, 1, 1], pa.int64()),
        }
    )
    table(lake, "raw_orders", rows)
    entry = landing.parse_entry(
        {
            "entity": "orders",
            "kind": "extract",
            "format": "csv",
            "files": [{"match": "*.csv", "load": "full"}],
            "key": ["id"],
            "columns": {"id": "bigint"},
        }
    )
    model = raw_models.RawModel("raw_orders", ("s", "raw_orders"), tmp_path, entry)
    never = raw_models.RawModel("raw_never", ("s", "raw_never"), tmp_path, entry)
    table(lake, "orders", pa.table({"id": [1]}))
    (found,) = raw_tables.quarantines(lake, [model, never])
    assert raw_tables.quarantines(lake, []) == [found], "of no model that was parsed last"
    assert (found.table, found.good, [row.line for row in found.rows]) == (
        "s.raw_orders",
        1,
        [2, 3],
    )
    assert found.rows[0].reason == "amount is not a bigint: x"


@pytest.mark.parametrize("content", [None, "{", ""])
def test_an_unreadable_artifact_is_none(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "manifest.json"
    if content is not None:
        path.write_text(content)
    assert queries.artifact(path) is None
