"""Makes snapshots whose manifests name only live files.

The manifests of a delete or overwrite also name the removed files, with the lower and upper bounds
of their columns.
"""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import (
    ManifestContent,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table import StaticTable, Table

from sparkwap.catalog import metadata as md
from sparkwap.catalog.branches import table_row
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.pointers import Pointer
from sparkwap.catalog.store import Staged
from sparkwap.core.errors import CatalogError

if TYPE_CHECKING:
    from sparkwap.publish.lake import Lake

_COMPRESSION: Any = "gzip"

WRITABLE_VERSION = 2
"""The newest Iceberg format version whose manifests sparkwap can write."""

READABLE_VERSION = 3
"""The newest Iceberg format version that sparkwap can read."""


@dataclass(frozen=True, slots=True)
class LiveSnapshot:
    """A staged snapshot without entries of removed files, and the files written for it."""

    snapshot: Mapping[str, Any]
    files: tuple[str, ...]


def require_supported(identifier: Identifier, document: md.Document) -> None:
    """Refuse a table whose manifests sparkwap cannot write."""
    version = int(document.get("format-version") or 1)
    if version > WRITABLE_VERSION:
        raise CatalogError(
            f"{'.'.join(identifier)} has Iceberg's format version {version}, and some of its "
            "manifests name removed files. sparkwap can rewrite manifests up to format version "
            f"{WRITABLE_VERSION} only. This step changed nothing. Rewrite the table, or build it "
            "with format_version: 2, and run again."
        )


def keep_live_files(lake: Lake, identifier: Identifier, branch: str, run_id: str) -> int:
    """Make the manifests of an audit branch's head name only live files.

    Args:
        run_id: The run, for the summary of an added snapshot.

    Returns:
        The head: a new snapshot if a manifest named a removed file.

    Raises:
        CatalogError: There is no such table or branch.
    """

    def stage() -> Staged[int]:
        row = table_row(lake.store, identifier)
        document = lake.store.load(row.location)
        ref = md.refs_of(document).get(branch)
        if ref is None:
            raise CatalogError(f"{'.'.join(identifier)} has no branch {branch}.")
        live = live_snapshot(lake, identifier, row, document, ref.snapshot_id, run_id)
        if live is None:
            return Staged(ref.snapshot_id)
        head = int(live.snapshot["snapshot-id"])
        change = MetadataChange(document).add_snapshot(live.snapshot).branch(branch, head)
        swaps, files = lake.store.grow([(row, change)])
        return Staged(head, swaps, [*live.files, *files])

    return lake.store.commit(stage, "erase", table=".".join(identifier), run_id=run_id)


def live_snapshot(
    lake: Lake,
    identifier: Identifier,
    row: Pointer,
    document: md.Document,
    snapshot_id: int,
    run_id: str,
) -> LiveSnapshot | None:
    """Return a snapshot of the same live files; None if no manifest names a removed file."""
    table = lake.catalog.load_table(identifier)
    if table.metadata_location != row.location:
        # Another writer has committed; the caller's commit detects this and tries again.
        table = StaticTable.from_metadata(row.location, table.io.properties)
    snapshot = table.snapshot_by_id(snapshot_id)
    entry = md.snapshot(document, snapshot_id)
    if snapshot is None or entry is None:
        raise CatalogError(f"{'.'.join(identifier)} has no snapshot {snapshot_id}.")
    manifests = snapshot.manifests(table.io)
    if all(manifest.deleted_files_count == 0 for manifest in manifests):
        return None
    require_supported(identifier, document)
    new_id = secrets.randbits(62)
    written: list[str] = []
    kept: list[ManifestFile] = []
    try:
        for manifest in manifests:
            kept.extend(_live_manifest(table, manifest, new_id, written))
        sequence = int(document.get("last-sequence-number") or 0) + 1
        path = f"{_metadata_folder(table)}/snap-{new_id}-1-{uuid.uuid4()}.avro"
        written.append(path)
        version: Any = table.metadata.format_version
        with write_manifest_list(
            version, table.io.new_output(path), new_id, snapshot_id, sequence, _COMPRESSION
        ) as writer:
            writer.add_manifests(kept)
    except BaseException:
        lake.store.delete(written)
        raise
    totals = {k: v for k, v in (entry.get("summary") or {}).items() if k.startswith("total-")}
    fresh: dict[str, Any] = {
        "snapshot-id": new_id,
        "parent-snapshot-id": snapshot_id,
        "timestamp-ms": max(int(time.time() * 1000), int(entry["timestamp-ms"])),
        "manifest-list": path,
        "summary": {"operation": "replace", "wap_run": run_id, **totals},
    }
    if "schema-id" in entry:
        fresh["schema-id"] = entry["schema-id"]
    if int(document.get("format-version") or 1) > 1:
        fresh["sequence-number"] = sequence
    return LiveSnapshot(fresh, tuple(written))


def _live_manifest(
    table: Table, manifest: ManifestFile, snapshot_id: int, written: list[str]
) -> Iterable[ManifestFile]:
    if manifest.deleted_files_count == 0:
        return [manifest]
    entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    if not entries:
        return []
    if manifest.content == ManifestContent.DELETES:
        raise CatalogError(
            f"The manifest {manifest.manifest_path} names delete files of live rows, but the "
            "rewrite should have removed them. This step changed nothing. Run the same command "
            "again."
        )
    path = f"{_metadata_folder(table)}/{uuid.uuid4()}-m0.avro"
    written.append(path)
    version: Any = table.metadata.format_version
    spec = table.specs()[manifest.partition_spec_id]
    with write_manifest(
        version, spec, table.schema(), table.io.new_output(path), snapshot_id, _COMPRESSION
    ) as writer:
        for entry in entries:
            writer.existing(entry)
    return [writer.to_manifest_file()]


def _metadata_folder(table: Table) -> str:
    folder = table.properties.get("write.metadata.path")
    return (folder or f"{table.location().rstrip('/')}/metadata").rstrip("/")


def has_delete_files(lake: Lake, identifier: Identifier) -> bool:
    """Return whether `main` has delete files; the data files then still have the deleted rows."""
    table = lake.catalog.load_table(identifier)
    snapshot = table.current_snapshot()
    if snapshot is None:
        return False
    return any(m.content == ManifestContent.DELETES for m in snapshot.manifests(table.io))
