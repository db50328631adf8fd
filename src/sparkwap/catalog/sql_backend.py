"""SQL catalogs: Iceberg's JDBC catalog, schema version V1, shared with Spark and PyIceberg.

Every change of a pointer is a `PointerUpdate`: compare and swap on the metadata location. All
updates of one `apply` are one database transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Connection,
    Select,
    and_,
    delete,
    exists,
    insert,
    or_,
    select,
    text,
    union,
    update,
)  # fmt: skip
from sqlalchemy.exc import DBAPIError, IntegrityError

from sparkwap.catalog.backend import CatalogBackend
from sparkwap.catalog.metadata import Document
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.pointers import (
    SIDE_OF,
    Conflict,
    Fate,
    Pointer,
    PointerUpdate,
    require_side_schema,
)
from sparkwap.catalog.sql_database import NAMESPACES, TABLES, SqlDatabase, pairs
from sparkwap.core.checkpoints import SCHEMA_CREATED, SCHEMA_CREATING, Part, checkpoint
from sparkwap.core.errors import CatalogError
from sparkwap.core.retry import rule_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_LOCK_SECONDS = 20
_NAMED_ONE_BY_ONE = 20

_NONE: Mapping[Identifier, Pointer | None] = {}


class SqlBackend(SqlDatabase, CatalogBackend):
    """The tables and views in the catalog's database; safe for use by several threads."""

    takes_files = True
    atomic = True
    keeps_views = True

    def get(self, identifier: Identifier) -> Pointer | None:
        return self.find([identifier]).get(identifier)

    def find(self, identifiers: Collection[Identifier]) -> dict[Identifier, Pointer]:
        wanted = set(identifiers)
        if not wanted:
            return {}
        if len(wanted) <= _NAMED_ONE_BY_ONE:
            named = (
                and_(TABLES.c.table_namespace == schema, TABLES.c.table_name == name)
                for schema, name in sorted(wanted)
            )
            rows = self._select(or_(*named))
        else:
            schemas = sorted({schema for schema, _ in wanted})
            rows = self._select(TABLES.c.table_namespace.in_(schemas))
        return {row.identifier: row for row in rows if row.identifier in wanted}

    def members(self, schema: str) -> list[Pointer]:
        return self._select(TABLES.c.table_namespace == schema)

    def pyiceberg(self) -> Catalog:
        from sparkwap.catalog.pyiceberg_catalog import SharedSqlCatalog

        return SharedSqlCatalog(self.name, self.engine, self.properties)

    def all(self) -> list[Pointer]:
        return self._select()

    def others(self) -> list[Pointer]:
        """Return the rows of the other catalogs in the same database."""
        return self._select(TABLES.c.catalog_name != self.name, own=False)

    def schemas(self) -> set[str]:
        statement = union(
            select(TABLES.c.table_namespace).where(TABLES.c.catalog_name == self.name),
            select(NAMESPACES.c.namespace).where(NAMESPACES.c.catalog_name == self.name),
        )
        with self.reading() as connection:
            return set(connection.execute(statement).scalars())

    def side_schemas(self) -> dict[str, str]:
        statement = select(NAMESPACES.c.namespace, NAMESPACES.c.property_value).where(
            NAMESPACES.c.catalog_name == self.name, NAMESPACES.c.property_key == SIDE_OF
        )
        with self.reading() as connection:
            return pairs(connection.execute(statement))

    def ensure_schema(self, schema: str, branch: str | None = None) -> None:
        wanted = {"exists": "true"} | ({SIDE_OF: branch} if branch else {})
        for _ in range(2):
            present = self.schema_properties(schema)
            if present:
                require_side_schema(schema, branch, present.get(SIDE_OF))
                return
            checkpoint(SCHEMA_CREATING, schema=schema, branch=branch)
            # Another process may create it at the same time; then check again. Schema and mark are
            # one transaction: without the mark, no discard would find the schema.
            try:
                with self.transaction() as connection:
                    connection.execute(
                        insert(NAMESPACES).values(catalog_name=self.name, namespace=schema),
                        [{"property_key": k, "property_value": v} for k, v in wanted.items()],
                    )
            except IntegrityError:
                continue
            except DBAPIError as error:
                raise CatalogError(
                    f"The schema {schema} could not be created: {error.orig}. Nothing was changed. "
                    "Check the catalog's database (space, rights, connection), then run the same "
                    "command again."
                ) from error
            checkpoint(SCHEMA_CREATED, schema=schema, branch=branch)

    def apply(
        self,
        swaps: Sequence[PointerUpdate],
        *,
        requires: Mapping[Identifier, Pointer | None] = _NONE,
        documents: Mapping[str, Document] | None = None,
        drop_if_empty: Collection[str] = (),
        drop_schemas: Collection[str] = (),
        at: Callable[[Part], None] = lambda part: None,
        guard: Callable[[Connection], None] | None = None,
        made: Callable[[PointerUpdate], None] = lambda swap: None,
    ) -> None:
        """Make all changes in one transaction, or none; see `CatalogBackend.apply`.

        ``documents`` are not needed, because swaps point to files; ``made`` is not called, because
        no change is made by itself.

        Raises:
            Conflict: A row was not as expected; nothing has changed.
            DBAPIError: The database failed; see `fate` for the state of the transaction.
        """
        try:
            with self.transaction() as connection:
                at("begun")
                self._require(connection, requires)
                if guard is not None:
                    guard(connection)
                for swap in sorted(swaps, key=_order):
                    self._apply_one(connection, swap)
                self._drop_empty(connection, sorted({*drop_if_empty, *drop_schemas}))
                self._check_dropped(connection, drop_schemas)
                at("rows_changed")
        except IntegrityError as error:
            raise Conflict(None, f"a row appeared meanwhile: {error.orig}") from error
        except DBAPIError as error:
            if rule_of(error) == "retry":
                raise Conflict(None, f"the database is busy: {error.orig}") from error
            raise

    def fate(self, swaps: Sequence[PointerUpdate]) -> Fate:
        """Return whether an interrupted transaction of these swaps was committed.

        ``unknown`` if other writers have changed rows since. The rows are locked first, because a
        server without its client may still be committing; it has ended when it releases the locks.
        """
        with self.transaction() as connection:
            self._lock(connection, [swap.before for swap in swaps if swap.before])
            return self._fate(swaps)

    def _lock(self, connection: Connection, rows: Sequence[Pointer]) -> None:
        # On SQLite the transaction already holds the only lock.
        if self.engine.dialect.name != "sqlite":
            connection.execute(text(f"set local lock_timeout = '{_LOCK_SECONDS}s'"))
        for identifier in sorted(row.identifier for row in rows):
            connection.execute(self._location(identifier).with_for_update())

    def _location(self, identifier: Identifier) -> Select[Any]:
        return select(TABLES.c.metadata_location).where(self._is(identifier))

    def _is(self, identifier: Identifier) -> Any:
        return self._is_in(identifier[0]) & (TABLES.c.table_name == identifier[1])

    def _is_in(self, schema: str) -> Any:
        return (TABLES.c.catalog_name == self.name) & (TABLES.c.table_namespace == schema)

    def _fate(self, swaps: Sequence[PointerUpdate]) -> Fate:
        before = {swap.before.identifier: swap.before for swap in swaps if swap.before}
        after = {swap.after.identifier: swap.after for swap in swaps if swap.after}
        found = self.find({*before, *after})
        return "made" if found == after else "not made" if found == before else "unknown"

    def _select(self, *conditions: Any, own: bool = True) -> list[Pointer]:
        statement = select(
            TABLES.c.table_namespace,
            TABLES.c.table_name,
            TABLES.c.iceberg_type,
            TABLES.c.metadata_location,
        ).where(*([TABLES.c.catalog_name == self.name] if own else []), *conditions)
        with self.reading() as connection:
            found: Any = connection.execute(statement).all()
        # A writer of schema version V0 leaves the type null, and writes only tables.
        return [
            Pointer((schema, name), "view" if kind == "VIEW" else "table", location or "")
            for schema, name, kind, location in found
        ]

    def _apply_one(self, connection: Connection, swap: PointerUpdate) -> None:
        statement: Any
        if swap.before is None:
            if swap.after is not None:
                statement = insert(TABLES).values(catalog_name=self.name, **_values(swap.after))
                connection.execute(statement)
            return
        condition = self._is(swap.before.identifier) & (
            TABLES.c.metadata_location == swap.before.location
        )
        if swap.after is None:
            statement = delete(TABLES).where(condition)
        else:
            statement = (
                update(TABLES)
                .where(condition)
                .values(previous_metadata_location=swap.before.location, **_values(swap.after))
            )
        count = connection.execute(statement).rowcount
        if count != 1:
            name = ".".join(swap.before.identifier)
            raise Conflict(swap, f"{name} changed meanwhile ({count} rows instead of 1)")

    def _require(
        self, connection: Connection, requires: Mapping[Identifier, Pointer | None]
    ) -> None:
        for name, row in sorted(requires.items(), key=lambda item: item[0]):
            # The lock is for PostgreSQL; on SQLite the transaction locks the whole database.
            statement = self._location(name).with_for_update(read=True)
            if connection.execute(statement).scalar() != (row.location if row else None):
                raise Conflict(None, f"{'.'.join(name)}, which was read, changed meanwhile")

    def _drop_empty(self, connection: Connection, schemas: Sequence[str]) -> None:
        for schema in schemas:
            is_it = (NAMESPACES.c.catalog_name == self.name) & (NAMESPACES.c.namespace == schema)
            empty = ~exists().where(self._is_in(schema))
            connection.execute(delete(NAMESPACES).where(is_it, empty))

    def _check_dropped(self, connection: Connection, schemas: Collection[str]) -> None:
        for schema in schemas:
            statement = select(TABLES.c.table_name).where(self._is_in(schema))
            if connection.execute(statement.limit(1)).first() is not None:
                raise Conflict(None, f"schema {schema} got a new member meanwhile")


def _values(row: Pointer) -> Mapping[str, str]:
    return {
        "table_namespace": row.identifier[0],
        "table_name": row.identifier[1],
        "metadata_location": row.location,
        "iceberg_type": row.kind.upper(),
    }


def _order(swap: PointerUpdate) -> tuple[int, Identifier]:
    """Return the sort key: removals first, to free names; then by name, to avoid deadlocks."""
    before, after = swap.before, swap.after
    if after is None:
        return 0, before.identifier if before else ("", "")
    return (2, after.identifier) if before is None else (1, before.identifier)
