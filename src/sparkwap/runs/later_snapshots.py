"""The snapshots of a table after a publish; they explain why a rollback was refused."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sparkwap.catalog import metadata as md
from sparkwap.catalog.model import PublishedEntry

if TYPE_CHECKING:
    from sparkwap.publish.lake import Lake


@dataclass(frozen=True, slots=True)
class LaterSnapshot:
    """A snapshot on `main` after a publish.

    Attributes:
        operation: Iceberg's operation: ``append``, ``overwrite``, ``delete``, ``replace``.
        run_id: The run that wrote it; None for a writer that bypasses the gate.
    """

    snapshot_id: int
    at: datetime
    operation: str
    run_id: str | None


def later_snapshots(lake: Lake, entry: PublishedEntry) -> list[LaterSnapshot]:
    """Return the snapshots of `main` after a publish, newest first.

    Returns:
        An empty list for views, for dropped or replaced tables, and if `main` was set back.
    """
    row = lake.store.backend.get(entry.identifier)
    if row is None or row.kind == "view" or entry.candidate is None:
        return []
    document = lake.store.load(row.location)
    found: list[LaterSnapshot] = []
    current = md.main_of(document)
    while current is not None and current != entry.candidate:
        snapshot = md.snapshot(document, current)
        if snapshot is None:
            return []
        summary = snapshot.get("summary") or {}
        found.append(
            LaterSnapshot(
                current,
                datetime.fromtimestamp(int(snapshot["timestamp-ms"]) / 1000, UTC),
                str(summary.get("operation", "write")),
                summary.get("wap_run"),
            )
        )
        current = snapshot.get("parent-snapshot-id")
    return found if current == entry.candidate else []
