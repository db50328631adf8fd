"""Appends rows to a table of the ledger: one data file, its manifest, and a snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.io import FileIO

from sparkwap.catalog import avro
from sparkwap.catalog import metadata as md
from sparkwap.catalog.change import MetadataChange
from sparkwap.ledger.merge import MOST_MANIFESTS, InThreads, merge
from sparkwap.ledger.writing import Record, SnapshotWriter, list_schema

_KEPT_SNAPSHOTS = 10
_MERGED_AT = "commit.manifest.min-count-to-merge"


def append(
    io: FileIO,
    document: md.Document,
    rows: Sequence[Mapping[str, Any]],
    written: list[str],
    in_threads: InThreads,
) -> MetadataChange | None:
    """Write the files of an append to the table's `main`, and return the change that commits it.

    Where many manifests have piled up, the change merges the small files first (see `merge`), in a
    snapshot of its own: readers of what was added skip it.

    Args:
        rows: The rows; missing columns are null.
        written: Gets the location of each file before it is written.
        in_threads: See `sparkwap.catalog.store.Store.map`.

    Returns:
        None if PyIceberg has to append, because the table is not as sparkwap makes it. Nothing is
        written then.
    """
    listed = _manifests(io, document)
    if listed is None:
        return None
    change, now = MetadataChange(document), document
    many = len(listed) >= MOST_MANIFESTS
    merged = merge(io, document, listed, written, in_threads) if many else None
    if merged:
        snapshot, manifest = merged
        change, listed = change.add_snapshot(snapshot), (manifest,)
        now = change.branch(md.MAIN, snapshot["snapshot-id"]).applied(0)
    elif len(listed) + 1 >= int(md.properties_of(document).get(_MERGED_AT, 0)):
        return None
    writer = SnapshotWriter(io, now, written)
    added = writer.data_file(pa.Table.from_pylist(list(rows), schema=writer.arrow_schema()))
    counts = {
        "added-data-files": 1,
        "added-records": len(rows),
        "added-files-size": added["data_file"]["file_size_in_bytes"],
    }
    appended = writer.snapshot("append", [writer.manifest([added]), *listed], counts)
    change = change.add_snapshot(appended).branch(md.MAIN, writer.snapshot_id)
    return change.remove_snapshots(old_snapshots(change.applied(0)))


def old_snapshots(document: md.Document) -> list[int]:
    """Return the snapshots of a table of the ledger that are no longer kept."""
    named = {ref.snapshot_id for ref in md.refs_of(document).values()}
    snapshots = sorted(document["snapshots"], key=lambda one: one["sequence-number"])
    ids = [one["snapshot-id"] for one in snapshots[:-_KEPT_SNAPSHOTS]]
    return [one for one in ids if one not in named]


def _manifests(io: FileIO, document: md.Document) -> Sequence[Record] | None:
    """Return the entries of the present manifest list; None if the table is not as usual."""
    if document["format-version"] != 2 or len(document["partition-specs"]) > 1:
        return None
    now = md.main_of(document)
    if now is None:
        return ()
    with io.new_input((md.snapshot(document, now) or {})["manifest-list"]).open() as stream:
        found = avro.read(stream.read())
    # Another engine may have rewritten the manifests; its lists may have other fields.
    usual = {field["name"] for field in list_schema()["fields"]}
    return found.records if {field["name"] for field in found.schema["fields"]} == usual else None
