"""Puts the candidate of a branch on `main` after a compaction, as Iceberg's cherry-pick does.

A candidate has files of its base, so to publish it over a compaction would bring back what the
compaction has replaced. But the compaction has changed no row, so the change of files from the base
to the candidate gives the audited rows on the compacted files too, if it does not touch what was
compacted (`file_plan.transferable`). It becomes one snapshot after the compaction's. Iceberg's own
procedure does this for appends only, and to `main` at once.
"""

from __future__ import annotations

import secrets
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from sparkwap.catalog import metadata as md
from sparkwap.catalog.branches import table_row
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.content_equality import has_grown_from, same_rows
from sparkwap.catalog.file_plan import FileChange, StateFiles, transferable
from sparkwap.catalog.model import Candidate
from sparkwap.catalog.snapshot_files import (
    ADDED,
    DELETED,
    EXISTING,
    ManifestEntry,
    Snapshot,
    Unreadable,
    common_manifests,
)
from sparkwap.catalog.store import Staged, Store
from sparkwap.core.names import base_tag

SOURCE = "source-snapshot-id"
"""Iceberg's entry in the summary of a cherry-picked snapshot: its cleaners keep the files of the
source."""

_VERSION = 2
"""The format version of the tables. Version 1 has no sequence numbers; version 3 gives ids to
rows."""

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


@dataclass(frozen=True, slots=True)
class Picked:
    """A staged snapshot with the files written for it."""

    snapshot: Mapping[str, Any]
    files: tuple[str, ...]


def stage(store: Store, candidate: Candidate) -> Staged[Candidate | None]:
    """Stage the move of a branch's candidate to the present `main`.

    The branch and its base tag move, and `main` does not.

    Returns:
        The candidate with its new base and head; None, and nothing to commit, if `main` has not
        moved by a proven compaction, or if the candidate changes what was compacted.

    Raises:
        CatalogError: There is no such table.
    """
    row = table_row(store, candidate.identifier)
    document = store.load(row.location)
    refs, branch = md.refs_of(document), candidate.branch
    head, tag = refs.get(branch), refs.get(base_tag(branch))
    standing = head and tag and (head.snapshot_id, tag.snapshot_id)
    if standing != (candidate.head, candidate.base):
        return Staged(None)
    if not has_grown_from(document, candidate.head, candidate.base):
        # After the move, the branch has grown from `main` in any case.
        return Staged(None)
    picked = pick(store, document, candidate.base, candidate.head)
    if picked is None:
        return Staged(None)
    main, new = md.main_of(document), int(picked.snapshot["snapshot-id"])
    assert main is not None
    change = (
        MetadataChange(document)
        .add_snapshot(picked.snapshot)
        .branch(branch, new)
        .tag(base_tag(branch), main)
    )
    # Iceberg before 1.10 or so takes files of expired snapshots that `main` has not descended from
    # for unused, and deletes them; its protection of a cherry-pick's source covers one snapshot.
    change = change.remove_snapshots(unreferenced(change.applied(0), candidate))
    swaps, files = store.grow([(row, change)])
    moved = replace(candidate, base=main, token=str(new))
    return Staged(moved, swaps, [*picked.files, *files])


def pick(store: Store, document: md.Document, base: int | None, head: int) -> Picked | None:
    """Write a snapshot with the change from ``base`` to ``head`` on the present `main`.

    Args:
        store: Reads and writes files.
        document: The table's metadata.
        base: The snapshot of `main` that the candidate was built on.
        head: The candidate.

    Returns:
        The snapshot, which is in no metadata yet; None if the change may give other rows there.
    """
    main = md.main_of(document)
    states = [md.snapshot(document, one) if one else None for one in (base, head, main)]
    if base == main or not same_rows(document, base, main):
        return None
    if int(document["format-version"]) != _VERSION:
        return None
    before, built, now = (Snapshot(store, document, one) if one else None for one in states)
    if before is None or built is None or now is None:
        return None
    written: list[str] = []
    picked = None
    try:
        # Whatever is unusual in the manifests: the candidate is then refused, as without this.
        with suppress(Exception):
            picked = _picked(store, document, before, built, now, written)
    finally:
        if picked is None:
            store.delete(written)
    return picked


def _picked(
    store: Store,
    document: md.Document,
    before: Snapshot,
    built: Snapshot,
    now: Snapshot,
    written: list[str],
) -> Picked | None:
    common = common_manifests(before, built) & common_manifests(built, now)
    audited, present = built.files(common), now.files(common)
    change = transferable(before.files(common), audited, present)
    if change is None:
        return None
    snapshot = _Writing(store, document, built, now, change, common, written).snapshot()
    found = Snapshot(store, document, snapshot).files(common)
    same = _rows(found) == _rows(change.applied(audited, present))
    return Picked(snapshot, tuple(written)) if same else None


def _rows(state: StateFiles) -> tuple[list[tuple[str, int]], list[tuple[str, str | None, int]]]:
    return (
        sorted((one.path, one.rows) for one in state.data),
        sorted((one.path, one.target, one.rows) for one in state.deletes),
    )


def unreferenced(document: md.Document, candidate: Candidate) -> list[int]:
    """Return the snapshots of a candidate that no branch or tag has in its history. Pure."""
    kept = {
        one
        for ref in md.refs_of(document).values()
        for one in md.ancestor_ids(document, ref.snapshot_id)
    }
    line = md.ancestor_ids(document, candidate.head)
    own = line[: line.index(candidate.base)] if candidate.base in line else []
    return [one for one in own if one not in kept]


class _Writing:
    """Writes the manifests of one picked snapshot."""

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
        self._gone = change.removed | change.removed_deletes
        self._new = change.added | change.added_deletes
        self._id = secrets.randbits(62)
        self._sequence = int(document.get("last-sequence-number") or 0) + 1
        self._schema_id = int(document["current-schema-id"])
        self._folder = md.next_location(document, None).rsplit("/", 1)[0]
        self._figures: Counter[str] = Counter()

    def snapshot(self) -> Mapping[str, Any]:
        """Write the files and return the snapshot."""
        if self._now.manifest_schema != self._built.manifest_schema:
            raise Unreadable("The manifest lists have different columns.")
        live = [one for one in self._now.manifests if one.has_live_files]
        manifests = [self._without_removed(one) for one in live]
        manifests += [
            made for one in self._built.manifests if (made := self._of_added(one)) is not None
        ]
        content = self._now.with_manifests(manifests)
        built, now = self._built.snapshot, self._now.snapshot
        return {
            "snapshot-id": self._id,
            "parent-snapshot-id": now["snapshot-id"],
            "sequence-number": self._sequence,
            "timestamp-ms": max(int(time.time() * 1000), int(now["timestamp-ms"])),
            "manifest-list": self._put(f"snap-{self._id}-1-{uuid.uuid4()}.avro", content),
            "summary": self._summary(built, now),
            "schema-id": self._schema_id,
        }

    def _without_removed(self, manifest: ManifestEntry) -> ManifestEntry:
        """Return a manifest of `main`, written anew if the change removes files of it."""

        def change(entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
            if entry["status"] == DELETED:
                return None
            removed = entry["data_file"]["file_path"] in self._gone
            sequence, file_sequence = (
                manifest.entry["sequence_number"] if entry[key] is None else entry[key]
                for key in ("sequence_number", "file_sequence_number")
            )
            writer = entry["snapshot_id"] or manifest.entry["added_snapshot_id"]
            return {
                **entry,
                "status": DELETED if removed else EXISTING,
                "snapshot_id": self._id if removed else writer,
                "sequence_number": sequence,
                "file_sequence_number": file_sequence,
            }

        if not self._gone or manifest.path in self._unchanged:
            return manifest
        entries = self._now.read(manifest).records
        if not any(entry["data_file"]["file_path"] in self._gone for entry in entries):
            return manifest
        return self._rewritten(self._now, manifest, change) or manifest

    def _of_added(self, manifest: ManifestEntry) -> ManifestEntry | None:
        """Return a manifest with the candidate's files of this one; None if it has none."""

        def change(entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
            if entry["status"] == DELETED or entry["data_file"]["file_path"] not in self._new:
                return None
            return {
                **entry,
                "status": ADDED,
                "snapshot_id": self._id,
                # Null: those of the manifest.
                "sequence_number": None,
                "file_sequence_number": None,
            }

        if manifest.path in self._unchanged:
            return None
        return self._rewritten(self._built, manifest, change)

    def _rewritten(
        self,
        state: Snapshot,
        manifest: ManifestEntry,
        change: Callable[[Mapping[str, Any]], Mapping[str, Any] | None],
    ) -> ManifestEntry | None:
        read = state.read(manifest)
        entries = [made for one in read.records if (made := change(one)) is not None]
        if not entries:
            return None
        content = read.with_records(entries)
        path = self._put(f"{uuid.uuid4()}-m0.avro", content)
        sequences = [one["sequence_number"] for one in entries if one["status"] != DELETED]
        lowest = min((s for s in sequences if s is not None), default=self._sequence)
        counts = {}
        for status, name in ((ADDED, "added"), (EXISTING, "existing"), (DELETED, "deleted")):
            files = [one["data_file"] for one in entries if one["status"] == status]
            counts[f"{name}_files_count"] = len(files)
            counts[f"{name}_rows_count"] = sum(int(one["record_count"]) for one in files)
            if status != EXISTING:
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
            self._figures[f"{change}-delete-files"] += len(files)
            self._figures[f"{change}-position-delete-files"] += len(files)
            self._figures[f"{change}-position-deletes"] += rows
        sizes = (int(one["file_size_in_bytes"]) for one in files)
        self._figures[f"{change}-files-size"] += sum(sizes)

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
