"""Finds and deletes the files of the lake to which nothing refers.

Deleted files cannot be brought back, so a file is deleted only if all of this holds:

- it is in the ``data`` or ``metadata`` folder of a table of this catalog, or of a former table: a
  publish replaced it, a rollback or a sweep removed it, or a run on record made it and never
  published it; or a comparison of branches made the folder. The files of a table that somebody
  dropped by hand stay;
- nothing reaches it: no metadata file of a table, view, clone or copy of any catalog in the same
  database, no snapshot, branch or tag, and no publish that can still be rolled back;
- it was written before the margin, and before the oldest running command began;
- its folder has no metadata file of a table that this catalog does not know. Such a file means that
  a second catalog uses the folder;
- its folder has no file that is reached in another spelling of the folder (a symbolic link, another
  name of the file system).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sparkwap.catalog import metadata as md
from sparkwap.catalog.files import StoredFile, local_path
from sparkwap.catalog.files import plain_location as plain
from sparkwap.catalog.pointers import Pointer
from sparkwap.catalog.snapshot_files import PRIVATE
from sparkwap.core.checkpoints import FILES_DELETED, FILES_DELETING
from sparkwap.core.checkpoints import checkpoint as reached_step
from sparkwap.core.errors import CatalogError
from sparkwap.core.text import without_partitions
from sparkwap.maintenance.file_references import files_of_document, unreachable
from sparkwap.maintenance.known_folders import (
    KnownFolders,
    former_documents,
    known_folders,
    of_diff,
    recent_metadata,
)

if TYPE_CHECKING:
    from sparkwap.publish.lake import Lake

_PARTS = ("data", "metadata")


@dataclass(frozen=True, slots=True)
class Folder:
    """A table's folder with files to delete.

    Attributes:
        files: The files to which nothing refers, in the order of deletion.
        former: No table uses the folder, so it is deleted with its last file.
    """

    path: str
    files: tuple[StoredFile, ...]
    former: bool

    @property
    def size(self) -> int:
        """The size of the files in bytes."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class Orphans:
    """The files to which nothing refers.

    Attributes:
        folders: Folders with files to delete.
        left_alone: Folder -> the reason why none of its files is deleted.
    """

    folders: tuple[Folder, ...]
    left_alone: Mapping[str, str]

    @property
    def count(self) -> int:
        """The number of files to delete."""
        return sum(len(folder.files) for folder in self.folders)

    @property
    def size(self) -> int:
        """The size of the files to delete, in bytes."""
        return sum(folder.size for folder in self.folders)


def find(
    lake: Lake,
    documents: Mapping[Pointer, md.Document],
    *,
    roots_since: datetime | None,
    written_before: datetime,
    to_remove: Sequence[md.Document] = (),
) -> Orphans:
    """Find the files to which nothing refers.

    Args:
        documents: The metadata of all rows that the catalog has, or would have after a sweep.
        roots_since: Publishes since this time can still be rolled back, so the tables which they
            replaced stay; None for all publishes.
        to_remove: The metadata of tables and views that a sweep would remove.

    Raises:
        CatalogError: Metadata cannot be read, so the files to which it refers are not known.
    """
    warehouse = plain(lake.warehouse)
    if not lake.store.files.reach_all:
        return Orphans((), {warehouse: "keys that the catalog vends cannot list the warehouse"})
    publishes, sweeps = lake.ledger.rows("publishes"), lake.ledger.rows("sweeps")
    former = former_documents(lake, documents, publishes, roots_since)
    # Before what is reached, so that no file can be missing there.
    listed = lake.store.files.listing(lake.warehouse)
    reached = _reached(lake, documents, former)
    reached |= {plain(path) for row in publishes for path in recent_metadata(row, roots_since)}
    names = {_name(path) for path in reached}
    known = known_folders(lake, documents, former, to_remove, publishes, sweeps)
    by_folder: dict[str, list[StoredFile]] = {}
    for file in (one for one in listed if not one.path.endswith("/")):
        folder = _folder_of(plain(file.path), warehouse, known)
        if folder is not None:
            by_folder.setdefault(folder, []).append(file)
    folders: list[Folder] = []
    left_alone: dict[str, str] = {}
    for path, files in sorted(by_folder.items()):
        lone = set(unreachable([plain(file.path) for file in files], reached))
        orphans = [
            file
            for file in files
            # A file without a time counts as new, so it is not deleted.
            if plain(file.path) in lone and file.modified and file.modified < written_before
        ]
        if not orphans:
            continue
        reason = _why_left_alone(lake, path, files, lone, names, known, warehouse)
        if reason is not None:
            left_alone[path] = reason
            continue
        orphans.sort(key=lambda file: _turn(file.path, known))
        folders.append(Folder(path, tuple(orphans), path not in known.present))
    return Orphans(tuple(folders), left_alone)


def delete(
    lake: Lake, orphans: Orphans, documents: Mapping[Pointer, md.Document]
) -> Iterator[Folder]:
    """Delete the files, unless something refers to them by now.

    Args:
        lake: The lake.
        orphans: The files, from `find`.

    Raises:
        CatalogError: New metadata cannot be read, or some files could not be deleted.
    """
    known = {row.location for row in documents}
    reached: set[str] = set()
    stay: list[str] = []
    for number, folder in enumerate(orphans.folders):
        # A rollback may have brought a former table back while other folders were deleted.
        if number == 0 or folder.former:
            reached |= _reached_since(lake, known)
        gone = [file for file in folder.files if plain(file.path) not in reached]
        reached_step(FILES_DELETING, file=folder.path)
        # Metadata files go first, so that a former table is whole or cannot be brought back.
        metadata = [file.path for file in gone if _is_metadata(file.path)]
        others = [file.path for file in gone if not _is_metadata(file.path)]
        left = [path for path in metadata if not lake.store.files.delete(path)]
        left += others if left else lake.store.delete(others)
        if folder.former:
            _delete_empty_folders(lake, folder.path)
        stay += left
        if not left:
            reached_step(FILES_DELETED, file=folder.path)
        kept = set(left)
        gone = [file for file in gone if file.path not in kept]
        if gone:
            yield replace(folder, files=tuple(gone))
    if stay:
        raise CatalogError(
            f"{len(stay)} files to which nothing refers could not be deleted, such as "
            f"{without_partitions(stay[0])}. Check the rights to delete there, then sweep again."
        )


def strangers(lake: Lake, paths: Collection[str], reached: Collection[str]) -> dict[str, str]:
    """Return those of some files that are not known to be the lake's own, and why, in words.

    They may belong to a catalog in another database, or to a program without a catalog.

    Args:
        paths: Files to which nothing refers.
        reached: The files to which something refers, in one spelling.
    """
    rows = lake.store.backend.all()
    documents = dict(zip(rows, lake.store.documents(rows), strict=True))
    publishes, sweeps = lake.ledger.rows("publishes"), lake.ledger.rows("sweeps")
    former = former_documents(lake, documents, publishes, None)
    known = known_folders(lake, documents, former, (), publishes, sweeps)
    of_clones = {
        plain(one): "" for document in documents.values() for one in md.folders_of(document)
    }
    runs = known.runs | {one.run_id.replace("-", "")[:8].lower() for one in lake.leases.all()}
    known = replace(known, present={**of_clones, **known.present}, runs=runs)
    warehouse, names = plain(lake.warehouse), {_name(path) for path in reached}
    by_folder: dict[str | None, list[str]] = {}
    for path in paths:
        by_folder.setdefault(_folder_of(plain(path), warehouse, known), []).append(path)
    found = dict.fromkeys(by_folder.pop(None, ()), "no table of this catalog has its folder")
    for folder, own in by_folder.items():
        files = lake.store.files.listing(str(folder))
        lone = set(unreachable([plain(file.path) for file in files], reached))
        why = _why_left_alone(lake, str(folder), files, lone, names, known, warehouse)
        found |= dict.fromkeys(own, why) if why else {}
    return found


def _reached_since(lake: Lake, known: set[str]) -> set[str]:
    """Return the files to which new metadata refer; adds the metadata files to ``known``."""
    rows = lake.store.backend.known()
    fresh = {row: lake.store.load(row.location) for row in rows if row.location not in known}
    known.update(row.location for row in fresh)
    return _reached(lake, fresh, {}, others=False)


def _reached(
    lake: Lake,
    documents: Mapping[Pointer, md.Document],
    former: Mapping[str, md.Document],
    *,
    others: bool = True,
) -> set[str]:
    """Return the plain locations of all files to which something refers."""
    roots = [(row.location, document) for row, document in documents.items()]
    roots += former.items()
    if others:
        rows = lake.store.backend.others()
        roots += [(row.location, lake.store.load(row.location)) for row in rows]
    try:
        found = lake.store.map(lambda root: files_of_document(lake, *root), roots)
    except CatalogError:
        raise
    except Exception as error:
        raise CatalogError(
            f"A manifest of a table cannot be read: {error}. The files that the table needs are "
            "not known, so none was deleted. Repair or drop the table, then sweep again."
        ) from error
    return {plain(path) for paths in found for path in paths}


def _folder_of(path: str, warehouse: str, known: KnownFolders) -> str | None:
    """Return the table's folder of a file; None if its files must not be deleted."""
    part, _, _ = path.rpartition("/")
    while "/" in part:
        folder, _, name = part.rpartition("/")
        if name in _PARTS:
            if folder in known.keep_out:
                return None
            if known.ours(folder, warehouse):
                return folder
        part = folder
    return None


def _why_left_alone(
    lake: Lake,
    folder: str,
    files: Sequence[StoredFile],
    lone: Collection[str],
    names: Collection[str],
    known: KnownFolders,
    warehouse: str,
) -> str | None:
    # Names of files have a uuid, so such a file is one that a table needs, in another spelling.
    if any(_name(path) in names for path in lone):
        return "the listing has its files under other names than the catalog"
    for file in files:
        path = plain(file.path)
        # The private tables of comparisons and audits have identities of their own.
        if path in lone and _is_metadata(path) and not _name(path).startswith(PRIVATE):
            try:
                owner = md.identity(lake.store.reload(file.path))
            except CatalogError:
                return f"the metadata file {path} cannot be read"
            # In a folder that a run or a comparison has made, there is no table of others.
            made_here = known.of_run(folder, warehouse) or of_diff(folder, warehouse)
            if owner not in known.uuids and not made_here:
                return f"it has metadata of a table that this catalog does not know ({path})"
    return None


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _is_metadata(path: str) -> bool:
    return path.endswith(".metadata.json")


def _turn(path: str, known: KnownFolders) -> tuple[bool, bool, str]:
    return not _is_metadata(path), plain(path) in known.last, path


def _delete_empty_folders(lake: Lake, folder: str) -> None:
    path = local_path(folder)
    if path is None:
        return
    for root, _, _ in os.walk(path, topdown=False, followlinks=False):
        lake.store.files.delete_empty(root)


def cutoff(now: datetime, days: int, began: Iterable[datetime]) -> datetime:
    """Return the time before which a file must have been written: margin and oldest running run."""
    return min([now - timedelta(days=days), *began])
