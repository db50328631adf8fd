"""SQL catalogs: Iceberg's JDBC catalog, schema version V1, shared with Spark and PyIceberg.

Every change of a pointer is a `PointerUpdate`: compare and swap on the metadata location. All
updates of one `apply` are one database transaction.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    MetaData,
    String,
    Table,
    and_,
    create_engine,
    delete,
    event,
    exists,
    insert,
    make_url,
    or_,
    select,
    text,
    union,
    update,
)
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.schema import CreateTable

from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.metadata import Document
from sparkwap.catalog.model import Identifier, Kind, SideObject
from sparkwap.core.errors import CatalogError, ConfigError
from sparkwap.core.retry import rule_of
from sparkwap.core.steps import SCHEMA_CREATED, SCHEMA_CREATING, Part, reached

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_BUSY_SECONDS = 60
_LOCK_SECONDS = 20
_WRITES = "sparkwap_writes"
_NAMED_ONE_BY_ONE = 20
_POSTGRES_CLOCK = "extract(epoch from clock_timestamp())"

_metadata = MetaData()
_tables = Table(
    "iceberg_tables",
    _metadata,
    Column("catalog_name", String(255), primary_key=True, nullable=False),
    Column("table_namespace", String(255), primary_key=True, nullable=False),
    Column("table_name", String(255), primary_key=True, nullable=False),
    Column("metadata_location", String(1000)),
    Column("previous_metadata_location", String(1000)),
    Column("iceberg_type", String(5)),
)
_namespaces = Table(
    "iceberg_namespace_properties",
    _metadata,
    Column("catalog_name", String(255), primary_key=True, nullable=False),
    Column("namespace", String(255), primary_key=True, nullable=False),
    Column("property_key", String(255), primary_key=True, nullable=False),
    Column("property_value", String(1000)),
)
_SIDE_OF = "wap.branch"
_NONE: Mapping[Identifier, Pointer | None] = {}

Fate = Literal["made", "not made", "unknown"]


class Conflict(Exception):
    """A row was not as expected, so the transaction was rolled back.

    Attributes:
        swap: The change that did not apply; None where the database itself asked for a retry.
    """

    def __init__(self, swap: PointerUpdate | None, reason: str) -> None:
        super().__init__(reason)
        self.swap = swap


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where a name of the catalog points to: a metadata file."""

    identifier: Identifier
    kind: Kind
    location: str


@dataclass(frozen=True, slots=True)
class PointerUpdate:
    """Put ``after`` in the place of ``before``; None stands for no pointer.

    Attributes:
        before: The row that has to be there.
        after: The row that takes its place.
        change: How the metadata of ``after`` grows out of that of ``before``; None where ``after``
            is something else, or an earlier state. SQL catalogs need not know.
    """

    before: Pointer | None
    after: Pointer | None
    change: MetadataChange | None = None


class Unanswered(Exception):
    """The catalog failed while it made changes.

    Attributes:
        reason: In the catalog's words.
        lost: True where the connection broke, so that the changes may still be made.
    """

    def __init__(self, reason: str, *, lost: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.lost = lost


def require_side_schema(schema: str, branch: str | None, marked: str | None) -> None:
    """Refuse a schema that stands already, unless it is the side schema that is asked for.

    A schema of the user's may be called like one (``shop__staging``, and a branch ``staging``):
    what is built there would be live, and a discard would drop it with all that the user has in it.

    Args:
        schema: Its name.
        branch: The audit branch; None if it is to be no side schema.
        marked: The branch whose side schema it is; None if it is none.

    Raises:
        ConfigError: It is another one's.
    """
    if branch is None or marked == branch:
        return
    raise ConfigError(
        f"The branch {branch} would build in the schema {schema}, which is there already and is "
        f"{f'that of the branch {marked}' if marked else 'no schema of sparkwap'}. Nothing was "
        "changed. Give the branch another name (wap_branch or SPARKWAP_BRANCH)."
    )


class SqlBackend:
    """The catalog's database; safe for use by several threads.

    Args:
        name: The catalog's name, the same for Spark and PyIceberg.
        properties: PyIceberg's catalog properties; ``uri`` is SQLAlchemy's URI of the database.
    """

    takes_files = True
    atomic = True

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        self.name = name
        self.properties: Mapping[str, str] = dict(properties)
        self.engine = _engine(self.properties["uri"])
        self._refusal = ""
        self._prepare()

    def get(self, identifier: Identifier) -> Pointer | None:
        """The row of one table or view."""
        return self.find([identifier]).get(identifier)

    def find(self, identifiers: Collection[Identifier]) -> dict[Identifier, Pointer]:
        """The rows of those that exist, in one statement."""
        wanted = set(identifiers)
        if not wanted:
            return {}
        if len(wanted) <= _NAMED_ONE_BY_ONE:
            named = (
                and_(_tables.c.table_namespace == schema, _tables.c.table_name == name)
                for schema, name in sorted(wanted)
            )
            rows = self._select(or_(*named))
        else:
            schemas = sorted({schema for schema, _ in wanted})
            rows = self._select(_tables.c.table_namespace.in_(schemas))
        return {row.identifier: row for row in rows if row.identifier in wanted}

    def members(self, schema: str) -> list[Pointer]:
        """The rows of one schema."""
        return self._select(_tables.c.table_namespace == schema)

    def kinds(self, schema: str) -> dict[str, Kind]:
        """Name -> kind of the members of one schema."""
        return {row.identifier[1]: row.kind for row in self.members(schema)}

    def document(self, location: str) -> Document | None:
        """None: rows are but pointers to files."""
        return None

    def pyiceberg(self) -> Catalog:
        """PyIceberg's catalog on the same engine."""
        from sparkwap.catalog.pyiceberg_catalog import SharedSqlCatalog

        return SharedSqlCatalog(self.name, self.engine, self.properties)

    def close(self) -> None:
        """Close the connections."""
        self.engine.dispose()

    def all(self) -> list[Pointer]:
        """All rows of the catalog."""
        return self._select()

    def others(self) -> list[Pointer]:
        """The rows of the other catalogs in the same database."""
        return self._select(_tables.c.catalog_name != self.name, own=False)

    def schemas(self) -> set[str]:
        """All schemas, those without members too."""
        statement = union(
            select(_tables.c.table_namespace).where(_tables.c.catalog_name == self.name),
            select(_namespaces.c.namespace).where(_namespaces.c.catalog_name == self.name),
        )
        with self._reading() as connection:
            return set(connection.execute(statement).scalars())

    def side_schemas(self) -> dict[str, str]:
        """The side schemas and the audit branch of each."""
        statement = select(_namespaces.c.namespace, _namespaces.c.property_value).where(
            _namespaces.c.catalog_name == self.name, _namespaces.c.property_key == _SIDE_OF
        )
        with self._reading() as connection:
            return _pairs(connection.execute(statement))

    def ensure_schema(self, schema: str, branch: str | None = None) -> None:
        """Create a schema if it is not there, as the side schema of ``branch`` if one is given.

        Raises:
            ConfigError: It is there, and is no side schema of that branch.
        """
        wanted = {"exists": "true"} | ({_SIDE_OF: branch} if branch else {})
        for _ in range(2):
            present = self.schema_properties(schema)
            if present:
                require_side_schema(schema, branch, present.get(_SIDE_OF))
                return
            reached(SCHEMA_CREATING, schema=schema, branch=branch)
            # Another process may create it at the same time; then look again. The mark comes with
            # the schema or not at all: without it no discard would find the schema.
            try:
                with self.transaction() as connection:
                    connection.execute(
                        insert(_namespaces).values(catalog_name=self.name, namespace=schema),
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
            reached(SCHEMA_CREATED, schema=schema, branch=branch)

    def schema_properties(
        self, schema: str, connection: Connection | None = None
    ) -> dict[str, str]:
        """The properties of a schema; empty for one that does not exist.

        Args:
            schema: Its name.
            connection: A transaction to read in; a connection of its own if there is none.
        """
        statement = select(_namespaces.c.property_key, _namespaces.c.property_value).where(
            _namespaces.c.catalog_name == self.name, _namespaces.c.namespace == schema
        )
        if connection is not None:
            return _pairs(connection.execute(statement))
        with self._reading() as own:
            return _pairs(own.execute(statement))

    def put_property(self, connection: Connection, schema: str, key: str, value: str) -> None:
        """Set a property of a schema, in a transaction."""
        if not self.change_property(connection, schema, key, value):
            connection.execute(
                insert(_namespaces).values(
                    catalog_name=self.name,
                    namespace=schema,
                    property_key=key,
                    property_value=value,
                )
            )

    def change_property(self, connection: Connection, schema: str, key: str, value: str) -> bool:
        """MetadataChange a property of a schema, in a transaction; False if it does not have it."""
        statement = (
            update(_namespaces).where(self._property(schema, key)).values(property_value=value)
        )
        return connection.execute(statement).rowcount == 1

    def drop_property(self, connection: Connection, schema: str, key: str) -> None:
        """Remove a property of a schema, in a transaction; nothing happens if it is not there."""
        connection.execute(delete(_namespaces).where(self._property(schema, key)))

    def clock(self, connection: Connection) -> float:
        """Seconds since the epoch, by the database's clock."""
        sqlite = self.engine.dialect.name == "sqlite"
        now = "(julianday('now') - 2440587.5) * 86400.0" if sqlite else _POSTGRES_CLOCK
        return float(connection.execute(text(f"select {now}")).scalar_one())

    def _property(self, schema: str, key: str) -> Any:
        return (
            (_namespaces.c.catalog_name == self.name)
            & (_namespaces.c.namespace == schema)
            & (_namespaces.c.property_key == key)
        )

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
    ) -> None:
        """Make all changes in one transaction, or none.

        Args:
            swaps: The changes; no two of them on one row.
            requires: What must stand under these names until the transaction is committed.
            documents: Not needed here, as swaps point to files.
            drop_if_empty: Schemas to drop if they have no member after the changes.
            drop_schemas: Schemas to drop; all their members must be among the changes.
            at: Is told how far the transaction has come.
            guard: Looks at the database in the transaction, and raises to stop it.

        Raises:
            Conflict: A row was not as expected; nothing has changed.
            DBAPIError: The database failed; see `fate` for what became of the transaction.
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
        """What became of a transaction of these swaps that did not end cleanly.

        The rows are locked first: a server whose client is gone may still be committing, and has
        ended once it gives them up.

        Returns:
            ``made`` if all rows are as after it, ``not made`` if all are as before, ``unknown`` if
            other writers have been there since.
        """
        with self.transaction() as connection:
            self._lock(connection, [swap.before for swap in swaps if swap.before])
            return self._fate(swaps)

    def _lock(self, connection: Connection, rows: Sequence[Pointer]) -> None:
        # On SQLite the transaction holds the one lock already.
        if self.engine.dialect.name != "sqlite":
            connection.execute(text(f"set local lock_timeout = '{_LOCK_SECONDS}s'"))
        for row in sorted(rows, key=_row_key):
            statement = select(_tables.c.metadata_location).where(
                _tables.c.catalog_name == self.name,
                _tables.c.table_namespace == row.identifier[0],
                _tables.c.table_name == row.identifier[1],
            )
            connection.execute(statement.with_for_update())

    def _fate(self, swaps: Sequence[PointerUpdate]) -> Fate:
        before = {swap.before.identifier: swap.before for swap in swaps if swap.before}
        after = {swap.after.identifier: swap.after for swap in swaps if swap.after}
        found = self.find({*before, *after})
        if all(found.get(name) == after.get(name) for name in {*before, *after}):
            return "made"
        if all(found.get(name) == before.get(name) for name in {*before, *after}):
            return "not made"
        return "unknown"

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction that holds SQLite's write lock from its start.

        A transaction that began as a reader and wants to write cannot wait for another such one:
        SQLite would end it with "database is locked" at once, whatever the timeout.
        """
        with self.engine.connect() as plain:
            connection = plain.execution_options(**{_WRITES: True})
            with connection.begin():
                yield connection

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Connection]:
        try:
            with self.engine.connect() as connection:
                yield connection
        except DBAPIError as error:
            raise CatalogError(
                f"The catalog's database cannot be read: {error.orig}. Nothing was changed by "
                "this. Check that it is up and reachable, then run the same command again."
            ) from error

    def _select(self, *conditions: Any, own: bool = True) -> list[Pointer]:
        statement = select(
            _tables.c.table_namespace,
            _tables.c.table_name,
            _tables.c.iceberg_type,
            _tables.c.metadata_location,
        ).where(*([_tables.c.catalog_name == self.name] if own else []), *conditions)
        with self._reading() as connection:
            found: Any = connection.execute(statement).all()
        # A V0 writer leaves the type null, and knows nothing but tables.
        return [
            Pointer((schema, name), "view" if kind == "VIEW" else "table", location or "")
            for schema, name, kind, location in found
        ]

    def _apply_one(self, connection: Connection, swap: PointerUpdate) -> None:
        statement: Any
        if swap.before is None:
            if swap.after is None:
                return
            statement = insert(_tables).values(catalog_name=self.name, **_values(swap.after))
            connection.execute(statement)
            return
        condition = (
            (_tables.c.catalog_name == self.name)
            & (_tables.c.table_namespace == swap.before.identifier[0])
            & (_tables.c.table_name == swap.before.identifier[1])
            & (_tables.c.metadata_location == swap.before.location)
        )
        if swap.after is None:
            statement = delete(_tables).where(condition)
        else:
            statement = (
                update(_tables)
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
            # The lock is for PostgreSQL; the transaction has all of SQLite anyway.
            statement = (
                select(_tables.c.metadata_location)
                .where(
                    _tables.c.catalog_name == self.name,
                    _tables.c.table_namespace == name[0],
                    _tables.c.table_name == name[1],
                )
                .with_for_update(read=True)
            )
            if connection.execute(statement).scalar() != (row.location if row else None):
                raise Conflict(None, f"{'.'.join(name)}, which was read, changed meanwhile")

    def _drop_empty(self, connection: Connection, schemas: Sequence[str]) -> None:
        for schema in schemas:
            member = exists().where(
                _tables.c.catalog_name == self.name, _tables.c.table_namespace == schema
            )
            connection.execute(
                delete(_namespaces).where(
                    _namespaces.c.catalog_name == self.name,
                    _namespaces.c.namespace == schema,
                    ~member,
                )
            )

    def _check_dropped(self, connection: Connection, schemas: Collection[str]) -> None:
        for schema in schemas:
            statement = select(_tables.c.table_name).where(
                _tables.c.catalog_name == self.name, _tables.c.table_namespace == schema
            )
            if connection.execute(statement.limit(1)).first() is not None:
                raise Conflict(None, f"schema {schema} got a new member meanwhile")

    def _prepare(self) -> None:
        """Create the tables, and the column that schema version V1 adds, where they lack.

        Spark with ``jdbc.schema-version=V1`` does the same at its start, so the order in which the
        two come does not matter; each one that finds the other's work leaves it alone.
        """
        for statement in (select(_tables.c.iceberg_type), select(_namespaces.c.namespace)):
            if not self._works(statement):
                self._create()
                break
        for statement in (select(_tables.c.iceberg_type), select(_namespaces.c.namespace)):
            if not self._works(statement):
                raise CatalogError(
                    f"The catalog's database {self.engine.url.render_as_string()} cannot be used: "
                    f"{self._refusal}. Nothing was changed. Check that it is there, the rights of "
                    "its user, and that it is an Iceberg JDBC catalog (tables iceberg_tables and "
                    "iceberg_namespace_properties)."
                )

    def _works(self, statement: Any) -> bool:
        try:
            with self.engine.connect() as connection:
                connection.execute(statement.limit(0))
        except DBAPIError as error:
            self._refusal = str(error.orig).strip()
            return False
        return True

    def _create(self) -> None:
        tolerated = contextlib.suppress(DBAPIError)
        for table in (_tables, _namespaces):
            with tolerated, self.transaction() as connection:
                connection.execute(CreateTable(table, if_not_exists=True))
        if not self._works(select(_tables.c.iceberg_type)):
            with tolerated, self.transaction() as connection:
                connection.execute(
                    text("alter table iceberg_tables add column iceberg_type varchar(5)")
                )


def _pairs(rows: Iterable[Any]) -> dict[str, str]:
    return {row[0]: row[1] for row in rows}


def side_objects(rows: Sequence[Pointer]) -> tuple[SideObject, ...]:
    """The rows of side schemas as a user is told of them."""
    return tuple(SideObject(row.identifier, row.kind) for row in sorted(rows, key=_row_key))


def _row_key(row: Pointer) -> Identifier:
    return row.identifier


def _values(row: Pointer) -> Mapping[str, str]:
    return {
        "table_namespace": row.identifier[0],
        "table_name": row.identifier[1],
        "metadata_location": row.location,
        "iceberg_type": row.kind.upper(),
    }


def _order(swap: PointerUpdate) -> tuple[int, Identifier]:
    """Removals first, as they make room; then by name, so that two writers cannot deadlock."""
    before, after = swap.before, swap.after
    if after is None:
        return 0, before.identifier if before else ("", "")
    return (2, after.identifier) if before is None else (1, before.identifier)


def _engine(uri: str) -> Engine:
    url = make_url(uri)
    if url.get_backend_name() != "sqlite":
        return create_engine(url, pool_pre_ping=True)
    if url.database and url.database != ":memory:":
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"timeout": _BUSY_SECONDS})

    @event.listens_for(engine, "connect")
    def _leave_begin_to_us(connection: Any, _record: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine
