"""Publish: all or nothing, only the candidate, and the state that readers see."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from helpers.bench import on_branch
from sqlalchemy.exc import OperationalError

from sparkwap.catalog import (
    CommitUnknown,
    LedgerRows,
    PublishRefused,
    PublishUnverified,
)
from sparkwap.catalog import metadata as md
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.files import WarehouseFiles
from sparkwap.catalog.pointers import Pointer, PointerUpdate
from sparkwap.catalog.sql_backend import SqlBackend
from sparkwap.core.errors import CatalogError
from sparkwap.publish.lake import Lake
from sparkwap.publish.publishing import Publishing
from sparkwap.publish.staging import Staging

BRANCH, SIDE, TAG = "pr_1", "s__pr_1", "wap_pub_1a2b3c4d"
Bench = Any


def test_branches_clones_new_tables_and_views_in_one_publish(bench: Bench) -> None:
    bench.table("a", 1)
    bench.table("empty")
    bench.table("c", 1, 2)
    items = [bench.candidate("a", 2), bench.candidate("empty", 5)]
    items += [bench.changed("c", 3), bench.new("n", 4)]
    bench.view("v", f"select * from {SIDE}.c")
    receipt = bench.publish(*items, bench.side("v"), tag_max_age_ms=1000)
    assert bench.read("a") == [1, 2]
    assert bench.read("empty") == [5]
    assert bench.read("c") == [3]
    assert bench.read("n") == [4]
    assert [entry.how for entry in receipt.entries] == ["branch", "branch", "clone", "new", "view"]
    for entry in receipt.entries[:4]:
        state = bench.state(entry.identifier)
        assert state.metadata_location == entry.published_metadata_location
        assert state.main == entry.candidate == state.refs[TAG].snapshot_id
        assert set(state.refs) == {"main", TAG}
        assert state.properties["write.wap.enabled"] == "true"
        assert not any(key.startswith("wap.") for key in state.properties)
    assert [column.name for column in bench.state(("s", "c")).columns] == ["id", "extra"]
    assert SIDE not in bench.lake.schemas()
    assert bench.lake.branches.all() == []


def test_the_tag_has_the_given_maximum_age(bench: Bench) -> None:
    bench.table("a", 1)
    bench.publish(bench.candidate("a", 2), tag_max_age_ms=1000)
    table = bench.lake.catalog.load_table(("s", "a"))
    assert table.metadata.refs[TAG].max_ref_age_ms == 1000


def _main_moves(bench: Bench) -> None:
    bench.write(("s", "b"), 99, branch="main")


def _head_moves(bench: Bench) -> None:
    bench.write(("s", "b"), 99)


def _side_moves(bench: Bench) -> None:
    bench.lake.catalog.load_table((SIDE, "n")).delete()


def _clone_base_moves(bench: Bench) -> None:
    bench.write(("s", "c"), 99, branch="main")


def _clone_definition_moves(bench: Bench) -> None:
    with bench.lake.catalog.load_table(("s", "c")).update_schema() as update:
        update.add_column("late", update._schema.find_type("id"))


def _column_is_replaced(bench: Bench) -> None:
    bench.rename_column("b", "id", "old")
    bench.add_column("b", "id")


def _name_is_taken(bench: Bench) -> None:
    bench.table("n", 1)


def _table_goes(bench: Bench) -> None:
    bench.lake.catalog.drop_table(("s", "b"))


def _table_is_made_anew(bench: Bench) -> None:
    bench.lake.catalog.drop_table(("s", "c"))
    bench.table("c", 1)


def _branch_goes(bench: Bench) -> None:
    bench.lake.catalog.load_table(("s", "b")).manage_snapshots().remove_branch(BRANCH).commit()


@pytest.mark.parametrize(
    ("change", "name", "what"),
    [
        (_main_moves, "b", "main"),
        (_head_moves, "b", "audit branch 'pr_1'"),
        (_branch_goes, "b", "audit branch 'pr_1'"),
        (_column_is_replaced, "b", "definition"),
        (_table_goes, "b", "table"),
        (_side_moves, "n", "side object"),
        (_name_is_taken, "n", "live object"),
        (_clone_base_moves, "c", "main"),
        (_clone_definition_moves, "c", "definition"),
        (_table_is_made_anew, "c", "table"),
    ],
)
def test_a_change_after_the_audit_stops_the_whole_publish(
    bench: Bench, change: Callable[[Bench], None], name: str, what: str
) -> None:
    for table in "abc":
        bench.table(table, 1)
    items = [bench.candidate("a", 2), bench.candidate("b", 2)]
    items += [bench.changed("c", 3), bench.new("n", 4)]
    change(bench)
    before, files = bench.pointers(), bench.files()
    with pytest.raises(PublishRefused) as refused:
        bench.publish(*items)
    assert [(m.identifier, m.what) for m in refused.value.mismatches] == [(("s", name), what)]
    assert "build and audit it again" in str(refused.value)
    assert (bench.pointers(), bench.files()) == (before, files)


def test_a_new_column_does_not_stop_a_publish(bench: Bench) -> None:
    bench.table("a", 1)
    item = bench.candidate("a", 2)
    bench.add_column("a", "late")
    with bench.lake.catalog.load_table(("s", "a")).update_schema() as update:
        update.update_column("id", doc="a comment")
    bench.publish(item)
    assert bench.read("a") == [1, 2]


def test_a_candidate_without_new_rows_has_the_present_columns(bench: Bench) -> None:
    bench.table("a", 1)
    bench.rename_column("a", "id", "old")
    opened = bench.lake.branches.open(("s", "a"), BRANCH)
    assert opened.base is not None
    bench.publish(on_branch(("s", "a"), opened.base, opened.base))
    assert bench.state(("s", "a")).main == opened.base


@pytest.mark.parametrize(("schema", "name"), [("s", "Twin"), ("S", "twin")])
def test_a_new_name_that_differs_in_case_only_from_a_live_one(
    bench: Bench, schema: str, name: str
) -> None:
    item = bench.new("twin", 1)
    bench.lake.ensure_schema(schema)
    bench.table(name, 2, schema=schema)
    before, files = bench.pointers(), bench.files()
    with pytest.raises(PublishRefused, match=rf"s\.twin: .* found {schema}\.{name}\n.*`alias`"):
        bench.publish(item)
    assert (bench.pointers(), bench.files()) == (before, files)
    bench.lake.catalog.drop_table((schema, name))
    bench.publish(item)
    assert bench.read("twin") == [1]


def test_two_new_names_of_one_publish_that_differ_in_case_only(bench: Bench) -> None:
    with pytest.raises(PublishRefused) as refused:
        bench.publish(bench.new("twin", 1), bench.new("Twin", 2))
    assert [m.identifier[1] for m in refused.value.mismatches] == ["Twin", "twin"]
    assert bench.lake.relations("s") == {}


def test_a_name_in_another_case_that_is_created_during_staging(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = bench.new("twin", 1)
    staged = Staging.staged

    def and_a_twin(self: Staging, *args: Any, **more: Any) -> Any:
        found = staged(self, *args, **more)
        bench.table("Twin", 2)
        return found

    monkeypatch.setattr(Staging, "staged", and_a_twin)
    with pytest.raises(PublishRefused, match=r"found s\.Twin"):
        bench.publish(item)
    assert set(bench.lake.relations("s")) == {"Twin"}


def test_one_error_names_all_mismatches(bench: Bench) -> None:
    for table in "ab":
        bench.table(table, 1)
    items = [bench.candidate(table, 2) for table in "ab"]
    for table in "ab":
        bench.write(("s", table), 9, branch="main")
    with pytest.raises(PublishRefused) as refused:
        bench.publish(*items)
    assert len(refused.value.mismatches) == 2


def test_a_branch_that_did_not_grow_from_its_base(bench: Bench) -> None:
    table = bench.table("t", 1)
    old = bench.state(table).main
    bench.write(table, 2, branch="main")
    loaded = bench.lake.catalog.load_table(table)
    loaded.manage_snapshots().create_branch(old, BRANCH).commit()
    item = on_branch(table, bench.state(table).main, bench.write(table, 3))
    with pytest.raises(PublishRefused, match="history of audit branch"):
        bench.publish(item)


def test_a_view_that_has_replaced_the_table(bench: Bench) -> None:
    bench.table("t", 1)
    item = bench.candidate("t", 2)
    bench.view("t", "select 1", schema="s")
    with pytest.raises(PublishRefused, match=r"s\.t: table: expected a table, found a view at"):
        bench.publish(item)


def test_a_branch_with_the_name_of_the_receipt(bench: Bench) -> None:
    table = bench.table("t", 1)
    item = bench.candidate("t", 2)
    loaded = bench.lake.catalog.load_table(table)
    loaded.manage_snapshots().create_branch(item.base, TAG).commit()
    with pytest.raises(PublishRefused, match="expected a tag or nothing, found a branch"):
        bench.publish(item)


def test_a_clone_that_has_lost_its_rows(bench: Bench) -> None:
    bench.table("t", 1)
    bench.changed("t", 2)
    row = bench.lake.store.backend.get((SIDE, "t"))
    assert row is not None
    change = MetadataChange(bench.lake.store.load(row.location)).remove_refs("main")
    document = {**change.document(row.location), "snapshot-log": []}
    location = md.next_location(document, row.location)
    bench.lake.store.write({location: document})
    bench.lake.store.backend.apply([PointerUpdate(row, Pointer((SIDE, "t"), "table", location))])
    with pytest.raises(PublishRefused, match="expected a snapshot on main, found no snapshot"):
        bench.publish(bench.side("t"))
    assert bench.read("t") == [1]


def test_changes_of_others_to_a_cloned_table_survive(bench: Bench) -> None:
    table = bench.table("t", 1, **{"gc.enabled": "false", "mine": "old", "gone": "x"})
    first = bench.state(table).main
    bench.lake.branches.open(table, BRANCH)
    item = bench.changed("t", 3)
    bench.lake.branches.open(table, "other")
    head = bench.write(table, 7, branch="other")
    loaded = bench.lake.catalog.load_table(table)
    loaded.manage_snapshots().create_tag(first, "keep").commit()
    with bench.lake.catalog.load_table(table).transaction() as transaction:
        transaction.set_properties(mine="new").remove_properties("gone")
    bench.publish(item)
    state = bench.state(table)
    assert set(state.refs) == {"main", "other", "wap_base_other", "keep", TAG}
    assert state.refs["other"].snapshot_id == head
    assert (bench.read("t"), bench.read("t", "other"), bench.read("t", "keep")) == (
        [3],
        [1, 7],
        [1],
    )
    assert (state.properties["gc.enabled"], state.properties["mine"]) == ("false", "new")
    assert "gone" not in state.properties
    assert "write.metadata.delete-after-commit.enabled" not in state.properties
    bench.write(table, 8, branch="main")
    assert bench.read("t") == [3, 8]


def test_the_snapshot_log_has_published_snapshots_only(bench: Bench) -> None:
    table = bench.table("t", 1)
    first = bench.state(table).main
    bench.changed("t", 3)
    bench.lake.catalog.load_table((SIDE, "t")).delete()
    bench.changed("t", 4)
    item = bench.side("t")
    bench.publish(item)
    history = [entry.snapshot_id for entry in bench.lake.catalog.load_table(table).history()]
    assert history == [first, bench.state(table).main]


def test_a_new_table_over_another_kind(bench: Bench) -> None:
    bench.view("x", "select 1", schema="s")
    old_view = bench.state(("s", "x")).metadata_location
    old_table = bench.table("y", 1)
    location = bench.state(old_table).metadata_location
    new = bench.new("x", 4)
    bench.view("y", "select 2")
    receipt = bench.publish(replace(new, base_metadata=old_view), bench.side("y", location))
    assert [entry.how for entry in receipt.entries] == ["replace", "replace"]
    assert bench.lake.relations("s") == {"x": "table", "y": "view"}
    assert receipt.entries[0].base_metadata_location == old_view


def test_a_view_is_rewritten_to_live_names(bench: Bench) -> None:
    bench.lake.ensure_schema("other__pr_1", BRANCH)
    sql = f"select * from {SIDE}.a join lake.`other__pr_1`.b using (id) where x <> '{SIDE}.a'"
    bench.view("v", sql, namespace=SIDE)
    bench.publish(bench.side("v"))
    state = bench.state(("s", "v"))
    document = bench.lake.store.load(state.metadata_location)
    (version,) = document["versions"]
    assert version["representations"][0]["sql"] == (
        "select * from s.a join lake.`other`.b using (id) where x <> 's.a'"
    )
    assert version["default-namespace"] == ["s"]
    assert state.location.endswith("warehouse/s/v")
    assert not any(SIDE in file for file in bench.files())


def test_a_view_that_may_still_read_a_side_schema_is_not_published(bench: Bench) -> None:
    bench.view("v", f"select * from identifier(concat('{SIDE}', '.a'))", namespace=SIDE)
    with pytest.raises(PublishRefused, match="a text that reads published tables"):
        bench.publish(bench.side("v"))
    assert "v" not in bench.lake.relations("s")


def test_a_view_over_a_view_keeps_its_identity(bench: Bench) -> None:
    bench.view("v", "select 1", schema="s")
    live = bench.state(("s", "v"))
    bench.view("v", "select 2")
    bench.publish(bench.side("v", live.metadata_location))
    assert bench.state(("s", "v")).uuid == live.uuid


def test_held_side_objects_stay(bench: Bench) -> None:
    items = [bench.new("n", 4), bench.new("held", 5)]
    bench.publish(items[0])
    assert bench.lake.relations(SIDE) == {"held": "table"}
    assert SIDE in bench.lake.schemas()


def test_a_new_table_without_snapshot(bench: Bench) -> None:
    receipt = bench.publish(bench.new("n"))
    assert receipt.entries[0].candidate is None
    assert bench.state(("s", "n")).refs == {}


def test_nothing_to_publish(bench: Bench) -> None:
    receipt = bench.publish(appends=[LedgerRows("runs", [{"run_id": "x"}])])
    assert receipt.entries == ()
    (run,) = bench.lake.ledger.runs()
    assert (run["run_id"], run["publish_id"]) == ("x", receipt.publish_id)


def test_one_name_twice(bench: Bench) -> None:
    bench.table("a", 1)
    item = bench.candidate("a", 2)
    with pytest.raises(ValueError, match=r"s\.a"):
        bench.publish(item, item)


class _Crash(BaseException):
    """A BaseException, so that no handler of Exception catches it."""


def _crash_before_the_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    def apply(*_args: Any, **_options: Any) -> None:
        raise _Crash

    monkeypatch.setattr(SqlBackend, "apply", apply)


def _crash_in_the_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = SqlBackend._apply_one, []

    def apply_one(self: SqlBackend, connection: Any, swap: Any) -> None:
        calls.append(swap)
        if len(calls) == 3:
            raise _Crash
        real(self, connection, swap)

    monkeypatch.setattr(SqlBackend, "_apply_one", apply_one)


def _disk_full(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = WarehouseFiles.write, []

    def write(self: WarehouseFiles, location: str, data: bytes) -> None:
        calls.append(location)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        real(self, location, data)

    monkeypatch.setattr(WarehouseFiles, "write", write)


@pytest.mark.parametrize(
    "failure", [_crash_before_the_transaction, _crash_in_the_transaction, _disk_full]
)
def test_a_failure_during_the_publish_changes_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, failure: Callable[[Any], None]
) -> None:
    for table in "abc":
        bench.table(table, 1)
    items = [bench.candidate("a", 2), bench.candidate("b", 2), bench.changed("c", 3)]
    items.append(bench.new("n", 4))
    bench.lake.ledger.ensure({"publishes"})
    before, files = bench.pointers(), bench.files()
    with monkeypatch.context() as context:
        failure(context)
        with pytest.raises((_Crash, OSError)):
            bench.publish(*items)
    assert (bench.pointers(), bench.files()) == (before, files)
    assert bench.lake.ledger.publishes() == []
    bench.publish(*items)
    assert [bench.read(table) for table in "abcn"] == [[1, 2], [1, 2], [3], [4]]


def test_files_in_progress_are_deleted_after_another_file_fails(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, writing = WarehouseFiles.write, threading.Event()

    def write(self: WarehouseFiles, location: str, data: bytes) -> None:
        if location.endswith("bad"):
            writing.wait(10)
            raise OSError(28, "No space left on device")
        writing.set()
        time.sleep(0.2)
        real(self, location, data)

    monkeypatch.setattr(WarehouseFiles, "write", write)
    with pytest.raises(OSError, match="No space left"):
        bench.lake.store.write({f"{bench.folder}/{name}": {} for name in ("bad", "good")})
    time.sleep(0.5)
    assert not (bench.folder / "good").exists()


def test_other_writers_do_not_stop_a_publish(bench: Bench) -> None:
    names = [f"t{number}" for number in range(6)]
    for name in names:
        bench.table(name, 1)
    items = [bench.candidate(name, 2) for name in names]
    other, stop, done = Lake("lake", bench.properties), threading.Event(), []

    def write() -> None:
        # Fewer writes than a commit has tries: on a busy machine each may cause a retry.
        while not stop.is_set() and len(done) < 8:
            other.branches.open(("s", names[len(done) % 6]), f"b{len(done)}")
            done.append(1)
            time.sleep(0.05)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        time.sleep(0.2)
        bench.publish(*items)
        time.sleep(0.2)
    finally:
        stop.set()
        writer.join()
    assert all(bench.read(name) == [1, 2] for name in names)
    branches = {ref for name in names for ref in bench.state(("s", name)).refs}
    assert {f"b{number}" for number in range(len(done))} <= branches


def test_a_commit_between_staging_and_transaction(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = bench.table("t", 1)
    item = bench.candidate("t", 2)
    bench.lake.ledger.ensure({"publishes"})
    real, tries = SqlBackend.apply, []

    def apply(self: SqlBackend, *args: Any, **options: Any) -> None:
        tries.append(1)
        if len(tries) == 1:
            monkeypatch.setattr(SqlBackend, "apply", real)
            bench.lake.branches.open(table, "other")
            monkeypatch.setattr(SqlBackend, "apply", apply)
        real(self, *args, **options)

    monkeypatch.setattr(SqlBackend, "apply", apply)
    bench.publish(item)
    assert len(tries) == 2
    assert (bench.read("t"), "other" in bench.state(table).refs) == ([1, 2], True)
    assert len(bench.lake.ledger.publishes()) == 1


@pytest.mark.long
def test_a_writer_that_always_wins(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.table("t", 1)
    item = bench.candidate("t", 2)
    bench.lake.ledger.ensure({"publishes"})
    from sparkwap.catalog.pointers import Conflict

    def apply(*_args: Any, **_options: Any) -> None:
        raise Conflict(None, "the database is busy")

    before, files = bench.pointers(), bench.files()
    with monkeypatch.context() as context:
        context.setattr(SqlBackend, "apply", apply)
        context.setattr("sparkwap.catalog.store._LONGEST_WAIT_SECONDS", 0.001)
        with pytest.raises(CatalogError, match="20 times in a row"):
            bench.publish(item)
    assert (bench.pointers(), bench.files()) == (before, files)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("reachable", [True, False])
def test_a_connection_that_breaks_in_the_commit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, committed: bool, reachable: bool
) -> None:
    bench.table("t", 1)
    item = bench.candidate("t", 2)
    bench.lake.ledger.ensure({"publishes"})
    real, before, files = SqlBackend.apply, bench.pointers(), bench.files()

    def apply(self: SqlBackend, *args: Any, **options: Any) -> None:
        if committed:
            real(self, *args, **options)
        if not reachable:
            context.setattr(SqlBackend, "fate", lambda *_: 1 / 0)
        raise OperationalError("commit", {}, Exception("gone"), connection_invalidated=True)

    with monkeypatch.context() as context:
        context.setattr(SqlBackend, "apply", apply)
        context.setattr("sparkwap.catalog.store._LOOK_WAITS_SECONDS", (0.0,))
        if committed and reachable:
            bench.publish(item)
        elif reachable:
            with pytest.raises(CatalogError, match="Nothing was changed"):
                bench.publish(item)
        else:
            with pytest.raises(CommitUnknown, match="wap_status"):
                bench.publish(item)
    # Whether or not the database has committed, the file that it points to exists.
    assert files == bench.files() if reachable and not committed else files < bench.files()
    assert bench.read("t") == ([1, 2] if committed else [1])
    assert committed or bench.pointers() == before


def test_a_reader_never_sees_a_mix(bench: Bench) -> None:
    names = [f"t{number}" for number in range(8)]
    for name in names:
        bench.table(name, 1)
    bench.table("c", 1)
    items = [bench.candidate(name, 2) for name in names]
    items += [bench.changed("c", 3), bench.new("n", 4)]
    before = _live(bench)
    seen: set[tuple[tuple[str, str], ...]] = set()
    stop = threading.Event()

    def poll() -> None:
        connection = sqlite3.connect(f"{bench.folder}/catalog.db", timeout=30)
        while not stop.is_set():
            seen.add(tuple(connection.execute(_POLL)))
        connection.close()

    reader = threading.Thread(target=poll)
    reader.start()
    bench.publish(*items)
    time.sleep(0.05)
    stop.set()
    reader.join()
    assert seen <= {before, _live(bench)}
    assert before != _live(bench)
    assert len(seen) == 2


_POLL = (
    "select table_name, metadata_location from iceberg_tables where table_namespace = 's' "
    "order by table_name"
)


def _live(bench: Bench) -> tuple[tuple[str, str], ...]:
    connection = sqlite3.connect(f"{bench.folder}/catalog.db", timeout=30)
    try:
        return tuple(connection.execute(_POLL))
    finally:
        connection.close()


def test_two_publishers_of_one_branch(bench: Bench) -> None:
    names = [f"t{number}" for number in range(4)]
    for name in names:
        bench.table(name, 1)
    items = [bench.candidate(name, 2) for name in names]
    bench.lake.ledger.ensure({"publishes"})
    outcomes: list[str] = []

    def publish() -> None:
        try:
            Lake("lake", bench.properties).publishing.publish(
                items, run_id="x", tag=TAG, tag_max_age_ms=None, branch=BRANCH
            )
            outcomes.append("published")
        except PublishRefused:
            outcomes.append("refused")

    threads = [threading.Thread(target=publish) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["published", "refused", "refused"]
    assert len(bench.lake.ledger.publishes()) == 1


def test_a_catalog_that_reports_a_commit_without_making_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.table("t", 1)
    item = bench.candidate("t", 2)
    bench.lake.ledger.ensure({"publishes"})
    monkeypatch.setattr(SqlBackend, "apply", lambda *_args, **_options: None)
    with pytest.raises(CatalogError, match=r"not as published: s\.t"):
        bench.publish(item)


@pytest.mark.parametrize("committed", [True, False])
def test_a_lost_answer_followed_by_another_writer(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    """The metadata log of the changed table shows whether the commit was made."""
    for name in "ab":
        bench.table(name, 1)
    items = [bench.candidate(name, 2) for name in "ab"]
    bench.lake.ledger.ensure({"publishes"})
    real = SqlBackend.apply

    def apply(self: SqlBackend, *args: Any, **options: Any) -> None:
        monkeypatch.setattr(SqlBackend, "apply", real)
        if committed:
            real(self, *args, **options)
        Lake("lake", bench.properties).branches.open(("s", "a"), "other")
        raise OperationalError("commit", {}, Exception("gone"), connection_invalidated=True)

    monkeypatch.setattr(SqlBackend, "apply", apply)
    if committed:
        bench.publish(*items)
    else:
        with pytest.raises(CatalogError, match="Nothing was changed"):
            bench.publish(*items)
    assert [bench.read(name) for name in "ab"] == [[1, 2] if committed else [1]] * 2


def test_a_publish_that_cannot_be_read_again_is_not_reported_as_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.table("t", 1)
    item = bench.candidate("t", 2)
    monkeypatch.setattr(Publishing, "_verify", lambda *_: bench.lake.store.reload("/not/there"))
    with pytest.raises(PublishUnverified, match="was committed, but could not be read again"):
        bench.publish(item)
    assert bench.read("t") == [1, 2]
