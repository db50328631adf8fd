"""Converts a sequential publish or rollback to rows of the ledger, receipts and messages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sparkwap.catalog import publish_journal as jn
from sparkwap.catalog.model import Identifier, Mismatch
from sparkwap.catalog.refusals import PublishRefused, PublishTorn, RollbackRefused, RollbackTorn
from sparkwap.core import names

if TYPE_CHECKING:
    from collections.abc import Mapping


def require_completed(
    journal: jn.PublishJournal, outcome: jn.JournalOutcome, reasons: Mapping[Identifier, Mismatch]
) -> None:
    """Raise unless a publish was completed.

    Raises:
        PublishRefused: It was undone.
        PublishTorn: It was undone as far as it could be.
    """
    if outcome.state == "completed":
        return
    mismatches = [reasons[name] for name in outcome.blocked if name in reasons]
    if outcome.state == "torn":
        raise PublishTorn(journal.publish_id, mismatches, outcome.stayed)
    raise PublishRefused(mismatches)


def require_rolled_back(
    journal: jn.PublishJournal, outcome: jn.JournalOutcome, reasons: Mapping[Identifier, Mismatch]
) -> None:
    """Raise unless all tables of a rollback were moved back.

    Raises:
        RollbackRefused: None was moved back.
        RollbackTorn: Only some were moved back.
    """
    if not outcome.blocked:
        return
    mismatches = [reasons[name] for name in outcome.blocked if name in reasons]
    back = [move.identifier for move in journal.moves if move.identifier not in outcome.blocked]
    if not back:
        raise RollbackRefused(mismatches)
    raise RollbackTorn(journal.publish_id, mismatches, back)


def format_action(journal: jn.PublishJournal) -> str:
    """Return the publish or rollback in words, for messages."""
    return f"the {journal.action} of run {names.short_run_id(journal.run_id)}"


def format_rollback(
    journal: jn.PublishJournal, outcome: jn.JournalOutcome, reasons: Mapping[Identifier, Mismatch]
) -> str:
    """Return the message of a command that found an open rollback and carried it out."""
    what = format_action(journal)
    try:
        require_rolled_back(journal, outcome, reasons)
    except (RollbackRefused, RollbackTorn) as problem:
        return f"Continued {what}, which had not ended. {problem}"
    return f"Completed {what}, which had not ended: all its tables are rolled back."


_COLUMNS = ("publish_id", "run_id", "branch", "action", "tag", "tag_max_age_ms")
"""The columns of the ledger's ``journal`` that have the names of their attributes."""


def row_of(journal: jn.PublishJournal, state: jn.State) -> dict[str, Any]:
    """Return the row of a journal for the ledger."""
    return {
        **{name: getattr(journal, name) for name in _COLUMNS},
        "state": state,
        "moves": jn.dump(journal) if state == "intended" else None,
        "intended_at": journal.at,
        "at": datetime.now(UTC),
    }


def journal_of(row: Mapping[str, Any]) -> jn.PublishJournal:
    """Return the journal of a row of the ledger."""
    moves, undone, manifest_hash = jn.parse(row["moves"])
    return jn.PublishJournal(
        **{name: row[name] for name in _COLUMNS},
        at=row["intended_at"],
        moves=moves,
        undone=undone,
        manifest_hash=manifest_hash,
    )


def about(journal: jn.PublishJournal) -> dict[str, Any]:
    """Return the facts for the checkpoints of a journal."""
    return {name: getattr(journal, name) for name in ("run_id", "branch", "publish_id")}
