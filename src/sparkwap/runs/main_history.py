"""Finds the snapshot of `main` at an earlier time, from the ledger and the table's snapshot log.

For publishes, the ledger takes precedence over the log: all tables of a publish changed at one
time, and readers never saw the intermediate snapshots of a clone. Tables that other programs write
have only their snapshot log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from sparkwap.catalog.history import TableHistory
from sparkwap.catalog.model import Identifier
from sparkwap.core.errors import SparkwapError
from sparkwap.core.names import folded


class ReplayRefused(SparkwapError):
    """An earlier state cannot be replayed; nothing was written."""


@dataclass(frozen=True, slots=True)
class RecordedChange:
    """A publish or rollback of one table in the ledger.

    Attributes:
        at: The time, in UTC.
        publish_id: The publish, or the publish that was rolled back.
        base: The snapshot of ``main`` before the publish; None if there was no table.
        candidate: The published snapshot; None for a view or an empty table.
    """

    at: datetime
    action: Literal["publish", "rollback"]
    publish_id: str
    base: int | None
    candidate: int | None


def changes(rows: Iterable[Mapping[str, Any]]) -> dict[Identifier, list[RecordedChange]]:
    """Return the publishes and rollbacks of each table, oldest first.

    Args:
        rows: The ledger's ``publishes``; duplicates count once.
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
        found.setdefault(folded((row["schema"], row["name"])), set()).add(change)
    return {
        name: sorted(those, key=lambda one: (one.at, one.action, one.publish_id))
        for name, those in found.items()
    }


@dataclass(frozen=True, slots=True)
class _Since:
    """The snapshot of ``main`` from ``at`` on; None for no snapshot."""

    at: datetime
    snapshot_id: int | None
    change: RecordedChange | None = None


def snapshot_at(
    history: TableHistory, changes: Sequence[RecordedChange], at: datetime
) -> int | None:
    """Return the snapshot that readers of ``main`` saw at a time.

    Args:
        changes: The publishes and rollbacks of the table, oldest first.
        at: The time, in UTC.

    Returns:
        The snapshot id; None if the table did not exist or had no snapshot.

    Raises:
        ReplayRefused: The snapshot can no longer be read, or is unknown.
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
        raise ReplayRefused(f"its snapshot {found.snapshot_id} at that time has expired")
    if found.change is not None and not _proven(history, found, later):
        raise ReplayRefused(
            "its snapshot log no longer reaches back to that time, so it is unknown whether others "
            f"wrote to it after the publish of {_text(found.at)}"
        )
    return found.snapshot_id


def _timeline(history: TableHistory, changes: Sequence[RecordedChange]) -> list[_Since]:
    """Return the moves of ``main``, oldest first: by the ledger, and by others from the log."""
    published_at = {one.publish_id: one.at for one in changes if one.action == "publish"}
    line = [_Since(one.at, one.candidate, one) for one in changes if one.action == "publish"]
    for at in sorted({one.at for one in changes if one.action == "rollback"}):
        undone = [one for one in changes if one.action == "rollback" and one.at == at]
        # A rollback may undo several publishes: it restores the state before the first of them.
        first = min(undone, key=lambda one: published_at.get(one.publish_id, at))
        line.append(_Since(at, first.base, first))
    private = _written_by(history, changes)
    others = [_Since(at, one) for at, one in history.log if one not in private]
    return sorted([*line, *others], key=lambda one: one.at)


def _written_by(history: TableHistory, changes: Sequence[RecordedChange]) -> set[int]:
    """Return the snapshots of publishes, including intermediate snapshots before a candidate."""
    parents, found = history.parents or {}, set()
    for one in changes:
        step = one.candidate if one.action == "publish" else None
        # A table that replaced another one does not have the base among its ancestors.
        while step is not None and step != one.base and step not in found:
            found.add(step)
            step = parents.get(step)
    return found


def _require_beginning(history: TableHistory, later: _Since | None) -> None:
    """Check that the first known state of a table is its creation."""
    if later is None:
        return
    if history.cut if later.change is None else later.change.base is not None:
        raise ReplayRefused(
            f"its state at that time has expired; its history begins at {_text(later.at)}"
        )


def _proven(history: TableHistory, found: _Since, later: _Since | None) -> bool:
    """Return whether nobody wrote to the table between a change and the next known state.

    A log loses its first entries when snapshots expire, with those of other writers.
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
