"""A metastore on the rows of a SQL catalog, so that unit tests can look at each of its changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from sparkwap.catalog.metastore import Entry
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.pointers import Conflict, Pointer, PointerUpdate
from sparkwap.catalog.sql_backend import SqlBackend

_MARK = "mark."


class SqlMetastore:
    """One entry changes at a time, although the database could do more.

    Args:
        rows: The database.
        renames: False if a new name is created before the old one is dropped, as in Glue.

    Attributes:
        before: Called with the name before each change of it.
        read: Called with the name after each look at it.
        carry: Makes one change.
        others: Names of entries of another format.
    """

    has_views = True

    def __init__(self, rows: SqlBackend, *, renames: bool = True) -> None:
        self.rows = rows
        self._renames = renames
        self.before: Callable[[Identifier], None] = lambda identifier: None
        self.read: Callable[[Identifier], None] = lambda identifier: None
        self.others: set[Identifier] = set()
        self.carry: Callable[[PointerUpdate], None] = lambda update: rows.apply([update])

    def entry(self, identifier: Identifier) -> Entry | None:
        row = self.rows.get(identifier)
        self.read(identifier)
        return Entry(row) if row else None

    def has_other(self, identifier: Identifier) -> bool:
        return identifier in self.others and self.rows.get(identifier) is None

    def entries(self, schema: str) -> list[Entry]:
        return [Entry(row) for row in self.rows.members(schema)]

    def schemas(self) -> dict[str, dict[str, str]]:
        return {name: self.rows.schema_properties(name) for name in self.rows.schemas()}

    def schema_properties(self, schema: str) -> dict[str, str] | None:
        return self.rows.schema_properties(schema) or None

    def create_schema(self, schema: str, location: str, properties: Mapping[str, str]) -> bool:
        self.rows.ensure_schema(schema, properties.get("wap.branch"))
        return True

    def drop_schema(self, schema: str) -> bool:
        self.rows.apply([], drop_if_empty=[schema])
        return schema not in self.rows.schemas()

    def create(self, pointer: Pointer, document: Any) -> None:
        self._change(None, pointer)

    def swap(self, entry: Entry, location: str, document: Any) -> None:
        after = Pointer(entry.pointer.identifier, entry.pointer.kind, location)
        self._change(entry.pointer, after)

    def rename(self, entry: Entry, name: Identifier) -> None:
        row = entry.pointer
        after = Pointer(name, row.kind, row.location)
        if self._renames:
            self._change(row, after)
            return
        self._change(None, after)
        # Each process looks before it drops, and takes back what it cannot complete.
        if self.rows.get(row.identifier) is None:
            return
        try:
            self._change(row, None)
        except Conflict:
            if self.rows.get(row.identifier) is not None and self.rows.get(name) == after:
                self._change(after, None)
            raise

    def drop(self, entry: Entry) -> None:
        self._change(entry.pointer, None)

    def marks(self, schema: str) -> dict[str, str]:
        found = self.rows.schema_properties(schema).items()
        return {key[len(_MARK) :]: text for key, text in found if key.startswith(_MARK)}

    def put_mark(self, schema: str, name: str, text: str) -> None:
        with self.rows.transaction() as connection:
            self.rows.put_property(connection, schema, f"{_MARK}{name}", text)

    def drop_marks(self, schema: str, names: Collection[str]) -> None:
        with self.rows.transaction() as connection:
            for name in names:
                self.rows.drop_property(connection, schema, f"{_MARK}{name}")

    def pyiceberg(self) -> Any:
        return self.rows.pyiceberg()

    def close(self) -> None:
        self.rows.close()

    def _change(self, before: Pointer | None, after: Pointer | None) -> None:
        row = after or before
        assert row is not None
        self.before(row.identifier)
        named = before is None or before.identifier != row.identifier
        if named and (row.identifier in self.others or self.rows.get(row.identifier)):
            raise Conflict(None, f"{row.identifier} is taken")
        self.carry(PointerUpdate(before, after))
