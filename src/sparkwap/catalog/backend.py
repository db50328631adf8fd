"""The interface of a catalog.

A catalog maps names to tables and views. One metadata document describes each of them. The gate
reads pointers and documents, and sends changes (`change`) as a set of `PointerUpdate`s. There are
two implementations. With `sql_backend.SqlBackend`, sparkwap writes documents as files, and an
update swaps the pointer to a file. With `rest_backend.RestBackend`, the change is posted, and the
catalog writes the documents.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from sparkwap.catalog.metadata import Document
from sparkwap.catalog.model import Identifier, Kind

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from sparkwap.catalog.leases import Guard
    from sparkwap.catalog.pointers import Fate, Pointer, PointerUpdate
    from sparkwap.core.checkpoints import Part

Load = Callable[[str], Document]


class CatalogBackend(Protocol):
    """The tables, views and schemas of a catalog; safe for use by several threads."""

    name: str
    """The catalog's name, the same for Spark and PyIceberg."""

    properties: Mapping[str, str]
    """PyIceberg's properties of the catalog, including those that the catalog returns."""

    takes_files: bool
    """True if the catalog can point to a metadata file that sparkwap writes, so that any change is
    possible. False if the catalog writes metadata itself, and accepts only Iceberg's updates."""

    atomic: bool
    """True if all swaps of one `apply` are one transaction. False if they are made one after the
    other, so that a publish needs a journal."""

    def get(self, identifier: Identifier) -> Pointer | None:
        """Return the row of one table or view; None if it does not exist."""

    def find(self, identifiers: Collection[Identifier]) -> dict[Identifier, Pointer]:
        """Return the rows of the tables and views that exist."""

    def members(self, schema: str) -> list[Pointer]:
        """Return the rows of one schema; none if the schema does not exist."""

    def kinds(self, schema: str) -> dict[str, Kind]:
        """Return name -> kind of a schema's members; empty if the schema does not exist."""

    def all(self) -> list[Pointer]:
        """Return all rows of the catalog."""

    def others(self) -> list[Pointer]:
        """Return the known rows of other catalogs that may share files with this one."""

    def schemas(self) -> set[str]:
        """Return all schemas, including those without members."""

    def side_schemas(self) -> dict[str, str]:
        """Return side schema -> audit branch."""

    def ensure_schema(self, schema: str, branch: str | None = None) -> None:
        """Create a schema if it does not exist; a side schema if ``branch`` is given."""

    def folder(self, schema: str) -> str | None:
        """Return the folder in which a schema's tables must lie; None if they may lie anywhere."""

    def document(self, location: str) -> Document | None:
        """Return the document of a row, if the catalog returned it with the row."""

    def apply(
        self,
        swaps: Sequence[PointerUpdate],
        *,
        documents: Mapping[str, Document],
        requires: Mapping[Identifier, Pointer | None] = ...,
        drop_if_empty: Collection[str] = (),
        drop_schemas: Collection[str] = (),
        at: Callable[[Part], None] = ...,
        guard: Guard | None = None,
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
            at: Called at each part of the changes.
            guard: Called before the changes; checks the leases, and raises to stop.

        Raises:
            Conflict: A row was not as expected.
            Unanswered: The catalog failed; see `fate` for the state of the changes.
        """

    def fate(self, swaps: Sequence[PointerUpdate]) -> Fate:
        """Return whether an interrupted `apply` has made its changes."""

    def pyiceberg(self) -> Catalog:
        """Return the same catalog in PyIceberg, on the same connections."""

    def close(self) -> None:
        """Close connections; later calls open them again."""
