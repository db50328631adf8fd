"""What proves that a rewrite has the same rows; what the ledger tells about readings and work."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkwap.catalog.file_plan import DataFile, DeleteFile, StateFiles
from sparkwap.maintenance import table_use
from sparkwap.maintenance.compaction import same_by_files, statements
from sparkwap.maintenance.file_choice import Compaction
from sparkwap.maintenance.rules import Rules


def test_the_calls_of_iceberg() -> None:
    work = Compaction(7, 5, 9, files=3, bytes=1, into=1)
    (call,) = statements("lake", ("s__x", "it's"), work, Rules(sort="zorder(a)"), None)
    assert call.startswith("call `lake`.system.rewrite_data_files(table => '`s__x`.`it\\'s`', ")
    assert "strategy => 'sort', sort_order => 'zorder(a)'" in call
    (call,) = statements("lake", ("s", "t"), work, Rules(), None, ordered=True)
    assert "strategy => 'sort', options" in call
    (call,) = statements("lake", ("s__x", "t"), Compaction(7, 5, 9, manifests=200), Rules(), None)
    assert call == "call `lake`.system.rewrite_manifests(table => '`s__x`.`t`')"


def data(*rows: int, start: int = 0, sequence: int = 1) -> tuple[DataFile, ...]:
    return tuple(DataFile(f"f{start + n}", sequence, count) for n, count in enumerate(rows))


def delete(target: str | None, rows: int, *, sequence: int = 2, **more: Any) -> DeleteFile:
    return DeleteFile(f"d{target}{rows}", None, target, more.get("equality", False), sequence, rows)


OLD = data(10, 10, 10)
NEW = (OLD[0], *data(20, start=7))


@pytest.mark.parametrize(
    ("before", "after", "proven"),
    [
        ((OLD, ()), (NEW, ()), True),
        ((OLD, ()), (OLD, ()), True),
        ((OLD, ()), ((OLD[0], *data(19, start=7)), ()), False),
        ((OLD, ()), ((OLD[0], *data(21, start=7)), ()), False),
        ((OLD, ()), ((OLD[0],), ()), False),
        # Deletes of rewritten files are applied, and may be listed on.
        ((OLD, (delete("f1", 4),)), ((OLD[0], *data(16, start=7)), ()), True),
        ((OLD, (delete("f1", 4),)), ((OLD[0], *data(16, start=7)), (delete("f1", 4),)), True),
        ((OLD, (delete("f1", 4),)), (NEW, ()), False),
        # A delete that is older than its file deletes nothing.
        ((OLD, (delete("f1", 4, sequence=0),)), (NEW, ()), True),
        # A delete of a file that stays has to stay.
        ((OLD, (delete("f0", 4),)), (NEW, (delete("f0", 4),)), True),
        ((OLD, (delete("f0", 4),)), (NEW, ()), False),
        ((OLD, ()), (NEW, (delete("f0", 4),)), False),
        ((OLD, (delete("f0", 4),)), (NEW, (delete("f0", 5),)), False),
        # No count is known.
        ((OLD, (delete(None, 4),)), ((OLD[0], *data(16, start=7)), ()), False),
        ((OLD, (delete("f1", 4, equality=True),)), ((OLD[0], *data(16, start=7)), ()), False),
        # A file that is the same by its name only.
        ((OLD, ()), ((*data(10, sequence=9), *data(20, start=7)), ()), False),
    ],
)
def test_files_prove_that_no_row_is_gone(before: Any, after: Any, proven: bool) -> None:
    assert same_by_files(StateFiles(*before), StateFiles(*after)) is proven


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50), st.booleans()), max_size=12))
def test_a_faithful_rewrite_is_proven_and_one_that_loses_rows_is_not(
    given_files: list[tuple[int, int, bool]],
) -> None:
    old = data(*(rows for rows, _, _ in given_files))
    deletes = tuple(
        delete(file.path, min(rows, gone))
        for file, (rows, gone, _) in zip(old, given_files, strict=True)
        if gone
    )
    kept = [file for file, (_, _, stays) in zip(old, given_files, strict=True) if stays]
    live = sum(rows - min(rows, gone) for rows, gone, stays in given_files if not stays)
    left = tuple(one for one in deletes if one.target in {file.path for file in kept})
    before = StateFiles(old, deletes)
    merged = data(live, start=100) if live else ()
    assert same_by_files(before, StateFiles((*kept, *merged), left))
    wrong = data(live + 1, start=100)
    assert not same_by_files(before, StateFiles((*kept, *wrong), left))
    if left:
        assert not same_by_files(before, StateFiles((*kept, *merged), left[1:]))


def test_readings_of_the_ledger() -> None:
    now = datetime(2026, 1, 8, tzinfo=UTC)
    at = now - timedelta(days=2)
    nodes = [
        {"node_id": f"m.{name}", "schema": "s", "name": name, "status": "built", "built_at": at,
         "parents": above, "reads": reads}
        for name, above, reads in (
            ("a", [], {"raw.x": "token"}), ("b", ["m.a"], {}), ("c", ["m.a", "m.b"], None)
        )
    ]  # fmt: skip
    nodes.append({**nodes[1], "status": "failed"})
    test = {"run_id": "r", "audited": {"m.a": "1"}, "reads": {}, "executed_at": at}
    tests = [
        {**test, "answered": "alone"},
        {**test, "answered": "shared"},
        {**test, "answered": "incremental", "reads": {"raw.x": "token"}},
    ]
    found = table_use.readings_by_table(nodes, tests, now)
    # Two builds, a test alone, and one shared statement.
    assert found == {"s.a": 2.0, "s.b": 0.5, "raw.x": 1.0}
    assert table_use.readings_by_table([], [], now) == {}


def test_a_table_that_each_change_replaces() -> None:
    def table(*whole: bool, hours: int = 6) -> Any:
        entries = [
            {
                "snapshot-id": number,
                "parent-snapshot-id": number - 1 or None,
                "timestamp-ms": number * hours * 3_600_000,
                "summary": {
                    "operation": "overwrite",
                    "added-data-files": "2",
                    "total-data-files": "2" if one else "4",
                },
            }
            for number, one in enumerate(whole, 1)
        ]
        return {"current-snapshot-id": len(whole), "snapshots": entries}

    after = table_use.overwritten_after
    assert after(table(True, True, True), None) == 0.25
    assert after(table(False, True, True, True), None) == 0.25
    assert after(table(True, True, False), 1.0) is None
    # Of a new table, only its publishes tell whether it is replaced each time.
    assert after(table(True), None) is None
    assert after(table(True), 1.5) == 1.5


def test_how_long_earlier_compactions_took_and_waited() -> None:
    now = datetime(2026, 1, 8, tzinfo=UTC)

    def row(name: str, days: int, outcome: str, seconds: float = 4.0) -> dict[str, Any]:
        return {
            "schema": "s", "name": name, "at": now - timedelta(days=days), "action": "compact",
            "outcome": outcome, "seconds": seconds, "expected_seconds": 2.0,
        }  # fmt: skip

    rows = [
        row("a", 5, "waits"), row("a", 4, "done"), row("a", 3, "waits"), row("b", 2, "done", 8.0),
        row("c", 1, "dropped", 90.0),
    ]  # fmt: skip
    assert table_use.waited(rows, now) == {"s.a": 3.0}
    assert table_use.slower(rows) == {"": 3.0, "s.a": 2.0, "s.b": 4.0}
