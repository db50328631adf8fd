"""A sequential publish on an in-process catalog, with other writers between its steps.

`test_rest.py` has the same on a server; here a SQL catalog plays one that changes one thing at a
time, so that each change can be told of before it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from helpers.sql_metastore import SqlMetastore

from sparkwap.catalog import (
    CommitUnknown,
    PublishRefused,
    PublishTorn,
    RollbackRefused,
    RollbackTorn,
)
from sparkwap.catalog import publish_journal as jn
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.metastore_backend import MetastoreBackend
from sparkwap.catalog.model import Candidate, Identifier, LedgerRows, Mismatch
from sparkwap.catalog.pointers import Conflict, Pointer, PointerUpdate, Unanswered
from sparkwap.catalog.sql_backend import SqlBackend
from sparkwap.catalog.store import Store
from sparkwap.core.errors import CatalogError
from sparkwap.gate.settings import GateSettings, Limits
from sparkwap.ledger.journal import JournalTable
from sparkwap.maintenance.decision import decide
from sparkwap.maintenance.removal import sweep_table
from sparkwap.maintenance.survey import take_survey
from sparkwap.publish import sequential_journal, sequential_moves
from sparkwap.publish.planner import Publisher
from sparkwap.publish.publish_port import PublishPort
from sparkwap.publish.staging import names_of
from sparkwap.runs.operations import LakeOperations

pytestmark = pytest.mark.long

RUN = "1a2b3c4d-0000-4000-8000-000000000000"
BRANCH, SIDE, TAG = "pr_1", "s__pr_1", "wap_pub_1a2b3c4d"
OLD = {"a": [1], "b": [1], "c": [1], "r": [1]}
NEW = {"a": [1, 2], "b": [1, 2], "c": [3], "n": [4], "r": [5]}
Bench = Any


class OneByOne(MetastoreBackend):
    """A catalog that makes one change at a time, on the rows of a SQL catalog.

    Args:
        rows: The rows.
        kind: ``rest`` refuses what the updates of a REST catalog cannot express; ``glue`` creates
            a new name before it drops the old one.
    """

    def __init__(self, rows: SqlBackend, kind: str) -> None:
        super().__init__("lake", rows.properties, SqlMetastore(rows, renames=kind != "glue"))
        self.kind = kind
        self.takes_files = kind != "rest"
        self._store = Store(rows)

    def find(self, identifiers: Collection[Identifier]) -> dict[Identifier, Pointer]:
        # One after the other, with the live name before the side name.
        found = [self.get(identifier) for identifier in sorted(identifiers)]
        return {row.identifier: row for row in found if row is not None}

    def evolve(self, changes: Any, *more: Any) -> None:
        refused = [change for _, change in changes if self.kind == "rest" and change.refusal]
        assert not refused
        super().evolve(changes, *more)


@pytest.fixture(params=["rest", "hive", "glue"])
def slow(bench: Bench, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench whose catalog makes one change at a time."""
    bench.lake.store = Store(OneByOne(bench.lake.store.backend, request.param))
    # Do not wait for other processes.
    monkeypatch.setattr(sequential_moves, "pause", lambda attempt: None)
    return bench


def everything(bench: Bench) -> list[Candidate]:
    for name in "abcr":
        bench.table(name, 1)
    items = [bench.candidate(name, 2) for name in "ab"]
    items += [bench.changed("c", 3), bench.new("n", 4)]
    bench.new("r", 5)
    return [*items, bench.side("r", bench.state(("s", "r")).metadata_location)]


def seen(bench: Bench) -> dict[str, list[int]]:
    return {name: bench.read(name) for name in bench.lake.relations("s")}


def once(bench: Bench, name: str, action: Callable[[], Any], change: int = 1) -> None:
    """Act once, just before the n-th change of a name in the live schema."""
    left = [lambda: None] * (change - 1) + [action]

    def before(identifier: Identifier) -> None:
        if identifier == ("s", name) and left:
            left.pop(0)()

    bench.lake.store.backend.metastore.before = before


def append(bench: Bench, name: str, number: int = 9) -> Callable[[], Any]:
    return lambda: bench.write(("s", name), number, branch="main")


class Died(BaseException):
    """The process has died."""


def die() -> None:
    raise Died


def after_death(bench: Bench) -> Any:
    """Return the lake as the next command opens it."""
    lake = type(bench.lake)("lake", bench.properties)
    lake.store = Store(OneByOne(lake.store.backend, bench.lake.store.backend.kind))  # type: ignore[arg-type]
    return lake


def assert_behind_the_gate(bench: Bench) -> None:
    """Check that a new table has its receipt and the gate's property."""
    state = bench.state(("s", "n"))
    assert state.properties["write.wap.enabled"] == "true"
    assert state.refs[TAG].snapshot_id == state.main


def test_publish_and_rollback(slow: Bench) -> None:
    receipt = slow.publish(*everything(slow))
    assert seen(slow) == NEW
    assert slow.lake.branches.all() == []
    assert_behind_the_gate(slow)
    slow.lake.publishing.rollback(receipt.entries, run_id="y", publish_id=receipt.publish_id)
    assert seen(slow) == OLD


@pytest.mark.parametrize(
    ("name", "change"), [("a", 1), ("b", 1), ("c", 1), ("n", 1), ("n", 2), ("r", 1), ("r", 2)]
)
def test_the_next_command_completes_an_interrupted_publish(
    slow: Bench, name: str, change: int
) -> None:
    items = everything(slow)
    once(slow, name, die, change)
    with pytest.raises(Died):
        slow.publish(*items)
    lake = after_death(slow)
    (told,) = lake.publishing.recover()
    assert "all its tables are published" in told
    assert seen(slow) == NEW
    assert_behind_the_gate(slow)
    assert lake.publishing.recover() == []
    (row,), (publish,) = lake.ledger.runs(), lake.ledger.publishes()
    assert (row["publish_id"], row["run_id"]) == (publish.publish_id, publish.run_id)
    assert (row["command"], row["project"], row["host"]) == (None, None, None)
    lake.close()


def test_nothing_moves_before_the_journal_is_written(slow: Bench) -> None:
    items = everything(slow)
    journals: list[Any] = []
    once(slow, "a", lambda: journals.extend(slow.lake.publishing.on_their_way()))
    slow.publish(*items)
    assert [row["state"] for row in journals] == ["intended"]
    assert slow.lake.publishing.on_their_way() == []


def test_what_a_later_run_builds_in_the_side_schema_is_no_leftover(slow: Bench) -> None:
    slow.table("c", 1)
    item = slow.changed("c", 3)
    journals: list[Any] = []

    def look() -> None:
        journals.extend(map(sequential_journal.journal_of, slow.lake.publishing.on_their_way()))

    once(slow, "c", look)
    store = slow.lake.store
    slow.publish(item)
    slow.changed("c", 4)
    assert (SIDE, "c") in store.backend.find([(SIDE, "c")])
    assert sequential_moves.leftovers(journals[0], store) == []


@pytest.mark.parametrize("name", ["b", "c", "r"])
def test_the_publish_is_undone_if_others_move_main_meanwhile(slow: Bench, name: str) -> None:
    items = everything(slow)
    once(slow, name, append(slow, name))
    with pytest.raises(PublishRefused):
        slow.publish(*items)
    assert seen(slow) == {**OLD, name: [1, 9]}
    # The candidates are still on the audit branch.
    assert slow.read("a", BRANCH) == [1, 2]
    assert slow.read("n", schema=SIDE) == [4]


def test_the_ledger_does_not_take_an_undone_publish_for_one_on_main(slow: Bench) -> None:
    for name in "ab":
        slow.table(name, 1)
    items = [slow.candidate(name, 2) for name in "ab"]
    rows = [
        {
            "run_id": RUN,
            "branch": BRANCH,
            "node_id": f"model.p.{item.identifier[1]}",
            "schema": "s",
            "name": item.identifier[1],
            "candidate_snapshot": int(item.token),
            "verdict": "published",
            # The clock of the machine that built it is ahead.
            "built_at": datetime.now(UTC) + timedelta(minutes=5),
        }
        for item in items
    ]
    test = {
        "test_id": "t",
        "audited": {"model.p.a": items[0].token},
        "executed_at": datetime.now(UTC),
    }
    once(slow, "b", append(slow, "b"))
    with pytest.raises(PublishRefused):
        slow.publish(*items, appends=[LedgerRows("nodes", rows), LedgerRows("tests", [test])])
    ledger, a = slow.lake.ledger, ("s", "a")
    assert [row["verdict"] for row in ledger.branch_history(BRANCH).nodes] == ["rejected"] * 2
    assert ledger.owners() == {}
    assert ledger.builder(a) is None
    assert not any(on_main for _, on_main in ledger.builds("model.p.a", a))
    assert ledger.tests_of({"model.p.a": a}) == []
    assert ledger.tests_of_others({a: "model.q.a"}) == {}
    assert ledger.published_tests(["t"], lambda node: a) == {}


def test_a_table_that_others_have_changed_stays_published_and_is_named(slow: Bench) -> None:
    items = everything(slow)

    def others() -> None:
        append(slow, "a", 8)()
        append(slow, "b")()

    once(slow, "b", others)
    with pytest.raises(PublishTorn) as torn:
        slow.publish(*items)
    assert "s.a" in str(torn.value)
    assert seen(slow) == {**OLD, "a": [1, 2, 8], "b": [1, 9]}


def test_a_rollback_is_completed_except_for_changed_tables(slow: Bench) -> None:
    receipt = slow.publish(*everything(slow))
    once(slow, "b", append(slow, "b"))
    with pytest.raises(RollbackTorn) as torn:
        slow.lake.publishing.rollback(receipt.entries, run_id="y", publish_id=receipt.publish_id)
    assert [one.identifier for one in torn.value.mismatches] == [("s", "b")]
    assert torn.value.back == (("s", "a"), ("s", "c"), ("s", "n"), ("s", "r"))
    assert seen(slow) == {**OLD, "b": [1, 2, 9]}
    assert slow.lake.publishing.on_their_way() == []
    (publish,) = slow.lake.ledger.publishes()
    assert [entry.identifier for entry in publish.left] == [("s", "b")]


def test_a_new_name_that_differs_in_case_only_from_a_live_one(slow: Bench) -> None:
    item = slow.new("twin", 1)
    slow.table("Twin", 2)
    with pytest.raises(PublishRefused, match=r"found s\.Twin"):
        slow.publish(item)
    assert seen(slow) == {"Twin": [2]}


def test_a_publish_is_undone_if_its_name_exists_in_another_case_meanwhile(slow: Bench) -> None:
    items = everything(slow)
    once(slow, "a", die)
    with pytest.raises(Died):
        slow.publish(*items)
    slow.table("N", 7)
    lake = after_death(slow)
    (told,) = lake.publishing.recover()
    assert "main of s.n, or made a table whose name differs in case only" in told
    assert seen(slow) == {**OLD, "N": [7]}
    assert slow.read("n", schema=SIDE) == [4]
    lake.close()


def test_a_rollback_that_moves_no_table_is_refused(slow: Bench) -> None:
    slow.table("b", 1)
    receipt = slow.publish(slow.candidate("b", 2))
    once(slow, "b", append(slow, "b"))
    with pytest.raises(RollbackRefused):
        slow.lake.publishing.rollback(receipt.entries, run_id="y", publish_id=receipt.publish_id)
    assert seen(slow) == {"b": [1, 2, 9]}


ROLLBACK = "2b3c4d5e-0000-4000-8000-000000000000"


def rolling_back(lake: Any, **arguments: str) -> list[str]:
    work = LakeOperations(
        lake,
        run_id=str(uuid4()),
        settings=GateSettings(),
        project="shop",
        target_name="dev",
        tests=list,
        known=frozenset,
    )
    return work.call("wap_rollback", arguments)


def test_force_rolls_back_the_tables_that_a_rollback_has_left(slow: Bench) -> None:
    receipt = slow.publish(*everything(slow))
    once(slow, "b", append(slow, "b"))
    with pytest.raises(RollbackTorn) as torn:
        rolling_back(slow.lake, run=receipt.publish_id)
    for text in (
        "Rolled back in part",
        "\n  s.a\n",
        "s.b: main: expected snapshot",
        "append, written past the gate",
        f"wap_rollback --args '{{run: {receipt.publish_id}, force: true}}'",
    ):
        assert text in str(torn.value)
    # A later write to a table that is rolled back already does not matter.
    append(slow, "a", 7)()
    with pytest.raises(RollbackRefused, match="Nothing was rolled back"):
        rolling_back(slow.lake, run=receipt.publish_id)
    told = rolling_back(slow.lake, run=receipt.publish_id, force="true")
    assert [line.split()[0] for line in told if line.startswith("  s.")] == ["s.b"]
    assert seen(slow) == {**OLD, "a": [1, 7]}
    assert [one.rolled_back for one in slow.lake.ledger.publishes()] == [True]


def test_a_continued_rollback_names_the_tables_that_it_leaves(slow: Bench) -> None:
    receipt = slow.publish(*everything(slow))
    once(slow, "b", die)
    with pytest.raises(Died):
        slow.lake.publishing.rollback(
            receipt.entries, run_id=ROLLBACK, publish_id=receipt.publish_id
        )
    append(slow, "b")()
    lake = after_death(slow)
    (told,) = lake.publishing.recover()
    assert "Completed" not in told
    assert "s.b: main: expected snapshot" in told
    assert "s.a, s.c, s.n, s.r are as before it" in told
    assert seen(slow) == {**OLD, "b": [1, 2, 9]}
    rolling_back(lake, run=receipt.publish_id, force="true")
    assert seen(slow) == OLD
    lake.close()


@pytest.mark.parametrize("force", [False, True])
def test_a_rollback_is_continued_without_the_former_metadata_files(
    slow: Bench, force: bool
) -> None:
    """Tables whose former definition is not known any more are left, the others go back."""
    receipt = slow.publish(*everything(slow))
    once(slow, "b", die)
    with pytest.raises(Died):
        slow.lake.publishing.rollback(
            receipt.entries, run_id=ROLLBACK, publish_id=receipt.publish_id, force=force
        )
    slow.lake.store.delete(
        str(one.base_metadata_location) for one in receipt.entries if one.identifier[1] in "abc"
    )
    lake = after_death(slow)
    (told,) = lake.publishing.recover()
    assert "s.c: base: expected metadata" in told
    assert seen(slow) == {**OLD, "c": [3]}
    lake.close()


def test_a_second_rollback_that_dies_is_continued(slow: Bench) -> None:
    receipt = slow.publish(*everything(slow))
    once(slow, "b", append(slow, "b"))
    with pytest.raises(RollbackTorn):
        rolling_back(slow.lake, run=receipt.publish_id)
    slow.lake.catalog.load_table(("s", "b")).manage_snapshots().set_current_snapshot(
        snapshot_id=next(e.candidate for e in receipt.entries if e.identifier == ("s", "b"))
    ).commit()
    once(slow, "b", die)
    with pytest.raises(Died):
        rolling_back(slow.lake, run=receipt.publish_id)
    lake = after_death(slow)
    (told,) = lake.publishing.recover()
    assert "all its tables are rolled back" in told
    assert seen(slow) == OLD
    lake.close()


def test_a_rollback_checks_all_tables_before_it_moves_one(slow: Bench) -> None:
    receipt = slow.publish(*everything(slow))
    append(slow, "b")()
    before = slow.pointers()
    with pytest.raises(RollbackRefused):
        slow.lake.publishing.rollback(receipt.entries, run_id="y", publish_id=receipt.publish_id)
    assert slow.pointers() == before


# -- two at once ---------------------------------------------------------------------------------


def when_read(lake: Any, name: str, act: Callable[[], Any]) -> None:
    """Act once, as soon as a lake reads a name."""
    left = [act]

    def read(identifier: Identifier) -> None:
        if identifier == ("s", name) and left:
            left.pop()()

    lake.store.backend.metastore.read = read


@pytest.mark.parametrize("name", ["a", "b", "c", "n", "r"])
def test_a_move_by_another_process_of_the_same_journal_is_recognized(
    slow: Bench, name: str
) -> None:
    items = everything(slow)
    once(slow, "a", die)
    with pytest.raises(Died):
        slow.publish(*items)
    one, other = after_death(slow), after_death(slow)
    told: list[str] = []
    when_read(one, name, lambda: told.extend(other.publishing.recover()))
    one.publishing.recover()
    assert "all its tables are published" in told[0]
    assert seen(slow) == NEW
    assert_ended(slow, "completing", "completed")
    assert [p.rolled_back for p in slow.lake.ledger.publishes()] == [False]
    one.close()
    other.close()


@pytest.mark.parametrize("name", ["a", "b", "c", "n", "r"])
def test_a_rollback_that_another_process_continues_at_the_same_time(slow: Bench, name: str) -> None:
    receipt = slow.publish(*everything(slow))
    once(slow, "a", die)
    with pytest.raises(Died):
        slow.lake.publishing.rollback(
            receipt.entries, run_id=ROLLBACK, publish_id=receipt.publish_id
        )
    one, other = after_death(slow), after_death(slow)
    told: list[str] = []
    when_read(one, name, lambda: told.extend(other.publishing.recover()))
    assert all("are rolled back" in text for text in [*one.publishing.recover(), *told])
    assert seen(slow) == OLD
    assert [p.rolled_back for p in slow.lake.ledger.publishes()] == [True]
    assert_one_receipt(slow)
    one.close()
    other.close()


def assert_one_receipt(slow: Bench) -> None:
    """The ledger has the rollback once."""
    undone = [row["name"] for row in slow.lake.ledger.rows("publishes") if row["undone_by"]]
    assert sorted(undone) == ["a", "b", "c", "n", "r"]


def test_a_rollback_that_dies_after_its_receipt_is_recorded_once(
    slow: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = slow.publish(*everything(slow))

    with monkeypatch.context() as patch, pytest.raises(Died):
        patch.setattr(JournalTable, "settle", lambda self, row: die())
        slow.lake.publishing.rollback(
            receipt.entries, run_id=ROLLBACK, publish_id=receipt.publish_id
        )
    lake = after_death(slow)
    (told,) = lake.publishing.recover()
    assert "all its tables are rolled back" in told
    assert_one_receipt(slow)
    lake.close()


def test_a_table_that_moves_after_the_receipt_of_a_rollback_is_recorded_too(
    slow: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = slow.publish(*everything(slow))
    once(slow, "b", append(slow, "b"))
    with monkeypatch.context() as patch, pytest.raises(Died):
        patch.setattr(JournalTable, "settle", lambda self, row: die())
        slow.lake.publishing.rollback(
            receipt.entries, run_id=ROLLBACK, publish_id=receipt.publish_id
        )
    slow.lake.catalog.load_table(("s", "b")).manage_snapshots().set_current_snapshot(
        snapshot_id=next(e.candidate for e in receipt.entries if e.identifier == ("s", "b"))
    ).commit()
    lake = after_death(slow)
    lake.publishing.recover()
    assert seen(slow) == OLD
    assert [p.rolled_back for p in slow.lake.ledger.publishes()] == [True]
    assert_one_receipt(slow)
    lake.close()


def test_a_completed_publish_is_not_undone_by_a_late_process(slow: Bench) -> None:
    """It sees a replaced table, but another process has seen all tables moved before."""
    items = everything(slow)
    once(slow, "a", die)
    with pytest.raises(Died):
        slow.publish(*items)
    one, other = after_death(slow), after_death(slow)

    def complete_and_drop() -> None:
        other.publishing.recover()
        slow.lake.catalog.drop_table(("s", "r"))

    # The positions of all tables are read, and this one last.
    when_read(one, "r", complete_and_drop)
    one.publishing.recover()
    assert seen(slow) == {name: rows for name, rows in NEW.items() if name != "r"}
    assert_ended(slow, "completing", "completed")
    one.close()
    other.close()


def test_an_undo_that_died_is_not_turned_into_a_publish(slow: Bench) -> None:
    """This also holds if main of the table that stopped it has returned to its base."""
    items = everything(slow)
    base = slow.state(("s", "b")).main

    def others() -> None:
        append(slow, "b")()
        # The next change of a moves it back.
        once(slow, "a", die)

    once(slow, "b", others)
    with pytest.raises(Died):
        slow.publish(*items)
    back = slow.lake.catalog.load_table(("s", "b")).manage_snapshots()
    back.set_current_snapshot(snapshot_id=base).commit()
    lake = after_death(slow)
    (told,) = lake.publishing.recover()
    assert told.startswith("Undid")
    assert seen(slow) == OLD
    assert_ended(slow, "undoing", "undone")
    lake.close()


@pytest.mark.parametrize(("late", "moved"), [("a", "b"), ("c", "r")])
def test_a_late_request_does_not_publish(slow: Bench, late: str, moved: str) -> None:
    """A server does not answer, and executes the request after the publish was undone."""
    items = everything(slow)
    rows = slow.lake.store.backend.metastore
    plain, on_its_way = rows.carry, []

    def swap(one: PointerUpdate) -> None:
        if one.after is not None and one.after.identifier == ("s", late) and not on_its_way:
            on_its_way.append(one)
            append(slow, moved)()
            raise Unanswered("504", lost=True)
        plain(one)

    rows.carry = swap
    with pytest.raises(PublishRefused):
        slow.publish(*items)
    with pytest.raises(Conflict):
        plain(on_its_way[0])
    expected = {**OLD, moved: [1, 9]}
    assert seen(slow) == expected
    # A process that was stopped meanwhile plans again on the present table.
    journal = sequential_journal.journal_of(
        next(r for r in journals(slow) if r["state"] == "intended")
    )
    port = PublishPort(slow.lake.store, journal, {SIDE: "s"})
    (move,) = [move for move in journal.moves if move.identifier == ("s", late)]
    with pytest.raises(jn.Moved, match="the publish is being undone"):
        port.forward([move])
    assert seen(slow) == expected
    # The next publish is not blocked.
    slow.publish(slow.candidate("a", 3), tag="wap_pub_2")
    assert slow.read("a") == [1, 2, 3]


def test_abort_tags_are_swept_when_no_request_can_be_late(slow: Bench) -> None:
    items = everything(slow)
    once(slow, "r", append(slow, "r"))
    with pytest.raises(PublishRefused):
        slow.publish(*items)
    found = take_survey(slow.lake)
    aborted = [tag for tag in found.tags if tag.aborted]
    assert {tag.table for tag in aborted} == {"s.a", "s.b", "s.c"}
    closed = journals(slow)[-1]["at"]
    for hours, going in ((23, set()), (25, {"s.a", "s.b", "s.c"})):
        plan = decide([], aborted, Limits(), closed + timedelta(hours=hours))
        assert {tag.table for tag in plan.tags} == going


def journals(bench: Bench) -> list[dict[str, Any]]:
    return sorted(bench.lake.ledger.rows("journal"), key=lambda row: row["at"])


def assert_ended(bench: Bench, *states: str) -> None:
    assert [row["state"] for row in journals(bench)] == ["intended", *states]


def test_requests_contain_the_held_refs(slow: Bench) -> None:
    """A server cannot swap whole files, so the request has to name all required refs."""
    slow.table("a", 1)
    port, move = port_of(slow, slow.candidate("a", 2))
    absent = {"type": "assert-ref-snapshot-id", "ref": "wap_undone_p", "snapshot-id": None}
    asked: list[MetadataChange] = []
    plain = slow.lake.store.backend.evolve

    def evolve(changes: Any, *more: Any) -> None:
        asked.extend(change for _, change in changes)
        plain(changes, *more)

    slow.lake.store.backend.evolve = evolve
    port.forward([move])
    port.back(move)
    # The table has the abort tag now, and gets no second one.
    port.back(move)
    slow.table("b", 1)
    port, move = port_of(slow, slow.candidate("b", 2))
    port.back(move)
    assert [set(change.held) for change in asked] == [{"wap_undone_p"}, set(), {TAG}]
    assert absent in asked[0].requirements
    assert (slow.read("a"), slow.read("b")) == ([1], [1])


# -- one step, with other writers between check and change ---------------------------------------


def port_of(bench: Bench, item: Candidate) -> tuple[PublishPort, jn.Move]:
    """Return the port and the move of the publish of one item."""
    store = bench.lake.store
    rows = store.backend.find(names_of([item]))
    schemas = {SIDE: "s"}
    plan = Publisher(store.load, rows, BRANCH, TAG, None, schemas).plan(item)
    (move,) = sequential_moves.moves_of([plan], [item], store.load)
    journal = jn.PublishJournal("p", "r", BRANCH, "publish", TAG, None, None, (move,))  # type: ignore[arg-type]
    return PublishPort(store, journal, schemas), move


def test_a_table_that_others_have_changed_is_not_moved_back(slow: Bench) -> None:
    slow.table("a", 1)
    port, move = port_of(slow, slow.candidate("a", 2))
    port.forward([move])
    assert port.position(move) == "after"
    append(slow, "a")()
    with pytest.raises(jn.Moved):
        port.back(move)
    assert slow.read("a") == [1, 2, 9]
    assert port.position(move) == "passed"


@pytest.mark.parametrize("how", ["branch", "new", "replace"])
def test_a_move_between_two_reads_is_not_taken_for_another_writers(slow: Bench, how: str) -> None:
    if how != "new":
        slow.table("t", 1)
    item = slow.candidate("t", 2) if how == "branch" else slow.new("t", 4)
    if how == "replace":
        item = slow.side("t", slow.state(("s", "t")).metadata_location)
    port, move = port_of(slow, item)
    moved: list[str] = []

    def read(identifier: Identifier) -> None:
        # The live name is read, but not yet the side name.
        if identifier == ("s", "t") and not moved:
            moved.append("t")
            port.forward([move])

    slow.lake.store.backend.metastore.read = read
    assert port.position(move) in ("before", "after")
    assert port.position(move) == "after"


@pytest.mark.parametrize("how", ["branch", "new"])
def test_another_table_under_the_name_is_not_moved_back(slow: Bench, how: str) -> None:
    if how == "branch":
        slow.table("t", 1)
    item = slow.candidate("t", 2) if how == "branch" else slow.new("t", 4)
    port, move = port_of(slow, item)
    port.forward([move])
    slow.lake.catalog.rename_table(("s", "t"), ("s", "away"))
    location = f"{slow.folder}/warehouse/s/another"
    slow.lake.catalog.create_table(
        ("s", "t"), slow.lake.catalog.load_table(("s", "away")).schema(), location=location
    )
    port.back(move)
    assert slow.state(("s", "t")).location == location


def test_a_table_that_others_wrote_to_is_not_replaced(slow: Bench) -> None:
    slow.table("r", 1)
    slow.new("r", 5)
    port, move = port_of(slow, slow.side("r", slow.state(("s", "r")).metadata_location))
    append(slow, "r")()
    with pytest.raises(jn.Moved):
        port.forward([move])
    assert slow.read("r") == [1, 9]
    assert slow.read("r", schema=SIDE) == [5]


def test_messages_of_a_continued_rollback() -> None:
    journal = jn.PublishJournal("p", "r", BRANCH, "publish", TAG, None, None, ())  # type: ignore[arg-type]
    name = ("s", "a")
    reasons = {name: Mismatch(name, "main", "1", "2", "main")}
    sequential_journal.require_completed(journal, jn.JournalOutcome("completed"), {})
    with pytest.raises(PublishRefused):
        sequential_journal.require_completed(journal, jn.JournalOutcome("undone", (name,)), reasons)
    with pytest.raises(PublishTorn):
        sequential_journal.require_completed(
            journal, jn.JournalOutcome("torn", (name,), (name,)), reasons
        )


# -- commits of several changes, of which a part is made -----------------------------------------


def files_exist(bench: Bench) -> bool:
    """Whether each table can be read, the ledger's included."""
    for row in bench.lake.store.backend.all():
        table = bench.lake.catalog.load_table(row.identifier)
        table.scan().to_arrow()
    return True


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_a_discard_that_meets_another_writer(slow: Bench, name: str) -> None:
    for each in "abc":
        slow.table(each, 1)
        slow.candidate(each, 2)
    slow.new("n", 4)
    once(slow, name, append(slow, name))
    done = slow.lake.branches.discard(BRANCH)
    assert [table for _, table in done.tables] == ["a", "b", "c"]
    assert done.schemas == (SIDE,)
    assert files_exist(slow)
    assert seen(slow) == {**{each: [1] for each in "abc"}, name: [1, 9]}
    assert slow.lake.branches.all() == []
    assert [row["outcome"] for row in slow.lake.ledger.rows("runs")] == ["discarded"]


def test_a_discard_whose_side_schema_gets_a_new_member(slow: Bench) -> None:
    slow.table("a", 1)
    slow.candidate("a", 2)
    slow.new("n", 4)
    others = [lambda: slow.new("o", 5)]

    def before(identifier: Identifier) -> None:
        if identifier == (SIDE, "n") and others:
            others.pop()()

    slow.lake.store.backend.metastore.before = before
    done = slow.lake.branches.discard(BRANCH)
    assert [one.identifier[1] for one in done.side] == ["n", "o"]
    assert files_exist(slow)
    assert SIDE not in slow.lake.store.backend.schemas()


def test_a_discard_that_the_catalog_refuses_half_way(slow: Bench) -> None:
    for each in "ab":
        slow.table(each, 1)
        slow.candidate(each, 2)

    def refuse() -> None:
        raise CatalogError("AccessDenied. Nothing was changed.")

    once(slow, "b", refuse)
    with pytest.raises(CommitUnknown, match=r"part of a commit was made.*AccessDenied"):
        slow.lake.branches.discard(BRANCH)
    assert files_exist(slow)
    slow.lake.branches.discard(BRANCH)
    assert slow.lake.branches.all() == []


def test_a_commit_that_is_interrupted_keeps_its_files(slow: Bench) -> None:
    """The request may be on its way."""
    slow.table("a", 1)
    slow.candidate("a", 2)
    on_its_way: list[PointerUpdate] = []
    rows = slow.lake.store.backend.metastore
    plain = rows.carry

    def interrupted(update: PointerUpdate) -> None:
        on_its_way.append(update)
        raise KeyboardInterrupt

    rows.carry = interrupted
    with pytest.raises(KeyboardInterrupt):
        slow.lake.branches.discard(BRANCH)
    rows.carry = plain
    if slow.lake.store.backend.takes_files:
        plain(on_its_way[0])
    assert files_exist(slow)


def test_a_tag_is_swept_while_others_write_to_the_ledger(slow: Bench) -> None:
    slow.table("a", 1)
    table = slow.lake.catalog.load_table(("s", "a"))
    with table.manage_snapshots() as snapshots:
        snapshots.create_tag(table.current_snapshot().snapshot_id, "old")  # type: ignore[union-attr]
    slow.lake.ledger.ensure({"sweeps"})
    now = datetime.now(UTC)
    other = LedgerRows("sweeps", [{"run_id": "other", "swept_at": now, "what": "tag"}])
    others = [lambda: after_death(slow).ledger.append(other)]

    def before(identifier: Identifier) -> None:
        if identifier == ("wap_ledger", "sweeps") and others:
            others.pop()()

    slow.lake.store.backend.metastore.before = before
    gone = sweep_table(slow.lake, ("s", "a"), ["old"], run_id="x", reason="r", older_than=now)
    assert gone == (("old",), 0)
    assert files_exist(slow)
    assert {row["run_id"] for row in slow.lake.ledger.rows("sweeps")} == {"other", "x"}


# -- names ---------------------------------------------------------------------------------------


def test_a_name_that_another_format_takes_meanwhile(slow: Bench) -> None:
    items = everything(slow)
    once(slow, "b", lambda: slow.lake.store.backend.metastore.others.add(("s", "n")))
    with pytest.raises(PublishRefused, match="another format"):
        slow.publish(*items)
    assert seen(slow) == OLD
    assert slow.lake.publishing.on_their_way() == []


def two_names(bench: Bench) -> list[Candidate]:
    """Return two new tables; skips where a rename is one step."""
    if bench.lake.store.backend.kind != "glue":
        pytest.skip("a rename is one step here")
    return [bench.new("n", 4), bench.new("o", 5)]


def test_an_undo_after_both_names_were_there(slow: Bench) -> None:
    """The answer to the drop of the side name is lost, and another writer takes a later name."""
    items = two_names(slow)
    rows = slow.lake.store.backend.metastore
    plain, lost = rows.carry, [True]

    def carry(update: PointerUpdate) -> None:
        if update.after is None and update.before.identifier == (SIDE, "n") and lost:
            lost.clear()
            raise Unanswered("timeout", lost=True)
        if update.before is None and update.after.identifier == ("s", "o"):
            slow.table("o", 7)
            raise Conflict(None, "taken")
        plain(update)

    rows.carry = carry
    with pytest.raises(PublishRefused):
        slow.publish(*items)
    rows.carry = plain
    assert seen(slow) == {"o": [7]}
    assert (slow.read("n", schema=SIDE), slow.read("o", schema=SIDE)) == ([4], [5])
    assert slow.lake.publishing.on_their_way() == []


def test_an_undo_beside_the_process_that_is_about_to_drop_the_side_name(slow: Bench) -> None:
    items = two_names(slow)
    rows = slow.lake.store.backend.metastore
    plain, others = rows.carry, [True]

    def carry(update: PointerUpdate) -> None:
        if update.after is None and update.before.identifier == (SIDE, "n") and others:
            others.clear()
            slow.table("o", 7)
            after_death(slow).publishing.recover()
        plain(update)

    rows.carry = carry
    with pytest.raises(PublishRefused):
        slow.publish(*items)
    assert seen(slow) == {"o": [7]}
    assert (slow.read("n", schema=SIDE), slow.read("o", schema=SIDE)) == ([4], [5])
