"""The interface of a catalog, and what catalogs have in common.

A catalog maps names to tables and views. One metadata document describes each of them. The gate
reads pointers and documents, and sends changes (`change`) as a set of `PointerUpdate`s. There are
three implementations. With `sql_backend.SqlBackend` and `metastore_backend.MetastoreBackend`,
sparkwap writes documents as files, and an update swaps the pointer to a file: all of them in one
transaction, or one after the other. With `rest_backend.RestBackend`, the change is posted, and the
catalog writes the documents.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from sparkwap.catalog import metadata as md
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.metadata import Document
from sparkwap.catalog.model import Identifier, Kind
from sparkwap.catalog.pointers import Fate, Pointer, PointerUpdate, require_rows
from sparkwap.catalog.threads import Threads

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from sqlalchemy import Connection

    from sparkwap.catalog.files import WarehouseFiles
    from sparkwap.core.checkpoints import Part

Guard = Callable[["Connection | None"], None]
"""Checks the leases, in the transaction if there is one, and raises to stop a commit."""

_NONE: Mapping[Identifier, Pointer | None] = {}


class CatalogBackend(ABC):
    """The tables, views and schemas of a catalog; safe for use by several threads."""

    name: str
    """The catalog's name, the same for Spark and PyIceberg."""

    properties: Mapping[str, str]
    """PyIceberg's properties of the catalog, including those that the catalog returns."""

    files: WarehouseFiles
    """The files of its tables."""

    takes_files: bool
    """True if the catalog can point to a metadata file that sparkwap writes, so that any change is
    possible. False if the catalog writes metadata itself, and accepts only Iceberg's updates."""

    atomic: bool
    """True if all swaps of one `apply` are one transaction, and one query sees all rows. False if
    they are made one after the other, so that a publish needs a journal (`SequentialBackend`)."""

    keeps_views: bool
    """Whether the catalog has views."""

    def refusal_of_name(self, identifier: Identifier) -> str | None:
        """Return why a new table or view cannot have this name, in words; None if it can."""
        return None

    def require_writer(self) -> None:  # noqa: B027 - most catalogs cannot tell
        """Check that the user may write, before anything is done, as far as the catalog tells it.

        Raises:
            WriteDenied: The user may only read.
        """

    @abstractmethod
    def get(self, identifier: Identifier) -> Pointer | None:
        """Return the row of one table or view; None if it does not exist."""

    @abstractmethod
    def find(self, identifiers: Collection[Identifier]) -> dict[Identifier, Pointer]:
        """Return the rows of the tables and views that exist."""

    @abstractmethod
    def members(self, schema: str) -> list[Pointer]:
        """Return the rows of one schema; none if the schema does not exist."""

    def kinds(self, schema: str) -> dict[str, Kind]:
        """Return name -> kind of a schema's members; empty if the schema does not exist."""
        return {row.identifier[1]: row.kind for row in self.members(schema)}

    @abstractmethod
    def all(self) -> list[Pointer]:
        """Return all rows of the catalog."""

    def others(self) -> list[Pointer]:
        """Return the known rows of other catalogs that may share files with this one."""
        return []

    def known(self) -> list[Pointer]:
        """Return the rows of `all` and of `others`."""
        return [*self.all(), *self.others()]

    @abstractmethod
    def schemas(self) -> set[str]:
        """Return all schemas, including those without members."""

    @abstractmethod
    def side_schemas(self) -> dict[str, str]:
        """Return side schema -> audit branch."""

    @abstractmethod
    def ensure_schema(self, schema: str, branch: str | None = None) -> None:
        """Create a schema if it does not exist; a side schema if ``branch`` is given.

        Raises:
            ConfigError: The schema exists, and is not a side schema of this branch; or the
                catalog does not take its name.
        """

    def folder(self, schema: str) -> str | None:
        """Return the folder in which a schema's tables must lie; None if they may lie anywhere."""
        return None

    def document(self, location: str) -> Document | None:
        """Return the document of a row, if the catalog returned it with the row."""
        return None

    @abstractmethod
    def apply(
        self,
        swaps: Sequence[PointerUpdate],
        *,
        documents: Mapping[str, Document],
        requires: Mapping[Identifier, Pointer | None] = _NONE,
        drop_if_empty: Collection[str] = (),
        drop_schemas: Collection[str] = (),
        at: Callable[[Part], None] = lambda part: None,
        guard: Guard | None = None,
        made: Callable[[PointerUpdate], None] = lambda swap: None,
    ) -> None:
        """Make the changes: all or none if the catalog is ``atomic``, else one after the other.

        Args:
            swaps: The changes; at most one for each row.
            documents: The documents of new tables and views by location, for catalogs that do not
                take files.
            requires: The required rows of other names: until the commit if the catalog is
                ``atomic``, else before the first change.
            drop_if_empty: Schemas to drop if they have no member after the changes.
            drop_schemas: Schemas to drop; all their members must be among the changes.
            guard: Called before the changes, or before each one; checks the leases, and raises to
                stop.
            made: Called after each change, if the catalog is not ``atomic``.

        Raises:
            Conflict: A row was not as expected.
            Unanswered: The catalog failed; see `fate` for the state of the changes.
        """

    def turn(self) -> AbstractContextManager[None]:
        """Wait until no other writer of rows that all runs share stages or commits, if it can.

        Commits are right without it: they compare and swap. But of many writers that stage at once
        one commits, and the others stage again; those that take longest may never be the fastest.
        """
        return nullcontext()

    @abstractmethod
    def fate(self, swaps: Sequence[PointerUpdate]) -> Fate:
        """Return whether an interrupted `apply` has made its changes."""

    @abstractmethod
    def pyiceberg(self) -> Catalog:
        """Return the same catalog in PyIceberg, on the same connections."""

    @abstractmethod
    def close(self) -> None:
        """Close connections; later calls open them again."""


class SequentialBackend(CatalogBackend):
    """A catalog that is not ``atomic``: steps of a sequential publish, one object at a time."""

    atomic = False
    together = False
    """Whether `evolve` changes several tables in one request, which need not be atomic."""

    _threads: Threads

    def find(self, identifiers: Collection[Identifier]) -> dict[Identifier, Pointer]:
        """Return the rows of the tables and views that exist, with one or two requests each."""
        rows = self._threads.map(self.get, set(identifiers))
        return {row.identifier: row for row in rows if row is not None}

    def apply(
        self,
        swaps: Sequence[PointerUpdate],
        *,
        documents: Mapping[str, Document],
        requires: Mapping[Identifier, Pointer | None] = _NONE,
        drop_if_empty: Collection[str] = (),
        drop_schemas: Collection[str] = (),
        at: Callable[[Part], None] = lambda part: None,
        guard: Guard | None = None,
        made: Callable[[PointerUpdate], None] = lambda swap: None,
    ) -> None:
        """Make the changes one after the other; see `CatalogBackend.apply`.

        Drops come last, so that interrupted changes lose nothing. After a conflict, the caller
        checks again and finds the remaining changes.

        Raises:
            Conflict: A row was not as expected; earlier changes may be made.
        """
        at("begun")
        require_rows(self.find(set(requires)), requires)
        check = guard or (lambda connection: None)
        check(None)
        left = self._begin(swaps, documents, made)
        for swap in left:
            if swap.after is not None:
                check(None)
                self._put(swap, swap.after, documents.get(swap.after.location), made)
                made(swap)
        for swap in left:
            if swap.after is None and swap.before is not None:
                check(None)
                self._remove(swap, swap.before)
                made(swap)
        self._drop_schemas({*drop_if_empty, *drop_schemas}, drop_schemas)
        at("rows_changed")

    @abstractmethod
    def _begin(
        self,
        swaps: Sequence[PointerUpdate],
        documents: Mapping[str, Document],
        made: Callable[[PointerUpdate], None],
    ) -> Sequence[PointerUpdate]:
        """Do what has to be done before the first row changes; return the changes that are left."""

    @abstractmethod
    def _put(
        self,
        swap: PointerUpdate,
        after: Pointer,
        document: Document | None,
        made: Callable[[PointerUpdate], None],
    ) -> None:
        """Make a change to ``after``; calls ``made`` after each part of it except for the last.

        ``document`` is None if it is in a file.
        """

    @abstractmethod
    def _remove(self, swap: PointerUpdate, row: Pointer) -> None:
        """Drop a table or view, without its files."""

    def _drop_schemas(self, schemas: Collection[str], required: Collection[str]) -> None:
        for schema in sorted(schemas):
            self._drop_schema(schema, must=schema in required)

    @abstractmethod
    def _drop_schema(self, schema: str, *, must: bool) -> None:
        """Drop a schema if it has no member; raises `Conflict` if it has one and ``must``."""

    def _read(self, location: str) -> Document:
        return md.parse(self.files.read(location))

    @abstractmethod
    def register(self, row: Pointer) -> None:
        """Create a table under a free name from an existing metadata file."""

    def stage(self, row: Pointer) -> Identifier | None:
        """Register a former table under another name, which `unstage` takes.

        None if any former table can be registered after its own name is free.
        """
        return None

    def unstage(self, staged: Identifier, identifier: Identifier) -> None:
        """Give a table that was staged its own name."""
        raise AssertionError(staged)

    def forget_staged(self, row: Pointer) -> None:
        """Drop what is still staged or set aside of a former table; its files stay."""

    def set_aside(self, row: Pointer, key: str) -> Pointer | None:
        """Free a name; returns a table's row under another name, if the catalog keeps it there.

        The key tells it from other tables that had the same name. Its files stay.

        Raises:
            Conflict: The name has another table, or another process has set it aside.
        """
        self.apply([PointerUpdate(row, None)], documents={})
        return None

    def aside(self, identifier: Identifier, key: str) -> Pointer | None:
        """Return the table that `set_aside` keeps; None if there is none."""
        return None

    @abstractmethod
    def rename(self, before: Identifier, after: Identifier, kind: Kind) -> None:
        """Move a table or view to a free name.

        Raises:
            Conflict: The new name is taken, or the table or view does not exist.
        """

    @abstractmethod
    def evolve(
        self,
        changes: Sequence[tuple[Pointer, MetadataChange]],
        changed: Callable[[Identifier], None] = lambda identifier: None,
    ) -> None:
        """Change the metadata of tables.

        Args:
            changed: Called for each table after its change.

        Raises:
            Conflict: A table has changed; earlier tables may be changed.
        """


def sequential(backend: CatalogBackend) -> SequentialBackend:
    """Return a catalog that is not ``atomic`` with the steps of a sequential publish."""
    assert isinstance(backend, SequentialBackend), f"the catalog {backend.name} needs no journal"
    return backend
