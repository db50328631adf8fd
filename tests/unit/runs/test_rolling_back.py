"""Rollback by hand: refusals with reasons, force, and reopening."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from sparkwap.catalog import Identifier, LedgerRows, RollbackRefused
from sparkwap.catalog import lease as leasing
from sparkwap.catalog import metadata as md
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.pointers import Pointer, PointerUpdate
from sparkwap.cdc.history import HIGHEST
from sparkwap.core.errors import ConfigError, SparkwapError
from sparkwap.gate.placement import Desired
from sparkwap.gate.settings import GateSettings
from sparkwap.publish.lake import Lake
from sparkwap.runs import rows as ledger_rows
from sparkwap.runs.operations import LakeOperations, NotPublished
from sparkwap.runs.run import Run
from sparkwap.runs.types import Invocation, NodeFact, TestFact, TestSeen

KEPT = Desired()
ORDERS, TOTALS = ("shop", "orders"), ("shop", "totals")
IDS = [f"{digit * 8}-0000-4000-8000-000000000000" for digit in "123456789"]
TESTS = [
    TestFact(f"test.{name}", name, "data", frozenset({f"model.{name}"}), "error")
    for name in ("orders", "totals", "fresh")
]
KNOWN = frozenset(f"model.{name}" for name in ("orders", "totals", "fresh"))


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    lake = Lake("lake", {"type": "sql", "uri": uri, "warehouse": f"{tmp_path}/warehouse"})
    lake.ensure_schema("shop")
    for identifier in (ORDERS, TOTALS):
        lake.catalog.create_table(identifier, rows(0).schema).append(rows(0))
    yield lake
    lake.close()


def a_run(lake: Lake, number: int, branch: str = "dev") -> Run:
    run = Run(
        lake,
        Invocation(
            run_id=IDS[number],
            branch=branch,
            settings=GateSettings(),
            command="build",
            project="shop",
            target_name="dev",
        ),
    )
    run.candidates.load()
    return run


def publish(lake: Lake, number: int, *names: str, how: str = "branch") -> str:
    """A run that adds its number to tables, and passes its tests."""
    run = a_run(lake, number)
    facts = []
    for name in names:
        identifier, node_id = ("shop", name), f"model.{name}"
        run.begin(node_id, identifier)
        if how == "clone":
            place = _changed(run, identifier)
        elif how == "new":
            place = _new(run, identifier)
        else:
            place = (run.candidates.place_table(identifier, KEPT), identifier)[1]
        branch = "main" if how != "branch" else run.branch
        lake.catalog.load_table(place).append(rows(number), branch=branch)
        run.built(node_id, identifier, must_write=True)
        facts.append(NodeFact(node_id, identifier, "model", "success", None, frozenset()))
    seen = [TestSeen(f"test.{name}", "pass", 0, None) for name in names]
    closing = run.close(facts, TESTS, seen)
    assert closing.published == len(names), closing
    return IDS[number][:8]


def _changed(run: Run, identifier: Identifier) -> Identifier:
    place = run.candidates.place_clone(identifier, ["a column more"]).place
    with run.lake.catalog.load_table(place).update_schema() as update:
        update.union_by_name(pa.schema({"extra": pa.string()}))
    return place


def _new(run: Run, identifier: Identifier) -> Identifier:
    place = run.candidates.place_beside(identifier).place
    run.lake.catalog.create_table(
        place, rows(0).schema, location=run.candidates.location(identifier)
    )
    return place


def _made_by_somebody_else(lake: Lake, name: str) -> None:
    location = f"{lake.properties['warehouse']}/elsewhere"
    lake.catalog.create_table(("shop", name), rows(0).schema, location=location)


def call(lake: Lake, name: str, number: int = 8, **arguments: object) -> list[str]:
    work = LakeOperations(
        lake,
        run_id=IDS[number],
        settings=GateSettings(),
        project="shop",
        target_name="dev",
        tests=lambda: TESTS,
        known=lambda: KNOWN,
    )
    return work.call(name, arguments)


def live(lake: Lake, name: str = "orders") -> list[int]:
    table = lake.catalog.load_table(("shop", name))
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def audit(lake: Lake, number: int, status: str, *names: str) -> int:
    """Do the same as `dbt test` on the branch; returns the number of published tables."""
    seen = [TestSeen(f"test.{name}", status, int(status != "pass"), None) for name in names]
    return a_run(lake, number).close([], TESTS, seen, KNOWN).published


def test_a_refusal_names_later_changes_and_the_effect_of_force(lake: Lake) -> None:
    first = publish(lake, 0, "orders", "totals")
    second = publish(lake, 1, "orders")
    lake.catalog.load_table(TOTALS).append(rows(9))
    with pytest.raises(RollbackRefused) as refused:
        call(lake, "wap_rollback", run=first)
    text = str(refused.value)
    assert text.startswith(
        "Nothing was rolled back: tables have changed since the publish of run 111"
    )
    assert "shop.orders: main: expected snapshot" in text
    assert f"then came the publish of run {second} at " in text
    assert "append, written past the gate at " in text
    assert f"wap_rollback --args '{{run: \"{second}\"}}'" in text
    assert f"wap_rollback --args '{{run: \"{first}\", force: true}}'" in text
    assert "without newer rows" in text
    assert (live(lake), live(lake, "totals")) == ([0, 0, 1], [0, 0, 9])


def test_a_refusal_names_an_erasure_and_no_command(lake: Lake) -> None:
    first = publish(lake, 0, "orders")
    second = publish(lake, 1, "orders")
    row = lake.ledger.of_run("runs", IDS[1])[0]
    lake.ledger.append(LedgerRows("runs", [{**row, "command": "wap_erase", "publish_id": None}]))
    with pytest.raises(RollbackRefused) as refused:
        call(lake, "wap_rollback", run=first)
    assert f"deleted by run {second} (wap_erase). No rollback restores them" in str(refused.value)
    assert "--args" not in str(refused.value)


def test_force_restores_every_table_and_undoes_later_publishes(lake: Lake) -> None:
    first = publish(lake, 0, "orders")
    second = publish(lake, 1, "orders", "totals")
    third = publish(lake, 2, "totals")
    lake.catalog.load_table(TOTALS).append(rows(9))
    told = call(lake, "wap_rollback", run=first, force=True)
    assert (live(lake), live(lake, "totals")) == ([0], [0])
    assert "and with it 2 later publishes, in one transaction" in told[0]
    assert [line for line in told if "undone with it" in line and (second in line or third in line)]
    assert any("lost to readers: shop.totals: append" in line for line in told)
    publishes = lake.ledger.publishes()
    assert [one.rolled_back for one in publishes] == [True, True, True]
    undone = [r for r in lake.ledger.rows("publishes") if r["action"] == "rollback"]
    asked = next(one.publish_id for one in publishes if one.run_id == IDS[0])
    assert {r["undone_by"] for r in undone} == {asked}
    assert {r["run_id"] for r in undone} == {IDS[8]}
    assert len(undone) == 4
    assert all(Path(r["undone_metadata"]).exists() for r in undone)


@pytest.mark.parametrize("octal", [False, True])
def test_a_run_id_of_digits_needs_no_quotes(lake: Lake, octal: bool) -> None:
    run = int(publish(lake, 0, "orders"), 8 if octal else 10)
    if octal:  # as YAML reads an id that begins with 0
        with pytest.raises(ConfigError, match="has no publish"):
            call(lake, "wap_rollback", run=run)
    else:
        call(lake, "wap_rollback", run=run)
    assert live(lake) == ([0, 0] if octal else [0])


def test_force_undoes_changed_schemas_and_replaced_tables(lake: Lake) -> None:
    before = lake.state(ORDERS)
    first = publish(lake, 0, "orders")
    publish(lake, 1, "orders", how="clone")
    assert [c.name for c in lake.state(ORDERS).columns] == ["id", "extra"]  # type: ignore[union-attr]
    call(lake, "wap_rollback", run=first, force=True)
    after = lake.state(ORDERS)
    assert before is not None and after is not None
    assert (after.columns, after.main) == (before.columns, before.main)
    assert live(lake) == [0]
    again = publish(lake, 2, "orders")
    lake.catalog.drop_table(ORDERS)
    lake.catalog.create_table(
        ORDERS, rows(0).schema, location=f"{lake.properties['warehouse']}/elsewhere"
    ).append(rows(7))
    call(lake, "wap_rollback", run=again, force=True)
    assert live(lake) == [0]
    assert lake.state(ORDERS).uuid == before.uuid  # type: ignore[union-attr]
    # Runs can build on it as before.
    publish(lake, 3, "orders")
    assert live(lake) == [0, 3]


@pytest.mark.parametrize("kind", ["manifests", "data files"])
def test_force_cannot_restore_a_replaced_table_without_its_files(lake: Lake, kind: str) -> None:
    """As after an erasure, which deletes the files of a table that a later publish has replaced."""
    inspect = lake.catalog.load_table(ORDERS).inspect
    files = inspect.manifests()["path"] if kind == "manifests" else inspect.files()["file_path"]
    first = publish(lake, 0, "orders")
    publish(lake, 1, "orders", how="new")
    Path(files[0].as_py().removeprefix("file://")).unlink()
    with pytest.raises(RollbackRefused, match="that its files are deleted"):
        call(lake, "wap_rollback", run=first, force=True)


def test_force_looks_for_several_files_at_the_same_time(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.catalog.load_table(ORDERS).append(rows(5))
    first = publish(lake, 0, "orders")
    publish(lake, 1, "orders", how="new")
    both, exists = threading.Barrier(2), lake.store.files.exists

    def exists_together(location: str) -> bool:
        if location.endswith(".parquet"):
            both.wait(timeout=10)
        return exists(location)

    monkeypatch.setattr(lake.store.files, "exists", exists_together)
    call(lake, "wap_rollback", run=first, force=True)
    assert live(lake) == [0, 5]


def test_a_refusal_names_later_changes_after_a_snapshot_that_has_expired(lake: Lake) -> None:
    first = publish(lake, 0, "orders")
    published = lake.state(ORDERS)
    lake.catalog.load_table(ORDERS).append(rows(9))
    row = lake.store.backend.get(ORDERS)
    assert row is not None and published is not None and published.main
    change = MetadataChange(lake.store.load(row.location)).remove_refs(f"wap_pub_{first}")
    document = change.remove_snapshots([published.main]).document(row.location)
    location = md.next_location(document, row.location)
    lake.store.write({location: document})
    lake.store.backend.apply([PointerUpdate(row, Pointer(ORDERS, "table", location))])
    with pytest.raises(RollbackRefused, match="append, written past the gate"):
        call(lake, "wap_rollback", run=first)


@pytest.mark.parametrize("replaced", [True, False])
def test_a_history_that_force_restores_keeps_the_number_of_an_erased_row(
    lake: Lake, replaced: bool
) -> None:
    with lake.catalog.load_table(ORDERS).transaction() as erasure:
        erasure.set_properties({HIGHEST: "7"})
    first = publish(lake, 0, "orders")
    if replaced:
        publish(lake, 1, "orders", how="new")
        with lake.catalog.load_table(ORDERS).transaction() as erasure:
            erasure.set_properties({HIGHEST: "8"})
    else:
        lake.catalog.drop_table(ORDERS)
    call(lake, "wap_rollback", run=first, force=True)
    assert live(lake) == [0]
    state = lake.state(ORDERS)
    assert state is not None and state.properties[HIGHEST] == ("8" if replaced else "7")


def test_force_cannot_restore_an_expired_snapshot(lake: Lake) -> None:
    first = publish(lake, 0, "orders")
    publish(lake, 1, "orders")
    table = lake.catalog.load_table(ORDERS)
    expired = table.metadata.snapshots[0].snapshot_id
    from sparkwap.maintenance.expiry import expire

    expire(lake, ORDERS, "x")
    with pytest.raises(RollbackRefused, match="force cannot restore it") as refused:
        call(lake, "wap_rollback", run=first, force=True)
    assert str(expired) in str(refused.value)
    assert live(lake) == [0, 0, 1]


def test_a_rolled_back_publish_is_audited_again_and_published_again(lake: Lake) -> None:
    first = publish(lake, 0, "orders")
    call(lake, "wap_rollback", run=first)
    assert live(lake) == [0]
    told = call(lake, "wap_rollback", run=first, reopen=True)
    assert "Opened dev again with 1 table, as published" in told[0]
    assert live(lake) == [0]
    assert audit(lake, 1, "pass", "orders") == 1
    assert live(lake) == [0, 0]
    assert lake.branches.all() == []


def test_a_new_audit_that_fails_stops_a_reopened_candidate(lake: Lake) -> None:
    first = publish(lake, 0, "orders")
    call(lake, "wap_rollback", run=first, reopen=True)
    assert audit(lake, 1, "fail", "orders") == 0
    with pytest.raises(NotPublished, match="test orders failed"):
        call(lake, "wap_publish", branch="dev")
    assert live(lake) == [0]


def test_a_reopened_candidate_is_published_without_a_new_audit(lake: Lake) -> None:
    first = publish(lake, 0, "orders")
    told = call(lake, "wap_rollback", run=first, reopen=True)
    assert told[0].startswith("Rolled back the publish of run 11111111")
    # The message describes the rows that readers see, without snapshot ids.
    assert re.fullmatch(r"  shop\.orders   1 row of [-0-9]{10} [:0-9]{8} UTC", told[1])
    assert live(lake) == [0]
    call(lake, "wap_publish", branch="dev")
    assert live(lake) == [0, 0]


def test_a_branch_of_a_machine_whose_clock_is_ahead(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = datetime.now(UTC) + timedelta(minutes=5)
    with monkeypatch.context() as patch:
        patch.setattr(ledger_rows, "time_after", lambda last: ahead)
        first = publish(lake, 0, "orders")
    call(lake, "wap_rollback", run=first, reopen=True)
    assert [row["verdict"] for row in lake.ledger.branch_history("dev").nodes] == ["held"]
    call(lake, "wap_publish", branch="dev")
    assert live(lake) == [0, 0]
    second = publish(lake, 1, "orders")
    call(lake, "wap_rollback", run=second, reopen=True)
    lake.branches.discard("dev")
    assert lake.ledger.branch_history("dev").nodes == ()


def test_new_and_changed_tables_are_reopened_in_side_schemas(lake: Lake) -> None:
    publish(lake, 0, "fresh", how="new")
    done = publish(lake, 1, "orders", how="clone")
    for run in (IDS[0][:8], done):
        call(lake, "wap_rollback", run=run, reopen=True)
        name = "fresh" if run != done else "orders"
        assert lake.relations("shop__dev") == {name: "table"}
        # The tests saw another metadata file, so that it has to be audited again.
        with pytest.raises(NotPublished):
            call(lake, "wap_publish", branch="dev")
        assert audit(lake, 2, "pass", name) == 1
    assert live(lake, "fresh") == [0]
    assert live(lake) == [0, 1]
    assert [c.name for c in lake.state(ORDERS).columns] == ["id", "extra"]  # type: ignore[union-attr]
    assert lake.schemas() == {"shop", "wap_ledger"}


def test_a_branch_is_not_reopened_after_tables_have_changed(lake: Lake) -> None:
    first = publish(lake, 0, "orders")
    call(lake, "wap_rollback", run=first)
    publish(lake, 1, "orders")
    with pytest.raises(RollbackRefused, match="main: expected snapshot"):
        call(lake, "wap_rollback", run=first, reopen=True)
    assert lake.branches.all() == []
    fresh = publish(lake, 2, "fresh", how="new")
    call(lake, "wap_rollback", run=fresh)
    _made_by_somebody_else(lake, "fresh")
    with pytest.raises(RollbackRefused, match="live object: expected nothing"):
        call(lake, "wap_rollback", run=fresh, reopen=True)
    assert lake.branches.all() == []
    held = a_run(lake, 3)
    held.candidates.place_table(TOTALS, KEPT)
    with pytest.raises(ConfigError, match="The audit branch dev is open again"):
        call(lake, "wap_rollback", run=first, reopen=True)


def test_a_branch_in_use_is_not_discarded(lake: Lake) -> None:
    held = a_run(lake, 0)
    held.candidates.place_table(TOTALS, KEPT)
    holding = leasing.hold(lake.leases, run_id=IDS[0], branch="dev", command="build")
    status = "\n".join(call(lake, "wap_status"))
    assert f"in use by run 11111111, process {os.getpid()} on host" in status
    with pytest.raises(SparkwapError, match="Nothing was discarded"):
        call(lake, "wap_discard", branch="dev")
    assert [one.branch for one in lake.branches.all()] == ["dev"]
    call(lake, "wap_discard", branch="dev", force=True)
    assert lake.branches.all() == []
    holding.release()


def test_a_sweep_refuses_to_delete_files_of_today(lake: Lake) -> None:
    with pytest.raises(ConfigError, match="a running job would lose its files"):
        call(lake, "wap_sweep", files_older_than="0")


@pytest.mark.parametrize("key", ["force", "reopen"])
def test_flags_are_true_or_false(lake: Lake, key: str) -> None:
    first = publish(lake, 0, "orders")
    with pytest.raises(ConfigError, match=f"{key} is 'maybe'; legal: true, false"):
        call(lake, "wap_rollback", run=first, **{key: "maybe"})


def test_a_reopened_view_refers_to_side_schemas() -> None:
    from sparkwap.catalog.views import requalify_sql

    sides = {("shop", "fresh"): "shop__dev", ("shop", "v.x"): "shop__dev"}
    gone = ["`shop`.`fresh`.id", "Shop . FRESH", "shop.fresh x"]
    came = ["`shop__dev`.`fresh`.id", "`shop__dev` . FRESH", "`shop__dev`.fresh x"]
    kept = ["'shop.fresh'", "shop.fresh_too", "`shop`.`orders`", "myshop.fresh", "`v.x`.y"]
    kept.append("-- shop.fresh")
    before, after = (" join ".join([*some, *kept]) for some in (gone, came))
    assert requalify_sql(before, sides) == after
