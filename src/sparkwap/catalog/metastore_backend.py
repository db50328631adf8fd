"""Catalogs in a metastore (AWS Glue, Hive): compare and swap of one entry after the other.

sparkwap writes the metadata files, as on SQL catalogs, and each swap requires that the entry still
points to the file that was read. No two entries change together, so that a publish needs a journal,
as on REST catalogs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from sparkwap.catalog import metadata as md
from sparkwap.catalog.backend import SequentialBackend
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
    require_side_schema,
)
from sparkwap.catalog.threads import Threads
from sparkwap.core.checkpoints import SCHEMA_CREATED, SCHEMA_CREATING, checkpoint
from sparkwap.core.errors import CatalogError, ConfigError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


_NAME = re.compile(r"[a-z0-9_]+")


class MetastoreBackend(SequentialBackend):
    """The tables and views of a metastore; safe for use by several threads.

    Args:
        properties: PyIceberg's catalog properties; ``warehouse`` is the folder of new tables.
    """

    takes_files = True

    def __init__(self, name: str, properties: Mapping[str, str], metastore: Metastore) -> None:
        self.name = name
        self.properties: Mapping[str, str] = dict(properties)
        self.metastore = metastore
        self.keeps_views = metastore.has_views
        self.files = WarehouseFiles(self.properties)
        self._threads = Threads("sparkwap-rows")

    def close(self) -> None:
        self._threads.close()
        self.metastore.close()

    # Reading

    def refusal_of_name(self, identifier: Identifier) -> str | None:
        if not all(map(_NAME.fullmatch, identifier)):
            return "this catalog has names of lower-case letters, digits and underscores only"
        if self.metastore.has_other(identifier):
            return "the catalog has a table or view of another format under this name"
        return None

    def get(self, identifier: Identifier) -> Pointer | None:
        entry = self.metastore.entry(identifier)
        return entry.pointer if entry else None

    def members(self, schema: str) -> list[Pointer]:
        return [entry.pointer for entry in self.metastore.entries(schema)]

    def all(self) -> list[Pointer]:
        found = self._threads.map(self.members, sorted(self.schemas()))
        return [row for rows in found for row in rows]

    def schemas(self) -> set[str]:
        return set(self.metastore.schemas())

    def side_schemas(self) -> dict[str, str]:
        found = self.metastore.schemas().items()
        return {name: given[SIDE_OF] for name, given in found if given.get(SIDE_OF)}

    def ensure_schema(self, schema: str, branch: str | None = None) -> None:
        if not _NAME.fullmatch(schema):
            raise ConfigError(
                f"The schema {schema} cannot be created: this catalog has names of lower-case "
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

    def pyiceberg(self) -> Catalog:
        return self.metastore.pyiceberg()

    # Writing

    def _begin(
        self,
        swaps: Sequence[PointerUpdate],
        documents: Mapping[str, md.Document],
        made: Callable[[PointerUpdate], None],
    ) -> Sequence[PointerUpdate]:
        for location, document in documents.items():
            self.files.write(location, md.dump(document))
        return swaps

    def _put(
        self,
        swap: PointerUpdate,
        after: Pointer,
        document: md.Document | None,
        made: Callable[[PointerUpdate], None],
    ) -> None:
        before, document = swap.before, document or self._read(after.location)
        if before is None:
            self.metastore.create(after, document)
            return
        entry = self._entry(swap, before)
        if before.identifier != after.identifier:
            self.rename(before.identifier, after.identifier, before.kind)
            moved = Pointer(after.identifier, before.kind, before.location)
            if moved == after:
                return
            made(swap)
            entry = self._entry(swap, moved)
        if before.kind != after.kind:
            self.metastore.drop(entry)
            made(swap)
            self.metastore.create(after, document)
        else:
            self.metastore.swap(entry, after.location, document)

    def _remove(self, swap: PointerUpdate, row: Pointer) -> None:
        self.metastore.drop(self._entry(swap, row))

    def _drop_schema(self, schema: str, *, must: bool) -> None:
        if not self.metastore.drop_schema(schema) and must:
            raise Conflict(None, f"schema {schema} got a new member meanwhile")

    def fate(self, swaps: Sequence[PointerUpdate]) -> Fate:
        states = {self._fate_of(swap) for swap in swaps}
        return states.pop() if len(states) == 1 else "unknown"

    def register(self, row: Pointer) -> None:
        self.metastore.create(row, self._read(row.location))

    def rename(self, before: Identifier, after: Identifier, kind: Kind) -> None:
        entry = self.metastore.entry(before)
        if entry is None or entry.pointer.kind != kind:
            raise Conflict(None, f"{'.'.join(before)} does not exist")
        self.metastore.rename(entry, after)

    def evolve(
        self,
        changes: Sequence[tuple[Pointer, MetadataChange]],
        changed: Callable[[Identifier], None] = lambda identifier: None,
    ) -> None:
        for row, change in changes:
            if not change.updates:
                continue
            document = change.document(row.location)
            location = md.next_location(document, row.location)
            self.files.write(location, md.dump(document))
            try:
                self.metastore.swap(self._entry(None, row), location, document)
            except (Conflict, CatalogError):
                # The metastore may have made the change at a first try, and others the next one.
                update = PointerUpdate(row, Pointer(row.identifier, row.kind, location))
                if self._fate_of(update) == "not made":
                    self.files.delete(location)
                raise
            changed(row.identifier)

    # Inner parts

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
        log = {one["metadata-file"] for one in self._read(found.location).get("metadata-log") or ()}
        if row.location in log:
            return "made"
        return "not made" if before is not None and before.location in log else "unknown"
