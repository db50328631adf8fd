"""Proofs from metadata: compactions, overwrites, and tables that were only read."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from helpers.bench import compact, on_branch

from sparkwap.catalog import Candidate, PublishRefused
from sparkwap.catalog import metadata as md
from sparkwap.catalog.content_equality import (
    ROWS_SINCE,
    SAME_ROWS_AS,
    between,
    keeps_columns,
    newest_with_same_rows,
    rows_since,
    same_rows,
    shares_no_files,
)
from sparkwap.catalog.pointers import Conflict, Pointer, PointerUpdate
from sparkwap.catalog.sql_backend import SqlBackend
from sparkwap.publish.lake import Lake

BRANCH, SIDE = "pr_1", "s__pr_1"
Bench = Any


def table(*snapshots: tuple[int, int | None, dict[str, Any]]) -> dict[str, Any]:
    return {
        "snapshots": [
            {"snapshot-id": number, "parent-snapshot-id": parent, "summary": summary}
            for number, parent, summary in snapshots
        ]
    }


APPEND = {"operation": "append", "added-records": "3", "total-records": "3"}
COMPACTION = {
    "operation": "replace",
    "added-records": "3",
    "deleted-records": "3",
    "total-records": "3",
}


@pytest.mark.parametrize(
    ("summary", "proven"),
    [
        (COMPACTION, True),
        ({"operation": "replace", "total-records": "3"}, True),
        ({**COMPACTION, "operation": "overwrite"}, False),
        ({**COMPACTION, "deleted-records": "4"}, False),
        ({**COMPACTION, "total-records": "2"}, False),
        ({**COMPACTION, "total-position-deletes": "1"}, False),
        ({"operation": "replace"}, False),
        ({"operation": "replace", "total-records": "many"}, False),
        ({}, False),
    ],
)
def test_a_compaction_is_proven_or_not(summary: dict[str, str], proven: bool) -> None:
    document = table((1, None, APPEND), (2, 1, COMPACTION), (3, 2, summary))
    assert same_rows(document, 1, 3) is proven
    assert same_rows(document, 1, 2)


VECTORS = {**APPEND, "total-records": "9", "total-position-deletes": "3", "total-delete-files": "2"}
APPLIED = {
    "operation": "replace",
    "added-records": "4",
    "deleted-records": "6",
    "removed-delete-files": "1",
    "removed-dvs": "1",
    "removed-position-deletes": "2",
    "total-records": "7",
    "total-position-deletes": "1",
}


@pytest.mark.parametrize(
    ("changed", "proven"),
    [
        ({}, True),
        ({"added-records": "5"}, False),
        ({"deleted-records": "5"}, False),
        ({"total-records": "9"}, False),
        ({"total-position-deletes": "3"}, False),
        ({"total-equality-deletes": "1"}, False),
        # The same record may be in several files of these kinds.
        ({"removed-dvs": "0"}, False),
        ({"removed-delete-files": "2"}, False),
        ({"operation": "overwrite"}, False),
    ],
)
def test_a_compaction_may_apply_deletion_vectors(changed: dict[str, str], proven: bool) -> None:
    document = table((1, None, VECTORS), (2, 1, {**APPLIED, **changed}))
    assert same_rows(document, 1, 2) is proven


def test_a_summary_without_figures_proves_nothing() -> None:
    document = table((1, None, {"operation": "append"}), (2, 1, {"operation": "replace"}))
    assert not same_rows(document, 1, 2)


def test_a_snapshot_that_is_no_ancestor_is_not_proven() -> None:
    document = table((1, None, APPEND), (2, 9, COMPACTION), (4, 1, COMPACTION))
    assert not same_rows(document, 1, 2)
    assert not same_rows(document, 4, 1)
    assert not same_rows(document, None, 1)
    assert not same_rows(document, 1, None)
    assert same_rows(document, None, None)


def test_a_snapshot_of_maintenance_names_those_with_the_same_rows() -> None:
    named = {"operation": "replace", SAME_ROWS_AS: "2,1", "total-records": "1"}
    document = table((3, 2, named))
    # The snapshots between have expired.
    assert same_rows(document, 1, 3) and same_rows(document, 2, 3)
    assert not same_rows(document, 4, 3)
    # A statement can set entries of the summary, but not the operation.
    forged = {**named, "operation": "append"}
    assert not same_rows(table((2, None, APPEND), (3, 2, forged)), 2, 3)
    document = table((1, None, APPEND), (2, 1, APPEND), (3, 2, {**named, SAME_ROWS_AS: "2"}))
    assert same_rows(document, 2, 3)
    assert not same_rows(document, 1, 3)
    assert not same_rows(table((1, None, APPEND), (3, 1, {**named, SAME_ROWS_AS: "x"})), 1, 3)


def test_the_newest_snapshot_with_the_rows_of_another() -> None:
    more = {**APPEND, "total-records": "6"}
    after = {**COMPACTION, "total-records": "6"}
    document = table(
        (1, None, APPEND), (2, 1, COMPACTION), (3, 2, more), (4, 3, after), (5, 4, after)
    )
    assert newest_with_same_rows(document, 5) == {5: 5, 4: 5, 3: 5, 2: 2, 1: 2}
    assert newest_with_same_rows(document, 3) == {3: 3, 2: 2, 1: 2}
    assert newest_with_same_rows(document, None) == {}
    # Maintenance names snapshots that have expired since.
    named = {"operation": "replace", SAME_ROWS_AS: "2,1", "total-records": "1"}
    document = table((3, 2, named), (4, 3, more))
    assert newest_with_same_rows(document, 4) == {4: 4, 3: 3, 2: 3, 1: 3}


def test_the_time_of_the_last_change_of_rows() -> None:
    def at(number: int, parent: int | None, summary: dict[str, Any]) -> dict[str, Any]:
        (entry,) = table((number, parent, summary))["snapshots"]
        return {**entry, "timestamp-ms": number * 1000}

    snapshots = [at(1, None, APPEND), at(2, 1, COMPACTION), at(3, 2, COMPACTION)]
    assert rows_since({"snapshots": snapshots}, 3) == 1000
    # Without the change itself, the oldest known state, or what maintenance has noted.
    assert rows_since({"snapshots": snapshots[1:]}, 3) == 2000
    noted = at(3, 2, {**COMPACTION, ROWS_SINCE: "900"})
    assert rows_since({"snapshots": [noted]}, 3) == 900
    assert rows_since({"snapshots": snapshots}, None) is None
    # A build without a new row, as Spark writes it; a writer without figures may have changed rows.
    empty = {"operation": "append", "changed-partition-count": "0", "total-records": "3"}
    assert rows_since({"snapshots": [*snapshots, at(4, 3, empty)]}, 4) == 1000
    assert rows_since({"snapshots": [*snapshots, at(4, 3, {"operation": "append"})]}, 4) == 4000
    deleted = {**empty, "operation": "delete", "added-position-deletes": "1"}
    assert rows_since({"snapshots": [*snapshots, at(4, 3, deleted)]}, 4) == 4000


def test_a_whole_overwrite_shares_no_files() -> None:
    whole = {"operation": "overwrite", "added-data-files": "2", "total-data-files": "2"}
    added = {"operation": "append", "added-data-files": "1", "total-data-files": "3"}
    document = table((1, None, whole), (2, 1, added), (3, 2, whole), (4, 3, added), (5, 4, {}))
    assert shares_no_files(document, 3, 1)
    assert shares_no_files(document, 5, 1)
    assert not shares_no_files(document, 2, 1)
    assert not shares_no_files(document, 5, 3)
    assert not shares_no_files(document, 99, 1)


def test_summaries_between() -> None:
    document = table((1, None, {"n": 1}), (2, 1, {"n": 2}), (3, 2, {"n": 3}))
    assert [one["n"] for one in between(document, 1, 3)] == [3, 2]  # type: ignore[comparison-overlap]
    assert len(between(document, 9, 3)) == 3
    assert between(document, 1, None) == []


# -- on a lake -----------------------------------------------------------------------------------


def overwritten(bench: Bench, name: str, *ids: int) -> Candidate:
    opened = bench.lake.branches.open(("s", name), BRANCH)
    loaded = bench.lake.catalog.load_table(("s", name))
    loaded.overwrite(pa.table({"id": pa.array(ids, pa.int64())}), branch=BRANCH)
    return on_branch(("s", name), opened.base, bench.head(("s", name), BRANCH))


def test_a_whole_overwrite_follows_a_compaction(bench: Bench) -> None:
    bench.table("t", 1, 2)
    item = overwritten(bench, "t", 7)
    compacted = compact(bench.lake, ("s", "t"))
    assert bench.read("t") == [1, 2]
    receipt = bench.publish(item)
    assert bench.read("t") == [7]
    assert receipt.entries[0].base == compacted
    bench.lake.publishing.rollback(
        receipt.entries, run_id=receipt.run_id, publish_id=receipt.publish_id
    )
    assert bench.read("t") == [1, 2]
    assert bench.head(("s", "t"), "main") == compacted


def test_an_append_does_not_follow_a_compaction(bench: Bench) -> None:
    # The append would restore the files that the compaction has replaced.
    bench.table("t", 1, 2)
    item = bench.candidate("t", 7)
    compact(bench.lake, ("s", "t"))
    with pytest.raises(PublishRefused) as refused:
        bench.publish(item)
    assert [one.kind for one in refused.value.mismatches] == ["main"]
    assert bench.read("t") == [1, 2]


def test_a_whole_overwrite_does_not_follow_new_rows(bench: Bench) -> None:
    bench.table("t", 1)
    item = overwritten(bench, "t", 7)
    bench.write(("s", "t"), 9, branch="main")
    with pytest.raises(PublishRefused):
        bench.publish(item)
    assert bench.read("t") == [1, 9]


def replacement(bench: Bench, name: str) -> Candidate:
    expected = bench.state(("s", name)).metadata_location
    side = bench.new(name, 4)
    return replace(side, base_metadata=expected)


def test_branches_and_compactions_do_not_stop_a_replacement(bench: Bench) -> None:
    bench.table("t", 1)
    item = replacement(bench, "t")
    bench.lake.branches.open(("s", "t"), "other")
    compact(bench.lake, ("s", "t"))
    bench.publish(item)
    assert bench.read("t") == [4]


def test_new_rows_stop_a_replacement(bench: Bench) -> None:
    bench.table("t", 1)
    item = replacement(bench, "t")
    bench.write(("s", "t"), 9, branch="main")
    with pytest.raises(PublishRefused) as refused:
        bench.publish(item)
    assert [one.kind for one in refused.value.mismatches] == ["standing"]
    assert bench.read("t") == [1, 9]


# -- reads ---------------------------------------------------------------------------------------


def test_a_changed_read_is_reported_or_refused(bench: Bench) -> None:
    bench.table("t", 1)
    bench.table("r", 5)
    item = bench.candidate("t", 2)
    read = bench.lake.read([("s", "r"), ("s", "nothing")])
    bench.write(("s", "r"), 6, branch="main")
    with pytest.raises(PublishRefused) as refused:
        bench.publish(item, read=read, strict_reads=True)
    assert [(one.identifier, one.kind) for one in refused.value.mismatches] == [
        (("s", "r"), "read")
    ]
    assert bench.read("t") == [1]
    receipt = bench.publish(item, read=read)
    assert [one.identifier for one in receipt.moved_reads] == [("s", "r")]
    assert bench.read("t") == [1, 2]


def test_reads_with_equal_rows_have_not_changed(bench: Bench) -> None:
    bench.table("t", 1)
    bench.table("r", 5)
    item = bench.candidate("t", 2)
    read = bench.lake.read([("s", "r")])
    bench.lake.branches.open(("s", "r"), "other")
    compact(bench.lake, ("s", "r"))
    assert bench.publish(item, read=read, strict_reads=True).moved_reads == ()


def test_a_new_column_changes_no_row_that_was_read(bench: Bench) -> None:
    bench.table("t", 1)
    bench.table("r", 5)
    item = bench.candidate("t", 2)
    read = bench.lake.read([("s", "r")])
    bench.add_column("r", "late")
    assert bench.publish(item, read=read, strict_reads=True).moved_reads == ()


@pytest.mark.parametrize("compacted", [False, True])
def test_a_replaced_column_changes_what_was_read(bench: Bench, compacted: bool) -> None:
    bench.table("t", 1)
    bench.table("r", 5)
    item = bench.candidate("t", 2)
    read = bench.lake.read([("s", "r")])
    if compacted:
        compact(bench.lake, ("s", "r"))
    bench.rename_column("r", "id", "old")
    bench.add_column("r", "id")
    with pytest.raises(PublishRefused, match="state that was read" if compacted else "columns"):
        bench.publish(item, read=read, strict_reads=True)


def test_columns_of_a_table_that_hold_columns_are_compared_by_their_ids() -> None:
    number = {"id": 2, "name": "n", "type": "int", "required": False}
    inner: dict[str, Any] = {"type": "struct", "fields": [number]}
    column = {"id": 1, "name": "a", "required": False, "type": inner}
    tags = {"type": "map", "key-id": 4, "key": "string", "value-id": 5, "value": "string"}
    columns = [column, {"id": 3, "name": "tags", "required": False, "type": tags}]

    def kept(*fields: dict[str, Any]) -> bool:
        before = {"type": "struct", "fields": columns}
        return keeps_columns(before, {"type": "struct", "fields": list(fields)})

    new = {**number, "id": 6, "name": "m"}
    assert kept(*reversed(columns), new)
    assert kept({**column, "doc": "d", "type": {**inner, "fields": [new, number]}}, columns[1])
    for other in ({**number, "name": "m"}, {**number, "type": "long"}, {**number, "id": 6}):
        assert not kept({**column, "type": {**inner, "fields": [other]}}, columns[1])
    assert not kept({**column, "required": True}, columns[1])
    assert not kept(column, {**columns[1], "type": {**tags, "value": "int"}})
    assert not kept(column)


def test_a_table_that_was_registered_again_has_changed(bench: Bench) -> None:
    """The new table has the same snapshots and another identity."""
    bench.table("t", 1)
    bench.table("r", 5)
    item = bench.candidate("t", 2)
    read = bench.lake.read([("s", "r")])
    row = bench.lake.store.backend.get(("s", "r"))
    assert row is not None
    document = dict(bench.lake.store.load(row.location))
    document["table-uuid"] = "00000000-0000-4000-8000-000000000001"
    location = md.next_location(document, row.location)
    bench.lake.store.write({location: document})
    bench.lake.store.backend.apply([PointerUpdate(row, Pointer(("s", "r"), "table", location))])
    with pytest.raises(PublishRefused, match="state that was read"):
        bench.publish(item, read=read, strict_reads=True)


@pytest.mark.parametrize("change", ["appears", "is another", "view"])
def test_another_object_under_a_name_that_was_read(bench: Bench, change: str) -> None:
    bench.table("t", 1)
    item = bench.candidate("t", 2)
    if change == "is another":
        bench.table("r", 5)
    if change == "view":
        bench.view("r", "select 1 as id", schema="s")
    read = bench.lake.read([("s", "r")])
    if change == "view":
        bench.view("r", "select 2 as id", schema="s")
    else:
        if change == "is another":
            bench.lake.catalog.drop_table(("s", "r"))
        bench.table("r", 5)
    with pytest.raises(PublishRefused, match="state that was read"):
        bench.publish(item, read=read, strict_reads=True)


def test_a_read_that_changes_before_the_transaction(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It changes after the metadata was read; the transaction locks the row."""
    bench.table("t", 1)
    bench.table("r", 5)
    item = bench.candidate("t", 2)
    read = bench.lake.read([("s", "r")])
    bench.lake.ledger.ensure({"publishes"})
    real, seen = SqlBackend.apply, []

    def apply(self: SqlBackend, *args: Any, **options: Any) -> None:
        if options.get("requires") and not seen:
            seen.append(1)
            monkeypatch.setattr(SqlBackend, "apply", real)
            bench.write(("s", "r"), 6, branch="main")
            monkeypatch.setattr(SqlBackend, "apply", apply)
        try:
            real(self, *args, **options)
        except Conflict as conflict:
            seen.append(str(conflict))  # type: ignore[arg-type]
            raise

    monkeypatch.setattr(SqlBackend, "apply", apply)
    with pytest.raises(PublishRefused):
        bench.publish(item, read=read, strict_reads=True)
    assert "s.r, which was read, changed meanwhile" in str(seen)
    assert bench.read("t") == [1]


def cross(bench: Bench) -> list[str]:
    """Return the results of two publishes at once; each has read the table of the other."""
    for name in "ab":
        bench.table(name, 1)
    items = [bench.candidate(name, 2) for name in "ab"]
    read = bench.lake.read([("s", name) for name in "ab"])
    bench.lake.ledger.ensure({"publishes"})
    outcomes: list[str] = []

    def publish(mine: int) -> None:
        lake = Lake("lake", bench.properties)
        options: dict[str, Any] = {"run_id": "x", "tag": "t", "tag_max_age_ms": None}
        try:
            lake.publishing.publish(
                [items[mine]],
                read=[read[1 - mine]],
                strict_reads=True,
                branch=BRANCH,
                **options,
            )
            outcomes.append("published")
        except PublishRefused:
            outcomes.append("refused")
        finally:
            lake.close()

    threads = [threading.Thread(target=publish, args=(mine,)) for mine in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(outcomes)


def test_two_publishes_that_read_each_others_table(bench: Bench) -> None:
    # If both were published, neither would have been built on the result of the other.
    assert cross(bench) == ["published", "refused"]
    assert sorted([bench.read("a"), bench.read("b")]) == [[1], [1, 2]]
