"""The folders of tables in the catalog and its ledger, and the metadata of former tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sparkwap.catalog import metadata as md
from sparkwap.catalog.branches import is_clone
from sparkwap.catalog.files import plain_location as plain
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.pointers import Pointer
from sparkwap.core.errors import MetadataFileMissing
from sparkwap.core.names import is_diff_folder, run_of_folder
from sparkwap.ledger.records import group_publishes
from sparkwap.maintenance.rules import keeps_files

if TYPE_CHECKING:
    from sparkwap.publish.lake import Lake

_ID_LENGTH = 8
_REPLACING = ("new", "view", "replace")
_FILES = ("base_metadata", "published_metadata", "undone_metadata")


@dataclass(frozen=True)
class KnownFolders:
    """The folders and table identities in the catalog and its ledger.

    Attributes:
        present: Folder -> the present metadata file of its table.
        former: Folders of tables that sparkwap has removed from the catalog.
        published: Folders that a publish has added to the catalog.
        uuids: Identities of present and former tables and views.
        runs: Short ids of the runs on record.
        schemas: Schemas, side schemas included.
        keep_out: Folders of tables with ``gc.enabled=false``, whose files must not be deleted.
        last: Metadata files that the ledger names. They are deleted after the others, because they
            show which table the folder belonged to.
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
        """Return whether files of a folder may be deleted."""
        return (
            folder in self.present
            or folder in self.former
            or self.of_run(folder, warehouse)
            or of_diff(folder, warehouse)
        )

    def of_run(self, folder: str, warehouse: str) -> bool:
        """Return whether a run on record has made a folder and not published it."""
        above, _, name = folder.rpartition("/")
        root, _, schema = above.rpartition("/")
        return (
            root == warehouse
            and schema in self.schemas
            and run_of_folder(name) in self.runs
            and folder not in self.published
        )


def of_diff(folder: str, warehouse: str) -> bool:
    """Return whether a comparison has made a folder; the lake's catalogs never have its table."""
    above, _, name = folder.rpartition("/")
    return above == warehouse and is_diff_folder(name)


def former_documents(
    lake: Lake,
    documents: Mapping[Pointer, md.Document],
    publishes: Sequence[Mapping[str, Any]],
    since: datetime | None,
    *,
    forced: bool = False,
) -> dict[str, md.Document]:
    """Return the metadata of former tables that a rollback or a reopening could bring back.

    Args:
        forced: Also the states of a former table before its last one; only a forced rollback
            brings these back.
    """
    present = {md.identity(document) for document in documents.values()}
    locations = {
        location
        for row in publishes
        for location in recent_metadata(row, since)
        # The other ways to publish leave the table itself in the catalog.
        if forced or row["how"] in _REPLACING or location == row["undone_metadata"]
    }
    # The present metadata of a table that is still in the catalog refers to its files.
    return _loaded(lake, locations, present)


def recent_metadata(row: Mapping[str, Any], since: datetime | None) -> Iterable[str]:
    """Yield the metadata files in the row of a publish or rollback that can still be undone."""
    if since is None or row["published_at"] >= since:
        for column in _FILES:
            if row.get(column):
                yield str(row[column])


def _loaded(
    lake: Lake, locations: Collection[str], leave_out: Collection[str] = ()
) -> dict[str, md.Document]:
    """Return the metadata files that still exist, without those of some identities."""

    def load(location: str) -> md.Document | None:
        try:
            document = lake.store.load(location)
        except MetadataFileMissing:
            return None
        # All documents of an old lake would not fit into memory.
        return None if md.identity(document) in leave_out else document

    paths = sorted(locations)
    found = zip(paths, lake.store.map(load, paths), strict=True)
    return {path: document for path, document in found if document is not None}


def known_folders(
    lake: Lake,
    documents: Mapping[Pointer, md.Document],
    former: Mapping[str, md.Document],
    to_remove: Sequence[md.Document],
    publishes: Sequence[Mapping[str, Any]],
    sweeps: Sequence[Mapping[str, Any]],
) -> KnownFolders:
    """Return the folders and table identities in the catalog and its ledger."""
    present: dict[str, str] = {}
    keep_out: set[str] = set()
    for row, document in documents.items():
        folder = plain(str(document["location"]))
        if is_clone(document):
            continue
        present[folder] = plain(row.location)
        if keeps_files(document):
            keep_out.add(folder)
    named = {str(row[column]) for row in publishes for column in _FILES if row.get(column)}
    replacing = [row for row in publishes if row["how"] in _REPLACING]
    replaced = {str(row[column]) for row in replacing for column in _FILES if row.get(column)}
    loaded = _loaded(lake, replaced)
    everything = [*documents.values(), *former.values(), *to_remove, *loaded.values()]

    def folder_of(path: str) -> str:
        # A table with `write.metadata.path` has its metadata elsewhere.
        # Else it is in ``<folder>/metadata/<file>``.
        document = loaded.get(path)
        return plain(str(document["location"])) if document else plain(path).rsplit("/", 2)[0]

    published = {
        folder_of(row["published_metadata"])
        for row in publishes
        if row["published_metadata"] and row["action"] == "publish"
    }
    swept = {plain(str(row["folder"])) for row in sweeps if row["folder"] and row["uuid"]}
    swept |= {plain(str(document["location"])) for document in to_remove if not is_clone(document)}
    runs = {str(r["run_id"]).replace("-", "")[:_ID_LENGTH].lower() for r in lake.ledger.runs()}
    named_schemas = {str(row["schema"]) for row in (*publishes, *sweeps) if row["schema"]}
    return KnownFolders(
        present,
        frozenset(swept | _removed(publishes, folder_of)) - set(present),
        frozenset(published),
        frozenset(
            {md.identity(document) for document in everything}
            | {str(row["uuid"]) for row in sweeps if row["uuid"]}
        ),
        frozenset(runs),
        frozenset(lake.schemas() | named_schemas),
        frozenset(keep_out),
        frozenset(plain(location) for location in named),
    )


def _removed(publishes: Sequence[Mapping[str, Any]], folder_of: Callable[[str], str]) -> set[str]:
    """Return the folders of tables that a publish replaced or a rollback removed.

    The table that was last published under a name stays, also if the catalog has it no longer:
    somebody has dropped it by hand.
    """
    removed: set[str] = set()
    for row in publishes:
        path = None
        if row["action"] == "publish" and row["how"] in ("replace", "view"):
            path = row["base_metadata"]
        elif row["action"] == "rollback" and row["how"] in _REPLACING:
            path = row["published_metadata"]
        if path:
            removed.add(folder_of(path))
    last: dict[Identifier, str | None] = {}
    for publish in reversed(group_publishes(publishes)):
        for entry in publish.entries:
            last.setdefault(entry.identifier, entry.base_metadata_location)
        for entry in publish.left:
            last[entry.identifier] = entry.published_metadata_location
    return removed - {folder_of(path) for path in last.values() if path}
