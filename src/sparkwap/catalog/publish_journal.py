"""The journal of a sequential publish, and the rule that completes or undoes it.

The whole publish is written to the ledger's journal before the first table moves. Then each table
is moved by compare and swap. A process that finds an open journal (the same process or a later
one) reads the position of each table, and follows one rule:

- If each table has moved or can still move, the rest is moved: the publish is completed.
- If a table cannot move any more, because another writer has moved its ``main``, all others move
  back: the publish is undone.

Several processes may do so at once, and see different positions. So the first process that wants to
undo, or that has seen all tables moved, writes this direction to the journal, by compare and swap.
It then holds for all processes.

Meanwhile a reader may see some tables new and others old. If the publish is undone after another
writer has changed a published table, that table stays published, and messages name it.

Pure: `Port` has the catalog. `carry` may die at any place, and several processes may call it again
at once; the result is the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from sparkwap.catalog.model import Candidate, Identifier, PublishedEntry, UndonePublish

Action = Literal["publish", "rollback", "forced rollback"]
Position = Literal["before", "after", "passed", "moved"]
"""The position of a table. ``before``: not (wholly) moved. ``after``: moved. ``passed``: moved, and
then changed by another writer. ``moved``: changed by another writer first, so it cannot move."""

Direction = Literal["forward", "back"]
Decide = Callable[[Direction | None], Direction | None]
"""Writes a direction to the journal if it has none, and returns the direction of the journal. With
None, it only reads the direction."""

State = Literal["intended", "completing", "completed", "undoing", "undone", "torn"]
"""``completing``: all tables have moved; only the ledger is to be written. ``undoing``: no table
moves forward any more. ``torn``: undone or rolled back, except for tables that others changed."""

_DIRECTIONS: Mapping[str, Direction] = {
    "completing": "forward",
    "completed": "forward",
    "undoing": "back",
    "undone": "back",
    "torn": "back",
}
_CLOSED = frozenset({"completed", "undone", "torn"})

_TRIES = 8


@dataclass(frozen=True, slots=True)
class Move:
    """One table or view of a publish.

    Attributes:
        entry: The state before and after, as a rollback needs it.
        candidate: The candidate that is published; None in a rollback.
        uuid: The identity of the live object afterwards.
    """

    entry: PublishedEntry
    candidate: Candidate | None
    uuid: str

    @property
    def identifier(self) -> Identifier:
        """The live name."""
        return self.entry.identifier


@dataclass(frozen=True, slots=True)
class PublishJournal:
    """An intended publish or rollback.

    Attributes:
        run_id: The run that publishes or rolls back.
        tag: The receipt on each published snapshot.
        tag_max_age_ms: How long the tag keeps the snapshot; None for ever.
        undone: All publishes that a forced rollback undoes.
        manifest_hash: The code that is published, if it is stored.
    """

    publish_id: str
    run_id: str
    branch: str
    action: Action
    tag: str
    tag_max_age_ms: int | None
    at: datetime
    moves: tuple[Move, ...]
    undone: tuple[UndonePublish, ...] = ()
    manifest_hash: str | None = None


@dataclass(frozen=True, slots=True)
class JournalOutcome:
    """The result of a journal.

    Attributes:
        state: ``completed``, ``undone`` or ``torn``.
        blocked: The tables that could not move, or, in a rollback, could not move back.
        stayed: The tables that are published although the publish was undone.
    """

    state: State
    blocked: tuple[Identifier, ...] = ()
    stayed: tuple[Identifier, ...] = ()


class Stuck(Exception):
    """Other writers were faster at each attempt; the journal stays open for a later command.

    Its text is the reason of the last attempt.
    """


class Port(Protocol):
    """The tables of a journal in the catalog."""

    def position(self, move: Move) -> Position:
        """Return the present position of a table."""

    def forward(self, moves: Sequence[Move]) -> None:
        """Move tables by compare and swap; skips steps that are already done.

        Raises:
            Moved: A table was not at its expected position; read the positions again.
        """

    def back(self, move: Move) -> None:
        """Move a table back by compare and swap, and block late requests that move it forward.

        Raises:
            Moved: The table was not at its expected position; read the positions again.
        """


class Moved(Exception):
    """A compare and swap failed."""


def direction(action: Action, positions: Mapping[Identifier, Position]) -> Direction:
    """Return whether to complete or to undo a journal.

    A rollback is never undone: tables that others have changed stay, the rest is rolled back.
    """
    blocked = any(position == "moved" for position in positions.values())
    return "back" if blocked and action == "publish" else "forward"


def decided(states: Collection[str]) -> Direction | None:
    """Return the direction that the states of a journal have decided; None if undecided."""
    return next((_DIRECTIONS[state] for state in states if state in _DIRECTIONS), None)


def is_closed(states: Collection[str]) -> bool:
    """Return whether a journal with these states has ended."""
    return not _CLOSED.isdisjoint(states)


def may_follow(states: Collection[str], state: State) -> bool:
    """Return whether a journal may get a state: not twice, and not against its direction."""
    if is_closed(states) or state in states:
        return False
    return decided(states) in (None, _DIRECTIONS[state])


def carry(
    journal: PublishJournal,
    port: Port,
    decide: Decide,
    pause: Callable[[int], None] = lambda attempt: None,
) -> JournalOutcome:
    """Complete or undo a journal, from any position of its tables.

    Args:
        decide: Reads and writes the journal's direction; a rollback has only one.
        pause: Called before each attempt except the first, with its number, to wait.
    """
    last = ""
    for attempt in range(_TRIES):
        if attempt:
            pause(attempt)
        towards = decide(None)
        positions = {move.identifier: port.position(move) for move in journal.moves}
        if towards is None and direction(journal.action, positions) == "back":
            towards = decide("back")
        if towards == "forward":
            # Another process has seen all tables moved; later changes are those of other writers.
            return JournalOutcome("completed")
        try:
            if towards == "back":
                return _undo(journal, port, positions)
            outcome = _complete(journal, port, positions)
        except Moved as moved:
            last = str(moved)
            continue
        if outcome is not None and decide("forward") == "forward":
            return outcome
    raise Stuck(last)


def _complete(
    journal: PublishJournal, port: Port, positions: Mapping[Identifier, Position]
) -> JournalOutcome | None:
    """Move the remaining tables; None if the positions have to be read again."""
    left = [move for move in journal.moves if positions[move.identifier] == "before"]
    blocked = tuple(name for name, position in positions.items() if position == "moved")
    if left:
        port.forward(left)
        # A catalog may report success although only some tables have moved.
        return None
    return JournalOutcome("torn" if blocked else "completed", blocked)


def _undo(
    journal: PublishJournal, port: Port, positions: Mapping[Identifier, Position]
) -> JournalOutcome:
    # Include tables at ``before``: a move may be half done.
    for move in reversed(journal.moves):
        position = positions[move.identifier]
        # Of a replaced table, the former one was dropped first: its name may be free.
        dropped = position == "moved" and move.entry.how == "replace"
        if position in ("before", "after") or dropped:
            port.back(move)
    blocked = tuple(name for name, position in positions.items() if position == "moved")
    stayed = tuple(name for name, position in positions.items() if position == "passed")
    return JournalOutcome("torn" if stayed else "undone", blocked, stayed)


def dump(journal: PublishJournal) -> str:
    """Return the moves of a journal as text, for the ledger."""
    plain: Any = [asdict(move) for move in journal.moves]
    if journal.undone or journal.manifest_hash:
        undone = [asdict(one) for one in journal.undone]
        plain = {"moves": plain, "undone": undone, "manifest_hash": journal.manifest_hash}
    return json.dumps(plain, separators=(",", ":"))


def parse(text: str) -> tuple[tuple[Move, ...], tuple[UndonePublish, ...], str | None]:
    """Return the moves, the publishes that a forced rollback undoes, and the manifest's hash."""
    plain = json.loads(text)
    if isinstance(plain, list):
        plain = {"moves": plain, "undone": []}
    undone = tuple(
        UndonePublish(**{**one, "entries": tuple(_entry(entry) for entry in one["entries"])})
        for one in plain["undone"]
    )
    moves = tuple(_move(one) for one in plain["moves"])
    return moves, undone, plain.get("manifest_hash")


def _entry(plain: Mapping[str, Any]) -> PublishedEntry:
    return PublishedEntry(**{**plain, "identifier": tuple(plain["identifier"])})


def _move(plain: Mapping[str, Any]) -> Move:
    found = plain["candidate"]
    if found is not None:
        found = Candidate(
            **{**found, **{key: tuple(found[key]) for key in ("identifier", "changes")}}
        )
    return Move(_entry(plain["entry"]), found, plain["uuid"])
