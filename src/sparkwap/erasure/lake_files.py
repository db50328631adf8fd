"""Lists and reads the files of a lake."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkwap.catalog import Identifier, TableState, deletion_vectors
from sparkwap.catalog import lease as leasing
from sparkwap.catalog import metadata as md
from sparkwap.catalog.file_plan import DeleteFile
from sparkwap.catalog.files import StoredFile, local_path, plain_location, read_apart
from sparkwap.catalog.sql_backend import SqlBackend
from sparkwap.erasure.file_formats import Data, rows_of, unpacked, whole
from sparkwap.erasure.file_search import Owned
from sparkwap.erasure.proof import Proof, Scanned, Scanner
from sparkwap.erasure.search import Search
from sparkwap.erasure.subject_tables import SubjectTable
from sparkwap.maintenance import known_folders, orphans
from sparkwap.publish.lake import Lake

_PATHS = tuple(f"write.{kind}.path" for kind in ("data", "metadata", "object-storage"))
"""Properties with other folders for the files of a table."""

_NONE: Mapping[str, set[Identifier]] = {}
_DATA = (".parquet", ".orc", ".avro")


@dataclass(frozen=True)
class LakeFiles:
    """The files of a lake.

    Attributes:
        beside: Files and folders of the lake outside the warehouse.
        of_server: Folders of a running server's log and scratch files.
    """

    lake: Lake
    beside: Sequence[Path] = ()
    of_server: Sequence[Path] = ()

    def paths(self, named: Iterable[str] = ()) -> list[str]:
        """Return the files of `listing`, and those of ``named`` that are not among them.

        Args:
            named: Files in one spelling, such as those to which a table refers; they need not
                exist.
        """
        listed = [file.path for file in self.listing()]
        known = set(map(plain_location, listed))
        return [*listed, *(path for path in dict.fromkeys(named) if path not in known)]

    def listing(self) -> list[StoredFile]:
        """Return all files of the warehouse, of tables outside it, and of ``beside``."""
        folders = [self.lake.warehouse, *self._elsewhere(), *map(str, self.beside)]
        found = (file for folder in folders for file in self.lake.store.files.listing(folder))
        return list({file.path: file for file in found}.values())

    def _elsewhere(self) -> list[str]:
        """Return the folders of tables outside the warehouse; a REST catalog may choose these."""
        states = self.lake.states(row.identifier for row in self.lake.store.backend.all())
        warehouse = f"{plain_location(self.lake.warehouse)}/"
        folders = self.folders(states.values())
        for state in states.values():
            folders.update(state.properties[name] for name in _PATHS if name in state.properties)
        return sorted(path for path in folders if not plain_location(path).startswith(warehouse))

    def folders(self, states: Iterable[TableState]) -> set[str]:
        """Return the folders of the files of tables."""
        documents = [self.lake.store.load(state.metadata_location) for state in states]
        return {folder for one in documents if one.get("location") for folder in md.folders_of(one)}

    def settled(self, states: Iterable[TableState]) -> list[str]:
        """Return the files of the warehouse and of tables that no run may be about to commit."""
        began = [run.began for run in leasing.living(self.lake.leases)]
        before = orphans.cutoff(datetime.now(UTC), 0, began)
        # Elsewhere are the catalog's database and the server's files.
        roots = (self.lake.warehouse, *self.folders(states))
        inside = tuple(f"{plain_location(root)}/" for root in roots)
        return [
            file.path
            for file in self.listing()
            if plain_location(file.path).startswith(inside)
            and (file.modified is None or file.modified < before)
        ]

    def server_paths(self) -> list[str]:
        """Return the log and scratch files of the server."""
        files = self.lake.store.files
        return [file.path for folder in self.of_server for file in files.listing(str(folder))]

    def scanner(
        self,
        search: Search,
        reached: Sequence[SubjectTable],
        states: Mapping[Identifier, TableState],
        ignored: frozenset[str],
        reach: Mapping[str, set[Identifier]] = _NONE,
    ) -> Scanner:
        """Return a scanner for the tables of the lake; see `Scanner` for ``reach``."""
        by_name = {place.identifier: place for place in reached}
        tables = [
            _owned(name, self.lake.store.load(state.metadata_location), by_name.get(name))
            for name, state in states.items()
        ]
        return Scanner(search, tables, ignored, reach)

    def former(self, names: Collection[Identifier] | None = None) -> dict[str, md.Document]:
        """Return the metadata of the tables that publishes have replaced, in all their states."""
        rows = self.lake.store.backend.known()
        documents = dict(zip(rows, self.lake.store.documents(rows), strict=True))
        publishes = [
            row
            for row in self.lake.ledger.rows("publishes")
            if names is None or (row["schema"], row["name"]) in names
        ]
        return known_folders.former_documents(self.lake, documents, publishes, None, forced=True)

    def replaced(self, reached: Iterable[SubjectTable]) -> list[Owned]:
        """Return the tables that publishes have replaced, with the present marks of their names."""
        by_name = {place.identifier: place for place in reached}
        names = {
            path: (row["schema"], row["name"])
            for row in self.lake.ledger.rows("publishes")
            for path in known_folders.recent_metadata(row, None)
            if (row["schema"], row["name"]) in by_name
        }
        former = self.former(by_name).items()
        return [_owned(names[path], one, by_name[names[path]]) for path, one in former]

    def scan(self, scanner: Scanner, paths: Sequence[str]) -> Proof:
        """Search whole files."""

        def scan_file(path: str) -> Scanned | None:
            try:
                data = self.read(path)
            except FileNotFoundError:
                return None  # another writer has deleted it
            return scanner.scan(path, data)

        found = self.lake.store.map(scan_file, sorted(paths))
        return Proof(tuple(file for file in found if file is not None))

    def each(
        self, paths: Iterable[str], read: Callable[[str, Data], Mapping[str, set[Any]]]
    ) -> dict[str, set[Any]]:
        """Return the union of a function's results for all data files that can be read."""

        def read_file(path: str) -> Mapping[str, set[Any]]:
            try:
                return read(path, self.read(path))
            except Exception:
                return {}  # it was deleted meanwhile, or the scan reports that it cannot be read

        union: dict[str, set[Any]] = {}
        data_files = [path for path in paths if path.endswith(_DATA)]
        for found in self.lake.store.map(read_file, data_files):
            for name, values in found.items():
                union.setdefault(name, set()).update(values)
        return union

    def hidden_rows(self, deletes: Iterable[DeleteFile]) -> dict[str, pa.Array] | None:
        """Return data file -> the positions of the rows that delete files hide; None if unknown."""
        found: dict[str, list[pa.Array]] = {}
        for one in deletes:
            if one.equality:
                return None
            try:
                for path, rows in self._positions(one):
                    found.setdefault(plain_location(path), []).append(rows)
            except Exception:
                return None  # it was deleted meanwhile, or cannot be read
        return {path: pa.concat_arrays(rows) for path, rows in found.items()}

    def _positions(self, delete: DeleteFile) -> Iterator[tuple[str, pa.Array]]:
        data = self.read(delete.path)
        if delete.offset is not None:
            vector = deletion_vectors.read(whole(data), delete.offset)
            yield str(delete.target), pa.array(vector, pa.int64())
            return
        for batch in rows_of(unpacked(delete.path, data)[0], data):
            for path in pc.unique(batch["file_path"]).to_pylist():
                yield path, batch["pos"].filter(pc.equal(batch["file_path"], path))

    def read(self, path: str) -> Data:
        """Open a file; return the bytes of the catalog's own database, and none of a folder."""
        if path.endswith("/"):
            return b""
        local = local_path(path)
        if local is None:
            file = self.lake.store.files.io(path).new_input(path).open()
            return file if isinstance(file, pa.NativeFile) else pa.PythonFile(file, "r")
        rows = self.lake.store.backend
        database = rows.engine.url.database if isinstance(rows, SqlBackend) else None
        # The database, its write-ahead log, and the log's index.
        if database and str(local).startswith(database):
            return read_apart(local)
        return pa.OSFile(str(local))


def _owned(name: Identifier, document: md.Document, place: SubjectTable | None) -> Owned:
    fields: dict[int, str] = {}
    types: dict[int, str] = {}
    # The present schema comes last, so its names win.
    current = document.get("current-schema-id")
    schemas = sorted(document.get("schemas") or (), key=lambda s: s.get("schema-id") == current)
    for schema in schemas:
        for column in schema.get("fields", ()):
            if "id" in column:
                fields[column["id"]] = column["name"]
                types[column["id"]] = column["type"] if isinstance(column["type"], str) else ""
    partitions: dict[int, list[tuple[str, str] | None]] = {}
    for spec in document.get("partition-specs") or ():
        partitions[spec["spec-id"]] = [
            (fields.get(part["source-id"], "").lower(), types.get(part["source-id"], ""))
            if part["transform"] == "identity"
            else None
            for part in spec["fields"]
        ]
    return Owned(name, md.folders_of(document), place, fields, partitions)
