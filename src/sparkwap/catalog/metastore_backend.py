"""Catalogs in a metastore (AWS Glue, Hive): compare and swap of one entry after the other.

sparkwap writes the metadata files, as on SQL catalogs, and each swap requires that the entry still
points to the file that was read. No two entries change together, so that a publish needs a journal,
as on REST catalogs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from sparkwap.catalog import metadata as md
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.files import WarehouseFiles
from sparkwap.catalog.metastore import Entry, Metastore
from sparkwap.catalog.model import Identifier, Kind
from sparkwap.catalog.pointers import (
    SIDE_OF,
    Conflict,
    Fate,
    Pointer,
    PointerUpdate,
    require_rows,
    require_side_schema,
)
from sparkwap.catalog.threads import Threads
from sparkwap.core.checkpoints import SCHEMA_CREATED, SCHEMA_CREATING, checkpoint
from sparkwap.core.errors import CatalogError, ConfigError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from sparkwap.catalog.leases import Guard
    from sparkwap.core.checkpoints import Part

_NONE: Mapping[Identifier, Pointer | None] = {}
_NAME = re.compile(r"[a-z0-9_]+")


class MetastoreBackend:
    """The tables and views of a metastore; safe for use by several threads.

    Args:
        name: The catalog's name, the same for Spark and PyIceberg.
        properties: PyIceberg's catalog properties; ``warehouse`` is the folder of new tables.
        metastore: The client of the metastore.
    """

    takes_files = True
    atomic = False
    together = False

    def __init__(self, name: str, properties: Mapping[str, str], metastore: Metastore) -> None:
        self.name = name
        self.properties: Mapping[str, str] = dict(properties)
        self.metastore = metastore
        self.keeps_views = metastore.has_views
        self.files = WarehouseFiles(self.properties)
        self._threads = Threads("sparkwap-rows")

    def close(self) -> None:
        """Close connections and threads."""
        self._threads.close()
        self.metastore.close()

    # Reading

    def require_writer(self) -> None:
        """Do nothing: the catalog has no question for the rights of its user."""

    def refusal_of_name(self, identifier: Identifier) -> str | None:
        """Return why a new table or view cannot have this name, in words; None if it can."""
        if not all(map(_NAME.fullmatch, identifier)):
            return "this catalog has names of lower case letters, digits and underscores only"
        if self.metastore.is_taken(identifier) and self.get(identifier) is None:
            return "the catalog has a table or view of another format under this name"
        return None

    def get(self, identifier: Identifier) -> Pointer | None:
        """Return the row of one table or view; None if it does not exist."""
        entry = self.metastore.entry(identifier)
        return entry.pointer if entry else None

    def find(self, identifiers: Collection[Identifier]) -> dict[Identifier, Pointer]:
        """Return the rows of the tables and views that exist, with one request each."""
        rows = self._threads.map(self.get, set(identifiers))
        return {row.identifier: row for row in rows if row is not None}

    def members(self, schema: str) -> list[Pointer]:
        """Return the rows of one schema."""
        return [entry.pointer for entry in self.metastore.entries(schema)]

    def kinds(self, schema: str) -> dict[str, Kind]:
        """Return name -> kind of the members of one schema."""
        return {row.identifier[1]: row.kind for row in self.members(schema)}

    def all(self) -> list[Pointer]:
        """Return all rows of the catalog."""
        found = self._threads.map(self.members, sorted(self.schemas()))
        return [row for rows in found for row in rows]

    def others(self) -> list[Pointer]:
        """Return no rows: a metastore has one catalog."""
        return []

    def schemas(self) -> set[str]:
        """Return all schemas, including those without members."""
        return set(self.metastore.schemas())

    def side_schemas(self) -> dict[str, str]:
        """Return side schema -> audit branch."""
        found = self.metastore.schemas().items()
        return {name: given[SIDE_OF] for name, given in found if given.get(SIDE_OF)}

    def ensure_schema(self, schema: str, branch: str | None = None) -> None:
        """Create a schema if it does not exist; a side schema if ``branch`` is given.

        Raises:
            ConfigError: The schema exists, and is not a side schema of this branch; or the
                catalog does not take its name.
        """
        if not _NAME.fullmatch(schema):
            raise ConfigError(
                f"The schema {schema} cannot be created: this catalog has names of lower case "
                "letters, digits and underscores only. Nothing was changed. Give it another name."
            )
        present = self.metastore.schema_properties(schema)
        if present is None:
            checkpoint(SCHEMA_CREATING, schema=schema, branch=branch)
            location = f"{self.properties['warehouse'].rstrip('/')}/{schema}"
            own = {SIDE_OF: branch} if branch else {}
            if self.metastore.create_schema(schema, location, own):
                checkpoint(SCHEMA_CREATED, schema=schema, branch=branch)
                return
            present = self.metastore.schema_properties(schema) or {}
        require_side_schema(schema, branch, present.get(SIDE_OF))

    def folder(self, schema: str) -> str | None:
        """Return None: the tables of a schema may lie anywhere."""
        return None

    def document(self, location: str) -> md.Document | None:
        """Return None: entries only point to files."""
        return None

    def pyiceberg(self) -> Catalog:
        """Return PyIceberg's catalog of the metastore, for the calling thread."""
        return self.metastore.pyiceberg()

    # Writing

    def apply(
        self,
        swaps: Sequence[PointerUpdate],
        *,
        documents: Mapping[str, md.Document],
        requires: Mapping[Identifier, Pointer | None] = _NONE,
        drop_if_empty: Collection[str] = (),
        drop_schemas: Collection[str] = (),
        at: Callable[[Part], None] = lambda part: None,
        guard: Guard | None = None,
        made: Callable[[PointerUpdate], None] = lambda swap: None,
    ) -> None:
        """Make the changes one after the other.

        Drops come last, so that interrupted changes lose nothing. After a conflict, the caller
        checks again and finds the remaining changes.

        Args:
            swaps: The changes; at most one for each row.
            documents: The documents of new metadata files that are not written yet, by location.
            requires: The required rows of other names, before the first change.
            drop_if_empty: Schemas to drop if they have no member after the changes.
            drop_schemas: Schemas to drop; all their members must be among the changes.
            at: Called at each part of the changes.
            guard: Called before each change; raises to stop.
            made: Called after each change.

        Raises:
            Conflict: A row was not as expected; earlier changes may be made.
            Unanswered: The metastore failed; see `fate`.
        """
        at("begun")
        require_rows(self.find(set(requires)), requires)
        check = guard or (lambda connection: None)
        check(None)
        for location, document in documents.items():
            self.files.write(location, md.dump(document))
        for swap in swaps:
            if swap.after is not None:
                check(None)
                self._put(swap, swap.after, documents.get(swap.after.location), made)
        for swap in swaps:
            if swap.after is None and swap.before is not None:
                check(None)
                self.metastore.drop(self._entry(swap, swap.before))
                made(swap)
        for schema in sorted({*drop_if_empty, *drop_schemas}):
            if not self.metastore.drop_schema(schema) and schema in drop_schemas:
                raise Conflict(None, f"schema {schema} got a new member meanwhile")
        at("rows_changed")

    def turn(self) -> AbstractContextManager[None]:
        """Do not wait: the catalog has no locks."""
        return nullcontext()

    def fate(self, swaps: Sequence[PointerUpdate]) -> Fate:
        """Return whether all, none or an unknown part of interrupted changes was made."""
        states = [self._fate_of(swap) for swap in swaps]
        if all(state == "made" for state in states):
            return "made"
        return "not made" if all(state == "not made" for state in states) else "unknown"

    def register(self, row: Pointer) -> None:
        """Create an entry under a free name for an existing metadata file.

        Raises:
            Conflict: The name is taken.
        """
        self.metastore.create(row, self._read(row.location))

    def stage(self, row: Pointer) -> Identifier | None:
        """Return None: any former table can be registered."""
        return None

    def unstage(self, staged: Identifier, identifier: Identifier) -> None:
        """Never called, because nothing is staged."""
        raise AssertionError(staged)

    def forget_staged(self, row: Pointer) -> None:
        """Do nothing, because nothing is staged."""

    def rename(self, before: Identifier, after: Identifier, kind: Kind) -> None:
        """Move a table or view to a free name.

        Raises:
            Conflict: The new name is taken, or the table or view does not exist.
        """
        entry = self.metastore.entry(before)
        if entry is None or entry.pointer.kind != kind:
            raise Conflict(None, f"{'.'.join(before)} does not exist")
        self.metastore.rename(entry, after)

    def evolve(
        self,
        changes: Sequence[tuple[Pointer, MetadataChange]],
        changed: Callable[[Identifier], None] = lambda identifier: None,
    ) -> None:
        """Change the metadata of tables, one after the other.

        Args:
            changes: The rows and their changes.
            changed: Called for each table after its change.

        Raises:
            Conflict: A table was not as it was read; earlier tables are changed.
            Unanswered: The metastore failed.
        """
        for row, change in changes:
            if not change.updates:
                continue
            document = change.document(row.location)
            location = md.next_location(document, row.location)
            self.files.write(location, md.dump(document))
            try:
                self.metastore.swap(self._entry(None, row), location, document)
            except (Conflict, CatalogError):
                # Both say that nothing was changed.
                self.files.delete(location)
                raise
            changed(row.identifier)

    # Inner parts

    def _put(
        self,
        swap: PointerUpdate,
        after: Pointer,
        given: md.Document | None,
        made: Callable[[PointerUpdate], None],
    ) -> None:
        before, document = swap.before, given or self._read(after.location)
        if before is None:
            self.metastore.create(after, document)
            made(swap)
            return
        entry = self._entry(swap, before)
        if before.identifier != after.identifier:
            self.rename(before.identifier, after.identifier, before.kind)
            made(swap)
            moved = Pointer(after.identifier, before.kind, before.location)
            if moved == after:
                return
            entry = self._entry(swap, moved)
        if before.kind != after.kind:
            self.metastore.drop(entry)
            made(swap)
            self.metastore.create(after, document)
        else:
            self.metastore.swap(entry, after.location, document)
        made(swap)

    def _entry(self, swap: PointerUpdate | None, row: Pointer) -> Entry:
        """Return the entry of a row.

        Raises:
            Conflict: The entry does not point to the file of the row.
        """
        entry = self.metastore.entry(row.identifier)
        if entry is None or entry.pointer != row:
            raise Conflict(swap, f"{'.'.join(row.identifier)} changed meanwhile")
        return entry

    def _fate_of(self, swap: PointerUpdate) -> Fate:
        row = swap.after or swap.before
        assert row is not None
        before = swap.before if swap.before and swap.before.identifier == row.identifier else None
        found = self.get(row.identifier)
        if found == swap.after:
            return "made"
        if found == before:
            return "not made"
        if found is None or swap.after is None:
            return "unknown"
        # Others have changed it since. Its log may be too short to tell that they were not first.
        log = self._read(found.location).get("metadata-log") or ()
        return "made" if row.location in {one["metadata-file"] for one in log} else "unknown"

    def _read(self, location: str) -> md.Document:
        return md.parse(self.files.read(location))
