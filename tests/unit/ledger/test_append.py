"""An append to the ledger: the same files, statistics and snapshot as by PyIceberg."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.types import StringType

from sparkwap.catalog.model import LedgerRows
from sparkwap.core.names import LEDGER_SCHEMA
from sparkwap.ledger import tables
from sparkwap.publish.lake import Lake

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
ROWS = [
    {
        "run_id": f"run {number:03} with a name that is longer than a bound",
        "test_id": None if number % 3 else "t",
        "failures": number - 7,
        "audited": {"model.a": "1", "model.b": None} if number % 2 else {},
        "named": ["a", None] if number % 2 else None,
        "executed_at": NOW,
        "seconds": number / 7,
    }
    for number in range(20)
]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    properties = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"{tmp_path}/warehouse"}
    with closing(Lake("lake", properties)) as lake:
        yield lake


@pytest.fixture
def by_pyiceberg(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(tables, "append", lambda *_: None)
    return monkeypatch


def table(lake: Lake, name: str = "tests") -> Table:
    return lake.catalog.load_table((LEDGER_SCHEMA, name))


def entries(lake: Lake) -> list[dict[str, Any]]:
    """Return the manifest entries of the head, without sizes and names of files."""
    loaded = table(lake)
    snapshot = loaded.current_snapshot()
    assert snapshot is not None
    found = []
    for manifest in snapshot.manifests(loaded.io):
        for entry in manifest.fetch_manifest_entry(loaded.io):
            file = entry.data_file
            found.append(
                {
                    "status": entry.status,
                    "sequence": entry.sequence_number,
                    "rows": file.record_count,
                    "values": file.value_counts,
                    "nulls": file.null_value_counts,
                    "lower": file.lower_bounds,
                    "upper": file.upper_bounds,
                    "columns": set(file.column_sizes),
                    "splits": len(file.split_offsets or ()),
                }
            )
    return found


def summary(lake: Lake) -> dict[str, Any]:
    snapshot = table(lake).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    found = snapshot.summary.additional_properties
    return {
        "operation": snapshot.summary.operation.value,
        **{key: value for key, value in found.items() if not key.endswith("files-size")},
    }


def test_an_append_is_as_pyicebergs(
    tmp_path: Path, lake: Lake, by_pyiceberg: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "other"
    properties = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"{folder}/warehouse"}
    with closing(Lake("lake", properties)) as other:
        for part in (ROWS[:12], ROWS[12:]):
            other.ledger.append(LedgerRows("tests", part))
        by_pyiceberg.undo()
        for part in (ROWS[:12], ROWS[12:]):
            lake.ledger.append(LedgerRows("tests", part))
        assert entries(lake) == entries(other)
        assert summary(lake) == summary(other)
        assert lake.ledger.rows("tests") == other.ledger.rows("tests")
        assert len(lake.ledger.rows("tests")) == len(ROWS)


def test_appends_by_both_ways_follow_each_other(
    lake: Lake, by_pyiceberg: pytest.MonkeyPatch
) -> None:
    lake.ledger.append(LedgerRows("tests", ROWS[:5]))
    by_pyiceberg.undo()
    lake.ledger.append(LedgerRows("tests", ROWS[5:10]))
    lake.ledger.append(LedgerRows("tests", ROWS[10:15]))
    by_pyiceberg.setattr(tables, "append", lambda *_: None)
    lake.ledger.append(LedgerRows("tests", ROWS[15:]))
    assert {row["run_id"] for row in lake.ledger.rows("tests")} == {r["run_id"] for r in ROWS}
    assert summary(lake)["total-records"] == "20"
    assert summary(lake)["total-data-files"] == "4"
    assert [one["sequence"] for one in entries(lake)] == [4, 3, 2, 1]
    assert len(table(lake).metadata.snapshot_log) == 4


def test_reads_skip_files_by_their_bounds(lake: Lake) -> None:
    for number in range(5):
        rows = [{"run_id": f"{number}", "started_at": NOW}]
        lake.ledger.append(LedgerRows("runs", rows))
    scan = table(lake, "runs").scan("run_id = '3'")
    assert len(list(scan.plan_files())) == 1
    assert [row["run_id"] for row in lake.ledger.of_run("runs", "3")] == ["3"]


def test_columns_that_another_version_added_stay(lake: Lake) -> None:
    lake.ledger.append(LedgerRows("runs", [{"run_id": "1", "started_at": NOW}]))
    with table(lake, "runs").update_schema() as update:
        update.add_column("of_a_later_version", StringType())
    lake.ledger.append(LedgerRows("runs", [{"run_id": "2", "started_at": NOW}]))
    found = table(lake, "runs").scan().to_arrow().to_pylist()
    assert {row["run_id"]: row["of_a_later_version"] for row in found} == {"1": None, "2": None}


def test_manifests_are_merged(lake: Lake) -> None:
    for number in range(45):
        lake.ledger.append(LedgerRows("runs", [{"run_id": f"{number}", "started_at": NOW}]))
        loaded = table(lake, "runs")
        snapshot = loaded.current_snapshot()
        assert snapshot is not None
        assert len(snapshot.manifests(loaded.io)) <= 20
    assert len(lake.ledger.rows("runs")) == 45


def test_a_failed_append_leaves_no_file(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.ledger.append(LedgerRows("runs", [{"run_id": "1", "started_at": NOW}]))
    folder = Path(table(lake, "runs").location().removeprefix("file://"))
    before = set(folder.rglob("*"))

    def fails(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sparkwap.catalog.avro.write", fails)
    with pytest.raises(Exception, match="No space left on device"):
        lake.ledger.append(LedgerRows("runs", [{"run_id": "2", "started_at": NOW}]))
    assert set(folder.rglob("*")) == before
