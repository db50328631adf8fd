"""Merges the small data files of a table of the ledger.

Each run appends a file of a few rows to several tables. Whoever reads them opens every file, so
without merging, the time of a command grows with the number of runs before it. The files are
merged as in a log-structured merge tree: a row is written again a number of times that grows with
the logarithm of the number of runs, and as many files remain.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.typedef import Record as Partition

from sparkwap.catalog import avro
from sparkwap.catalog import metadata as md
from sparkwap.catalog.snapshot_files import DELETED, EXISTING, ManifestEntry
from sparkwap.ledger.writing import Record, SnapshotWriter

MOST_MANIFESTS = 16
"""The number of manifests from which files are merged; each append adds one with one file."""

_MOST_FILES = 256
_LARGEST = 16 * 1024 * 1024
InThreads = Callable[[Callable[[Record], Any], Sequence[Record]], list[Any]]
_log = logging.getLogger(__name__)


def newest_to_merge(sizes: Sequence[int]) -> int:
    """Return how many of the newest files are merged into one, by their sizes; 0 for none.

    A file is merged as long as it is not larger than the newer ones together, so that a file that
    stays is larger than all newer ones. A merged file has at most 16 MB, because it is read whole.
    """
    merged = total = 0
    for size in sizes[:_MOST_FILES]:
        if total + size > _LARGEST or (merged >= MOST_MANIFESTS and size > total):
            break
        merged, total = merged + 1, total + size
    return merged if merged > 1 else 0


def merge(
    io: FileIO,
    document: md.Document,
    manifests: Sequence[Record],
    written: list[str],
    in_threads: InThreads,
) -> tuple[md.Document, Record] | None:
    """Write the newest files of a table as one, and all its manifests as one.

    Args:
        manifests: The entries of its manifest list.
        written: Gets the locations of the new files.
        in_threads: See `sparkwap.catalog.store.Store.map`.

    Returns:
        The snapshot, and the only entry of its manifest list; None if there is nothing to merge,
        or a file could not be read: no append fails because of it.
    """
    new: list[str] = []
    try:
        merged = _merge(SnapshotWriter(io, document, new), manifests, in_threads)
    except Exception as error:
        _log.debug("%s: its files are not merged: %s", document["location"], error)
        for location in new:
            with suppress(Exception):
                io.delete(location)
        return None
    written.extend(new)
    return merged


def _merge(
    writer: SnapshotWriter, manifests: Sequence[Record], in_threads: InThreads
) -> tuple[md.Document, Record] | None:
    listed = [
        entry
        for entries in in_threads(lambda one: _live_entries(writer.io, one), manifests)
        for entry in entries
    ]
    if any(entry["data_file"]["content"] for entry in listed):
        return None  # another engine has deleted rows by delete files
    listed.sort(key=lambda entry: -entry["sequence_number"])
    number = newest_to_merge([entry["data_file"]["file_size_in_bytes"] for entry in listed])
    if not number:
        return None
    former, kept = listed[:number][::-1], listed[number:]
    merged = writer.data_file(_rows(writer, [entry["data_file"] for entry in former]))
    records = sum(entry["data_file"]["record_count"] for entry in former)
    if merged["data_file"]["record_count"] != records:
        return None
    deleted = [{**entry, "status": DELETED, "snapshot_id": writer.snapshot_id} for entry in former]
    manifest = writer.manifest([merged, *kept, *deleted])
    counts = {
        "added-data-files": 1,
        "deleted-data-files": number,
        "added-records": records,
        "deleted-records": records,
        "added-files-size": merged["data_file"]["file_size_in_bytes"],
        "removed-files-size": sum(entry["data_file"]["file_size_in_bytes"] for entry in former),
    }
    return writer.snapshot("replace", [manifest], counts), manifest


def _live_entries(io: FileIO, manifest: Record) -> list[dict[str, Any]]:
    """Return the entries of the files that a manifest has, with what they take over from it."""
    with io.new_input(manifest["manifest_path"]).open() as stream:
        records = avro.read(stream.read()).records
    of = ManifestEntry(manifest)
    live = (entry for entry in records if entry["status"] != DELETED)
    return [{**of.inherited(entry), "status": EXISTING} for entry in live]


def _rows(writer: SnapshotWriter, files: Sequence[Record]) -> pa.Table:
    metadata = TableMetadataUtil.parse_obj(dict(writer.document))
    scan = ArrowScan(metadata, writer.io, metadata.schema(), AlwaysTrue())
    tasks = [FileScanTask(_data_file(file)) for file in files]
    return scan.to_table(tasks).cast(writer.arrow_schema())


def _data_file(file: Record) -> DataFile:
    found = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file["file_path"],
        file_format=FileFormat(file["file_format"]),
        partition=Partition(),
        record_count=file["record_count"],
        file_size_in_bytes=file["file_size_in_bytes"],
    )
    found.spec_id = 0
    return found
