"""The small files of the ledger are merged while rows are appended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table import Table
from pyiceberg.types import StringType

from sparkwap.catalog import avro
from sparkwap.catalog.model import LedgerRows
from sparkwap.core.names import LEDGER_SCHEMA
from sparkwap.ledger import merge
from sparkwap.ledger.merge import MOST_MANIFESTS, newest_to_merge
from sparkwap.ledger.tables import ex
from sparkwap.publish.lake import Lake

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    properties = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"{tmp_path}/warehouse"}
    with closing(Lake("lake", properties)) as lake:
        yield lake


def row(number: int) -> dict[str, Any]:
    return {
        "test_id": f"t{number}",
        "failures": number,
        "audited": {f"model.{number}": None, "model.b": "1"} if number % 3 else {},
        "named": ["a", None] if number % 2 else None,
        "executed_at": NOW + timedelta(minutes=number),
        "seconds": number / 7,
    }


def append(lake: Lake, *numbers: int) -> None:
    lake.ledger.append(LedgerRows("tests", [row(number) for number in numbers]))


def table(lake: Lake) -> Table:
    return lake.catalog.load_table((LEDGER_SCHEMA, "tests"))


def files(lake: Lake) -> list[str]:
    return [task.file.file_path for task in table(lake).scan().plan_files()]


def columns(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = [{key: one[key] for key in row(0)} for one in rows]
    return sorted(found, key=lambda one: one["failures"])


@given(st.lists(st.integers(1, 100), max_size=80))
def test_a_file_that_stays_is_larger_than_all_newer_ones(sizes: list[int]) -> None:
    merged = newest_to_merge(sizes)
    assert merged != 1
    if 1 < merged < len(sizes):
        assert sizes[merged] > sum(sizes[:merged])
    if len(sizes) >= MOST_MANIFESTS:
        assert merged >= MOST_MANIFESTS


def test_large_files_are_not_merged() -> None:
    large = merge._LARGEST
    assert newest_to_merge([large, *[1] * 40]) == 0
    assert newest_to_merge([*[1] * 20, large]) == 20
    assert newest_to_merge([large // 2, large // 4, large // 2, 1]) == 2
    assert newest_to_merge([1] * 1000) == merge._MOST_FILES


def test_few_files_remain_of_many_appends(lake: Lake) -> None:
    most = 0
    for number in range(200):
        append(lake, number)
        most = max(most, len(files(lake)))
    assert most <= MOST_MANIFESTS + 5
    assert columns(lake.ledger.rows("tests")) == [row(number) for number in range(200)]
    snapshot = table(lake).current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    totals = snapshot.summary.additional_properties
    assert totals["total-records"] == "200"
    assert int(totals["total-data-files"]) == len(files(lake))
    sizes = sum(Path(one.removeprefix("file://")).stat().st_size for one in files(lake))
    assert int(totals["total-files-size"]) == sizes


def test_what_a_merge_commits(lake: Lake) -> None:
    for number in range(MOST_MANIFESTS):
        append(lake, number)
    before = files(lake)
    append(lake, MOST_MANIFESTS)
    loaded = table(lake)
    last = loaded.current_snapshot()
    assert last is not None and last.summary is not None
    assert last.summary.operation.value == "append"
    assert last.summary.additional_properties["added-records"] == "1"
    replaced = next(s for s in loaded.snapshots() if s.snapshot_id == last.parent_snapshot_id)
    assert replaced.summary is not None
    assert replaced.summary.operation.value == "replace"
    assert replaced.summary.additional_properties["total-records"] == str(MOST_MANIFESTS)
    entries = [
        (entry.status.name, entry.sequence_number, entry.snapshot_id)
        for manifest in last.manifests(loaded.io)
        for entry in manifest.fetch_manifest_entry(loaded.io, discard_deleted=False)
    ]
    numbers = [last.sequence_number, replaced.sequence_number]
    assert entries[:2] == [
        ("ADDED", numbers[0], last.snapshot_id),
        ("ADDED", numbers[1], replaced.snapshot_id),
    ]
    deleted = sorted(entries[2:], key=lambda one: one[1] or 0)
    assert deleted == [("DELETED", n + 1, replaced.snapshot_id) for n in range(MOST_MANIFESTS)]
    # Who reads the state of a moment before finds its files.
    assert all(Path(one.removeprefix("file://")).exists() for one in before)
    old = loaded.scan(snapshot_id=replaced.parent_snapshot_id).to_arrow().to_pylist()
    assert sorted(one["failures"] for one in old) == list(range(MOST_MANIFESTS))


def test_bounds_of_merged_files_are_right(lake: Lake) -> None:
    for number in range(MOST_MANIFESTS + 4):
        append(lake, number)
    since = NOW + timedelta(minutes=MOST_MANIFESTS)
    late = ex.GreaterThanOrEqual("executed_at", since.isoformat())
    assert len(list(table(lake).scan(late).plan_files())) == 4
    found = lake.ledger.read("tests", late, ("failures",))
    assert sorted(one["failures"] for one in found) == [16, 17, 18, 19]


def test_files_of_former_columns(lake: Lake) -> None:
    append(lake, *range(3))
    with table(lake).update_schema() as update:
        update.add_column("of_a_later_version", StringType())
        update.rename_column("seconds", "duration")
    with table(lake).update_schema() as update:
        update.rename_column("duration", "seconds")
    for number in range(3, 40):
        append(lake, number)
    rows = lake.ledger.rows("tests")
    assert columns(rows) == [row(number) for number in range(40)]
    assert {one["of_a_later_version"] for one in rows} == {None}


def test_delete_files_are_left_to_other_engines(lake: Lake, monkeypatch: Any) -> None:
    for number in range(MOST_MANIFESTS):
        append(lake, number)
    read = avro.read

    def deletes(content: bytes) -> avro.AvroFile:
        found = read(content)
        for one in found.records:
            if "data_file" in one:
                one["data_file"]["content"] = 1
        return found

    with monkeypatch.context() as patched:
        patched.setattr("sparkwap.catalog.avro.read", deletes)
        append(lake, MOST_MANIFESTS)
    assert len(files(lake)) == MOST_MANIFESTS + 1


def test_an_unreadable_file_does_not_stop_appends(lake: Lake) -> None:
    for number in range(MOST_MANIFESTS):
        append(lake, number)
    lost = Path(files(lake)[0].removeprefix("file://"))
    content = lost.read_bytes()
    lost.unlink()
    for number in range(MOST_MANIFESTS, 25):
        append(lake, number)
    assert len(files(lake)) == 25
    folder = Path(table(lake).location().removeprefix("file://"))
    assert len(list(folder.glob("data/*"))) == 24
    lost.write_bytes(content)
    for number in range(25, 40):
        append(lake, number)
    assert len(files(lake)) < MOST_MANIFESTS
    assert columns(lake.ledger.rows("tests")) == [row(number) for number in range(40)]


def test_a_failed_commit_leaves_no_file(lake: Lake, monkeypatch: Any) -> None:
    for number in range(MOST_MANIFESTS):
        append(lake, number)
    folder = Path(table(lake).location().removeprefix("file://"))
    before = set(folder.rglob("*"))

    def fails(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lake.store, "grow", fails)
    with pytest.raises(Exception, match="No space left on device"):
        append(lake, MOST_MANIFESTS)
    assert set(folder.rglob("*")) == before
