"""The tables that a sequential publish or rollback moves, and their names."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkwap.catalog import metadata as md
from sparkwap.catalog import publish_journal as jn
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.model import Candidate, Identifier, Mismatch, PublishedEntry
from sparkwap.catalog.planning import Load, MovePlan
from sparkwap.catalog.pointers import Pointer
from sparkwap.core.checkpoints import Checkpoint, checkpoint
from sparkwap.core.retry import wait_seconds
from sparkwap.publish.sequential_journal import about

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkwap.catalog.store import Store

_FIRST_WAIT_SECONDS = 0.05


def pause(attempt: int) -> None:
    """Wait before another attempt; with jitter, so that two writers do not collide again."""
    time.sleep(wait_seconds(attempt + 1, random.random(), _FIRST_WAIT_SECONDS))


def moves_of(
    plans: Sequence[MovePlan], candidates: Sequence[Candidate], load: Load
) -> tuple[jn.Move, ...]:
    """Return the moves of a publish, one for each plan."""
    return tuple(
        jn.Move(plan.entry, candidate, md.identity(load(_source(plan).location)))
        for plan, candidate in zip(plans, candidates, strict=True)
    )


def inexpressible(plans: Sequence[MovePlan], store: Store) -> list[Mismatch]:
    """Return the tables whose change the catalog cannot make."""
    reasons = [
        (plan.entry.identifier, refusal(swap.change, store))
        for plan in plans
        for swap in plan.swaps
        if swap.change is not None
    ]
    return [not_expressible(name, reason) for name, reason in reasons if reason is not None]


def refusal(change: MetadataChange, store: Store) -> str | None:
    """Return why the catalog cannot make a change; None if it can."""
    return None if store.backend.takes_files else change.refusal


def with_locations(journal: jn.PublishJournal, store: Store) -> tuple[PublishedEntry, ...]:
    """Return the entries with the metadata files that the catalog has written."""
    rows = store.backend.find({move.identifier for move in journal.moves})
    found = []
    for move in journal.moves:
        row = rows.get(move.identifier)
        here = row is not None and (
            row.kind == "view" or md.main_of(store.load(row.location)) == move.entry.candidate
        )
        location = row.location if row is not None and here else ""
        found.append(replace(move.entry, published_metadata_location=location))
    return tuple(found)


def leftovers(journal: jn.PublishJournal, store: Store) -> list[Pointer]:
    """Return the clones and views in side schemas that a completed publish no longer needs.

    Another process may have completed it, too; what a later run has built there is kept.
    """
    beside = {
        move.candidate.place: move.candidate.token
        for move in journal.moves
        if move.candidate is not None and move.candidate.how == "side"
    }
    found = store.backend.find(beside)
    return [row for row in found.values() if row.location == beside[row.identifier]]


def settled(
    find: Callable[[], Mapping[Identifier, Pointer]],
    look: Callable[[Mapping[Identifier, Pointer]], jn.Position],
) -> jn.Position:
    """Return the position of a table, from rows that existed at the same time.

    Names are read one after the other. If another process carries out the same journal meanwhile,
    the table looks as if another writer had moved it.
    """
    while True:
        rows = find()
        found = look(rows)
        if found != "moved" or find() == rows:
            return found


def side_identifier(move: jn.Move) -> Identifier:
    """Return the name of the published object in its side schema."""
    assert move.candidate is not None
    return move.candidate.place


def reached_table(step: Checkpoint, journal: jn.PublishJournal, identifier: Identifier) -> None:
    """Call a checkpoint for one table of a journal."""
    checkpoint(step, table=".".join(identifier), **about(journal))


def not_expressible(identifier: Identifier, reason: str) -> Mismatch:
    """Return the mismatch of a table whose change Iceberg's REST updates cannot express."""
    # Kind `main`: the table has to be built again on its present state, as if `main` had moved.
    expected = "its state when its clone was made"
    return Mismatch(identifier, "metadata", expected, reason, "main")


def in_place_change(plan: MovePlan) -> tuple[Pointer, MetadataChange]:
    """Return the row of a table whose metadata changes, and the change."""
    swap = plan.swaps[0]
    assert swap.before is not None and swap.change is not None
    return swap.before, swap.change


def _source(plan: MovePlan) -> Pointer:
    """Return the row that becomes the live table: the table itself, or the side object."""
    entry = plan.entry
    own = [swap.before for swap in plan.swaps if swap.before and swap.after]
    if entry.how in ("branch", "clone"):
        own = [row for row in own if row.identifier == entry.identifier]
    assert own[0] is not None
    return own[0]
