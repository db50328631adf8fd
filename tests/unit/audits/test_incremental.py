"""Which earlier results an audit may build on, and which files it then reads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from helpers.bench import Bench
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkwap.audits.incremental import (
    Passed,
    added_files,
    basis,
    is_due,
    key_range,
    latest,
    lost_files,
    passed,
)
from sparkwap.catalog import metadata as md
from sparkwap.catalog.file_plan import DataFile, DeleteFile, StateFiles
from sparkwap.catalog.snapshot_files import Snapshot, common_manifests

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def data(*paths: str) -> tuple[DataFile, ...]:
    return tuple(map(DataFile, paths))


def vector(target: str, rows: int, file: str = "v") -> DeleteFile:
    return DeleteFile(f"{file}{rows}", 4, target, rows=rows)


def packed(*pairs: tuple[int, int], size: int = 8) -> list[tuple[bytes, bytes]]:
    def encode(value: int) -> bytes:
        return value.to_bytes(size, "little", signed=True)

    return [(encode(low), encode(high)) for low, high in pairs]


@pytest.mark.parametrize(
    ("key", "kind", "bounds", "expected"),
    [
        ("id", "long", packed((5, 9)), (5, 9)),
        ("`ID`", "long", packed((5, 9), (-7, 2**40)), (-7, 2**40)),
        # A file is older than the wider type.
        ("id", "long", [*packed((1, 2), size=4), *packed((3, 4))], (1, 4)),
        ("id", "string", [(b"a", b"b")], None),
        ("id", "decimal(9,0)", [(b"a", b"b")], None),
        ("id", "long", None, None),
        ("id", "long", [], None),
        ("other", "long", packed((5, 9)), None),
    ],
)
def test_the_range_of_the_added_keys(
    key: str,
    kind: str,
    bounds: list[tuple[bytes, bytes]] | None,
    expected: tuple[int, int] | None,
) -> None:
    fields = [{"id": 3, "name": "Id", "type": kind}]
    document = {"current-schema-id": 0, "schemas": [{"schema-id": 0, "fields": fields}]}
    found = key_range(key, document, {3: bounds}.get)
    assert found == expected


def test_a_range_of_names_that_differ_in_case_is_not_known() -> None:
    fields = [{"id": at, "name": name, "type": "long"} for at, name in enumerate(["id", "ID"])]
    document = {"current-schema-id": 0, "schemas": [{"schema-id": 0, "fields": fields}]}
    assert key_range("id", document, lambda _: packed((1, 2))) is None


@pytest.mark.parametrize(("transform", "expected"), [("identity", None), ("bucket[4]", (1, 2))])
def test_the_values_of_an_identity_partition_are_not_those_of_the_file(
    transform: str, expected: tuple[int, int] | None
) -> None:
    found = {
        "current-schema-id": 0,
        "schemas": [{"schema-id": 0, "fields": [{"id": 3, "name": "p", "type": "int"}]}],
        "partition-specs": [
            {"spec-id": 0, "fields": []},
            {"spec-id": 1, "fields": [{"source-id": 3, "transform": transform}]},
        ],
    }
    assert key_range("p", found, lambda _: packed((1, 2))) == expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((data("a"), ()), (data("a", "b"), ()), {"b"}),
        ((data("a", "b"), ()), (data("b"), ()), set()),
        ((data("a"), ()), (data("a"), (vector("a", 2),)), set()),
        # Another deletion vector takes the place of a smaller one.
        ((data("a"), (vector("a", 2),)), (data("a", "b"), (vector("a", 3),)), {"b"}),
        # A file that is listed twice has its rows twice.
        ((data("a"), ()), (data("a", "a"), ()), {"a"}),
        ((data("a"), ()), ((*data("a"), DataFile("a", 3)), ()), {"a"}),
        # One of two listings is gone, with the deletes of both.
        ((data("a", "a"), (vector("a", 2),)), (data("a"), ()), None),
        # Rows are back.
        ((data("a"), (vector("a", 2),)), (data("a"), ()), None),
        ((data("a"), (vector("a", 2),)), (data("a"), (vector("a", 1),)), None),
        # A delete file may have other rows than the one in whose place it stands.
        (
            (data("a"), (DeleteFile("d", None, "a", rows=2),)),
            (data("a"), (DeleteFile("e", None, "a", rows=2),)),
            None,
        ),
        ((data("a"), (DeleteFile("d", None, "a", rows=2),)), (data("a"), (vector("a", 2),)), set()),
        # The file that had the deletes is gone.
        ((data("a"), (vector("a", 2),)), (data("b"), ()), {"b"}),
        # The data file is in a manifest of both states, which is left out.
        (((), (vector("a", 2),)), ((), (vector("a", 1),)), None),
        (((), (vector("a", 2),)), (data("b"), (vector("a", 2, "w"),)), {"b"}),
        # Deletes that may apply to any file.
        ((data("a"), (DeleteFile("d", rows=1),)), (data("a"), ()), None),
        ((data("a"), (DeleteFile("d", equality=True, rows=1),)), (data("a"), ()), None),
        ((data("a"), ()), (data("a", "b"), (DeleteFile("d", equality=True, rows=1),)), {"b"}),
        # The same path with another sequence number.
        (((DataFile("a", 1),), ()), ((DataFile("a", 2),), ()), {"a"}),
    ],
)
def test_the_files_that_may_have_new_rows(
    before: tuple[Any, Any], after: tuple[Any, Any], expected: set[str] | None
) -> None:
    found = added_files(StateFiles(*before), StateFiles(*after))
    assert (found if found is None else {file.path for file in found}) == expected


def document(*parents: tuple[int, int | None]) -> md.Document:
    return {
        "snapshots": [
            {"snapshot-id": one, "parent-snapshot-id": of, "sequence-number": at}
            for at, (one, of) in enumerate(parents, 1)
        ]
    }


GREW = document((1, None), (2, 1), (3, 2), (9, 1))


@pytest.mark.parametrize(
    ("results", "head", "expected"),
    [
        ({1, 2}, 3, 2),
        ({3}, 3, 3),
        # A rollback: 9 did not grow from 2.
        ({2}, 9, None),
        ({1, 2}, 9, 1),
        (set(), 3, None),
    ],
)
def test_the_newest_result_of_what_the_state_grew_from_counts(
    results: set[int], head: int, expected: int | None
) -> None:
    found = latest([Passed(one, NOW, 0) for one in results], md.ancestors(GREW, head))
    assert (found.snapshot if found else None) == expected


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([(1, 1), (2, 1)], (2, 1)),
        # The parent did not grow from 2.
        ([(1, 1), (2, 2)], (1, 1)),
        ([(1, 1), (1, 9)], (1, 9)),
        ([(2, 2)], None),
        # It was read without a parent.
        ([(2, None)], None),
    ],
)
def test_of_two_tables_both_have_grown(
    results: list[tuple[int, int | None]], expected: tuple[int, int] | None
) -> None:
    known = [Passed(one, NOW, 0, parent) for one, parent in results]
    found = latest(known, md.ancestors(GREW, 3), md.ancestors(GREW, 9))
    assert (found and (found.snapshot, found.parent)) == expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((data("a"), ()), (data("a", "b"), ()), set()),
        ((data("a", "b"), ()), (data("b"), ()), {"a"}),
        ((data("a", "b"), ()), (data("a", "b"), (vector("a", 2),)), {"a"}),
        # Another deletion vector takes the place of a smaller one.
        ((data("a"), (vector("a", 2),)), (data("a"), (vector("a", 3),)), {"a"}),
        ((data("a"), (vector("a", 2),)), (data("a"), (vector("a", 2),)), set()),
        ((data("a", "a"), ()), (data("a"), ()), {"a"}),
        # Rows that are back are no loss.
        ((data("a"), (vector("a", 2),)), (data("a"), ()), set()),
        # Deletes that may apply to any file.
        ((data("a"), ()), (data("a"), (DeleteFile("d", rows=1),)), None),
        ((data("a"), ()), (data("a"), (DeleteFile("d", equality=True, rows=1),)), None),
        # An older file is deleted from by more deletes if its number is lower.
        (((DataFile("a", 2),), ()), ((DataFile("a", 1),), ()), {"a"}),
    ],
)
def test_the_files_that_may_have_lost_rows(
    before: tuple[Any, Any], after: tuple[Any, Any], expected: set[str] | None
) -> None:
    found = lost_files(StateFiles(*before), StateFiles(*after))
    assert (found if found is None else {file.path for file in found}) == expected


def test_behind_an_expired_snapshot_nothing_is_known() -> None:
    found = document((1, None), (3, 2))
    assert latest([Passed(1, NOW, 0)], md.ancestors(found, 3)) is None


def test_results_of_format_version_1_do_not_count() -> None:
    found = document((1, None), (2, 1))
    for one in found["snapshots"]:
        del one["sequence-number"]
    assert latest([Passed(1, NOW, 0)], md.ancestors(found, 2)) is None


@pytest.mark.parametrize(
    ("age", "since", "counts"),
    [
        (timedelta(days=6), 49, True),
        (timedelta(days=7), 0, False),
        (timedelta(0), 50, False),
        # The clock that wrote it was wrong.
        (-timedelta(hours=1), 0, False),
    ],
)
def test_now_and_then_all_rows_are_read(age: timedelta, since: int, counts: bool) -> None:
    assert is_due(Passed(2, NOW - age, since), NOW, 7, 50) is not counts
    assert is_due(Passed(2, NOW - age, since), NOW, 1e12, 50) is (since == 50 or age < timedelta(0))


def test_only_clean_results_of_the_same_basis_count() -> None:
    row = {
        "status": "pass",
        "failures": 0,
        "basis": "x",
        "snapshot": 7,
        "whole_at": NOW,
        "increments": 3,
        "parent_snapshot": None,
    }
    assert passed([row], "x") == [Passed(7, NOW, 3)]
    assert passed([{**row, "parent_snapshot": 4}], "x") == [Passed(7, NOW, 3, 4)]
    for change in (
        {"status": "warn"},
        {"failures": 1},
        {"failures": None},
        {"basis": "y"},
        {"basis": None},
        {"whole_at": None},
        {"snapshot": None},
    ):
        assert passed([{**row, **change}], "x") == []


def test_the_basis_is_all_that_an_answer_follows_from() -> None:
    def table(column_id: int = 1, **more: Any) -> md.Document:
        fields = [{"id": column_id, "name": "id", "type": "long"}]
        return {"schemas": [{"schema-id": 0, "fields": fields}], "current-schema-id": 0, **more}

    session = [("spark.sql.ansi.enabled", "true"), ("4.1", "UTC", "me")]
    known = basis("select 1", [table()], session)
    assert known == basis("select 1", [table(snapshots=[])], session[::-1])
    mapping = {"properties": {"schema.name-mapping.default": "[]"}}
    others = {
        basis("select 2", [table()], session),
        basis("select 1", [table(2)], session),
        basis("select 1", [table(), table()], session),
        basis("select 1", [table(**mapping)], session),
        basis("select 1", [table()], [("spark.sql.ansi.enabled", "false"), session[1]]),
        basis("select 1", [table()], [session[0], ("4.2", "UTC", "me")]),
    }
    assert len(others | {known}) == 7


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "delete", "overwrite", "rollback"]),
        st.lists(st.integers(-2, 9), min_size=1, max_size=4),
    ),
    min_size=2,
    max_size=6,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_added_rows_answer_as_all_rows(bench: Bench, steps: list[tuple[str, list[int]]]) -> None:
    identifier = bench.table(f"t{id(steps)}")
    states: list[tuple[int, list[int]]] = []
    for what, ids in steps:
        _apply(bench, identifier, what, ids, states)
        table = bench.lake.catalog.load_table(identifier)
        if (now := table.current_snapshot()) is not None:
            states.append((now.snapshot_id, table.scan().to_arrow()["id"].to_pylist()))
    row = bench.lake.store.backend.get(identifier)
    assert row is not None
    found = bench.lake.store.load(row.location)
    for at, (head, rows) in enumerate(states):
        clean = [Passed(one, NOW, 0) for one, ids in states[: at + 1] if min(ids, default=0) >= 0]
        base = latest(clean, md.ancestors(found, head))
        if base is None:
            continue
        old, new = (
            Snapshot(bench.lake.store, found, md.snapshot(found, one) or {})
            for one in (base.snapshot, head)
        )
        common = common_manifests(old, new)
        files = added_files(old.files(common), new.files(common))
        assert files is not None
        paths = {file.path for file in files}
        scanned = bench.lake.catalog.load_table(identifier).scan(snapshot_id=head)
        added = [
            value
            for task in scanned.plan_files()
            if task.file.file_path in paths
            for value in _values(task.file.file_path)
        ]
        assert (min(added, default=0) < 0) == (min(rows, default=0) < 0)


def _values(path: str) -> list[int]:
    import pyarrow.parquet as pq

    values: list[int] = pq.read_table(path.removeprefix("file://"))["id"].to_pylist()
    return values


def _apply(
    bench: Bench,
    identifier: tuple[str, str],
    what: str,
    ids: list[int],
    states: list[tuple[int, list[int]]],
) -> None:
    from helpers.bench import values

    table = bench.lake.catalog.load_table(identifier)
    if what == "append":
        table.append(values(*ids))
    elif what == "delete" and table.current_snapshot():
        table.delete(f"id in ({', '.join(map(str, ids))})")
    elif what == "overwrite":
        table.overwrite(values(*ids))
    elif what == "rollback" and states:
        with table.manage_snapshots() as refs:
            refs.rollback_to_snapshot(states[0][0])
