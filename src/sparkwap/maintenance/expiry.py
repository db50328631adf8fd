"""Expires everything of a table except the live rows of `main`, for an erasure.

Iceberg's own expiry keeps everything to which a table refers, and this is more than its rows: the
manifests of a delete name the deleted files, with the bounds of their columns, until a later commit
rewrites them. Here, only the files of `main`'s live rows and their metadata stay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from sparkwap.catalog import metadata as md
from sparkwap.catalog.branches import table_row
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.difference import difference
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.pointers import Pointer, PointerUpdate
from sparkwap.catalog.sql_backend import SqlBackend
from sparkwap.catalog.store import Staged
from sparkwap.core.errors import CatalogError
from sparkwap.maintenance.live_manifests import live_snapshot

if TYPE_CHECKING:
    from sparkwap.publish.lake import Lake

_LOG_LIMIT = "write.metadata.previous-versions-max"
_NOTED_LIMIT = "wap.log-limit"


@dataclass(frozen=True, slots=True)
class Expired:
    """The result of the expiry of a table.

    Attributes:
        snapshots: Number of removed snapshots.
        refs: Removed branches and tags.
    """

    identifier: Identifier
    snapshots: int
    refs: tuple[str, ...]


def expire(
    lake: Lake,
    identifier: Identifier,
    run_id: str,
    check: Callable[[md.Document], None] = lambda document: None,
) -> Expired:
    """Remove all snapshots, branches, tags, logs and statistics of a table except those of `main`.

    Tags on the snapshot of `main` stay. Files are not deleted, see `unreachable`. A second call
    does nothing.

    A REST catalog writes its metadata itself, and keeps the log of former metadata files.
    `_cut_log` makes the catalog shorten this log. If the catalog does not, the files in the log
    stay, and the proof of the erasure reads them.

    Args:
        check: Gets the metadata that the commit replaces, and raises to stop it.

    Raises:
        CatalogError: There is no such table, or other writers were faster in each try.
    """

    def stage() -> Staged[Expired]:
        row = table_row(lake.store, identifier)
        document = lake.store.load(row.location)
        check(document)
        main = md.main_of(document)
        live = (
            None if main is None else live_snapshot(lake, identifier, row, document, main, run_id)
        )
        grown = document
        if live is not None and main is not None:
            head = int(live.snapshot["snapshot-id"])
            change = MetadataChange(document).add_snapshot(live.snapshot).branch(md.MAIN, head)
            for name, ref in md.raw_refs(document).items():
                if ref["type"] == "tag" and ref["snapshot-id"] == main:
                    change = change.tag(name, head, ref.get("max-ref-age-ms"))
            grown = change.document(None)
        forgotten = forget(grown) if lake.store.backend.takes_files else forget_by_updates(grown)
        gone = len(document.get("snapshots") or ()) - (0 if main is None else 1)
        refs = tuple(sorted(set(md.refs_of(document)) - set(md.refs_of(forgotten))))
        expired = Expired(identifier, gone, refs)
        if live is None and same(document, forgotten):
            return Staged(expired)
        location = md.next_location(forgotten, row.location)
        files = [*(live.files if live else ()), *lake.store.write({location: forgotten})]
        after = Pointer(identifier, "table", location)
        return Staged(expired, [PointerUpdate(row, after, difference(document, forgotten))], files)

    expired = lake.store.commit(stage, "erase", table=".".join(identifier), run_id=run_id)
    if lake.store.backend.takes_files:
        forget_previous(lake, identifier)
    else:
        _cut_log(lake, identifier, run_id)
    return expired


def forget_by_updates(document: md.Document) -> md.Document:
    """Do as `forget`, as far as the updates of a REST catalog can express it. Pure.

    A snapshot cannot change, so the present snapshot keeps the id of its parent. The catalog writes
    the logs.
    """
    return {
        **forget(document),
        "snapshot-log": document.get("snapshot-log") or [],
        "metadata-log": document.get("metadata-log") or [],
        "snapshots": [
            snapshot
            for snapshot in document.get("snapshots") or ()
            if snapshot["snapshot-id"] == md.main_of(document)
        ],
    }


def _cut_log(lake: Lake, identifier: Identifier, run_id: str) -> None:
    """Remove the entries before the expiry from the log of former metadata files.

    With each change of a table, the catalog cuts the log to a limit, which is a property of the
    table. One change sets this property to 1, and a second change restores it. In between, another
    property has the former limit, so that `end_cuts` can restore it if this call dies.
    """
    document = lake.store.load(table_row(lake.store, identifier).location)
    properties = md.properties_of(document)
    if _NOTED_LIMIT not in properties:
        log = document.get("metadata-log") or ()
        if not any(_holds_more(lake, document, entry) for entry in log):
            return
        noted = properties.get(_LOG_LIMIT, "")
        _set(lake, identifier, {_LOG_LIMIT: "1", _NOTED_LIMIT: noted}, run_id)
    else:
        noted = properties[_NOTED_LIMIT]
    _set(lake, identifier, {_LOG_LIMIT: noted or None, _NOTED_LIMIT: None}, run_id)


def end_cuts(lake: Lake, run_id: str) -> None:
    """Restore the limits of the logs that an expiry has lowered before it died."""
    if lake.store.backend.takes_files:
        return
    for name, state in lake.states(row.identifier for row in lake.store.backend.all()).items():
        if _NOTED_LIMIT in state.properties:
            _cut_log(lake, name, run_id)


def _set(
    lake: Lake, identifier: Identifier, properties: Mapping[str, str | None], run_id: str
) -> None:
    def stage() -> Staged[None]:
        row = table_row(lake.store, identifier)
        document = lake.store.load(row.location)
        return Staged(
            None, *lake.store.grow([(row, MetadataChange(document).properties(properties))])
        )

    lake.store.commit(stage, "erase", table=".".join(identifier), run_id=run_id)


def _holds_more(lake: Lake, document: md.Document, entry: Mapping[str, Any]) -> bool:
    """Return whether a former metadata file exists and has snapshots that the table lacks."""
    try:
        former = lake.store.reload(entry["metadata-file"])
    except CatalogError:
        return False
    present = {entry["snapshot-id"] for entry in document.get("snapshots") or ()}
    return any(entry["snapshot-id"] not in present for entry in former.get("snapshots") or ())


def forget(document: md.Document) -> md.Document:
    """Return a table's metadata with only `main`. Pure."""
    main = md.main_of(document)
    present = md.snapshot(document, main) if main is not None else None
    now = int(time.time() * 1000)
    forgotten: dict[str, Any] = {
        **document,
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
        "refs": {},
        "last-updated-ms": max(now, int(document.get("last-updated-ms") or 0)),
    }
    if present is not None:
        alone = {key: value for key, value in present.items() if key != "parent-snapshot-id"}
        forgotten["snapshots"] = [alone]
        forgotten["snapshot-log"] = [{"snapshot-id": main, "timestamp-ms": _since(document, main)}]
        forgotten["refs"] = {
            name: ref
            for name, ref in md.raw_refs(document).items()
            if ref["snapshot-id"] == main and (name == md.MAIN or ref["type"] == "tag")
        }
    for kind in ("statistics", "partition-statistics"):
        if kind in document:
            forgotten[kind] = [entry for entry in document[kind] if entry["snapshot-id"] == main]
    return forgotten


def same(first: md.Document, second: md.Document) -> bool:
    """Return whether two documents are equal except for their time."""
    left = {**first, "last-updated-ms": 0}
    right = {**second, "last-updated-ms": 0}
    for document in (left, right):
        for empty in ("statistics", "partition-statistics", "metadata-log", "snapshot-log"):
            document[empty] = document.get(empty) or []
    return left == right


def _since(document: md.Document, snapshot_id: int | None) -> int:
    log = [
        entry["timestamp-ms"]
        for entry in document.get("snapshot-log") or ()
        if entry["snapshot-id"] == snapshot_id
    ]
    snapshot = md.snapshot(document, snapshot_id or -1) or {}
    return int(log[-1] if log else snapshot.get("timestamp-ms") or 0)


def forget_previous(lake: Lake, identifier: Identifier) -> None:
    """Clear the column of a SQL catalog that names the previous metadata file of a table."""
    statement = text(
        "update iceberg_tables set previous_metadata_location = null where catalog_name = :catalog "
        "and table_namespace = :schema and table_name = :name"
    )
    schema, name = identifier
    rows = lake.store.backend
    if not isinstance(rows, SqlBackend):
        return
    with rows.transaction() as connection:
        connection.execute(statement, {"catalog": lake.name, "schema": schema, "name": name})
