"""Bounds the metadata files of tables: compresses large ones, and finds those of former states.

Each change of a table writes a metadata file with all its snapshots, so that all of them together
grow with the square of the changes. Iceberg can delete the oldest file with each change
(``write.metadata.delete-after-commit.enabled``), but then a rollback may miss a file that it needs.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from sparkwap.catalog import metadata as md
from sparkwap.catalog.branches import clone_base, is_clone
from sparkwap.core.errors import CatalogError
from sparkwap.maintenance.known_folders import plain, recent_metadata

if TYPE_CHECKING:
    from sparkwap.catalog.store import Store
    from sparkwap.publish.lake import Lake

LARGE_BYTES = 1024 * 1024
"""The size from which a metadata file is compressed, to about a tenth."""


def compression(document: md.Document) -> dict[str, str]:
    """Return the property by which a table's large metadata are compressed; else empty. Pure.

    A codec that the owner of the table has set stays.
    """
    if md.CODEC in md.properties_of(document) or len(md.dump(document)) < LARGE_BYTES:
        return {}
    return {md.CODEC: "gzip"}


def needed(lake: Lake) -> frozenset[str]:
    """Return the metadata files that stay, whatever their age, in one spelling.

    These are the present ones of all rows of the catalog and of others in the same database, those
    from which open clones started, and those that a rollback reads: a publish by a branch needs the
    snapshots only.
    """
    backend = lake.store.backend
    found = {row.location for row in (*backend.all(), *backend.others())}
    marked = backend.side_schemas()
    for row in backend.all():
        if row.identifier[0] in marked and row.kind == "table":
            document = lake.store.load(row.location)
            found.update([clone_base(document)[0]] if is_clone(document) else [])
    for published in lake.ledger.rows("publishes"):
        found.update(recent_metadata(published, None))
    return frozenset(map(plain, found))


def superseded(
    store: Store, document: md.Document, keep: Collection[str], before_ms: int
) -> list[str]:
    """Return the metadata files of a table that its log no longer names, the oldest first.

    A metadata file names those before it, as many as the property
    ``write.metadata.previous-versions-max`` says (100), so that the oldest of them leads to those
    before it. Delete the files in this order, so that none is lost track of where that ends early.

    Args:
        store: The catalog and its files.
        document: The table's metadata.
        keep: The files that stay, see `needed`.
        before_ms: Only files that were replaced before this time, in milliseconds since the epoch.
    """
    blocks: list[list[str]] = []
    log = document.get("metadata-log") or ()
    seen: set[str] = set()
    while log and log[0]["metadata-file"] not in seen:
        oldest, replaced = log[0]["metadata-file"], int(log[0]["timestamp-ms"])
        seen.add(oldest)
        try:
            log = store.reload(oldest).get("metadata-log") or ()
        except CatalogError:
            break
        block = []
        for entry in reversed(log):
            path = entry["metadata-file"]
            if replaced < before_ms and plain(path) not in keep:
                block.append(path)
            replaced = int(entry["timestamp-ms"])
        if block and not store.files.exists(block[0]):
            break  # An earlier maintenance has deleted this file and those before it.
        there = store.map(store.files.exists, block)
        blocks.append([path for path, exists in zip(block, there, strict=True) if exists])
    return [path for block in reversed(blocks) for path in reversed(block)]
