"""Finds and deletes the files of the lake that nothing refers to.

What is deleted here cannot be brought back, so a file goes only if all of this holds:

- it is in the ``data`` or ``metadata`` folder of a table of this catalog, or of one that is no more
  because a publish replaced it, a rollback or a sweep took it away, or the run on record that was
  making it never published it; or a comparison of branches has made the folder. A table that
  somebody has dropped by hand is left alone;
- nothing reaches it: no metadata file of any table, view, clone or copy of any catalog in the same
  database, no snapshot, branch or tag, and no publish that can still be rolled back;
- it was written before the margin, and before the oldest run that is still at work began;
- its folder has no metadata file of a table that this catalog does not know, which is how a second
  catalog on the same folders, or a path that is spelled in two ways, would show.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sparkwap.catalog import metadata as md
from sparkwap.catalog.files import local_path
from sparkwap.catalog.pointers import Pointer
from sparkwap.core.checkpoints import FILES_DELETED, FILES_DELETING
from sparkwap.core.checkpoints import checkpoint as reached_step
from sparkwap.core.errors import CatalogError
from sparkwap.maintenance.file_references import files_of_document, unreachable
from sparkwap.maintenance.known_folders import (
    KnownFolders,
    former_documents,
    known_folders,
    of_diff,
    plain,
    recent_metadata,
)

if TYPE_CHECKING:
    from sparkwap.publish.lake import Lake

_PARTS = ("data", "metadata")
_METADATA = re.compile(r"\.metadata\.json$|\.gz\.metadata\.json$|^v\d+(\.gz)?\.metadata\.json$")


@dataclass(frozen=True, slots=True)
class Listed:
    """A file as its folder lists it; ``modified`` is when it was written."""

    path: str
    size: int
    modified: datetime


@dataclass(frozen=True, slots=True)
class Folder:
    """A table's folder with files to delete.

    Attributes:
        path: The folder.
        files: The files that nothing refers to, in the order in which they are to be deleted.
        former: No table has the folder any more, so that it goes with its last file.
    """

    path: str
    files: tuple[Listed, ...]
    former: bool

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class Orphans:
    """What was found.

    Attributes:
        folders: Folders with files to delete.
        left_alone: Folder -> why nothing of it is deleted, in words.
    """

    folders: tuple[Folder, ...]
    left_alone: Mapping[str, str]

    @property
    def count(self) -> int:
        """Number of files to delete."""
        return sum(len(folder.files) for folder in self.folders)

    @property
    def size(self) -> int:
        """Bytes of the files to delete."""
        return sum(folder.size for folder in self.folders)


def find(
    lake: Lake,
    documents: Mapping[Pointer, md.Document],
    *,
    roots_since: datetime | None,
    written_before: datetime,
    going: Sequence[md.Document] = (),
) -> Orphans:
    """Find the files that nothing refers to.

    Args:
        lake: The lake.
        documents: The metadata of all rows that the catalog has, or would have after a sweep.
        roots_since: Publishes from then on can still be rolled back, so that what they replaced
            stays; None for all publishes.
        written_before: Only files from before this time are looked at.
        going: The metadata of tables and views that a sweep would take away.

    Raises:
        CatalogError: Some metadata cannot be read, so that nothing is known of what it refers to.
    """
    warehouse = plain(lake.warehouse)
    publishes, sweeps = lake.ledger.rows("publishes"), lake.ledger.rows("sweeps")
    former = former_documents(lake, documents, publishes, roots_since)
    listed = listing(lake, lake.warehouse)
    reached = _reached(lake, documents, former)
    reached |= {plain(path) for row in publishes for path in recent_metadata(row, roots_since)}
    known = known_folders(lake, documents, former, going, publishes, sweeps)
    by_folder: dict[str, list[Listed]] = {}
    for file in listed:
        folder = _folder_of(plain(file.path), warehouse, known)
        if folder is not None:
            by_folder.setdefault(folder, []).append(file)
    folders: list[Folder] = []
    left_alone: dict[str, str] = {}
    for path, files in sorted(by_folder.items()):
        lone = set(unreachable([plain(file.path) for file in files], reached))
        doomed = [f for f in files if plain(f.path) in lone and f.modified < written_before]
        if not doomed:
            continue
        why = _why_left_alone(lake, path, files, lone, known, warehouse)
        if why is not None:
            left_alone[path] = why
            continue
        doomed.sort(key=lambda file: _turn(file.path, known))
        folders.append(Folder(path, tuple(doomed), path not in known.present))
    return Orphans(tuple(folders), left_alone)


def delete(lake: Lake, orphans: Orphans, documents: Mapping[Pointer, md.Document]) -> list[Folder]:
    """Delete what was found, unless something refers to it by now.

    Args:
        lake: The lake.
        orphans: What `find` has found.
        documents: What it was found by.

    Returns:
        The folders with the files that are gone.

    Raises:
        CatalogError: Metadata that came meanwhile cannot be read, or a file cannot be deleted.
    """
    known = {row.location for row in documents}
    rows = [*lake.store.backend.all(), *lake.store.backend.others()]
    fresh = {row: lake.store.load(row.location) for row in rows if row.location not in known}
    reached = _reached(lake, fresh, {}, others=False)
    done: list[Folder] = []
    for folder in orphans.folders:
        gone = [file for file in folder.files if plain(file.path) not in reached]
        reached_step(FILES_DELETING, file=folder.path)
        # Metadata files tell whose a folder is, so they go when all else has gone.
        lake.store.delete(file.path for file in gone if not _is_metadata(file.path))
        for file in gone:
            if _is_metadata(file.path):
                lake.store.files.delete(file.path)
        if folder.former:
            _delete_empty_folders(lake, folder.path)
        left = [file.path for file in gone if _is_there(file.path)]
        if left:
            raise CatalogError(
                f"{len(left)} files to which nothing refers could not be deleted; the first is "
                f"{left[0]}. Check the rights on it, then sweep again."
            )
        reached_step(FILES_DELETED, file=folder.path)
        if gone:
            done.append(replace(folder, files=tuple(gone)))
    return done


# -- what is there -------------------------------------------------------------------------------


def listing(lake: Lake, folder: str) -> list[Listed]:
    """All files below a folder, with size and time; links are not followed."""
    path = local_path(folder)
    if path is not None:
        found = []
        for root, _, names in os.walk(path, followlinks=False):
            for name in names:
                file = os.path.join(root, name)  # noqa: PTH118
                try:
                    stat = os.lstat(file)
                except FileNotFoundError:
                    continue
                modified = datetime.fromtimestamp(stat.st_mtime, UTC)
                found.append(Listed(file, stat.st_size, modified))
        return found
    from pyarrow.fs import FileSelector, FileType
    from pyiceberg.io.pyarrow import PyArrowFileIO

    scheme, netloc, inner = PyArrowFileIO.parse_location(folder)
    system = PyArrowFileIO(lake.properties).fs_by_scheme(scheme, netloc)
    selector = FileSelector(inner, allow_not_found=True, recursive=True)
    root = folder.removesuffix(inner)
    return [
        # A store that does not tell when a file was written says that it is new.
        Listed(f"{root}{info.path}", info.size, info.mtime or datetime.max.replace(tzinfo=UTC))
        for info in system.get_file_info(selector)
        if info.type == FileType.File
    ]


def _reached(
    lake: Lake,
    documents: Mapping[Pointer, md.Document],
    former: Mapping[str, md.Document],
    *,
    others: bool = True,
) -> set[str]:
    """All files that something refers to, by their plain locations."""
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
            f"A manifest of a table cannot be read: {error}. So it is not known what files are "
            "needed, and none was deleted. Repair or drop the table, then sweep again."
        ) from error
    return {plain(path) for paths in found for path in paths}


def _folder_of(path: str, warehouse: str, known: KnownFolders) -> str | None:
    """The table's folder that a file belongs to; None for a file that is none of our business."""
    part, _, _ = path.rpartition("/")
    while part.startswith(f"{warehouse}/"):
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
    files: Sequence[Listed],
    lone: Collection[str],
    known: KnownFolders,
    warehouse: str,
) -> str | None:
    present = known.present.get(folder)
    listed = {plain(file.path) for file in files}
    if present is not None and present.startswith(f"{folder}/") and present not in listed:
        return "its files are listed by other names than the catalog knows them by"
    for file in files:
        path = plain(file.path)
        if path in lone and _is_metadata(path):
            try:
                owner = md.identity(lake.store.reload(file.path))
            except CatalogError:
                return f"the metadata file {path} cannot be read"
            # In its own folder a run that died before it could tell has left nobody else's table.
            made_here = known.of_run(folder, warehouse) or of_diff(folder, warehouse)
            if owner not in known.uuids and not made_here:
                return f"it has metadata of a table that this catalog does not know ({path})"
    return None


def _is_metadata(path: str) -> bool:
    return _METADATA.search(path.rpartition("/")[2]) is not None


def _turn(path: str, known: KnownFolders) -> tuple[bool, bool, str]:
    return _is_metadata(path), plain(path) in known.last, path


def _is_there(path: str) -> bool:
    local = local_path(path)
    return local is not None and os.path.lexists(local)


def _delete_empty_folders(lake: Lake, folder: str) -> None:
    path = local_path(folder)
    if path is None:
        return
    for root, _, _ in os.walk(path, topdown=False, followlinks=False):
        lake.store.files.delete_empty(root)


def cutoff(now: datetime, days: int, began: Iterable[datetime]) -> datetime:
    """Before when a file must have been written: the margin, and the oldest run at work."""
    return min([now - timedelta(days=days), *began])
