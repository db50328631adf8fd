"""Publishing where tables can be moved one by one only: the journal and its rule.

Before the first move the whole publish is written down, in the ledger. Then each table is moved
by compare and swap. Whoever finds an open journal, the same process or a later one, looks where
each table is and goes on by one rule:

- if each table is moved or can still be moved, the rest is moved: the publish is completed;
- if one cannot be moved any more, as others have moved ``main``, all others go back: it is undone.

Several may look at once, and see different things. So the first who would undo, or has found all
moved, writes that down, by compare and swap; from then on it is so for all.

A reader who comes in the middle may see a mixture. What cannot be helped is a table that was moved
and has been moved on from there by others while another one cannot be moved: it stays, and is
named.

Pure: the catalog is behind `Port`. `carry` may die anywhere and be called again, by several at
once, and comes to the same end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from sparkwap.catalog.model import (
    BranchItem,
    Identifier,
    Item,
    PublishedEntry,
    SideItem,
    UndonePublish,
)

Action = Literal["publish", "rollback", "forced rollback"]
Position = Literal["before", "after", "passed", "moved"]
"""Where a table is: not (wholly) moved yet; moved; moved, and others have moved it on since; moved
by others from where it was, so that it cannot be moved by us."""

Direction = Literal["forward", "back"]
Decide = Callable[[Direction | None], Direction | None]
"""Writes down the direction of a journal where none is, and returns the one that is written; with
None it only looks."""

State = Literal["intended", "completing", "completed", "undoing", "undone", "torn"]
"""``completing``: all tables were moved, the rest is bookkeeping. ``undoing``: none is moved any
more. ``torn``: undone, or rolled back, but for tables that others had moved on already."""

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
        entry: What a rollback needs, and where the table was before.
        item: What is published; None in a rollback.
        uuid: Identity of what stands at the live name afterwards.
    """

    entry: PublishedEntry
    item: Item | None
    uuid: str

    @property
    def identifier(self) -> Identifier:
        """The live name."""
        return self.entry.identifier


@dataclass(frozen=True, slots=True)
class PublishJournal:
    """A publish, or its rollback, as it was intended.

    Attributes:
        publish_id: Id of the publish.
        run_id: The run that publishes or rolls back.
        branch: The audit branch.
        action: What it is.
        tag: The receipt on each published snapshot.
        tag_max_age_ms: How long it keeps the snapshot; None for ever.
        at: When it was written.
        moves: All tables and views.
        undone: All publishes that a rollback with force undoes.
        manifest_hash: The code that is published, if it is kept.
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
    """What a journal came to.

    Attributes:
        state: ``completed``, ``undone`` or ``torn``.
        blocked: The tables that could not be moved; of a rollback, that were not moved back.
        stayed: The tables that are published although the publish was undone.
    """

    state: State
    blocked: tuple[Identifier, ...] = ()
    stayed: tuple[Identifier, ...] = ()


class Stuck(Exception):
    """Others were faster each time; the journal stays open, and may be carried on later."""


class Port(Protocol):
    """The catalog, as the journal sees it."""

    def position(self, move: Move) -> Position:
        """Where a table is now."""

    def forward(self, moves: Sequence[Move]) -> None:
        """Move tables by compare and swap, what is done of them already left as it is.

        Raises:
            Moved: One was not where it had to be; look again.
        """

    def back(self, move: Move) -> None:
        """Move a table back, by compare and swap, and keep a move of it that is late from it.

        Raises:
            Moved: It was not where it had to be; look again.
        """


class Moved(Exception):
    """A compare and swap failed."""


def direction(action: Action, positions: Mapping[Identifier, Position]) -> Direction:
    """Whether to complete or to undo.

    A rollback is never undone: what others have moved meanwhile stays theirs, the rest goes back.
    """
    blocked = any(position == "moved" for position in positions.values())
    return "back" if blocked and action == "publish" else "forward"


def decided(states: Collection[str]) -> Direction | None:
    """What is decided of a publish, by the states that its journal has had; None for nothing."""
    return next((_DIRECTIONS[state] for state in states if state in _DIRECTIONS), None)


def is_closed(states: Collection[str]) -> bool:
    """Whether a journal with these states has come to its end."""
    return not _CLOSED.isdisjoint(states)


def may_follow(states: Collection[str], state: State) -> bool:
    """Whether a state may be written of a journal: not twice, and not against what is decided."""
    if is_closed(states) or state in states:
        return False
    return decided(states) in (None, _DIRECTIONS[state])


def carry(
    journal: PublishJournal,
    port: Port,
    decide: Decide,
    pause: Callable[[int], None] = lambda attempt: None,
) -> JournalOutcome:
    """Complete or undo a journal, from wherever it is.

    Args:
        journal: The journal.
        port: The catalog.
        decide: The journal's direction; a rollback has but one.
        pause: Called before each try but the first, with its number: waits a little.

    Raises:
        Stuck: Others were faster each time.
    """
    for attempt in range(_TRIES):
        if attempt:
            pause(attempt)
        towards = decide(None)
        positions = {move.identifier: port.position(move) for move in journal.moves}
        if towards is None and direction(journal.action, positions) == "back":
            towards = decide("back")
        if towards == "forward":
            # Somebody has seen all of them moved; what is otherwise now, others have done since.
            return JournalOutcome("completed")
        try:
            if towards == "back":
                return _undo(journal, port, positions)
            outcome = _complete(journal, port, positions)
        except Moved:
            continue
        if outcome is not None and decide("forward") == "forward":
            return outcome
    raise Stuck(journal.publish_id)


def _complete(
    journal: PublishJournal, port: Port, positions: Mapping[Identifier, Position]
) -> JournalOutcome | None:
    """Move what is left; None where it has to be looked at once more."""
    left = [move for move in journal.moves if positions[move.identifier] == "before"]
    blocked = tuple(name for name, position in positions.items() if position == "moved")
    if left:
        port.forward(left)
        # A catalog that said yes may have moved some of them only.
        return None
    return JournalOutcome("torn" if blocked else "completed", blocked)


def _undo(
    journal: PublishJournal, port: Port, positions: Mapping[Identifier, Position]
) -> JournalOutcome:
    # Also of those that look untouched: a move may be half done.
    for move in reversed(journal.moves):
        if positions[move.identifier] in ("before", "after"):
            port.back(move)
    blocked = tuple(name for name, position in positions.items() if position == "moved")
    stayed = tuple(name for name, position in positions.items() if position == "passed")
    return JournalOutcome("torn" if stayed else "undone", blocked, stayed)


def dump(journal: PublishJournal) -> str:
    """What is to be moved as text, for the ledger."""
    plain: Any = [_plain(move) for move in journal.moves]
    if journal.undone or journal.manifest_hash:
        undone = [asdict(one) for one in journal.undone]
        plain = {"moves": plain, "undone": undone, "manifest_hash": journal.manifest_hash}
    return json.dumps(plain, separators=(",", ":"))


def parse(text: str) -> tuple[tuple[Move, ...], tuple[UndonePublish, ...], str | None]:
    """The moves from the ledger, the publishes that are undone with force, the manifest's hash."""
    plain = json.loads(text)
    if isinstance(plain, list):
        plain = {"moves": plain, "undone": []}
    undone = tuple(
        UndonePublish(**{**one, "entries": tuple(_entry(entry) for entry in one["entries"])})
        for one in plain["undone"]
    )
    moves = tuple(_move(one) for one in plain["moves"])
    return moves, undone, plain.get("manifest_hash")


def _plain(move: Move) -> dict[str, Any]:
    return {
        "entry": asdict(move.entry),
        "item": None if move.item is None else asdict(move.item),
        "uuid": move.uuid,
    }


def _entry(plain: Mapping[str, Any]) -> PublishedEntry:
    return PublishedEntry(**{**plain, "identifier": tuple(plain["identifier"])})


def _move(plain: Mapping[str, Any]) -> Move:
    entry = _entry(plain["entry"])
    item = plain["item"]
    if item is None:
        return Move(entry, None, plain["uuid"])
    item = {**item, "identifier": tuple(item["identifier"])}
    kind = SideItem if "side_schema" in item else BranchItem
    return Move(entry, kind(**item), plain["uuid"])
