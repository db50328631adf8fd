"""What `main` of a table was at a moment, by the ledger and by the log of the table.

What the ledger says of a publish goes before what the table says of itself: all tables of one
publish changed at one time, and the steps in which a clone was built were never seen by readers.
Tables that other programs write have their snapshot log alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from sparkwap.catalog.history import TableHistory
from sparkwap.catalog.model import Identifier
from sparkwap.core.errors import SparkwapError


class ReplayRefused(SparkwapError):
    """A moment cannot be replayed; nothing was written."""


@dataclass(frozen=True, slots=True)
class RecordedChange:
    """A publish or rollback of one table, as the ledger has it.

    Attributes:
        at: When, in UTC.
        action: Which of the two.
        publish_id: The publish, or that which was rolled back.
        base: Snapshot of ``main`` before the publish; None where nothing stood there.
        candidate: Snapshot that was published; None for a view or an empty table.
    """

    at: datetime
    action: Literal["publish", "rollback"]
    publish_id: str
    base: int | None
    candidate: int | None


def changes(rows: Iterable[Mapping[str, Any]]) -> dict[Identifier, list[RecordedChange]]:
    """The publishes and rollbacks of each table, oldest first.

    Args:
        rows: The ledger's ``publishes``; one that is there twice counts once.
    """
    found: dict[Identifier, set[RecordedChange]] = {}
    for row in rows:
        change = RecordedChange(
            row["published_at"].astimezone(UTC),
            row["action"],
            row["publish_id"],
            row["base_snapshot"],
            row["candidate_snapshot"],
        )
        found.setdefault(key_of((row["schema"], row["name"])), set()).add(change)
    return {
        name: sorted(those, key=lambda one: (one.at, one.action, one.publish_id))
        for name, those in found.items()
    }


@dataclass(frozen=True, slots=True)
class _Since:
    """From ``at`` on ``main`` was ``snapshot_id``; None for nothing."""

    at: datetime
    snapshot_id: int | None
    change: RecordedChange | None = None


def snapshot_at(
    history: TableHistory, changes: Sequence[RecordedChange], at: datetime
) -> int | None:
    """The snapshot that readers of ``main`` saw at a moment.

    Args:
        history: The table's own past.
        changes: Its publishes and rollbacks, oldest first.
        at: The moment, in UTC.

    Returns:
        The snapshot's id; None if there was no such table, or one without a snapshot.

    Raises:
        ReplayRefused: It can no longer be read, or nobody knows any more what it was.
    """
    line = _timeline(history, changes)
    before = [one for one in line if one.at <= at]
    later = next((one for one in line if one.at > at), None)
    if not before:
        _require_beginning(history, later)
        return None
    found = before[-1]
    if found.snapshot_id is None:
        return None
    if not history.has(found.snapshot_id):
        raise ReplayRefused(f"its snapshot {found.snapshot_id} of then has expired")
    if found.change is not None and not _proven(history, found, later):
        raise ReplayRefused(
            "its own log no longer reaches back to then, so that nobody knows whether others wrote "
            f"to it after the publish of {_text(found.at)}"
        )
    return found.snapshot_id


def _timeline(history: TableHistory, changes: Sequence[RecordedChange]) -> list[_Since]:
    """Since when ``main`` was what, oldest first: by the ledger, and by the log where others
    wrote."""
    published_at = {one.publish_id: one.at for one in changes if one.action == "publish"}
    line = [_Since(one.at, one.candidate, one) for one in changes if one.action == "publish"]
    for at in sorted({one.at for one in changes if one.action == "rollback"}):
        undone = [one for one in changes if one.action == "rollback" and one.at == at]
        # One rollback may undo several publishes: it leads to what was before the first of them.
        first = min(undone, key=lambda one: published_at.get(one.publish_id, at))
        line.append(_Since(at, first.base, first))
    private = _written_by(history, changes)
    others = [_Since(at, one) for at, one in history.log if one not in private]
    return sorted([*line, *others], key=lambda one: one.at)


def _written_by(history: TableHistory, changes: Sequence[RecordedChange]) -> set[int]:
    """The snapshots that publishes brought, the steps before each candidate included."""
    parents, found = history.parents or {}, set()
    for one in changes:
        step = one.candidate if one.action == "publish" else None
        # A table that replaces another one has none of its snapshots, and does not meet the base.
        while step is not None and step != one.base and step not in found:
            found.add(step)
            step = parents.get(step)
    return found


def _require_beginning(history: TableHistory, later: _Since | None) -> None:
    """Check that what is known of a table first is its beginning."""
    if later is None:
        return
    if history.cut if later.change is None else later.change.base is not None:
        raise ReplayRefused(
            f"what it was then has expired; its past is known from {_text(later.at)} on"
        )


def _proven(history: TableHistory, found: _Since, later: _Since | None) -> bool:
    """Whether nobody can have written to the table between a change and what is known next.

    A log loses its beginning when snapshots expire, and with it what others wrote meanwhile.
    """
    if later is None and history.main == found.snapshot_id:
        return True
    if later is not None and later.change is not None and later.change.base == found.snapshot_id:
        return True
    if any(one == found.snapshot_id for _, one in history.log):
        return True
    return bool(history.log) and history.log[0][0] <= found.at


def _text(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


def key_of(identifier: Identifier) -> Identifier:
    return identifier[0].lower(), identifier[1].lower()
