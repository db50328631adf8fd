"""A candidate on a branch is put on a compacted main: the same rows, in the compacted files."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.bench import BRANCH, compact, on_branch, values
from hypothesis import given
from hypothesis import strategies as st

from sparkwap.catalog import Candidate, PublishRefused
from sparkwap.catalog import metadata as md
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.file_plan import DataFile, DeleteFile, StateFiles, transferable
from sparkwap.catalog.pointers import Pointer, PointerUpdate
from sparkwap.publish import cherry_pick

Bench = Any
T = ("s", "t")


# -- which changes may move ----------------------------------------------------------------------


def live_rows(state: StateFiles, deleted: dict[str, set[int]]) -> list[tuple[str, int]]:
    """The rows of a state; rows of a file are numbered, and compacted ones keep their names."""
    return sorted(
        (one.path, row)
        for one in state.data
        for row in set(range(one.rows))
        - {
            row
            for delete in state.deletes
            if delete.target == one.path and delete.sequence >= one.sequence
            for row in deleted[delete.path]
        }
    )


@given(st.randoms(use_true_random=False))
def test_what_may_move_gives_the_audited_rows(draw: random.Random) -> None:
    names = [f"f{n}" for n in range(draw.randint(1, 5))]
    origin: dict[str, list[tuple[str, int]]] = {}
    deleted: dict[str, set[int]] = {}

    def rows(state: StateFiles) -> list[tuple[str, int]]:
        return sorted(origin[path][row] for path, row in live_rows(state, deleted))

    def delete(path: str, file: DataFile, sequence: int) -> DeleteFile:
        deleted[path] = set(draw.sample(range(file.rows), draw.randint(1, file.rows)))
        return DeleteFile(path, target=file.path, sequence=sequence, rows=len(deleted[path]))

    files = [DataFile(name, 1, draw.randint(1, 3)) for name in names]
    for one in files:
        origin[one.path] = [(one.path, row) for row in range(one.rows)]
    deletes = [delete(f"d-{one.path}", one, 2) for one in files if draw.random() < 0.4]
    base = StateFiles(tuple(files), tuple(deletes))

    def without(paths: Collection[str], keep: float) -> StateFiles:
        kept = [one for one in deletes if one.target not in paths or draw.random() < keep]
        return StateFiles(tuple(one for one in files if one.path not in paths), tuple(kept))

    def some(share: float) -> list[str]:
        return [name for name in names if draw.random() < share]

    # The candidate: an append, or files written anew, and sometimes new deletes, which may replace
    # those that the file had.
    built = without(some(draw.choice((0.0, 0.3))), 0.5)
    origin["new"] = [("new", 0), ("new", 1)]
    data, late = (*built.data, DataFile("new", 3, 2)), list(built.deletes)
    for one in data:
        if draw.random() < 0.2:
            new = delete(f"late-{one.path}", one, 3)
            if draw.random() < 0.5:
                replaced = [old for old in late if old.target == one.path]
                late = [old for old in late if old not in replaced]
                deleted[new.path] |= {row for old in replaced for row in deleted[old.path]}
            late.append(new)
    built = StateFiles(data, tuple(late))
    # main: some files became one, with their deletes applied.
    compacted = some(draw.choice((0.2, 0.4, 1.0)))
    main = without(compacted, 0.5)
    origin["compacted"] = [
        origin[path][row] for path, row in live_rows(base, deleted) if path in compacted
    ]
    main = StateFiles(
        (*main.data, DataFile("compacted", 4, len(origin["compacted"]))), main.deletes
    )
    assert rows(main) == rows(base)

    change = transferable(base, built, main)
    changed = {one.path for one in base.data} - {one.path for one in built.data}
    changed |= {str(one.target) for one in set(base.deletes) ^ set(built.deletes)}
    if change is not None:
        # The new deletes come after all files of main.
        after = change.applied(built, main)
        assert rows(after) == rows(built)
        assert not changed & set(compacted)
    else:
        assert changed & set(compacted)


def test_deletes_that_may_apply_to_any_file_stop_a_change_of_files() -> None:
    a, b, new, compacted = (DataFile(name, 1, 1) for name in ("a", "b", "new", "c"))
    anywhere = DeleteFile("d", sequence=2, rows=1)
    base, main = StateFiles((a, b), (anywhere,)), StateFiles((a, compacted))
    assert transferable(base, StateFiles((a, b, new), (anywhere,)), main) is not None
    assert transferable(base, StateFiles((b, new), (anywhere,)), main) is None
    # Of all three states, it applies to the removed file in all of them.
    main = StateFiles((a, compacted), (anywhere,))
    assert transferable(base, StateFiles((b, new), (anywhere,)), main) is not None
    # Dropped by the candidate, it may have hidden rows of the other file too.
    assert transferable(base, StateFiles((b, new)), main) is None


# -- on a lake -----------------------------------------------------------------------------------


def files_of(bench: Bench, ref: str = "main") -> list[str]:
    table = bench.lake.catalog.load_table(T)
    snapshot = table.metadata.refs[ref].snapshot_id
    return [task.file.file_path for task in table.scan(snapshot_id=snapshot).plan_files()]


def document(bench: Bench) -> Any:
    return bench.lake.store.load(bench.state(T).metadata_location)


def put(bench: Bench, found: Any) -> None:
    row = bench.lake.store.backend.get(T)
    location = md.next_location(found, row.location)
    bench.lake.store.write({location: found})
    bench.lake.store.backend.apply([PointerUpdate(row, Pointer(T, "table", location))])


def main_of(bench: Bench) -> Any:
    return md.snapshot(document(bench), bench.head(T, "main"))


def test_an_append_is_published_over_a_compaction(bench: Bench) -> None:
    bench.table("t", 1, 2)
    bench.write(T, 3, branch="main")
    item = bench.candidate("t", 7)
    bench.write(T, 8)
    item = on_branch(T, item.base, bench.head(T, BRANCH))
    compacted = compact(bench.lake, T)
    with pytest.raises(PublishRefused):
        bench.publish(item)

    moved = bench.lake.branches.cherry_pick(item)
    # Readers see nothing of it yet.
    assert bench.head(T, "main") == compacted == moved.base
    assert bench.read("t") == [1, 2, 3]
    assert bench.read("t", BRANCH) == [1, 2, 3, 7, 8]

    receipt = bench.publish(moved)
    assert bench.read("t") == [1, 2, 3, 7, 8]
    # The compacted files stay compacted.
    assert len(files_of(bench)) == 3
    summary = main_of(bench)["summary"]
    assert summary["operation"] == "append"
    assert (summary["added-records"], summary["total-records"]) == ("2", "5")
    assert (summary["added-data-files"], summary["total-data-files"]) == ("2", "3")
    assert summary["source-snapshot-id"] == str(item.head)
    assert main_of(bench)["parent-snapshot-id"] == compacted

    # An incremental reader finds the rows that the snapshot says to have added.
    new = bench.lake.catalog.load_table(T).inspect.entries(snapshot_id=moved.head).to_pylist()
    added = [one for one in new if one["snapshot_id"] == moved.head and one["status"] == 1]
    assert sum(one["data_file"]["record_count"] for one in added) == 2
    assert {one["sequence_number"] for one in added} == {main_of(bench)["sequence-number"]}

    bench.lake.publishing.rollback(
        receipt.entries, run_id=receipt.run_id, publish_id=receipt.publish_id
    )
    assert bench.head(T, "main") == compacted


def one_of(ids: Iterable[int]) -> str:
    return f"id in ({', '.join(map(str, ids))})"


def deleted_on_branch(bench: Bench, *ids: int) -> Candidate:
    """A candidate that has written the files with these rows anew, without them."""
    opened = bench.lake.branches.open(T, BRANCH)
    bench.lake.catalog.load_table(T).delete(one_of(ids), branch=BRANCH)
    return on_branch(T, opened.base, bench.head(T, BRANCH))


def test_files_that_were_written_anew_are_published_beside_those_compacted(bench: Bench) -> None:
    bench.table("t", 1, 2)
    first = set(files_of(bench))
    bench.write(T, 3, branch="main")
    bench.write(T, 4, branch="main")
    others = set(files_of(bench)) - first
    item = deleted_on_branch(bench, 1)
    compact(bench.lake, T, others)
    moved = bench.lake.branches.cherry_pick(item)
    bench.publish(moved)
    assert bench.read("t") == [2, 3, 4]
    assert len(files_of(bench)) == 2
    summary = main_of(bench)["summary"]
    assert summary["operation"] == "overwrite"
    assert (summary["deleted-records"], summary["total-records"]) == ("2", "3")
    entries = bench.lake.catalog.load_table(T).inspect.entries(snapshot_id=moved.head)
    gone = [one for one in entries.to_pylist() if one["status"] == 2]
    assert [one["snapshot_id"] for one in gone] == [moved.head]


def test_a_changed_file_that_was_compacted_is_left_alone(bench: Bench) -> None:
    bench.table("t", 1, 2)
    bench.write(T, 3, branch="main")
    item = deleted_on_branch(bench, 1)
    compact(bench.lake, T)
    before, files = bench.pointers(), bench.files()
    assert bench.lake.branches.cherry_pick(item) is None
    assert (bench.pointers(), bench.files()) == (before, files)


def test_rows_of_others_are_no_compaction(bench: Bench) -> None:
    bench.table("t", 1)
    item = bench.candidate("t", 7)
    compact(bench.lake, T)
    bench.write(T, 9, branch="main")
    assert bench.lake.branches.cherry_pick(item) is None


@pytest.mark.parametrize("token", ["head", "base"])
def test_another_candidate_than_the_audited_one_stays(bench: Bench, token: str) -> None:
    bench.table("t", 1)
    item = bench.candidate("t", 7)
    if token == "head":
        bench.write(T, 8)
    else:
        item = replace(item, base=item.head)
    compact(bench.lake, T)
    assert bench.lake.branches.cherry_pick(item) is None


@pytest.mark.parametrize("version", ["1", "3"])
def test_other_format_versions_are_left_alone(bench: Bench, version: str) -> None:
    bench.table("t", 1, **{"format-version": version} if version == "1" else {})
    item = bench.candidate("t", 7)
    compact(bench.lake, T)
    found = {**document(bench), "format-version": int(version)}
    assert cherry_pick.pick(bench.lake.store, found, item.base, item.head) is None


def test_a_branch_with_another_history_is_left_alone(bench: Bench) -> None:
    bench.table("t", 1)
    bench.write(T, 2, branch="main")
    old, first = bench.head(T, "main"), files_of(bench)
    bench.write(T, 3, branch="main")
    opened = bench.lake.branches.open(T, BRANCH)
    change = MetadataChange(document(bench)).branch(BRANCH, old)
    put(bench, change.document(bench.state(T).metadata_location))
    item = on_branch(T, opened.base, bench.write(T, 7))
    compact(bench.lake, T, first)
    # It lacks row 3, and would have grown from `main` after the move.
    assert bench.lake.branches.cherry_pick(item) is None


def test_a_file_that_is_listed_twice_is_left_alone(bench: Bench) -> None:
    bench.table("t", 1, 2)
    opened = bench.lake.branches.open(T, BRANCH)
    table = bench.lake.catalog.load_table(T)
    table.add_files(files_of(bench), check_duplicate_files=False, branch=BRANCH)
    item = on_branch(T, opened.base, bench.head(T, BRANCH))
    compact(bench.lake, T)
    assert bench.lake.branches.cherry_pick(item) is None


def test_snapshots_of_the_candidate_go_with_the_move(bench: Bench) -> None:
    """An older Iceberg would delete their files when they expire, and `main` has these files."""
    bench.table("t", 1)
    base = bench.head(T, "main")
    item = bench.candidate("t", 7)
    first, head = item.head, bench.write(T, 8)
    bench.lake.catalog.load_table(T).manage_snapshots().create_tag(first, "mine").commit()
    compacted = compact(bench.lake, T)
    moved = bench.lake.branches.cherry_pick(on_branch(T, item.base, head))
    # What somebody has tagged stays.
    left = {one["snapshot-id"] for one in document(bench)["snapshots"]}
    assert left == {base, first, compacted, moved.head}
    compact(bench.lake, T)
    again = bench.lake.branches.cherry_pick(moved)
    assert moved.head not in {one["snapshot-id"] for one in document(bench)["snapshots"]}
    bench.publish(again)
    assert bench.read("t") == [1, 7, 8]


@pytest.mark.parametrize("spoilt", ["total-files-size", "current-schema-id"])
def test_whatever_is_unusual_leaves_the_candidate_alone(bench: Bench, spoilt: str) -> None:
    bench.table("t", 1)
    item = bench.candidate("t", 7)
    main = compact(bench.lake, T)
    found, files = dict(document(bench)), bench.files()
    if spoilt.startswith("total"):
        found["snapshots"] = [
            {**one, "summary": {**one["summary"], spoilt: "many"}}
            if one["snapshot-id"] == main
            else one
            for one in found["snapshots"]
        ]
    else:
        found[spoilt] = "new"
    assert cherry_pick.pick(bench.lake.store, found, item.base, item.head) is None
    assert bench.files() == files


def test_a_reader_of_a_version_finds_the_columns_of_main(bench: Bench) -> None:
    bench.table("t", 1)
    item = bench.candidate("t", 7)
    with bench.lake.catalog.load_table(T).update_schema() as update:
        update.union_by_name(pa.schema({"later": pa.string()}))
    compact(bench.lake, T)
    moved = bench.lake.branches.cherry_pick(item)
    bench.publish(moved)
    found = bench.lake.catalog.load_table(T).scan(snapshot_id=moved.head).to_arrow()
    assert found.column_names == ["id", "later"]


def test_a_manifest_that_cannot_be_read_proves_nothing(bench: Bench) -> None:
    bench.table("t", 1)
    item = bench.candidate("t", 7)
    compact(bench.lake, T)
    listed = md.snapshot(document(bench), item.head)["manifest-list"]  # type: ignore[index]
    Path(listed.removeprefix("file://")).write_bytes(b"Obj\x01")
    files = bench.files()
    assert bench.lake.branches.cherry_pick(item) is None
    assert bench.files() == files


@pytest.mark.parametrize("seed", range(12))
def test_any_history_gives_the_rows_of_the_candidate_or_is_left_alone(
    bench: Bench, seed: int
) -> None:
    draw = random.Random(seed)
    bench.table("t")
    for _ in range(draw.randint(2, 5)):
        bench.write(T, *(draw.randrange(20) for _ in range(draw.randint(1, 4))), branch="main")
    opened = bench.lake.branches.open(T, BRANCH)
    table = bench.lake.catalog.load_table(T)
    for _ in range(draw.randint(1, 3)):
        if draw.random() < 0.4:
            table.refresh().delete(one_of([draw.randrange(20)]), branch=BRANCH)
        else:
            table.refresh().append(values(draw.randrange(20, 30)), branch=BRANCH)
    item = on_branch(T, opened.base, bench.head(T, BRANCH))
    audited, base = bench.read("t", BRANCH), bench.read("t")
    for _ in range(draw.randint(1, 2)):
        present = files_of(bench)
        chosen = draw.sample(present, draw.randint(1, len(present)))
        compact(bench.lake, T, chosen)
    moved = bench.lake.branches.cherry_pick(item)
    if moved is None:
        with pytest.raises(PublishRefused):
            bench.publish(item)
        assert bench.read("t") == base
        return
    bench.publish(moved)
    assert bench.read("t") == audited
    arrow = bench.lake.catalog.load_table(T).scan().to_arrow()
    assert arrow.num_rows == int(main_of(bench)["summary"]["total-records"])
    assert isinstance(arrow, pa.Table)
    # The next run goes on from it.
    bench.publish(bench.candidate("t", 99), tag="wap_pub_later")
    assert bench.read("t") == sorted([*audited, 99])
