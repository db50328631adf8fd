"""Expires all of a table but the live rows of `main`, for an erasure.

Iceberg's own expiry keeps what a table still refers to, and it refers to more than its rows: the
manifests of a delete name the deleted files with the bounds of their columns until some later
commit rewrites them. Here nothing stays but the files of `main`'s live rows and the metadata that
names them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
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
    """What a table has forgotten.

    Attributes:
        identifier: The table.
        snapshots: Number of snapshots that are gone.
        refs: Branches and tags that are gone with them.
        kept: The snapshot of `main`; None for an empty table.
    """

    identifier: Identifier
    snapshots: int
    refs: tuple[str, ...]
    kept: int | None


def expire(lake: Lake, identifier: Identifier, run_id: str) -> Expired:
    """Let a table forget all but `main`: snapshots, branches, tags, logs, statistics of files.

    Tags on the snapshot of `main` stay. Files are not deleted, see `unreachable`. Calling it again
    does nothing.

    A catalog that writes its metadata itself (REST) keeps the log of former metadata files, too,
    and is asked to cut it (see `_turn_log`). That it does so is not taken for granted: files that
    stay in the log stay where they are, and are read by whoever proves.

    Raises:
        CatalogError: There is no such table, or other writers were faster each time.
    """

    def stage() -> Staged[Expired]:
        row = table_row(lake.store, identifier)
        document = lake.store.load(row.location)
        main = md.main_of(document)
        live = (
            None if main is None else live_snapshot(lake, identifier, row, document, main, run_id)
        )
        grown = document
        if live is not None and main is not None:
            head = int(live.snapshot["snapshot-id"])
            change = MetadataChange(document).add_snapshot(live.snapshot).branch(md.MAIN, head)
            for name, ref in md.refs_of(document).items():
                if ref.type == "tag" and ref.snapshot_id == main:
                    change = change.tag(name, head, _max_age(document, name))
            grown = change.document(None)
        forgotten = forget(grown) if lake.store.backend.takes_files else forget_by_updates(grown)
        gone = len(document.get("snapshots") or ()) - (0 if main is None else 1)
        refs = tuple(sorted(set(md.refs_of(document)) - set(md.refs_of(forgotten))))
        expired = Expired(identifier, gone, refs, md.main_of(forgotten))
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
        _turn_log(lake, identifier, run_id)
    return expired


def forget_by_updates(document: md.Document) -> md.Document:
    """As `forget`, as far as updates of a catalog that writes its metadata itself can say it: pure.

    A snapshot cannot change, so that the present one names its parent, by a number. Logs are the
    catalog's.
    """
    return {
        **forget(document),
        "snapshot-log": document.get("snapshot-log") or [],
        "metadata-log": document.get("metadata-log") or [],
        "snapshots": [
            one
            for one in document.get("snapshots") or ()
            if one["snapshot-id"] == md.main_of(document)
        ],
    }


def _turn_log(lake: Lake, identifier: Identifier, run_id: str) -> None:
    """Have the log of former metadata files begin with the expiry.

    It is cut to a limit, a property of the table, whenever the table changes. So that is set to the
    least, one, and put back by a second change; what it was is noted between the two, as a call
    that dies there has another one go on.
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
    """Whether a former metadata file that is there still has snapshots that the table has not."""
    try:
        former = lake.store.reload(entry["metadata-file"])
    except CatalogError:
        return False
    present = {one["snapshot-id"] for one in document.get("snapshots") or ()}
    return any(one["snapshot-id"] not in present for one in former.get("snapshots") or ())


def forget(document: md.Document) -> md.Document:
    """A table's metadata with nothing but `main`: pure."""
    main = md.main_of(document)
    present = md.snapshot(document, main) if main is not None else None
    forgotten: dict[str, Any] = {
        **document,
        "snapshots": [] if present is None else [_without_parent(present)],
        "snapshot-log": [],
        "metadata-log": [],
        "refs": {
            name: ref
            for name, ref in (document.get("refs") or {}).items()
            if present is not None and ref["snapshot-id"] == main and _stays(name, ref)
        },
    }
    if present is not None:
        forgotten["snapshot-log"] = [{"snapshot-id": main, "timestamp-ms": _since(document, main)}]
        forgotten["refs"].setdefault(md.MAIN, {"snapshot-id": main, "type": "branch"})
    for kind in ("statistics", "partition-statistics"):
        if kind in document:
            forgotten[kind] = [one for one in document[kind] if one["snapshot-id"] == main]
    now = int(time.time() * 1000)
    forgotten["last-updated-ms"] = max(now, int(document.get("last-updated-ms") or 0))
    return forgotten


def same(one: md.Document, other: md.Document) -> bool:
    """Whether two documents differ in nothing but their time."""
    left = {**one, "last-updated-ms": 0}
    right = {**other, "last-updated-ms": 0}
    for document in (left, right):
        for empty in ("statistics", "partition-statistics", "metadata-log", "snapshot-log"):
            document[empty] = document.get(empty) or []
    return left == right


def _stays(name: str, ref: Mapping[str, Any]) -> bool:
    return name == md.MAIN or ref["type"] == "tag"


def _without_parent(snapshot: md.Document) -> dict[str, Any]:
    return {key: value for key, value in snapshot.items() if key != "parent-snapshot-id"}


def _since(document: md.Document, snapshot_id: int | None) -> int:
    log = [
        entry["timestamp-ms"]
        for entry in document.get("snapshot-log") or ()
        if entry["snapshot-id"] == snapshot_id
    ]
    snapshot = md.snapshot(document, snapshot_id or -1) or {}
    return int(log[-1] if log else snapshot.get("timestamp-ms") or 0)


def _max_age(document: md.Document, name: str) -> int | None:
    age = (document.get("refs") or {}).get(name, {}).get("max-ref-age-ms")
    return None if age is None else int(age)


def forget_previous(lake: Lake, identifier: Identifier) -> None:
    """Clear a SQL catalog's note of the metadata file before the present one."""
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
