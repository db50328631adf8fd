"""Writes the snapshot of a cherry-pick: files of `main`, with the change of a candidate."""

from __future__ import annotations

import secrets
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sparkwap.catalog import deletion_vectors
from sparkwap.catalog import metadata as md
from sparkwap.catalog.avro import AvroFile
from sparkwap.catalog.file_plan import DeleteFile, FileChange, FileKey
from sparkwap.catalog.snapshot_files import (
    ADDED,
    DELETED,
    EXISTING,
    ManifestEntry,
    Snapshot,
    Unreadable,
    counts_of,
)
from sparkwap.catalog.store import Store

if TYPE_CHECKING:
    from sparkwap.publish.moved_rows import FoundRows

SOURCE = "source-snapshot-id"
"""Iceberg's entry in the summary of a cherry-picked snapshot: its cleaners keep the files of the
source."""

_TOTALS = (
    ("total-data-files", "added-data-files", "deleted-data-files"),
    ("total-records", "added-records", "deleted-records"),
    ("total-files-size", "added-files-size", "removed-files-size"),
    ("total-delete-files", "added-delete-files", "removed-delete-files"),
    ("total-position-deletes", "added-position-deletes", "removed-position-deletes"),
)
"""Totals of a summary, and what they grow and shrink by."""

_FIGURES = (
    "added-",
    "deleted-",
    "removed-",
    "total-",
    "changed-",
    "manifests-",
    "entries-",
    "partition",
)


class PickedSnapshot:
    """Writes the manifests of one picked snapshot.

    Attributes:
        vectors: The deletion vectors that it has written.
    """

    def __init__(
        self,
        store: Store,
        document: md.Document,
        built: Snapshot,
        now: Snapshot,
        change: FileChange,
        unchanged: Collection[str],
        written: list[str],
    ) -> None:
        self._store, self._unchanged, self._written = store, unchanged, written
        self._built, self._now = built, now
        self._gone: set[FileKey] = {(path, None) for path in change.removed}
        self._gone |= change.removed_deletes
        self._new: set[FileKey] = {(path, None) for path in change.added} | change.added_deletes
        self._id = secrets.randbits(62)
        self._sequence = int(document.get("last-sequence-number") or 0) + 1
        self._has_ids = md.has_row_ids(document)
        self._next_row_id = document["next-row-id"] if self._has_ids else None
        self._schema_id = int(document["current-schema-id"])
        self._folder = md.next_location(document, None).rsplit("/", 1)[0]
        self._figures: Counter[str] = Counter()
        self.vectors: list[DeleteFile] = []

    def snapshot(self, deleted: Sequence[FoundRows] = ()) -> Mapping[str, Any]:
        """Write the files and return the snapshot.

        Args:
            deleted: Rows of files of `main` that the change deletes, too.
        """
        if self._now.manifest_schema != self._built.manifest_schema:
            raise Unreadable("The manifest lists have different columns.")
        live = [one for one in self._now.manifests if one.has_live_files]
        manifests = [self._without_removed(one) for one in live]
        manifests += [
            made for one in self._built.manifests if (made := self._of_added(one)) is not None
        ]
        manifests += self._of_deleted(deleted)
        content = self._now.with_manifests(manifests)
        built, now = self._built.snapshot, self._now.snapshot
        # All rows have ids already, so the snapshot takes none.
        ids = {"first-row-id": self._next_row_id, "added-rows": 0} if self._has_ids else {}
        return {
            "snapshot-id": self._id,
            "parent-snapshot-id": now["snapshot-id"],
            "sequence-number": self._sequence,
            "timestamp-ms": max(int(time.time() * 1000), int(now["timestamp-ms"])),
            "manifest-list": self._put(f"snap-{self._id}-1-{uuid.uuid4()}.avro", content),
            "summary": self._summary(built, now),
            "schema-id": self._schema_id,
            **ids,
        }

    def _without_removed(self, manifest: ManifestEntry) -> ManifestEntry:
        """Return a manifest of `main`, written anew if the change removes files of it."""

        def change(entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
            if entry["status"] == DELETED:
                return None
            removed = _key(entry) in self._gone
            kept = {**manifest.inherited(entry), "status": EXISTING}
            return {**kept, "status": DELETED, "snapshot_id": self._id} if removed else kept

        if not self._gone or manifest.path in self._unchanged:
            return manifest
        entries = self._now.read(manifest).records
        if not any(_key(entry) in self._gone for entry in entries):
            return manifest
        return self._rewritten(self._now, manifest, change) or manifest

    def _of_added(self, manifest: ManifestEntry) -> ManifestEntry | None:
        """Return a manifest with the candidate's files of this one; None if it has none."""

        def change(entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
            if entry["status"] == DELETED or _key(entry) not in self._new:
                return None
            return self._added(entry)

        if manifest.path in self._unchanged:
            return None
        return self._rewritten(self._built, manifest, change)

    def _added(self, entry: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the entry of a file as one that this snapshot adds."""
        return {
            **entry,
            "status": ADDED,
            "snapshot_id": self._id,
            # Null: those of the manifest.
            "sequence_number": None,
            "file_sequence_number": None,
        }

    def _rewritten(
        self,
        state: Snapshot,
        manifest: ManifestEntry,
        change: Callable[[Mapping[str, Any]], Mapping[str, Any] | None],
    ) -> ManifestEntry | None:
        read = state.read(manifest)
        # Rows keep the ids that they have got on the branch (format version 3).
        listed = list(manifest.with_row_ids(read.records))
        if self._has_ids and manifest.has_data and not all(map(_has_id, listed)):
            # They inherit ids by their order in this manifest, and the new one cannot state them.
            raise Unreadable(f"{manifest.path} was written before rows had ids.")
        entries = [made for one in listed if (made := change(one)) is not None]
        if not entries:
            return None
        return self._manifest(read, manifest, entries)

    def _of_deleted(self, deleted: Sequence[FoundRows]) -> Iterator[ManifestEntry]:
        """Write deletion vectors and their manifests, one for each manifest of their files."""
        if not deleted:
            return
        targets = {one.entry["data_file"]["file_path"]: one.positions for one in deleted}
        content, places = deletion_vectors.write(targets)
        path = self._put(f"{uuid.uuid4()}-deletes.puffin", content)
        by_manifest: dict[str, list[FoundRows]] = {}
        for one in deleted:
            by_manifest.setdefault(one.manifest.path, []).append(one)
        for of_one in by_manifest.values():
            entries = [self._vector(one, path, len(content), places) for one in of_one]
            data = of_one[0].manifest
            read = self._now.read(data)
            header = {**read.header, "content": "deletes"}
            deletes = ManifestEntry({**data.without_row_ids().entry, "content": 1})
            yield self._manifest(replace(read, header=header), deletes, entries)

    def _vector(
        self, rows: FoundRows, path: str, size: int, places: Mapping[str, tuple[int, int]]
    ) -> Mapping[str, Any]:
        file, count = rows.entry["data_file"], len(rows.positions)
        target = file["file_path"]
        offset, length = places[target]
        vector = {
            "content": 1,
            "file_path": path,
            "file_format": "PUFFIN",
            "partition": file["partition"],
            "record_count": count,
            "file_size_in_bytes": size,
            "referenced_data_file": target,
            "content_offset": offset,
            "content_size_in_bytes": length,
        }
        if not vector.keys() <= file.keys():
            raise Unreadable("The manifests have no columns of deletion vectors.")
        self.vectors.append(DeleteFile(path, offset, target, False, self._sequence, count))
        return self._added({**rows.entry, "data_file": {**dict.fromkeys(file), **vector}})

    def _manifest(
        self, read: AvroFile, manifest: ManifestEntry, entries: Sequence[Mapping[str, Any]]
    ) -> ManifestEntry:
        """Write a manifest like ``read``, and return its entry, with the rest of ``manifest``."""
        content = read.with_records(entries)
        path = self._put(f"{uuid.uuid4()}-m0.avro", content)
        sequences = [one["sequence_number"] for one in entries if one["status"] != DELETED]
        lowest = min((s for s in sequences if s is not None), default=self._sequence)
        counts = counts_of(entries)
        for status in (ADDED, DELETED):
            files = [one["data_file"] for one in entries if one["status"] == status]
            self._count(files, removed=status == DELETED, has_data=manifest.has_data)
        if not counts.keys() <= manifest.entry.keys():
            raise Unreadable(f"{manifest.path} has counts of other names.")
        entry = {
            **manifest.moved(path, len(content)).entry,
            "sequence_number": self._sequence,
            "min_sequence_number": lowest,
            "added_snapshot_id": self._id,
            **counts,
        }
        return ManifestEntry(entry)

    def _count(self, files: Sequence[Mapping[str, Any]], *, removed: bool, has_data: bool) -> None:
        """Add files to the figures of the summary, by Iceberg's names."""
        rows = sum(int(one["record_count"]) for one in files)
        change = "removed" if removed else "added"
        if has_data:
            # Iceberg's word for removed data files is another one.
            of_data = "deleted" if removed else "added"
            self._figures[f"{of_data}-data-files"] += len(files)
            self._figures[f"{of_data}-records"] += rows
        else:
            vectors = sum(one.get("content_offset") is not None for one in files)
            self._figures[f"{change}-delete-files"] += len(files)
            self._figures[f"{change}-dvs"] += vectors
            self._figures[f"{change}-position-delete-files"] += len(files) - vectors
            self._figures[f"{change}-position-deletes"] += rows
        # A file may have the vectors of several data files.
        sizes = (one.get("content_size_in_bytes") or one["file_size_in_bytes"] for one in files)
        self._figures[f"{change}-files-size"] += sum(map(int, sizes))

    def _summary(self, built: md.Document, now: md.Document) -> dict[str, str]:
        figures = self._figures
        totals = {
            key: value
            for key, value in (now.get("summary") or {}).items()
            if key.startswith("total-")
        }
        for key, more, less in _TOTALS:
            if key in totals:
                totals[key] = str(int(totals[key]) + figures[more] - figures[less])
        kept = {
            key: value
            for key, value in (built.get("summary") or {}).items()
            if not key.startswith(_FIGURES)
        }
        takes = figures["deleted-data-files"] or figures["added-delete-files"]
        adds = figures["added-data-files"]
        operation = ("overwrite" if adds else "delete") if takes else "append"
        found = {key: str(value) for key, value in figures.items() if value}
        source = str(built["snapshot-id"])
        return {**kept, **found, **totals, "operation": operation, SOURCE: source}

    def _put(self, name: str, content: bytes) -> str:
        location = f"{self._folder}/{name}"
        self._written.append(location)
        self._store.files.write(location, content)
        return location


def _key(entry: Mapping[str, Any]) -> FileKey:
    file = entry["data_file"]
    return file["file_path"], file.get("content_offset")


def _has_id(entry: Mapping[str, Any]) -> bool:
    """Return whether a file has the id of its first row, or is removed."""
    return entry["status"] == DELETED or entry["data_file"].get("first_row_id") is not None
