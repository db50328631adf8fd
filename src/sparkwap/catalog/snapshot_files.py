"""Reads the files of a state from Iceberg's manifests, and makes a private table of some files.

A private table has a metadata file whose only snapshot lists these data files, with their deletes
and the table's schema, so any engine can read it. No catalog of the lake has it. The records of the
manifests are copied with the manifests' own schema, so this works for all format versions.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sparkwap.catalog import avro
from sparkwap.catalog import metadata as md
from sparkwap.catalog.file_plan import DataFile, DeleteFile, StateFiles
from sparkwap.catalog.store import Store
from sparkwap.core.errors import CatalogError

EXISTING, ADDED, DELETED = 0, 1, 2  # status of an entry
_DATA, _EQUALITY = 0, 2  # content of an entry; of a manifest, any but 0 is deletes
_DELETE_PATH = 2147483546  # field id of the paths in a position delete file
PRIVATE = "wap-diff-"
"""How the names of files of a `Part` begin."""


class Unreadable(CatalogError):
    """sparkwap cannot read the manifests; both states have to be read as a whole."""


@dataclass(frozen=True)
class ManifestEntry:
    """An entry of a manifest list."""

    entry: Mapping[str, Any]

    @property
    def path(self) -> str:
        """The location of the manifest."""
        return str(self.entry["manifest_path"])

    @property
    def has_data(self) -> bool:
        """Whether the manifest lists data files; otherwise it lists delete files."""
        return int(self.entry.get("content") or 0) == _DATA

    @property
    def has_live_files(self) -> bool:
        """Whether the manifest lists files that were not removed, as far as its counts say."""
        counts = [self.entry.get(f"{kind}_files_count") for kind in ("added", "existing")]
        return None in counts or sum(map(int, filter(None, counts))) > 0

    def sequence_of(self, entry: Mapping[str, Any]) -> int:
        """Return the data sequence number of an entry of the manifest; most inherit it."""
        own = entry.get("sequence_number")
        return int(self.entry.get("sequence_number") or 0) if own is None else int(own)

    def inherited(self, entry: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return an entry of the manifest with what it inherits, as another manifest needs it."""
        own = {
            "snapshot_id": self.entry["added_snapshot_id"],
            "sequence_number": self.entry["sequence_number"],
            "file_sequence_number": self.entry["sequence_number"],
        }
        return {**entry, **{key: one for key, one in own.items() if entry[key] is None}}

    def moved(self, path: str, length: int) -> ManifestEntry:
        """Return the entry with another manifest.

        Partition bounds and counts stay valid as upper bounds, because the other manifest lists
        only some of the files.
        """
        return ManifestEntry({**self.entry, "manifest_path": path, "manifest_length": length})

    def without_row_ids(self) -> ManifestEntry:
        """Return the entry of a manifest whose files have no row ids and must not inherit any."""
        return ManifestEntry({**self.entry, "first_row_id": None})

    def with_row_ids(self, entries: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Return the entries of the manifest with the row ids that their files inherit.

        A file without an id has those that follow the files before it.
        """
        following = self.entry.get("first_row_id")
        for entry in entries:
            file = entry["data_file"]
            inherits = entry["status"] != DELETED and file.get("first_row_id", 0) is None
            if following is None or not inherits:
                yield entry
                continue
            yield {**entry, "data_file": {**file, "first_row_id": following}}
            following += int(file["record_count"])


def counts_of(entries: Collection[Mapping[str, Any]]) -> dict[str, int]:
    """Return the numbers of files and rows of a manifest, as in its entry of a manifest list."""
    counts: dict[str, int] = {}
    for status, name in ((ADDED, "added"), (EXISTING, "existing"), (DELETED, "deleted")):
        rows = [int(e["data_file"]["record_count"]) for e in entries if e["status"] == status]
        counts |= {f"{name}_files_count": len(rows), f"{name}_rows_count": sum(rows)}
    return counts


@dataclass
class Snapshot:
    """A snapshot of a table; its manifests are read when they are needed."""

    store: Store
    document: md.Document
    snapshot: md.Document
    _read: dict[str, avro.AvroFile] = field(default_factory=dict)

    @cached_property
    def _list(self) -> avro.AvroFile:
        location = self.snapshot.get("manifest-list")
        if not location:
            raise Unreadable("The snapshot has no manifest list.")
        return self._avro(str(location))

    @cached_property
    def manifests(self) -> tuple[ManifestEntry, ...]:
        """The entries of its manifest list."""
        return tuple(map(ManifestEntry, self._list.records))

    @property
    def manifest_schema(self) -> Mapping[str, Any]:
        """The Avro schema of its manifest list."""
        return self._list.schema

    def files(self, without: Collection[str] = ()) -> StateFiles:
        """Return the live files of its manifests, without the manifests at some paths."""
        data: list[DataFile] = []
        deletes: list[DeleteFile] = []
        for manifest in self.manifests:
            if manifest.path in without:
                continue
            for file, sequence in self._live(manifest):
                if manifest.has_data:
                    data.append(
                        DataFile(
                            file["file_path"],
                            sequence,
                            int(file["record_count"]),
                            int(file["file_size_in_bytes"]),
                            f"{manifest.entry['partition_spec_id']} {file['partition']}",
                        )
                    )
                else:
                    deletes.append(_delete(file, sequence))
        return StateFiles(tuple(data), tuple(deletes))

    @property
    def has_deletes(self) -> bool:
        """Whether the snapshot has delete files."""
        return any(not manifest.has_data for manifest in self.manifests)

    def count(self, name: str) -> int | None:
        """Return a number of the snapshot's summary; None if it is missing."""
        return md.count(self.snapshot, name)

    def part(self, paths: Collection[str], without: Collection[str] = ()) -> Part:
        """Write a private table of these data files of the snapshot, with their deletes.

        The manifests at the paths ``without`` list none of them.
        """
        part = Part(self.store)
        try:
            part.write(self, frozenset(paths), without)
        except BaseException:
            part.remove()
            raise
        return part

    def read(self, manifest: ManifestEntry) -> avro.AvroFile:
        """Return a manifest with its entries."""
        return self._avro(manifest.path)

    def kept(
        self, manifest: ManifestEntry, paths: Collection[str]
    ) -> tuple[bytes | None, list[Mapping[str, Any]]]:
        """Return a data manifest with only these files (None if it has none), and the files."""
        read = self._avro(manifest.path)
        kept = [
            entry
            for entry in manifest.with_row_ids(read.records)
            if entry["status"] != DELETED and entry["data_file"]["file_path"] in paths
        ]
        files = [entry["data_file"] for entry in kept]
        return (read.with_records(kept) if kept else None), files

    def with_manifests(self, manifests: Collection[ManifestEntry]) -> bytes:
        """Return the manifest list with other entries."""
        return self._list.with_records(manifest.entry for manifest in manifests)

    def _live(self, manifest: ManifestEntry) -> Iterator[tuple[Mapping[str, Any], int]]:
        for entry in self._avro(manifest.path).records:
            if entry["status"] != DELETED:
                yield entry["data_file"], manifest.sequence_of(entry)

    def _avro(self, location: str) -> avro.AvroFile:
        if location not in self._read:
            try:
                self._read[location] = avro.read(self.store.files.read(location))
            except (avro.AvroError, OSError, KeyError) as error:
                raise Unreadable(f"{location} cannot be read: {error}") from error
        return self._read[location]


def common_manifests(old: Snapshot, new: Snapshot) -> set[str]:
    """Return the paths of the manifests that both snapshots have: their files are the same."""
    return {one.path for one in old.manifests} & {one.path for one in new.manifests}


class Part:
    """A private table of some files of a snapshot; no catalog of the lake has it.

    Attributes:
        location: Its metadata file.
        files: Its data files, as the manifests have them.
    """

    def __init__(self, store: Store) -> None:
        self.location = ""
        self.files: list[Mapping[str, Any]] = []
        self._store = store
        self._written: list[str] = []

    @property
    def rows(self) -> int:
        """Number of rows of its data files, deleted rows included."""
        return sum(int(file["record_count"]) for file in self.files)

    def bounds(self, field: int) -> list[tuple[bytes, bytes]] | None:
        """Return bounds of the values of a field id in each file; None if a file has none."""
        found = [
            (_bound(file.get("lower_bounds"), field), _bound(file.get("upper_bounds"), field))
            for file in self.files
        ]
        known = [(low, high) for low, high in found if low is not None and high is not None]
        return known if len(known) == len(found) else None

    def write(self, of: Snapshot, paths: frozenset[str], without: Collection[str]) -> None:
        """Write manifests, manifest list and metadata; see `Snapshot.part`."""
        place = _placer(of.document)
        entries = []
        for manifest in of.manifests:
            if not manifest.has_data:
                entries.append(manifest)
                continue
            if manifest.path in without:
                continue
            content, files = of.kept(manifest, paths)
            if content is not None:
                path = self._put(place("avro"), content)
                moved = manifest.moved(path, len(content))
                has_ids = all(file.get("first_row_id") is not None for file in files)
                entries.append(moved if has_ids else moved.without_row_ids())
                self.files += files
        listed = self._put(place("avro"), of.with_manifests(entries))
        document = private_table(of.document, of.snapshot, listed, len(paths), self.rows)
        self.location = self._put(place("metadata.json"), md.dump(document))

    def remove(self) -> None:
        """Delete the written files; a sweep deletes those of a process that died."""
        self._store.delete(self._written)
        self._written.clear()

    def _put(self, location: str, content: bytes) -> str:
        self._written.append(location)
        self._store.files.write(location, content)
        return location


def private_table(
    document: md.Document, snapshot: md.Document, manifest_list: str, files: int, rows: int
) -> md.Document:
    """Return the metadata of a table with one snapshot and the present columns of ``document``."""
    properties = {
        **md.properties_of(document),
        md.WAP_ENABLED: "false",
        # The files belong to another table.
        md.GC_ENABLED: "false",
    }
    head = int(snapshot["snapshot-id"])
    # Iceberg needs both numbers to register a table. Without the number of rows, Spark would assume
    # a very large table and never broadcast it.
    summary = {"operation": "overwrite", "total-data-files": str(files), "total-records": str(rows)}
    only = {k: v for k, v in snapshot.items() if k not in ("parent-snapshot-id", "manifests")}
    return {
        **document,
        "table-uuid": str(uuid.uuid4()),
        "properties": properties,
        "snapshots": [{**only, "manifest-list": manifest_list, "summary": summary}],
        "current-snapshot-id": head,
        "refs": {md.MAIN: {"snapshot-id": head, "type": "branch"}},
        "snapshot-log": [],
        "metadata-log": [],
        "statistics": [],
        "partition-statistics": [],
    }


def _delete(file: Mapping[str, Any], sequence: int) -> DeleteFile:
    equality = file.get("content") == _EQUALITY
    target = file.get("referenced_data_file")
    if target is None and not equality:
        target = _only_path(file)
    rows = int(file["record_count"])
    return DeleteFile(
        file["file_path"], file.get("content_offset"), target, equality, sequence, rows
    )


def _only_path(file: Mapping[str, Any]) -> str | None:
    """Return the data file of a position delete file whose lower and upper path bounds are equal.

    None if they differ: it may have several data files.
    """
    bounds = [_bound(file.get(name), _DELETE_PATH) for name in ("lower_bounds", "upper_bounds")]
    if bounds[0] is None or bounds[0] != bounds[1]:
        return None
    return bounds[0].decode("utf-8", "replace")


def _bound(bounds: Any, field: int) -> bytes | None:
    found = (bytes(bound["value"]) for bound in bounds or () if bound["key"] == field)
    return next(found, None)


def _placer(document: md.Document) -> Callable[[str], str]:
    """Return a function that makes names of new files in the table's metadata folder."""
    folder = md.next_location(document, None).rsplit("/", 1)[0]
    token = uuid.uuid4()
    count = iter(range(1_000_000))
    return lambda suffix: f"{folder}/{PRIVATE}{token}-{next(count)}.{suffix}"
