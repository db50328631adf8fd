"""The journal's rule on an in-memory catalog, with deaths at any step and other writers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal

from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkwap.catalog import Candidate
from sparkwap.catalog import publish_journal as jn
from sparkwap.catalog.model import Identifier, PublishedEntry, UndonePublish

NAMES = ("a", "b", "c")
Other = tuple[int, str, Literal["main", "on top"]]
"""Another writer: the step, the table, and whether it writes on the base or the candidate."""


class Killed(Exception):
    """The process has died."""


@dataclass
class Tables:
    """The history of each table's `main`, oldest first.

    Attributes:
        others: other writers that are still to come.
        kill_at: the steps at which the process dies: before it for even, after it for odd ones.
        together: several tables move in one request.
        meanwhile: what somebody else does before a step.
        fenced: the tables that no late move comes to any more.
    """

    others: list[Other]
    kill_at: list[int]
    together: bool
    meanwhile: dict[int, Callable[[], object]] = field(default_factory=dict)
    fenced: set[str] = field(default_factory=set)
    steps: int = 0
    main: dict[str, list[str]] = field(default_factory=lambda: {n: ["base"] for n in NAMES})

    def position(self, move: jn.Move) -> jn.Position:
        self._step(None, None)
        history = self.main[move.identifier[1]]
        if "candidate" in history:
            return "after" if history[-1] == "candidate" else "passed"
        return "before" if history[-1] == "base" else "moved"

    def forward(self, moves: Sequence[jn.Move]) -> None:
        names = [move.identifier[1] for move in moves]
        if self.together:
            self._step("forward", names)
            return
        for name in names:
            self._step("forward", [name])

    def back(self, move: jn.Move) -> None:
        self._step("back", [move.identifier[1]])

    def _step(self, what: str | None, names: list[str] | None) -> None:
        """Make a request; others may write before it, and the process may die around it."""
        step, self.steps = self.steps, self.steps + 1
        self.meanwhile.pop(step, lambda: None)()
        for at, name, how in list(self.others):
            if at <= step and (how == "main") == (self.main[name] == ["base"]):
                self.main[name].append("other")
                self.others.remove((at, name, how))
        if 2 * step in self.kill_at:
            raise Killed
        if what is not None and names is not None:
            self._swap(what, names)
        if 2 * step + 1 in self.kill_at:
            raise Killed

    def _swap(self, what: str, names: list[str]) -> None:
        if what == "back" and self.main[names[0]][-1] == "base":
            self.fenced.add(names[0])
            return
        if what == "forward" and not self.fenced.isdisjoint(names):
            raise jn.Moved(str(names))
        wanted = "base" if what == "forward" else "candidate"
        if any(self.main[name][-1] != wanted for name in names):
            raise jn.Moved(str(names))
        for name in names:
            history = self.main[name]
            history.append("candidate") if what == "forward" else history.pop()
            if what == "back":
                self.fenced.add(name)


class Decision:
    """The states of the journal in the ledger, written by several processes."""

    def __init__(self) -> None:
        self.states: list[str] = ["intended"]

    def __call__(self, wanted: jn.Direction | None) -> jn.Direction | None:
        if wanted is not None:
            self.write("completing" if wanted == "forward" else "undoing")
        return jn.decided(self.states)

    def write(self, state: jn.State) -> None:
        if jn.may_follow(self.states, state):
            self.states.append(state)


def journal() -> jn.PublishJournal:
    moves = tuple(
        jn.Move(
            PublishedEntry(("s", name), "branch", 1, "base", 2, ""),
            Candidate(("s", name), "pr_1", "branch", 1, token="2"),
            "uuid",
        )
        for name in NAMES
    )
    return jn.PublishJournal("p", "r", "pr_1", "publish", "tag", None, datetime.now(UTC), moves)


others = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from(NAMES), st.sampled_from(["main", "on top"])),
    max_size=3,
    unique=True,
)


@settings(max_examples=examples(200))
@given(others, st.lists(st.integers(0, 40), max_size=5, unique=True), st.booleans())
def test_after_any_death_all_tables_are_published_or_none(
    found: list[Other], kill_at: list[int], together: bool
) -> None:
    tables = Tables(list(found), list(kill_at), together)
    outcome, decision = None, Decision()
    for _ in range(len(kill_at) + 1):
        try:
            outcome = jn.carry(journal(), tables, decision)
            break
        except Killed:
            continue
    assert outcome is not None
    published = {name for name in NAMES if "candidate" in tables.main[name]}
    if outcome.state == "completed":
        assert published == set(NAMES)
        assert not outcome.blocked and not outcome.stayed
    else:
        # Only tables that others have changed stay published, and these are named.
        assert published == {name for _, name in outcome.stayed}
        assert outcome.blocked
        assert (outcome.state == "torn") == bool(published)
    # No rows of other writers were lost.
    written = [name for at, name, how in found if (at, name, how) not in tables.others]
    assert sorted(written) == sorted(n for n in NAMES for w in tables.main[n] if w == "other")


@settings(max_examples=examples(200))
@given(others, st.integers(0, 12), st.lists(st.integers(0, 40), max_size=2), st.booleans())
def test_two_processes_at_once_have_one_result(
    found: list[Other], at: int, kill_at: list[int], together: bool
) -> None:
    """One process stops at some step; another one ends the journal meanwhile."""
    tables, decision = Tables(list(found), [], together), Decision()

    def other() -> None:
        decision.write(jn.carry(journal(), tables, decision).state)
        # The first process, which continues, is the one that dies.
        tables.kill_at += [2 * tables.steps + one for one in kill_at]

    tables.meanwhile[at] = other
    with suppress(Killed):
        decision.write(jn.carry(journal(), tables, decision).state)
    while not jn.is_closed(decision.states):
        with suppress(Killed):
            decision.write(jn.carry(journal(), tables, decision).state)
    published = {name for name in NAMES if "candidate" in tables.main[name]}
    if decision.states[1:] == ["completing", "completed"]:
        assert published == set(NAMES)
    else:
        assert decision.states[1] == "undoing"
        assert (decision.states[2:] == ["torn"]) == bool(published)


def test_a_decided_direction_does_not_change() -> None:
    tables, decision = Tables([], [], together=False), Decision()
    decision.write("undoing")
    assert jn.carry(journal(), tables, decision).state == "undone"
    assert all(history == ["base"] for history in tables.main.values())
    # After all tables were seen moved, nobody can undo the publish.
    tables, decision = Tables([(0, "a", "main")], [], together=False), Decision()
    tables.meanwhile[1] = lambda: decision.write("completing")
    assert jn.carry(journal(), tables, decision).state == "completed"
    assert tables.main["b"] == ["base"]


def test_a_journal_is_closed_once() -> None:
    states: dict[str, tuple[jn.State, ...]] = {
        "intended": ("completing", "completed", "undoing", "undone", "torn"),
        "completing": ("completed",),
        "undoing": ("undone", "torn"),
        "completed": (),
        "undone": (),
        "torn": (),
    }
    for last, allowed in states.items():
        assert [one for one in states["intended"] if jn.may_follow({last}, one)] == list(allowed)
    assert not jn.may_follow({"intended", "completing"}, "undone")


@settings(max_examples=examples(100))
@given(st.integers(0, 40), st.booleans())
def test_a_publish_is_completed_without_other_writers(kill_at: int, together: bool) -> None:
    tables = Tables([], [kill_at], together)
    try:
        jn.carry(journal(), tables, Decision())
    except Killed:
        assert jn.carry(journal(), tables, Decision()).state == "completed"
    assert all(history == ["base", "candidate"] for history in tables.main.values())
    tables.kill_at.clear()
    assert jn.carry(journal(), tables, Decision()) == jn.JournalOutcome("completed")


def test_positions_are_read_again_after_a_partial_move() -> None:
    class Liar(Tables):
        def forward(self, moves: Sequence[jn.Move]) -> None:
            super().forward(moves[:1])

    tables = Liar([], [], together=True)
    assert jn.carry(journal(), tables, Decision()).state == "completed"
    assert all(history == ["base", "candidate"] for history in tables.main.values())


def test_a_rollback_is_never_undone() -> None:
    positions: dict[Identifier, jn.Position] = {("s", "a"): "moved", ("s", "b"): "before"}
    assert jn.direction("rollback", positions) == "forward"
    assert jn.direction("publish", positions) == "back"


def test_a_journal_stays_open_if_others_are_always_faster() -> None:
    class Busy(Tables):
        def forward(self, moves: Sequence[jn.Move]) -> None:
            raise jn.Moved("again")

    waits: list[int] = []
    try:
        jn.carry(journal(), Busy([], [], together=True), Decision(), waits.append)
    except jn.Stuck:
        assert waits == list(range(1, 8))
    else:
        raise AssertionError("it was never moved")


def test_a_journal_survives_dump_and_parse() -> None:
    entry = PublishedEntry(("s", "n"), "new", None, None, 2, "")
    candidate = Candidate(("s", "n"), "pr_1", "side", token="file.json", changes=("a",))
    moves = (*journal().moves, jn.Move(entry, candidate, "u"), jn.Move(entry, None, ""))
    plain = replace(journal(), moves=moves)
    assert jn.parse(jn.dump(plain)) == (moves, (), None)
    forced = replace(plain, undone=(UndonePublish("p", "pr_1", (entry,)),))
    assert jn.parse(jn.dump(forced)) == (moves, forced.undone, None)


class Scripted:
    """A port with scripted positions, which records its calls."""

    def __init__(self, *looks: dict[str, jn.Position]) -> None:
        self.looks = list(looks)
        self.asked: list[str] = []
        self.fails = 0

    def position(self, move: jn.Move) -> jn.Position:
        name = move.identifier[1]
        look = self.looks[0]
        if name == NAMES[-1] and len(self.looks) > 1:
            self.looks.pop(0)
        return look[name]

    def forward(self, moves: Sequence[jn.Move]) -> None:
        self.asked += [f"forward {move.identifier[1]}" for move in moves]

    def back(self, move: jn.Move) -> None:
        if self.fails:
            self.fails -= 1
            raise jn.Moved("again")
        self.asked.append(f"back {move.identifier[1]}")


def test_an_undo_that_has_begun_is_continued() -> None:
    # Another writer has restored main of c meanwhile; a and b may have moved back already.
    tables = Scripted(
        {"a": "after", "b": "after", "c": "moved"}, {"a": "before", "b": "after", "c": "before"}
    )
    tables.fails = 1
    assert jn.carry(journal(), tables, Decision()).state == "undone"
    assert tables.asked == ["back c", "back b", "back a"]


def test_a_half_moved_table_moves_back_too() -> None:
    tables = Scripted({"a": "before", "b": "after", "c": "moved"})
    assert jn.carry(journal(), tables, Decision()) == jn.JournalOutcome("undone", (("s", "c"),))
    assert tables.asked == ["back b", "back a"]


def test_a_table_that_others_have_changed_does_not_move_back() -> None:
    tables = Scripted({"a": "passed", "b": "after", "c": "moved"})
    outcome = jn.carry(journal(), tables, Decision())
    assert outcome == jn.JournalOutcome("torn", (("s", "c"),), (("s", "a"),))
    assert tables.asked == ["back b"]
