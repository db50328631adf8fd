"""Bounds the metadata files of tables: compresses large ones, and finds those of former states.

Each change of a table writes a metadata file with all its snapshots, so that all of them together
grow with the square of the changes. Iceberg can delete the oldest file with each change
(``write.metadata.delete-after-commit.enabled``), but then a rollback may miss a file that it needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkwap.catalog import metadata as md
from sparkwap.catalog.branches import clone_base, is_clone
from sparkwap.catalog.files import plain_location as plain
from sparkwap.core.errors import MetadataFileMissing
from sparkwap.maintenance.known_folders import recent_metadata

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


@dataclass(frozen=True)
class Needed:
    """What stays of the metadata files of a lake, whatever their age.

    Attributes:
        files: The present files of all rows, those from which open clones started, and those that
            the ledger names for rollbacks; in one spelling.
        shared: Identities of tables that two rows have, or another catalog in the same database:
            what their ledgers and clones need is not known.
    """

    files: frozenset[str]
    shared: frozenset[str]


def needed(lake: Lake) -> Needed:
    """Return which metadata files stay."""
    backend = lake.store.backend
    files: set[str] = set()
    seen: set[str] = set()
    shared: set[str] = set()
    rows = backend.all()
    for row, document in zip(rows, lake.store.documents(rows), strict=True):
        files.add(row.location)
        if is_clone(document):
            files.add(clone_base(document)[0])
            continue
        identity = md.identity(document)
        (shared if identity in seen else seen).add(identity)
    others = backend.others()
    files.update(row.location for row in others)
    shared.update(md.identity(one) for one in lake.store.documents(others))
    for published in lake.ledger.rows("publishes"):
        files.update(recent_metadata(published, None))
    return Needed(frozenset(map(plain, files)), frozenset(shared))


def superseded(store: Store, document: md.Document, keep: Needed, before_ms: int) -> list[str]:
    """Return the metadata files of a table that its log no longer names, the oldest first.

    A metadata file names those before it, as many as the property
    ``write.metadata.previous-versions-max`` says (100), so that the oldest of them leads to those
    before it. Delete the files in this order, so that none is lost track of where that ends early.

    Args:
        before_ms: Only files that were replaced before this time, in milliseconds since the epoch.
    """
    if md.identity(document) in keep.shared:
        return []
    blocks: list[list[str]] = []
    log = document.get("metadata-log") or ()
    seen: set[str] = set()
    while log and log[0]["metadata-file"] not in seen:
        oldest, replaced = log[0]["metadata-file"], int(log[0]["timestamp-ms"])
        seen.add(oldest)
        try:
            log = store.reload(oldest).get("metadata-log") or ()
        except MetadataFileMissing:
            break
        block = []
        for entry in reversed(log):
            path = entry["metadata-file"]
            if replaced < before_ms and plain(path) not in keep.files:
                block.append(path)
            replaced = int(entry["timestamp-ms"])
        if block and not store.files.exists(block[0]):
            break  # An earlier maintenance has deleted this file and those before it.
        there = store.map(store.files.exists, block)
        blocks.append([path for path, exists in zip(block, there, strict=True) if exists])
    return [path for block in reversed(blocks) for path in reversed(block)]
