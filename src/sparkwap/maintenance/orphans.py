"""Files of the lake that nothing refers to: found, told, deleted.

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
from typing import TYPE_CHECKING, Any

from sparkwap.catalog import metadata as md
from sparkwap.catalog.branches import is_clone
from sparkwap.catalog.files import local_path, plain_location
from sparkwap.catalog.sql_backend import Pointer
from sparkwap.core.errors import CatalogError
from sparkwap.core.names import is_diff_folder, run_of_folder
from sparkwap.core.steps import FILES_DELETED, FILES_DELETING
from sparkwap.core.steps import reached as reached_step
from sparkwap.maintenance.expiry import files_of_document, unreachable

if TYPE_CHECKING:
    from sparkwap.publish.lake import Lake

_PARTS = ("data", "metadata")
_METADATA = re.compile(r"\.metadata\.json$|\.gz\.metadata\.json$|^v\d+(\.gz)?\.metadata\.json$")
_S3 = re.compile(r"^s3[an]?://")
_ID_LENGTH = 8
_REPLACING = ("new", "view", "replace")
_FILES = ("base_metadata", "published_metadata", "undone_metadata")


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


@dataclass(frozen=True)
class KnownFolders:
    """What the catalog and its ledger know of folders and identities.

    Attributes:
        present: Folder -> the metadata file of the table in it now.
        former: Folders of tables that sparkwap has taken out of the catalog.
        published: Folders that a publish has put into the catalog.
        uuids: Identities of tables and views, present and former.
        runs: Short ids of the runs on record.
        schemas: Schemas, side schemas included.
        keep_out: Folders of tables whose files are not their own to delete.
        last: Metadata files that the ledger names: they are deleted last, as they tell whose a
            folder was.
    """

    present: Mapping[str, str]
    former: frozenset[str]
    published: frozenset[str]
    uuids: frozenset[str]
    runs: frozenset[str]
    schemas: frozenset[str]
    keep_out: frozenset[str]
    last: frozenset[str]

    def ours(self, folder: str, warehouse: str) -> bool:
        """Whether files of a folder may go."""
        return (
            folder in self.present
            or folder in self.former
            or self.of_run(folder, warehouse)
            or of_diff(folder, warehouse)
        )

    def of_run(self, folder: str, warehouse: str) -> bool:
        """Whether a run on record has made a folder, and has not published it."""
        above, _, name = folder.rpartition("/")
        root, _, schema = above.rpartition("/")
        return (
            root == warehouse
            and schema in self.schemas
            and run_of_folder(name) in self.runs
            and folder not in self.published
        )


def of_diff(folder: str, warehouse: str) -> bool:
    """Whether a comparison has made a folder; no catalog of the lake ever knows its table."""
    above, _, name = folder.rpartition("/")
    return above == warehouse and is_diff_folder(name)


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
    former = _former(lake, documents, publishes, roots_since)
    listed = listing(lake, lake.warehouse)
    reached = _reached(lake, documents, former)
    reached |= {plain(path) for row in publishes for path in _recent(row, roots_since)}
    known = _known(lake, documents, former, going, publishes, sweeps)
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


def plain(location: str) -> str:
    """A location in the one spelling by which files and references are compared."""
    return _S3.sub("s3://", plain_location(location))


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


# -- what is known -------------------------------------------------------------------------------


def _former(
    lake: Lake,
    documents: Mapping[Pointer, md.Document],
    publishes: Sequence[Mapping[str, Any]],
    since: datetime | None,
) -> dict[str, md.Document]:
    """Metadata of tables that are no more, and that a rollback or a reopening could bring back."""
    present = {md.identity(document) for document in documents.values()}
    found: dict[str, md.Document] = {}
    locations = sorted(
        {
            location
            for row in publishes
            for location in _recent(row, since)
            # The other ways to publish leave the table itself in the catalog.
            if row["how"] in _REPLACING or location == row["undone_metadata"]
        }
    )
    loaded = lake.store.map(lambda location: _load(lake, location), locations)
    for location, document in zip(locations, loaded, strict=True):
        # What is still in the catalog refers to its files itself.
        if document is not None and md.identity(document) not in present:
            found[location] = document
    return found


def _recent(row: Mapping[str, Any], since: datetime | None) -> Iterable[str]:
    """The metadata files that a publish or rollback names, as long as it can be undone."""
    if since is None or row["published_at"] >= since:
        for column in _FILES:
            if row.get(column):
                yield str(row[column])


def _load(lake: Lake, location: str) -> md.Document | None:
    """A metadata file of a former table; None for one that is gone."""
    try:
        return lake.store.load(location)
    except CatalogError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


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


def _known(
    lake: Lake,
    documents: Mapping[Pointer, md.Document],
    former: Mapping[str, md.Document],
    going: Sequence[md.Document],
    publishes: Sequence[Mapping[str, Any]],
    sweeps: Sequence[Mapping[str, Any]],
) -> KnownFolders:
    present: dict[str, str] = {}
    keep_out: set[str] = set()
    for row, document in documents.items():
        folder = plain(str(document["location"]))
        if is_clone(document):
            continue
        present[folder] = plain(row.location)
        if md.properties_of(document).get(md.GC_ENABLED, "true").lower() == "false":
            keep_out.add(folder)
    named = {str(row[column]) for row in publishes for column in _FILES if row.get(column)}
    replacing = [row for row in publishes if row["how"] in _REPLACING]
    telling = {str(row[column]) for row in replacing for column in _FILES if row.get(column)}
    standing = lake.store.map(lambda location: _load(lake, location), sorted(telling))
    everything = [
        *documents.values(),
        *former.values(),
        *going,
        *(one for one in standing if one),
    ]
    published = {
        _table_folder(row["published_metadata"])
        for row in publishes
        if row["published_metadata"] and row["action"] == "publish"
    }
    swept = {plain(str(row["folder"])) for row in sweeps if row["folder"] and row["uuid"]}
    swept |= {plain(str(one["location"])) for one in going if not is_clone(one)}
    runs = {str(r["run_id"]).replace("-", "")[:_ID_LENGTH].lower() for r in lake.ledger.runs()}
    named_schemas = {str(row["schema"]) for row in (*publishes, *sweeps) if row["schema"]}
    return KnownFolders(
        present,
        frozenset((swept | set(_taken_out(publishes))) - set(present)),
        frozenset(published),
        frozenset(
            {md.identity(one) for one in everything} | {str(r["uuid"]) for r in sweeps if r["uuid"]}
        ),
        frozenset(runs),
        frozenset(lake.schemas() | named_schemas),
        frozenset(keep_out),
        frozenset(plain(location) for location in named),
    )


def _taken_out(publishes: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """The folders of tables that a publish replaced, or that a rollback took away."""
    for row in publishes:
        if row["action"] == "publish" and row["how"] in ("replace", "view"):
            yield from (_table_folder(path) for path in (row["base_metadata"],) if path)
        elif row["action"] == "rollback" and row["how"] in _REPLACING:
            yield from (_table_folder(path) for path in (row["published_metadata"],) if path)


def _table_folder(metadata_file: str) -> str:
    """The folder of the table that a metadata file is of: ``<folder>/metadata/<file>``."""
    return plain(metadata_file).rsplit("/", 2)[0]


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
