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
from typing import TYPE_CHECKING, Any

from sparkwap.catalog import deletion_vectors
from sparkwap.catalog.file_plan import DeleteFile, Deletion
from sparkwap.catalog.snapshot_files import DELETED, ManifestEntry, Snapshot, Unreadable
from sparkwap.catalog.store import Store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyroaring import BitMap64

MOST_BYTES = 64 * 1024 * 1024
"""The greatest size of the files to read, because they are read as a whole."""

_ROW_ID, _LAST_UPDATED = "2147483540", "2147483539"
"""Field ids of the columns that rewritten rows have besides the table's."""
_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True)
class FoundRows:
    """Deleted rows in a file of a compaction.

    Attributes:
        manifest: The manifest that lists the file.
        entry: The file's entry in it.
        positions: The positions of the rows.
    """

    manifest: ManifestEntry
    entry: Mapping[str, Any]
    positions: BitMap64


@dataclass(frozen=True)
class _Rows:
    """Rows: their ids, their positions in the file, and their values, with field ids for names."""

    ids: pa.Array
    positions: pa.Array
    values: pa.Table

    def at(self, chosen: pa.Array) -> _Rows:
        return _Rows(*(one.take(chosen) for one in (self.ids, self.positions, self.values)))


class MovedRows:
    """Deletions in one state of a table, and the same rows in another.

    Args:
        store: Reads files.
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
        import pyarrow as pa
        import pyarrow.compute as pc

        old, new = dict(_files(self._before, deletions)), dict(_files(self._now, compacted))
        sizes = [
            entry["data_file"]["file_size_in_bytes"] for _, entry in (*old.values(), *new.values())
        ]
        if sum(map(int, sizes)) > MOST_BYTES or _has_deletes(self._now, compacted):
            raise Unreadable("The compacted files are too large, or have deletes.")
        deleted = []
        for path, deletion in deletions.items():
            positions = pa.array(self._new_positions(deletion), pa.int64())
            deleted.append(self._rows(old[path][1]["data_file"]).at(positions))
        wanted = pa.concat_arrays([one.ids for one in deleted])
        found: list[FoundRows] = []
        moved: list[_Rows] = []
        for manifest, entry in new.values():
            rows = self._rows(entry["data_file"])
            chosen = rows.at(pc.indices_nonzero(pc.is_in(rows.ids, wanted)))
            if len(chosen.ids):
                found.append(FoundRows(manifest, entry, _bitmap(chosen.positions)))
                moved.append(chosen)
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

    def _rows(self, file: Mapping[str, Any]) -> _Rows:
        """Read a data file."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        table = pq.ParquetFile(pa.BufferReader(self._file(file["file_path"]))).read()
        numbers = [field.metadata[_FIELD_ID].decode() for field in table.schema]
        table = table.rename_columns(numbers)
        positions = pa.array(range(table.num_rows), pa.int64())
        first, ids = file["first_row_id"], positions
        if first is not None:
            ids = pc.add(positions, first)
        if _ROW_ID in numbers:
            stored = table[_ROW_ID].combine_chunks()
            ids = stored if first is None else pc.coalesce(stored, ids)
        elif first is None:
            raise Unreadable(f"The rows of {file['file_path']} have no ids.")
        own = [name for name in sorted(numbers, key=int) if name not in (_ROW_ID, _LAST_UPDATED)]
        columns = {name: table[name].cast(_nullable(table[name].type)) for name in own}
        return _Rows(ids, positions, pa.table(columns))


def _require_same(deleted: Sequence[_Rows], found: Sequence[_Rows]) -> None:
    """Check that both have the same rows, each once.

    Raises:
        Unreadable: They have not.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    sides = []
    for rows in (deleted, found):
        ids = pa.concat_arrays([one.ids for one in rows])
        order = pc.sort_indices(ids)
        values = pa.concat_tables([one.values for one in rows]).take(order)
        sides.append((ids.take(order), values))
    (ids, values), (other_ids, other_values) = sides
    unique = len(pc.unique(ids)) == len(ids) and not ids.null_count
    if not (unique and ids.equals(other_ids) and values.equals(other_values)):
        raise Unreadable("The compacted files do not have each deleted row once.")


def _nullable(kind: pa.DataType) -> pa.DataType:
    """Return a type whose parts may be null: writers say of each file whether they are."""
    import pyarrow as pa

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


def _bitmap(positions: pa.Array) -> BitMap64:
    from pyroaring import BitMap64

    return BitMap64(positions.to_pylist())
