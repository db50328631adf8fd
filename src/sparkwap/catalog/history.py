"""The history of a table in its metadata: which snapshot readers saw from when on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sparkwap.catalog import metadata as md
from sparkwap.catalog.model import Identifier, Kind

if TYPE_CHECKING:
    from sparkwap.catalog.pointers import Pointer


@dataclass(frozen=True, slots=True)
class TableHistory:
    """The history of a table, as far as it has not expired; a view has only its kind.

    Attributes:
        main: The present snapshot of ``main``; None if there is none.
        log: The moves of ``main``: the time (UTC) and the snapshot, oldest first.
        parents: The snapshots that exist, each with its parent.
        cut: Whether the log has lost earlier entries.
    """

    identifier: Identifier
    kind: Kind
    main: int | None = None
    log: tuple[tuple[datetime, int], ...] = ()
    parents: Mapping[int, int | None] | None = None
    cut: bool = False

    def has(self, snapshot_id: int) -> bool:
        """Return whether the snapshot can still be read."""
        return snapshot_id in (self.parents or {})


def history_of(row: Pointer, document: md.Document) -> TableHistory:
    """Return the history in a metadata document."""
    if row.kind == "view":
        return TableHistory(row.identifier, "view")
    return TableHistory(
        row.identifier,
        "table",
        md.main_of(document),
        tuple(
            (datetime.fromtimestamp(entry["timestamp-ms"] / 1000, UTC), int(entry["snapshot-id"]))
            for entry in document.get("snapshot-log") or ()
        ),
        {
            int(entry["snapshot-id"]): entry.get("parent-snapshot-id")
            for entry in document.get("snapshots") or ()
        },
        _is_cut(document),
    )


def _is_cut(document: md.Document) -> bool:
    """Return whether a log has lost its first entries, as it does when snapshots expire.

    Some writers also remove the id of an expired parent; the sequence number still shows it.
    """
    log = document.get("snapshot-log") or ()
    first = md.snapshot(document, log[0]["snapshot-id"]) if log else None
    if first is None:
        return bool(log)
    return first.get("parent-snapshot-id") is not None or first.get("sequence-number", 0) > 1


def schema_at(document: md.Document, snapshot_id: int) -> dict[str, Any]:
    """Return the schema of a snapshot; the present schema if the snapshot does not name one."""
    found = md.snapshot(document, snapshot_id) or {}
    schema_id = found.get("schema-id", document.get("current-schema-id"))
    schemas = document.get("schemas") or ([document["schema"]] if "schema" in document else [])
    return next(
        dict(schema)
        for schema in [*schemas, document.get("schema")]
        if schema is not None and schema.get("schema-id", schema_id) == schema_id
    )
