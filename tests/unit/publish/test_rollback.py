"""Rollback: the reverse of a publish, all of it or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from sparkwap.catalog import PublishReceipt, RollbackRefused
from sparkwap.catalog import metadata as md
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.pointers import Pointer, PointerUpdate

BRANCH, SIDE, TAG = "pr_1", "s__pr_1", "wap_pub_1a2b3c4d"
Bench = Any


def _published(bench: Bench) -> PublishReceipt:
    bench.table("a", 1)
    bench.table("empty")
    bench.table("c", 1, 2)
    bench.view("w", "select 1", schema="s")
    bench.table("r", 1)
    old_view = bench.state(("s", "w")).metadata_location
    old_table = bench.state(("s", "r")).metadata_location
    items = [bench.candidate("a", 2), bench.candidate("empty", 5)]
    items += [bench.changed("c", 3), bench.new("n", 4)]
    bench.view("w", "select 2")
    bench.view("r", "select 3")
    receipt: PublishReceipt = bench.publish(
        *items, bench.side("w", old_view), bench.side("r", old_table)
    )
    return receipt


def _rollback(bench: Bench, receipt: PublishReceipt) -> None:
    bench.lake.publishing.rollback(
        receipt.entries, run_id="back", publish_id=receipt.publish_id, branch=BRANCH
    )


def test_rollback_restores_everything(bench: Bench) -> None:
    receipt = _published(bench)
    by_name = {entry.identifier[1]: entry for entry in receipt.entries}
    bench.lake.branches.open(("s", "c"), "other")
    _rollback(bench, receipt)
    assert (bench.read("a"), bench.read("empty"), bench.read("c")) == ([1], [], [1, 2])
    assert bench.lake.relations("s") == {
        name: "view" if name == "w" else "table" for name in ("a", "empty", "c", "r", "w")
    }
    assert bench.state(("s", "w")).metadata_location == by_name["w"].base_metadata_location
    assert bench.read("r") == [1]
    state = bench.state(("s", "c"))
    assert [column.name for column in state.columns] == ["id"]
    assert set(state.refs) == {"main", "other", "wap_base_other", TAG}
    assert bench.state(("s", "a")).refs[TAG].snapshot_id == by_name["a"].candidate
    for name in ("a", "c", "empty"):
        bench.write(("s", name), 9, branch="main")
    assert (bench.read("a"), bench.read("c"), bench.read("empty")) == ([1, 9], [1, 2, 9], [9])


def test_a_changed_table_stops_a_rollback(bench: Bench) -> None:
    receipt = _published(bench)
    bench.write(("s", "a"), 9, branch="main")
    bench.view("w", "select 9", schema="s")
    before, files = bench.pointers(), bench.files()
    with pytest.raises(RollbackRefused) as refused:
        _rollback(bench, receipt)
    assert sorted(m.identifier[1] for m in refused.value.mismatches) == ["a", "w"]
    assert (bench.pointers(), bench.files()) == (before, files)


def test_an_expired_base_stops_a_rollback(bench: Bench) -> None:
    receipt = _published(bench)
    base = next(e.base for e in receipt.entries if e.identifier == ("s", "a"))
    row = bench.lake.store.backend.get(("s", "a"))
    assert row is not None
    document = dict(bench.lake.store.load(row.location))
    document["snapshots"] = [s for s in document["snapshots"] if s["snapshot-id"] != base]
    location = md.next_location(document, row.location)
    bench.lake.store.write({location: document})
    bench.lake.store.backend.apply([PointerUpdate(row, Pointer(("s", "a"), "table", location))])
    with pytest.raises(RollbackRefused, match=r"base: expected snapshot .* that it has expired"):
        _rollback(bench, receipt)


def test_a_second_rollback_is_refused(bench: Bench) -> None:
    receipt = _published(bench)
    _rollback(bench, receipt)
    with pytest.raises(RollbackRefused):
        _rollback(bench, receipt)


def test_a_changed_definition_stops_a_rollback(bench: Bench) -> None:
    receipt = _published(bench)
    with bench.lake.catalog.load_table(("s", "c")).update_schema() as update:
        update.rename_column("extra", "other")
    with pytest.raises(RollbackRefused, match="definition"):
        _rollback(bench, receipt)


def test_properties_set_after_the_publish_stay(bench: Bench) -> None:
    bench.table("c", 1, comment="old")
    bench.lake.branches.clone(("s", "c"), SIDE, {"comment": "new"})
    bench.changed("c", 2)
    receipt = bench.publish(bench.side("c"))
    assert bench.state(("s", "c")).comment == "new"
    with bench.lake.catalog.load_table(("s", "c")).transaction() as transaction:
        transaction.set_properties(later="x")
    _rollback(bench, receipt)
    state = bench.state(("s", "c"))
    assert (state.comment, state.properties["later"]) == ("old", "x")
    assert state.properties["write.wap.enabled"] == "true"


def test_a_property_set_again_after_the_publish_stays(bench: Bench) -> None:
    bench.table("c", 1, comment="old")
    bench.lake.branches.clone(("s", "c"), SIDE, {"comment": "new"})
    bench.changed("c", 2)
    receipt = bench.publish(bench.side("c"))
    with bench.lake.catalog.load_table(("s", "c")).transaction() as transaction:
        transaction.set_properties(comment="newest")
    _rollback(bench, receipt)
    assert bench.state(("s", "c")).comment == "newest"


def test_later_rows_of_a_new_table_stop_a_rollback(bench: Bench) -> None:
    bench.new("n", 4)
    receipt = bench.publish(bench.side("n"))
    bench.write(("s", "n"), 9, branch="main")
    with pytest.raises(RollbackRefused, match="main: expected snapshot"):
        _rollback(bench, receipt)
    assert bench.read("n") == [4, 9]


def test_a_table_that_replaced_the_new_one_stops_a_rollback(bench: Bench) -> None:
    bench.new("n", 4)
    receipt = bench.publish(bench.side("n"))
    (entry,) = receipt.entries
    row = bench.lake.store.backend.get(("s", "n"))
    bench.table("other", 4)
    other = bench.lake.store.backend.get(("s", "other"))
    # With the same snapshot, as in a copy of the table.
    document = MetadataChange(bench.lake.store.load(row.location)).document(None)
    location = md.next_location(
        {**document, "location": bench.state(("s", "other")).location}, None
    )
    document = {
        **document,
        "metadata-log": [],
        "table-uuid": "00000000-0000-4000-8000-000000000001",
    }
    bench.lake.store.write({location: document})
    bench.lake.store.backend.apply(
        [PointerUpdate(row, Pointer(("s", "n"), "table", location)), PointerUpdate(other, None)]
    )
    assert bench.state(("s", "n")).main == entry.candidate
    with pytest.raises(RollbackRefused, match="live object"):
        _rollback(bench, receipt)
    assert bench.read("n") == [4]


def _reopen(bench: Bench, receipt: PublishReceipt) -> None:
    bench.lake.publishing.reopen(receipt.entries, branch=BRANCH, record=lambda found: ())


def test_an_expired_candidate_is_not_reopened(bench: Bench) -> None:
    bench.table("a", 1)
    receipt = bench.publish(bench.candidate("a", 2))
    _rollback(bench, receipt)
    (entry,) = receipt.entries
    row = bench.lake.store.backend.get(("s", "a"))
    change = MetadataChange(bench.lake.store.load(row.location)).remove_refs(TAG)
    document = change.document(row.location)
    left = [s for s in document["snapshots"] if s["snapshot-id"] != entry.candidate]
    location = md.next_location(document, row.location)
    bench.lake.store.write({location: {**document, "snapshots": left}})
    bench.lake.store.backend.apply([PointerUpdate(row, Pointer(("s", "a"), "table", location))])
    with pytest.raises(RollbackRefused, match="that it has expired"):
        _reopen(bench, receipt)
    assert bench.lake.branches.all() == []


@pytest.mark.parametrize("how", ["branch", "beside"])
def test_a_branch_in_use_is_not_reopened(
    bench: Bench, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run has built on it after the rollback and before the reopening."""
    monkeypatch.setattr("sparkwap.catalog.store._LONGEST_WAIT_SECONDS", 0.0)
    bench.table("a", 1)
    receipt = bench.publish(bench.candidate("a", 2) if how == "branch" else bench.new("n", 4))
    _rollback(bench, receipt)
    if how == "branch":
        bench.candidate("a", 7)
    else:
        bench.lake.ensure_schema(SIDE, BRANCH)
        bench.table("n", 7, schema=SIDE)
    before = bench.pointers()
    with pytest.raises(RollbackRefused):
        _reopen(bench, receipt)
    assert bench.pointers() == before


def test_the_ledger_has_publish_and_rollback(bench: Bench) -> None:
    receipt = _published(bench)
    _rollback(bench, receipt)
    (entry,) = bench.lake.ledger.publishes()
    assert (entry.publish_id, entry.rolled_back) == (receipt.publish_id, True)


def test_the_last_publishes_of_tables_are_with_their_rollbacks(bench: Bench) -> None:
    first = _published(bench)
    second = bench.publish(bench.candidate("a", 6))
    _rollback(bench, second)
    last = bench.lake.ledger.last_publishes
    assert [(one.publish_id, one.rolled_back) for one in last([("s", "a"), ("t", "c")])] == [
        (second.publish_id, True)
    ]
    both = last([("s", "c"), ("s", "a")])
    assert [one.publish_id for one in both] == [second.publish_id, first.publish_id]
    assert both == bench.lake.ledger.publishes()
    assert last([]) == last([("s", "nowhere")]) == []
