"""What the gate needs of a catalog, whatever its kind.

A catalog maps names to tables and views, each of which one metadata document describes. The gate
reads pointers and documents, says what changes (`change`), and asks the catalog for a set of
`PointerUpdate`s. There are two implementations: `sql_backend.SqlBackend`, where a document is a
file of ours and an update swaps the pointer to it, and `rest_backend.RestBackend`, where the
catalog writes the documents and the change itself is posted.
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
    """A catalog's names and what they point to; safe for use by several threads."""

    name: str
    """The catalog's name, the same for Spark and PyIceberg."""

    properties: Mapping[str, str]
    """PyIceberg's properties of the catalog, those that the catalog itself gives included."""

    takes_files: bool
    """True where the catalog can point to a metadata file of ours, and so does whatever a metadata
    document can say. False where it writes metadata itself: it takes updates only."""

    atomic: bool
    """True where all swaps of one `apply` are one transaction. False where they are a series, so
    that a publish needs a journal."""

    def get(self, identifier: Identifier) -> Pointer | None:
        """The row of one table or view."""

    def find(self, identifiers: Collection[Identifier]) -> dict[Identifier, Pointer]:
        """The rows of those that exist."""

    def members(self, schema: str) -> list[Pointer]:
        """The rows of one schema; none for a missing one."""

    def kinds(self, schema: str) -> dict[str, Kind]:
        """Name -> kind of a schema's members; none for a missing one."""

    def all(self) -> list[Pointer]:
        """All rows of the catalog."""

    def others(self) -> list[Pointer]:
        """The rows of other catalogs that may share files with this one, as far as it knows."""

    def schemas(self) -> set[str]:
        """All schemas, those without members too."""

    def side_schemas(self) -> dict[str, str]:
        """The side schemas and the audit branch of each."""

    def ensure_schema(self, schema: str, branch: str | None = None) -> None:
        """Create a schema if it is not there, as the side schema of ``branch`` if one is given."""

    def document(self, location: str) -> Document | None:
        """The document of a row, if the catalog gave it along with the row."""

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
        """Make the changes: all or none where the catalog is ``atomic``, else one after the other.

        Args:
            swaps: The changes; no two of them on one row.
            documents: The documents of new tables and views by location, for catalogs that do not
                take files.
            requires: What must stand under these names, until the changes are made where the
                catalog is ``atomic``, else when they begin.
            drop_if_empty: Schemas to drop if they have no member after the changes.
            drop_schemas: Schemas to drop; all their members must be among the changes.
            at: Is told how far the changes have come.
            guard: Looks at the leases before the changes, and raises to stop them.

        Raises:
            Conflict: Something was not as expected.
            Unanswered: The catalog failed; see `fate` for what became of the changes.
        """

    def fate(self, swaps: Sequence[PointerUpdate]) -> Fate:
        """What became of an `apply` that did not end cleanly."""

    def pyiceberg(self) -> Catalog:
        """PyIceberg's view of the same catalog, on the same connections."""

    def close(self) -> None:
        """Let go of connections; what is called later opens them again."""
