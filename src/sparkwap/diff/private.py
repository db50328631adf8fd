"""A catalog in the memory of one Spark session, for tables that no one else is to see.

It is Iceberg's JDBC catalog on a SQLite database that is nowhere but in memory; Iceberg's own
in-memory catalog reads no files but those that are in memory, too.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sparkwap.core.sqltext import literal, quote

Sql = Callable[[str], Sequence[Sequence[Any]]]

CATALOG = "wap_diff"
_CONF = f"spark.sql.catalog.{CATALOG}"
_NAMESPACE = "t"
# These say where the lake's own catalog keeps its tables, and what they are like.
_NOT_FOR_US = (
    "type",
    "catalog-impl",
    "uri",
    "warehouse",
    "cache-enabled",
    "jdbc.",
    # Properties of new tables: behind the gate they would be written to a branch.
    "table-default.",
    "table-override.",
)
_HIDDEN = "(redacted)"
_DEFAULT_IO = "org.apache.iceberg.hadoop.HadoopFileIO"


class PrivateCatalog:
    """Registers metadata files under names that only this session knows.

    What it holds is gone with the session; the files are never its own. It is set up by plain SQL,
    so any Thrift server with Iceberg's runtime and SQLite's driver will do.

    Args:
        sql: Runs a statement in the session.
        lake: The name of the lake's catalog in Spark, whose file access is taken over.
    """

    def __init__(self, sql: Sql, lake: str) -> None:
        self._sql = sql
        self._lake = lake
        self._names: dict[str, str] = {}
        self._ready = False
        self._broken: Exception | None = None

    def register(self, location: str) -> str:
        """The name of the table that a metadata file describes, for a from clause.

        Raises:
            Exception: What the session said when it was asked first; it is not asked again.
        """
        if location not in self._names:
            self.open()
            name = _new_name()
            with self._watched():
                self._sql(
                    f"call {CATALOG}.system.register_table("
                    f"table => '{_NAMESPACE}.{name}', metadata_file => {literal(location)})"
                )
            self._names[location] = f"{CATALOG}.{_NAMESPACE}.{name}"
        return self._names[location]

    def create(self, folder: str, query: str) -> str:
        """Write what a query returns to a table in a folder; the name of the table.

        Raises:
            Exception: What the session said; the folder may be there all the same.
        """
        self.open()
        name = f"{CATALOG}.{_NAMESPACE}.{_new_name()}"
        self._sql(f"create table {name} using iceberg location {literal(folder)} as {query}")
        return name

    def open(self) -> None:
        """Set the catalog up, unless it is.

        Raises:
            Exception: What the session said when it was asked first; it is not asked again.
        """
        if self._broken is not None:
            raise self._broken
        if self._ready:
            return
        with self._watched():
            for key, value in {**self._file_access(), **self._own()}.items():
                self._sql(f"set {quote(key)}={value}")
            self._sql(f"create namespace if not exists {CATALOG}.{_NAMESPACE}")
        self._ready = True

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Remembers an error: what fails here once fails for every table."""
        try:
            yield
        except Exception as error:
            self._broken = error
            raise

    @staticmethod
    def _own() -> dict[str, str]:
        database = f"wap_diff_{uuid.uuid4().hex}"
        return {
            _CONF: "org.apache.iceberg.spark.SparkCatalog",
            f"{_CONF}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            f"{_CONF}.uri": f"jdbc:sqlite:file:{database}?mode=memory&cache=shared",
            f"{_CONF}.jdbc.schema-version": "V1",
            # The database is there as long as its one connection.
            f"{_CONF}.clients": "1",
            f"{_CONF}.warehouse": "memory",
            f"{_CONF}.cache-enabled": "false",
        }

    def _file_access(self) -> dict[str, str]:
        """The settings of the lake's catalog by which files are read."""
        prefix = f"spark.sql.catalog.{self._lake}."
        found = {f"{_CONF}.io-impl": _DEFAULT_IO}
        for key, value, *_ in self._sql("set"):
            name = str(key).removeprefix(prefix)
            taken = name != key and not name.startswith(_NOT_FOR_US)
            if taken and _HIDDEN not in str(value):
                found[f"{_CONF}.{name}"] = str(value)
        return found


def _new_name() -> str:
    # Results are kept by the plan of their query, also for other sessions, and Iceberg takes tables
    # of one name for the same.
    return f"t_{uuid.uuid4().hex}"
