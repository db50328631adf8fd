"""A catalog in the memory of one Spark session, for tables that others must not see.

It is Iceberg's JDBC catalog on a SQLite database in memory. Iceberg's in-memory catalog cannot be
used, because it only reads files that are in memory too.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sparkwap.core.sqltext import literal, quote

Sql = Callable[[str], Sequence[Sequence[Any]]]

CATALOG = f"wap_private_{uuid.uuid4().hex[:12]}"
"""Its name in Spark, which no schema has: its names would be taken for tables of this catalog."""
_CONF = f"spark.sql.catalog.{CATALOG}"
_NAMESPACE = "t"
# Settings of the lake's catalog that the private catalog must not have.
_NOT_COPIED = (
    "type",
    "catalog-impl",
    "uri",
    "warehouse",
    "cache-enabled",
    "jdbc.",
    # Properties of new tables: the gate's would direct writes to a branch.
    "table-default.",
    "table-override.",
)
# Spark shows no secrets. Without any of these, S3 takes the keys of the server's environment.
_HIDDEN = "(redacted)"
_S3_KEYS = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token")
_DEFAULT_IO = "org.apache.iceberg.hadoop.HadoopFileIO"


class PrivateCatalog:
    """Registers metadata files under names that only this session has.

    Its tables end with the session; it never deletes files. It is set up by SQL, so any Thrift
    server with Iceberg's runtime and SQLite's driver can have it.

    Args:
        lake: The name of the lake's catalog in Spark, whose file access settings are copied.
    """

    def __init__(self, sql: Sql, lake: str) -> None:
        self._sql = sql
        self._lake = lake
        self._names: dict[str, str] = {}
        self._ready = False
        self._broken: Exception | None = None

    def register(self, location: str) -> str:
        """Return the name of the table of a metadata file, for a from clause.

        Raises:
            Exception: The first error of the session; later calls raise it without another try.
        """
        if location not in self._names:
            self.open()
            name = _new_name()
            with self._remembering_errors():
                self._sql(
                    f"call {CATALOG}.system.register_table("
                    f"table => '{_NAMESPACE}.{name}', metadata_file => {literal(location)})"
                )
            self._names[location] = f"{CATALOG}.{_NAMESPACE}.{name}"
        return self._names[location]

    def create(self, folder: str, query: str) -> str:
        """Write the result of a query to a table in a folder; returns the name of the table.

        Raises:
            Exception: An error of the session; the folder may exist nevertheless.
        """
        self.open()
        name = f"{CATALOG}.{_NAMESPACE}.{_new_name()}"
        self._sql(f"create table {name} using iceberg location {literal(folder)} as {query}")
        return name

    def open(self) -> None:
        """Set up the catalog, if it is not set up."""
        if self._broken is not None:
            raise self._broken
        if self._ready:
            return
        with self._remembering_errors():
            for key, value in {**self._file_access(), **self._own()}.items():
                self._sql(f"set {quote(key)}={value}")
            self._sql(f"create namespace if not exists {CATALOG}.{_NAMESPACE}")
        self._ready = True

    @contextmanager
    def _remembering_errors(self) -> Iterator[None]:
        """Keep an error of the block, because it would occur for every table."""
        try:
            yield
        except Exception as error:
            self._broken = error
            raise

    @staticmethod
    def _own() -> dict[str, str]:
        database = f"wap_private_{uuid.uuid4().hex}"
        return {
            _CONF: "org.apache.iceberg.spark.SparkCatalog",
            f"{_CONF}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            f"{_CONF}.uri": f"jdbc:sqlite:file:{database}?mode=memory&cache=shared",
            f"{_CONF}.jdbc.schema-version": "V1",
            # The database exists as long as its only connection.
            f"{_CONF}.clients": "1",
            f"{_CONF}.warehouse": "memory",
            f"{_CONF}.cache-enabled": "false",
        }

    def _file_access(self) -> dict[str, str]:
        """Return the settings for the access to files, copied from the lake's catalog."""
        prefix = f"spark.sql.catalog.{self._lake}."
        settings = {
            str(key).removeprefix(prefix): str(value)
            for key, value, *_ in self._sql("set")
            if str(key).startswith(prefix)
        }
        hidden = {name for name, value in settings.items() if _HIDDEN in value}
        if not hidden.isdisjoint(_S3_KEYS):
            hidden.update(_S3_KEYS)
        found = {f"{_CONF}.io-impl": _DEFAULT_IO}
        for name, value in settings.items():
            if name not in hidden and not name.startswith(_NOT_COPIED):
                found[f"{_CONF}.{name}"] = value
        return found


def _new_name() -> str:
    # Spark caches results by the plan of the query, also for other sessions, and for Iceberg two
    # tables with the same name are equal.
    return f"t_{uuid.uuid4().hex}"
