"""What a table's metadata still knows of its past: since when readers saw which snapshot."""

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
    """The past of a table, as far as it has not expired; of a view nothing but its kind.

    Attributes:
        identifier: Schema and name.
        kind: ``table`` or ``view``.
        main: Snapshot of ``main`` now; None where there is none.
        log: Since when (UTC) ``main`` was which snapshot, oldest first.
        parents: The snapshots that exist, each with its parent.
        cut: Whether there was something before the first entry of the log.
    """

    identifier: Identifier
    kind: Kind
    main: int | None = None
    log: tuple[tuple[datetime, int], ...] = ()
    parents: Mapping[int, int | None] | None = None
    cut: bool = False

    def has(self, snapshot_id: int) -> bool:
        """Whether the snapshot can still be read."""
        return snapshot_id in (self.parents or {})


def history_of(row: Pointer, document: md.Document) -> TableHistory:
    """The past that a metadata document knows of."""
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
    """Whether a log has lost its beginning, as it does when snapshots expire.

    Some writers forget the parent too that has expired; the sequence number still tells.
    """
    log = document.get("snapshot-log") or ()
    first = md.snapshot(document, log[0]["snapshot-id"]) if log else None
    if first is None:
        return bool(log)
    return first.get("parent-snapshot-id") is not None or first.get("sequence-number", 0) > 1


def schema_at(document: md.Document, snapshot_id: int) -> dict[str, Any]:
    """The schema with which a snapshot was written; the present one where nothing says which."""
    found = md.snapshot(document, snapshot_id) or {}
    schema_id = found.get("schema-id", document.get("current-schema-id"))
    schemas = document.get("schemas") or ([document["schema"]] if "schema" in document else [])
    return next(
        dict(schema)
        for schema in [*schemas, document.get("schema")]
        if schema is not None and schema.get("schema-id", schema_id) == schema_id
    )
