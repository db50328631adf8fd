"""The interface of a metastore: a service that points to metadata files and locks one table only.

AWS Glue (`glue_metastore`) and Hive's metastore (`hive_metastore`) keep an entry for each table and
view, whose parameter ``metadata_location`` names the present metadata file. The engines agree by
compare and swap of one entry; no two entries change together. `metastore_backend` makes a catalog
of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sparkwap.catalog.metadata import Document
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.pointers import Pointer

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a table or view, as it was read.

    ``token`` is what the metastore needs to change exactly this state of the entry.
    """

    pointer: Pointer
    token: Any = None


def is_folded(*names: str) -> bool:
    """Return whether names are in lower case, as metastores keep all names."""
    return all(name == name.lower() for name in names)


class Metastore(Protocol):
    """The databases, tables and views of a metastore; safe for use by several threads.

    Entries of other formats than Iceberg are not seen; their names are taken nevertheless.

    Every method raises:
        CatalogError: The metastore cannot be reached, or refuses the request; nothing was changed.

    Methods that change something also raise:
        Unanswered: The metastore failed, or the connection broke; the change may be made, now or
            later.
    """

    has_views: bool
    """Whether engines keep Iceberg views in it."""

    def entry(self, identifier: Identifier) -> Entry | None:
        """Return the entry of a table or view; None if there is no such Iceberg table or view."""

    def has_other(self, identifier: Identifier) -> bool:
        """Return whether there is an entry of another format under a name."""

    def entries(self, schema: str) -> list[Entry]:
        """Return the tables and views of a schema; none if the schema does not exist."""

    def schemas(self) -> dict[str, dict[str, str]]:
        """Return schema -> its properties."""

    def schema_properties(self, schema: str) -> dict[str, str] | None:
        """Return the properties of a schema; None if it does not exist."""

    def create_schema(self, schema: str, location: str, properties: Mapping[str, str]) -> bool:
        """Create a schema with a folder for its tables; returns False if it exists."""

    def drop_schema(self, schema: str) -> bool:
        """Drop a schema without members; returns False if it has members (of any format)."""

    def create(self, pointer: Pointer, document: Document) -> None:
        """Create the entry of a table or view.

        Args:
            pointer: The name, which has to be free, the kind, and the metadata file.

        Raises:
            Conflict: The name is taken, or the schema does not exist.
        """

    def swap(self, entry: Entry, location: str, document: Document) -> None:
        """Point an entry to another metadata file, if the entry is as it was read.

        What other engines have written to the entry stays, except for columns and the name of a
        former metadata file.

        Raises:
            Conflict: The entry has changed or is gone.
        """

    def rename(self, entry: Entry, name: Identifier) -> None:
        """Give an entry another name, which has to be free; files stay where they are.

        Where a metastore cannot rename, both names exist for a moment.

        Raises:
            Conflict: The name is taken, or the entry has changed or is gone.
        """

    def drop(self, entry: Entry) -> None:
        """Drop an entry, without its files; nothing happens if it is gone.

        Raises:
            Conflict: The entry has changed.
        """

    def marks(self, schema: str) -> dict[str, str]:
        """Return name -> text of the marks of a schema.

        A mark is an entry that no engine takes for a table. Properties of a schema would not do:
        two writers at once overwrite each other's.
        """

    def put_mark(self, schema: str, name: str, text: str) -> None:
        """Create or replace a mark; the last writer wins."""

    def drop_marks(self, schema: str, names: Collection[str]) -> None:
        """Remove marks, if they exist."""

    def pyiceberg(self) -> Catalog:
        """Return PyIceberg's catalog of the same metastore, for the calling thread."""

    def close(self) -> None:
        """Close connections; later calls open them again."""
