"""The database of a SQL catalog: its tables, connections, transactions and schema properties."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    MetaData,
    String,
    Table,
    create_engine,
    delete,
    event,
    false,
    insert,
    make_url,
    select,
    text,
    update,
)  # fmt: skip
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.schema import CreateTable

from sparkwap.catalog.files import WarehouseFiles
from sparkwap.catalog.refusals import WriteDenied
from sparkwap.core.errors import CatalogError

_BUSY_SECONDS = 60
_LONGEST_TURN_SECONDS = 60
_LONGEST_WAIT_SECONDS = 120
_LOOKS_SECONDS = (0.02, 0.1)
_WRITES = "sparkwap_writes"
_DENIED = frozenset({"42501", "25006"})
"""SQLSTATEs of a statement without the right to it, and in a database that is read-only."""
_POSTGRES_CLOCK = "extract(epoch from clock_timestamp())"

_thread = threading.local()
"""``has_turn``: the thread has its turn, so a commit within its commit must not wait for it."""

_metadata = MetaData()
TABLES = Table(
    "iceberg_tables",
    _metadata,
    Column("catalog_name", String(255), primary_key=True, nullable=False),
    Column("table_namespace", String(255), primary_key=True, nullable=False),
    Column("table_name", String(255), primary_key=True, nullable=False),
    Column("metadata_location", String(1000)),
    Column("previous_metadata_location", String(1000)),
    Column("iceberg_type", String(5)),
)
NAMESPACES = Table(
    "iceberg_namespace_properties",
    _metadata,
    Column("catalog_name", String(255), primary_key=True, nullable=False),
    Column("namespace", String(255), primary_key=True, nullable=False),
    Column("property_key", String(255), primary_key=True, nullable=False),
    Column("property_value", String(1000)),
)


class SqlDatabase:
    """The database of a SQL catalog; safe for use by several threads.

    Args:
        properties: PyIceberg's catalog properties; ``uri`` is SQLAlchemy's URI of the database.
    """

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        self.name = name
        self.properties: Mapping[str, str] = dict(properties)
        self.engine = _engine(self.properties["uri"])
        self.files = WarehouseFiles(self.properties)
        self._refusal = ""
        self._prepare()

    @cached_property
    def user(self) -> str | None:
        """The user of the database, by the database itself; None for SQLite."""
        if self.engine.dialect.name != "postgresql":
            return self.engine.url.username
        with self.reading() as connection:
            return str(connection.execute(text("select session_user")).scalar_one())

    def close(self) -> None:
        """Close the connections."""
        self.engine.dispose()

    def require_writer(self) -> None:
        """Raise `WriteDenied` if the user may not write, by a statement that changes no row."""
        with self.transaction() as connection:
            connection.execute(update(TABLES).where(false()).values(metadata_location=None))
            connection.execute(update(NAMESPACES).where(false()).values(property_value=None))

    def schema_properties(
        self, schema: str, connection: Connection | None = None
    ) -> dict[str, str]:
        """Return the properties of a schema, in a transaction if given; empty if none exists."""
        statement = select(NAMESPACES.c.property_key, NAMESPACES.c.property_value).where(
            NAMESPACES.c.catalog_name == self.name, NAMESPACES.c.namespace == schema
        )
        if connection is not None:
            return pairs(connection.execute(statement))
        with self.reading() as own:
            return pairs(own.execute(statement))

    def put_property(self, connection: Connection, schema: str, key: str, value: str) -> None:
        """Set a property of a schema, in a transaction."""
        if not self.change_property(connection, schema, key, value):
            names = {"catalog_name": self.name, "namespace": schema}
            row = insert(NAMESPACES).values(**names, property_key=key, property_value=value)
            connection.execute(row)

    def change_property(self, connection: Connection, schema: str, key: str, value: str) -> bool:
        """Change a property of a schema, in a transaction; False if the schema lacks it."""
        statement = (
            update(NAMESPACES).where(self._property(schema, key)).values(property_value=value)
        )
        return connection.execute(statement).rowcount == 1

    def drop_property(self, connection: Connection, schema: str, key: str) -> None:
        """Remove a property of a schema, if it exists, in a transaction."""
        connection.execute(delete(NAMESPACES).where(self._property(schema, key)))

    def clock(self, connection: Connection) -> float:
        """Return seconds since the epoch, by the database's clock."""
        sqlite = self.engine.dialect.name == "sqlite"
        now = "(julianday('now') - 2440587.5) * 86400.0" if sqlite else _POSTGRES_CLOCK
        return float(connection.execute(text(f"select {now}")).scalar_one())

    def _property(self, schema: str, key: str) -> Any:
        return (
            (NAMESPACES.c.catalog_name == self.name)
            & (NAMESPACES.c.namespace == schema)
            & (NAMESPACES.c.property_key == key)
        )

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Open a transaction that holds SQLite's write lock from its start.

        If a transaction begins as a reader and writes later, while another one does the same,
        SQLite fails at once with "database is locked", whatever the timeout.
        """
        with self.engine.connect() as plain:
            connection = plain.execution_options(**{_WRITES: True})
            with connection.begin():
                _limit_idle(connection)
                yield connection

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Stage and commit while no other writer does; see `CatalogBackend.turn`.

        Only PostgreSQL has such a lock. It ends with its transaction, so also with the process, and
        the database ends a transaction that is idle for too long.
        """
        if self.engine.dialect.name != "postgresql" or getattr(_thread, "has_turn", False):
            yield
            return
        ends, held = time.monotonic() + _LONGEST_WAIT_SECONDS, None
        # Whatever the lock fails with, a commit without it is right.
        with contextlib.suppress(DBAPIError, PoolTimeout):
            while (held := self._take_turn()) is None and time.monotonic() < ends:
                # Without a connection, of which a proxy or a role may have few; and Ctrl-C works.
                time.sleep(random.uniform(*_LOOKS_SECONDS))
        _thread.has_turn = True
        try:
            yield
        finally:
            _thread.has_turn = False
            if held is not None:
                # The end of a lost connection is no error of the commit, which has its own.
                with contextlib.suppress(DBAPIError):
                    held.close()

    def _take_turn(self) -> Connection | None:
        """Return the connection that has the turn; None if another writer has it."""
        with contextlib.ExitStack() as opened:
            connection = opened.enter_context(self.engine.connect())
            _limit_idle(connection)
            statement = text("select pg_try_advisory_xact_lock(hashtextextended(:name, 0))")
            if connection.execute(statement, {"name": f"sparkwap {self.name}"}).scalar_one():
                opened.pop_all()
                return connection
        return None

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a connection to read with."""
        try:
            with self.engine.connect() as connection:
                yield connection
        except DBAPIError as error:
            raise CatalogError(
                f"The catalog's database cannot be read: {error.orig}. Nothing was changed by "
                "this. Check that it is up and reachable, then run the same command again."
            ) from error

    def _prepare(self) -> None:
        """Create the tables, and the column of schema version V1, where they are missing.

        Spark with ``jdbc.schema-version=V1`` does the same when it starts; either may come first.
        """
        needed = (select(TABLES.c.iceberg_type), select(NAMESPACES.c.namespace))
        if all(map(self._works, needed)):
            return
        self._create()
        if not all(map(self._works, needed)):
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
        tolerated = contextlib.suppress(DBAPIError, WriteDenied)
        for table in (TABLES, NAMESPACES):
            with tolerated, self.transaction() as connection:
                connection.execute(CreateTable(table, if_not_exists=True))
        if not self._works(select(TABLES.c.iceberg_type)):
            with tolerated, self.transaction() as connection:
                connection.execute(
                    text("alter table iceberg_tables add column iceberg_type varchar(5)")
                )


def pairs(rows: Iterable[Any]) -> dict[str, str]:
    """Return the first column of rows -> the second column."""
    return {row[0]: row[1] for row in rows}


def _limit_idle(connection: Connection) -> None:
    """Let PostgreSQL end the transaction of a client that hangs, with its locks."""
    if connection.dialect.name == "postgresql":
        limit = f"'{_LONGEST_TURN_SECONDS}s'"
        connection.execute(text(f"set local idle_in_transaction_session_timeout = {limit}"))


def _engine(uri: str) -> Engine:
    """Return an engine whose writes raise `WriteDenied`, PyIceberg's too, if the user may not."""
    url = make_url(uri)
    if url.get_backend_name() != "sqlite":
        engine = create_engine(url, pool_pre_ping=True)
        event.listen(engine, "handle_error", _deny)
        return engine
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


def _deny(context: ExceptionContext) -> None:
    statement = (context.statement or "").lstrip().lower()
    # `select ... for update` needs the right to write, too.
    locks = "for update" in statement or "for share" in statement
    reads = statement.startswith("select") and not locks
    if getattr(context.original_exception, "pgcode", None) in _DENIED and not reads:
        url = context.engine.url if context.engine is not None else None
        reason = str(context.original_exception).strip().splitlines()[0]
        raise WriteDenied(url.username if url is not None else None, reason)
