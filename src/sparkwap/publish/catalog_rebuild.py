"""Rebuilds a lost SQL catalog from the files of its warehouse.

The newest metadata file of a table may show unaudited rows on its `main`: the clones of open
branches are in the table's folder, and so are files of commits that were never made. So the ledger
decides. It has the snapshot of each table's last publish, and of the metadata files whose `main`
has the rows of this snapshot, the newest one is registered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyiceberg.table import StaticTable

from sparkwap.catalog import branches
from sparkwap.catalog import metadata as md
from sparkwap.catalog.content_equality import same_rows
from sparkwap.catalog.model import Identifier, Kind
from sparkwap.catalog.pointers import Pointer, PointerUpdate
from sparkwap.catalog.sql_backend import SqlBackend
from sparkwap.core.errors import CatalogError, ConfigError
from sparkwap.core.names import LEDGER_SCHEMA
from sparkwap.ledger.records import group_publishes
from sparkwap.ledger.schemas import SCHEMAS

if TYPE_CHECKING:
    from sparkwap.publish.lake import Lake

_SUFFIX = ".metadata.json"
_PUBLISHES: Identifier = (LEDGER_SCHEMA, "publishes")


@dataclass(frozen=True, slots=True)
class PublishedState:
    """The state of a table or view that readers of ``main`` have last seen.

    Attributes:
        snapshot: The snapshot of ``main``; None for views and empty tables.
        location: A metadata file that shows it.
    """

    snapshot: int | None
    location: str


@dataclass(frozen=True, slots=True)
class Found:
    """What a warehouse has for an empty catalog.

    Attributes:
        pointers: The tables and views to register, with their metadata files.
        missing: The published tables and views without a usable metadata file -> the reason.
        later: The tables that have a later file with other rows or columns on ``main`` -> this
            file: of a commit that was never made, that was rolled back, or past the gate.
    """

    pointers: tuple[Pointer, ...]
    missing: Mapping[Identifier, str]
    later: Mapping[Identifier, str]


@dataclass(frozen=True, slots=True)
class _Choice:
    location: str
    kind: Kind
    later: str | None


def find(lake: Lake, skipped: Collection[Identifier] = ()) -> Found:
    """Return what to register in the catalog of a lake; changes nothing.

    Args:
        lake: A lake whose catalog has no tables.
        skipped: Tables and views to leave out.

    Raises:
        ConfigError: The catalog has tables, or is no SQL catalog.
        CatalogError: The warehouse has no ledger, or cannot be read.
    """
    _require_empty(lake)
    pointers = list(_ledger(lake))
    publishes = next((one for one in pointers if one.identifier == _PUBLISHES), None)
    if publishes is None:
        raise CatalogError(
            f"{lake.warehouse}/{LEDGER_SCHEMA} has no metadata file of the table publishes, so "
            "nothing tells which metadata files show published rows. Nothing was changed. Check "
            "`warehouse` in the profile, or restore this folder from a backup first."
        )
    table = StaticTable.from_metadata(publishes.location, lake.properties)
    missing, later = dict[Identifier, str](), dict[Identifier, str]()
    for identifier, state in published_states(table.scan().to_arrow().to_pylist()).items():
        if identifier in skipped:
            continue
        choice = _newest(lake, state)
        if choice is None:
            missing[identifier] = (
                f"no metadata file in {_folder(state.location)} shows its last publish "
                + (f"(snapshot {state.snapshot})" if state.snapshot else f"({state.location})")
            )
        else:
            pointers.append(Pointer(identifier, choice.kind, choice.location))
            if choice.later is not None:
                later[identifier] = choice.later
    return Found(tuple(pointers), missing, later)


def register(lake: Lake, pointers: Sequence[Pointer]) -> None:
    """Register tables and views in one transaction, and create their schemas.

    Raises:
        ConfigError: The catalog has tables, or is no SQL catalog.
        Conflict: Another process has registered one of them meanwhile; nothing was registered.
    """
    backend = _require_empty(lake)
    for schema in sorted({"default", *(one.identifier[0] for one in pointers)}):
        backend.ensure_schema(schema)
    backend.apply([PointerUpdate(None, one) for one in pointers])


def published_states(rows: Sequence[Mapping[str, Any]]) -> dict[Identifier, PublishedState]:
    """Return the state of tables and views by rows of ``publishes``.

    It is that of the last publish that was not rolled back, or else that before the first publish.
    What did not exist then is left out.
    """
    found: dict[Identifier, PublishedState] = {}
    for publish in reversed(group_publishes(rows)):
        for entry in publish.entries:
            if entry.base_metadata_location is not None:
                before = PublishedState(entry.base, entry.base_metadata_location)
                found.setdefault(entry.identifier, before)
        for entry in publish.left:
            after = PublishedState(entry.candidate, entry.published_metadata_location)
            found[entry.identifier] = after
    return dict(sorted(found.items()))


def _require_empty(lake: Lake) -> SqlBackend:
    backend = lake.store.backend
    if not isinstance(backend, SqlBackend):
        raise ConfigError(
            "Only a SQL catalog (SQLite, PostgreSQL) can be rebuilt from its warehouse. Nothing "
            "was changed. Restore this catalog from the backup of its own server."
        )
    if known := backend.all():
        raise ConfigError(
            f"The catalog has {len(known)} tables and views, among them "
            f"{'.'.join(known[0].identifier)}. Nothing was changed. Only an empty catalog is "
            "rebuilt: point the profile to a new database, or move the file of SQLite away."
        )
    return backend


def _ledger(lake: Lake) -> Iterator[Pointer]:
    """Yield the newest state of each table of the ledger. Its tables have no branches."""
    for name in sorted(SCHEMAS):
        documents = _documents(lake, f"{lake.warehouse}/{LEDGER_SCHEMA}/{name}/metadata")
        if documents:
            yield Pointer((LEDGER_SCHEMA, name), "table", max(documents, key=_age(documents)))


def _newest(lake: Lake, state: PublishedState) -> _Choice | None:
    """Return the newest metadata file that shows readers of ``main`` a state; None without one."""
    folder = _folder(state.location)
    documents = _documents(lake, folder)
    location = f"{folder}/{state.location.rpartition('/')[2]}"
    # Without the file of the publish itself, nothing proves the columns that readers have seen.
    published = documents.get(location)
    if published is None:
        return None
    if md.is_view(published):
        return _Choice(location, "view", None)
    later = None
    for one in sorted(documents, key=_age(documents), reverse=True):
        document = documents[one]
        shows = md.definition(document) == md.definition(published)
        if not shows or not same_rows(document, state.snapshot, md.main_of(document)):
            later = later or one
        elif _has_files(lake, document):
            return _Choice(one, "table", later)
    return None


def _has_files(lake: Lake, document: md.Document) -> bool:
    """Return whether the snapshot of ``main`` has its list of manifests: an expiry deletes it."""
    head = md.snapshot(document, md.main_of(document) or -1) or {}
    return "manifest-list" not in head or lake.store.files.exists(head["manifest-list"])


def _documents(lake: Lake, folder: str) -> dict[str, md.Document]:
    """Return location -> document of the metadata files in a folder, without those of clones."""
    names = [one.path.rpartition("/")[2] for one in lake.store.files.listing(folder)]
    locations = [f"{folder}/{name}" for name in names if name.endswith(_SUFFIX)]
    read = zip(locations, lake.store.map(lambda one: _read(lake, one), locations), strict=True)
    return {one: found for one, found in read if found is not None and not branches.is_clone(found)}


def _read(lake: Lake, location: str) -> md.Document | None:
    try:
        return md.parse(lake.store.files.read(location))
    except (ValueError, EOFError, FileNotFoundError):
        return None  # A writer was killed before the file was whole, so no catalog has named it.


def _age(documents: Mapping[str, md.Document]) -> Any:
    return lambda one: (documents[one].get("last-updated-ms") or 0, one.rpartition("/")[2])


def _folder(location: str) -> str:
    return location.rpartition("/")[0]
