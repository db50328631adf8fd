"""Finds deleted rows again in the files into which a compaction has written them.

A candidate's deletion vector names rows by their positions in a file that `main` no longer has.
Rows have ids (format version 3, https://iceberg.apache.org/spec/#row-lineage), which a compaction
keeps. The ids only find the rows: engines have written wrong ids (iceberg #16699, #17039), so each
row that is found must have the values of the deleted one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from sparkwap.catalog import deletion_vectors
from sparkwap.catalog.file_plan import DeleteFile, Deletion
from sparkwap.catalog.snapshot_files import DELETED, ManifestEntry, Snapshot, Unreadable
from sparkwap.catalog.store import Store

MOST_BYTES = 64 * 1024 * 1024
"""The greatest size of the files to read together, because each is held in memory."""
MOST_ROWS = 100_000
"""The most deleted rows, of which two copies are held in memory."""
_BATCH_ROWS = 8192

_ROW_ID, _LAST_UPDATED = "2147483540", "2147483539"
"""Field ids of the columns that rewritten rows have besides the table's."""
_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True)
class FoundRows:
    """Deleted rows in a file of a compaction."""

    manifest: ManifestEntry
    entry: Mapping[str, Any]
    positions: BitMap64


@dataclass(frozen=True)
class _Rows:
    """Rows: their ids, their positions in the file, and their values, with field ids for names."""

    ids: pa.Array
    positions: pa.Array
    values: pa.Table


class MovedRows:
    """Deletions in one state of a table, and the same rows in another.

    Args:
        before: The state of the deletions.
        now: The state after a compaction, which has changed no row.
    """

    def __init__(self, store: Store, before: Snapshot, now: Snapshot) -> None:
        self._file = cache(store.files.read)
        self._before, self._now = before, now

    def find(
        self, deletions: Mapping[str, Deletion], compacted: Collection[str]
    ) -> list[FoundRows]:
        """Find the rows of deletions in the files that the compaction has written.

        Args:
            deletions: The deletions, by the path of the file in the former state.
            compacted: The paths of the files that only the later state has.

        Raises:
            Unreadable: A row is not there exactly once with the same values, the files are too
                large, or the later state has deletes of its own in them.
        """
        old, new = dict(_files(self._before, deletions)), dict(_files(self._now, compacted))
        files = [entry["data_file"] for _, entry in (*old.values(), *new.values())]
        if sum(int(one["file_size_in_bytes"]) for one in files) > MOST_BYTES:
            raise Unreadable("The compacted files are too large.")
        if _has_deletes(self._now, compacted):
            raise Unreadable("There are deletes of rows in the compacted files.")
        positions = {path: self._new_positions(one) for path, one in deletions.items()}
        if sum(map(len, positions.values())) > MOST_ROWS:
            raise Unreadable("Too many rows are deleted.")
        deleted = []
        for path, chosen in positions.items():
            at = pa.array(chosen, pa.int64())
            deleted.append(self._rows(old[path][1]["data_file"], at, by_id=False))
        wanted = pa.concat_arrays([one.ids for one in deleted])
        found: list[FoundRows] = []
        moved: list[_Rows] = []
        for manifest, entry in new.values():
            rows = self._rows(entry["data_file"], wanted, by_id=True)
            if len(rows.ids):
                found.append(FoundRows(manifest, entry, BitMap64(rows.positions.to_pylist())))
                moved.append(rows)
        _require_same(deleted, moved)
        return found

    def _new_positions(self, deletion: Deletion) -> BitMap64:
        after = self._vector(deletion.after)
        if deletion.before is None:
            return after
        before = self._vector(deletion.before)
        if not before <= after:
            raise Unreadable("The new deletion vector lacks positions of the former one.")
        return after - before

    def _vector(self, delete: DeleteFile) -> BitMap64:
        found = deletion_vectors.read(self._file(delete.path), delete.offset or 0)
        if len(found) != delete.rows:
            raise Unreadable(f"{delete.path} has another deletion vector than the manifest says.")
        return found

    def _rows(self, file: Mapping[str, Any], wanted: pa.Array, *, by_id: bool) -> _Rows:
        """Return the rows of a data file with these ids, or at these positions."""
        content = pq.ParquetFile(pa.BufferReader(self._file(file["file_path"])))
        numbers = [field.metadata[_FIELD_ID].decode() for field in content.schema_arrow]
        own = [name for name in numbers if name not in (_ROW_ID, _LAST_UPDATED)]
        first, start = file.get("first_row_id"), 0
        if first is None:
            raise Unreadable(f"The rows of {file['file_path']} have no ids.")
        parts: list[_Rows] = []
        # Equal values take no space in the file, but do in memory.
        for batch in content.iter_batches(_BATCH_ROWS):
            table = pa.Table.from_batches([batch]).rename_columns(numbers)
            positions = pa.array(range(start, start + len(table)), pa.int64())
            ids = pc.add(positions, first)
            if _ROW_ID in numbers:
                ids = pc.coalesce(table[_ROW_ID].combine_chunks(), ids)
            chosen = pc.indices_nonzero(pc.is_in(ids if by_id else positions, wanted))
            columns = {name: table[name].cast(_nullable(table[name].type)) for name in own}
            if len(chosen) or not parts:
                values = pa.table(columns).take(chosen)
                parts.append(_Rows(ids.take(chosen), positions.take(chosen), values))
            start += len(table)
        return _Rows(
            pa.concat_arrays([one.ids for one in parts]),
            pa.concat_arrays([one.positions for one in parts]),
            pa.concat_tables([one.values for one in parts]),
        )


def _require_same(deleted: Sequence[_Rows], found: Sequence[_Rows]) -> None:
    """Check that both have the same rows, each once."""
    sides = [_together(one) for one in (deleted, found)]
    (ids, values), (other_ids, other_values) = sides
    # Columns that were added after a file was written are null in it; widened types are equal.
    schema = _concatenated([values.slice(0, 0), other_values.slice(0, 0)]).schema
    values, other_values = (
        _concatenated([schema.empty_table(), one]) for one in (values, other_values)
    )
    unique = len(pc.unique(ids)) == len(ids) and not ids.null_count
    if not (unique and ids.equals(other_ids) and values.equals(other_values)):
        raise Unreadable("The compacted files do not have each deleted row once.")


def _together(rows: Sequence[_Rows]) -> tuple[pa.Array, pa.Table]:
    ids = pa.concat_arrays([one.ids for one in rows])
    order = pc.sort_indices(ids)
    return ids.take(order), _concatenated([one.values for one in rows]).take(order)


def _concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables, promote_options="permissive")


def _nullable(kind: pa.DataType) -> pa.DataType:
    """Return a type whose parts may be null: writers say of each file whether they are."""
    if pa.types.is_list(kind):
        return pa.list_(_nullable(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_nullable(kind.key_type), _nullable(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _nullable(field.type)) for field in kind])
    return kind


def _files(
    state: Snapshot, paths: Collection[str]
) -> Iterator[tuple[str, tuple[ManifestEntry, Mapping[str, Any]]]]:
    """Return the manifest and the entry of some live data files of a state, by their paths."""
    for manifest in state.manifests:
        if manifest.has_data:
            for entry in manifest.with_row_ids(state.read(manifest).records):
                path = entry["data_file"]["file_path"]
                if entry["status"] != DELETED and path in paths:
                    yield path, (manifest, entry)


def _has_deletes(state: Snapshot, paths: Collection[str]) -> bool:
    """Return whether deletes of a state may be for rows of these files."""
    deletes = state.files([one.path for one in state.manifests if one.has_data]).deletes
    return any(one.equality or one.target is None or one.target in paths for one in deletes)
