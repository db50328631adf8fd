"""A publish table by table, on a catalog without Java: where others come in between.

`test_rest.py` has the same on a server; here a SQL catalog plays one that changes one thing at a
time, so that each change can be told of before it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pytest

from sparkwap.catalog import PublishRefused, PublishTorn, RollbackRefused, series
from sparkwap.catalog import journal as jn
from sparkwap.catalog import metadata as md
from sparkwap.catalog.model import Identifier, Item, Mismatch
from sparkwap.catalog.publish import Publisher
from sparkwap.catalog.rest import RestTables, _change
from sparkwap.catalog.rows import Conflict, Row, Rows, Swap
from sparkwap.catalog.store import Store

BRANCH, SIDE, TAG = "pr_1", "s__pr_1", "wap_pub_1a2b3c4d"
OLD = {"a": [1], "b": [1], "c": [1], "r": [1]}
NEW = {"a": [1, 2], "b": [1, 2], "c": [3], "n": [4], "r": [5]}
Bench = Any


class OneByOne(RestTables):
    """A SQL catalog that behaves as a REST catalog does, without its transactions.

    Attributes:
        before: Called with the name before each change of it.
    """

    def __init__(self, rows: Rows) -> None:
        self._sql = rows
        self.name, self.properties, self.multi_table = rows.name, rows.properties, False
        self.before: Callable[[Identifier], None] = lambda identifier: None
        for method in ("get", "find", "members", "kinds", "all", "others", "schemas"):
            setattr(self, method, getattr(rows, method))
        for method in ("side_schemas", "ensure_schema", "pyiceberg", "close"):
            setattr(self, method, getattr(rows, method))
        self._store = Store(rows)

    def document(self, location: str) -> md.Document | None:
        return None

    def apply(
        self,
        swaps: Sequence[Swap],
        *,
        documents: Mapping[str, md.Document],
        requires: Mapping[Identifier, Row | None] | None = None,
        drop_if_empty: Collection[str] = (),
        drop_schemas: Collection[str] = (),
        at: Callable[[Any], None] = lambda part: None,
        guard: Any = None,
    ) -> None:
        at("begun")
        if guard is not None:
            guard(None)
        self._store.write(documents)
        for swap in sorted(swaps, key=lambda swap: swap.after is None):
            self._swap(swap)
        self._sql.apply([], drop_if_empty=drop_if_empty, drop_schemas=drop_schemas)
        at("rows_changed")

    def register(self, row: Row) -> None:
        self._swap(Swap(None, row))

    def rename(self, before: Identifier, after: Identifier, kind: Any) -> None:
        row = self.get(before)
        if row is None:
            raise Conflict(None, f"{before} is gone")
        self._swap(Swap(row, Row(after, kind, row.location)))

    def evolve(
        self,
        changes: Sequence[tuple[Row, md.Document, md.Document]],
        changed: Callable[[Identifier], None] = lambda identifier: None,
    ) -> None:
        for row, before, after in changes:
            if _change(row, before, after).updates:
                location = md.next_location(after, row.location)
                self._store.write({location: after})
                self._swap(Swap(row, Row(row.identifier, "table", location)))
                changed(row.identifier)

    def _swap(self, swap: Swap) -> None:
        row = swap.after or swap.before
        assert row is not None
        self.before(row.identifier)
        self._sql.apply([swap])


@pytest.fixture
def slow(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench whose catalog changes one thing at a time."""
    bench.lake._store = Store(OneByOne(bench.lake.store.rows))
    # Nobody is waited for.
    monkeypatch.setattr(series, "pause", lambda attempt: None)
    return bench


def everything(bench: Bench) -> list[Item]:
    for name in "abcr":
        bench.table(name, 1)
    items = [bench.candidate(name, 2) for name in "ab"]
    items += [bench.changed("c", 3), bench.new("n", 4)]
    bench.new("r", 5)
    return [*items, bench.side("r", bench.state(("s", "r")).metadata_location)]


def seen(bench: Bench) -> dict[str, list[int]]:
    return {name: bench.read(name) for name in bench.lake.relations("s")}


def once(bench: Bench, name: str, action: Callable[[], Any], change: int = 1) -> None:
    """Act as soon as a name in the live schema is about to change for the so manieth time; once."""
    left = [lambda: None] * (change - 1) + [action]

    def before(identifier: Identifier) -> None:
        if identifier == ("s", name) and left:
            left.pop(0)()

    bench.lake.store.rows.before = before


def append(bench: Bench, name: str, number: int = 9) -> Callable[[], Any]:
    return lambda: bench.write(("s", name), number, branch="main")


class Died(BaseException):
    """The process is gone."""


def die() -> None:
    raise Died


def after_death(bench: Bench) -> Any:
    """The lake as the next command opens it."""
    lake = type(bench.lake)("lake", bench.properties)
    lake._store = Store(OneByOne(lake.store.rows))  # type: ignore[arg-type]
    return lake


def assert_behind_the_gate(bench: Bench) -> None:
    """What is new has its receipt, and runs will write to branches of it."""
    state = bench.state(("s", "n"))
    assert state.properties["write.wap.enabled"] == "true"
    assert state.refs[TAG].snapshot_id == state.main


def test_publish_and_rollback(slow: Bench) -> None:
    receipt = slow.publish(*everything(slow))
    assert seen(slow) == NEW
    assert slow.lake.open_branches() == []
    assert_behind_the_gate(slow)
    slow.lake.rollback(receipt.entries, run_id="y", publish_id=receipt.publish_id)
    assert seen(slow) == OLD


@pytest.mark.parametrize(
    ("name", "change"), [("a", 1), ("b", 1), ("c", 1), ("n", 1), ("n", 2), ("r", 1), ("r", 2)]
)
def test_what_dies_on_its_way_is_completed_by_the_next_command(
    slow: Bench, name: str, change: int
) -> None:
    items = everything(slow)
    once(slow, name, die, change)
    with pytest.raises(Died):
        slow.publish(*items)
    lake = after_death(slow)
    (told,) = lake.recover()
    assert "all its tables are published" in told
    assert seen(slow) == NEW
    assert_behind_the_gate(slow)
    assert lake.recover() == []
    lake.close()


def test_nothing_moves_before_the_journal_is_written(slow: Bench) -> None:
    items = everything(slow)
    journals: list[Any] = []
    once(slow, "a", lambda: journals.extend(slow.lake.on_their_way()))
    slow.publish(*items)
    assert [row["state"] for row in journals] == ["intended"]
    assert slow.lake.on_their_way() == []


@pytest.mark.parametrize("name", ["b", "c", "r"])
def test_where_others_move_main_meanwhile_all_goes_back(slow: Bench, name: str) -> None:
    items = everything(slow)
    once(slow, name, append(slow, name))
    with pytest.raises(PublishRefused):
        slow.publish(*items)
    assert seen(slow) == {**OLD, name: [1, 9]}
    # What was on the audit branch is on it still.
    assert slow.read("a", BRANCH) == [1, 2]
    assert slow.read("n", schema=SIDE) == [4]


def test_what_others_have_built_on_stays_and_is_named(slow: Bench) -> None:
    items = everything(slow)

    def others() -> None:
        append(slow, "a", 8)()
        append(slow, "b")()

    once(slow, "b", others)
    with pytest.raises(PublishTorn) as torn:
        slow.publish(*items)
    assert "s.a" in str(torn.value)
    assert seen(slow) == {**OLD, "a": [1, 2, 8], "b": [1, 9]}


def test_a_rollback_is_completed_but_for_what_has_moved_on(slow: Bench) -> None:
    receipt = slow.publish(*everything(slow))
    once(slow, "b", append(slow, "b"))
    with pytest.raises(RollbackRefused) as refused:
        slow.lake.rollback(receipt.entries, run_id="y", publish_id=receipt.publish_id)
    assert [one.identifier for one in refused.value.mismatches] == [("s", "b")]
    assert seen(slow) == {**OLD, "b": [1, 2, 9]}
    assert slow.lake.on_their_way() == []


def test_a_rollback_looks_at_all_before_it_moves_one(slow: Bench) -> None:
    receipt = slow.publish(*everything(slow))
    append(slow, "b")()
    before = slow.pointers()
    with pytest.raises(RollbackRefused):
        slow.lake.rollback(receipt.entries, run_id="y", publish_id=receipt.publish_id)
    assert slow.pointers() == before


# -- one step, and others between the look and the deed ------------------------------------------


def port_of(bench: Bench, item: Item) -> tuple[series.PublishPort, jn.Move]:
    """The publish of one item, as its journal has it."""
    store = bench.lake.store
    rows = store.rows.find(series.names_of([item]))
    schemas = {SIDE: "s"}
    plan = Publisher(store.load, rows, BRANCH, TAG, None, schemas).plan(item)
    (move,) = series.moves_of([plan], [item], store.load)
    journal = jn.Journal("p", "r", BRANCH, "publish", TAG, None, None, (move,))  # type: ignore[arg-type]
    return series.PublishPort(store, journal, schemas), move


def test_what_moved_on_is_not_put_back(slow: Bench) -> None:
    slow.table("a", 1)
    port, move = port_of(slow, slow.candidate("a", 2))
    port.forward([move])
    assert port.position(move) == "after"
    append(slow, "a")()
    with pytest.raises(jn.Moved):
        port.back(move)
    assert slow.read("a") == [1, 2, 9]
    assert port.position(move) == "passed"


@pytest.mark.parametrize("how", ["branch", "new"])
def test_another_table_under_the_name_is_not_put_back(slow: Bench, how: str) -> None:
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


def test_a_table_is_not_replaced_that_somebody_wrote_to(slow: Bench) -> None:
    slow.table("r", 1)
    slow.new("r", 5)
    port, move = port_of(slow, slow.side("r", slow.state(("s", "r")).metadata_location))
    append(slow, "r")()
    with pytest.raises(jn.Moved):
        port.forward([move])
    assert slow.read("r") == [1, 9]
    assert slow.read("r", schema=SIDE) == [5]


def test_what_came_of_it_is_told() -> None:
    journal = jn.Journal("p", "r", BRANCH, "publish", TAG, None, None, ())  # type: ignore[arg-type]
    name = ("s", "a")
    reasons = {name: Mismatch(name, "main", "1", "2", "main")}
    series.outcome_or_raise(journal, jn.Outcome("completed"), {})
    with pytest.raises(PublishRefused):
        series.outcome_or_raise(journal, jn.Outcome("undone", (name,)), reasons)
    with pytest.raises(PublishTorn):
        series.outcome_or_raise(journal, jn.Outcome("torn", (name,), (name,)), reasons)
