"""The files of a lake, and the tables and views that refer to them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus, ManifestFile
from pyiceberg.table.snapshots import Snapshot

from sparkwap.catalog import metadata as md
from sparkwap.catalog.branches import clone_base, is_clone, is_of_maintenance
from sparkwap.catalog.files import local_path, plain_location
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.pointers import Pointer
from sparkwap.core.errors import CatalogError
from sparkwap.core.text import without_partitions

if TYPE_CHECKING:
    from sparkwap.publish.lake import Lake


def reachable(lake: Lake, rows: Collection[Pointer] | None = None) -> dict[str, set[Identifier]]:
    """Return all files to which tables and views refer, with these tables.

    These are metadata files (the present ones, and former ones in the metadata log), and the
    manifest lists, manifests, data files, delete files and statistics of all snapshots.

    Args:
        rows: The tables and views; None for those of all catalogs in the same database.
    """

    def files_of(row: Pointer) -> set[str]:
        return files_of_document(lake, row.location, lake.store.load(row.location))

    found: dict[str, set[Identifier]] = {}
    rows = lake.store.backend.known() if rows is None else rows
    for row, files in zip(rows, lake.store.map(files_of, rows), strict=True):
        for file in files:
            found.setdefault(plain_location(file), set()).add(row.identifier)
    return found


def files_of_document(lake: Lake, location: str, document: md.Document) -> set[str]:
    """Return a metadata file and all files to which it refers, in all snapshots.

    Args:
        location: The metadata file.
        document: Its content, or its content after a planned change.

    Raises:
        Exception: A manifest list or manifest cannot be read.
    """
    found = {location}
    if md.is_view(document):
        return found
    if is_clone(document):
        found.add(clone_base(document)[0])
    if is_of_maintenance(document):
        # Its older files are those of the live table, which may let go of them. Its own are younger
        # than the lease of the maintenance; a dead one needs none.
        return found
    found.update(entry["metadata-file"] for entry in document.get("metadata-log") or ())
    for kind in ("statistics", "partition-statistics"):
        found.update(entry["statistics-path"] for entry in document.get(kind) or ())
    io = lake.store.files.io(location)
    manifests: dict[str, ManifestFile] = {}
    for entry in document.get("snapshots") or ():
        if "manifest-list" in entry:
            found.add(entry["manifest-list"])
            for manifest in Snapshot.model_validate(entry).manifests(io):
                manifests[manifest.manifest_path] = manifest
        # In format version 1, a snapshot may have its manifests inline.
        for path in entry.get("manifests") or ():
            manifests[path] = ManifestFile.from_args(manifest_path=path, sequence_number=0)
    for path, manifest in manifests.items():
        found.add(path)
        found.update(_entries(manifest, io))
    return found


def _entries(manifest: ManifestFile, io: FileIO) -> Iterable[str]:
    entries = manifest.fetch_manifest_entry(io, discard_deleted=False)
    return [e.data_file.file_path for e in entries if e.status != ManifestEntryStatus.DELETED]


def unreachable(paths: Iterable[str], known: Collection[str]) -> list[str]:
    """Return the paths that are not in ``known``; a checksum file counts as its file."""
    return [path for path in paths if checked(plain_location(path)) not in known]


def checked(path: str) -> str:
    """Return the file of a Hadoop checksum file; any other path as it is."""
    folder, _, name = path.rpartition("/")
    if name.startswith(".") and name.endswith(".crc"):
        return f"{folder}/{name[1 : -len('.crc')]}"
    return path


def _delete_markers(lake: Lake, paths: Iterable[str]) -> None:
    """Delete what stands for folders of partitions without files: their names have values."""
    folders = {path.rpartition("/")[0] for path in paths if local_path(path) is None}
    done: set[str] = set()
    for folder in sorted(folders, key=len, reverse=True):
        while "=" in folder.rpartition("/")[2] and folder not in done:
            done.add(folder)
            if not lake.store.files.delete_marker(folder):
                break
            folder = folder.rpartition("/")[0]


def _above(path: str, warehouse: Path | None) -> Iterator[Path]:
    """Yield the local folders of a table that may become empty, up to the table's own."""
    local = local_path(path)
    if local is None:
        return
    folders = [*([local] if path.endswith("/") else []), *local.parents]
    if warehouse in folders:
        folders = folders[: folders.index(warehouse)]
    for number, folder in enumerate(folders):
        if folder.name in ("data", "metadata"):
            yield from folders[: number + 2]
            return
    yield from folders[:2]


def delete_files(lake: Lake, paths: Collection[str]) -> None:
    """Delete files to which nothing refers, and the folders that become empty."""
    left = lake.store.delete(sorted(path for path in paths if not path.endswith("/")))
    _delete_markers(lake, paths)
    warehouse = local_path(lake.warehouse)
    folders = {folder for path in paths for folder in _above(path, warehouse)}
    for folder in sorted(folders, key=lambda one: len(one.parts), reverse=True):
        lake.store.files.delete_empty(str(folder))
    if left:
        raise CatalogError(
            f"{len(left)} files could not be deleted, such as {without_partitions(left[0])}. No "
            "table refers to them. Check the rights to delete there, then run the same command "
            "again."
        )
