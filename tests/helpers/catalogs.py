"""The kinds of catalog that the gate's functional tests run on, and how a reader reads each.

``SPARKWAP_TEST_CATALOG`` chooses one of `KINDS`; without it SQLite is used. ``make catalogs`` runs
them on the others.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, get_args
from urllib.parse import quote

import psutil
import pyspark
import requests
from hive_metastore.ttypes import GetTablesRequest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.hive import HiveCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.pool import NullPool

from sparkwap import server
from sparkwap.catalog.hive_client import Hive4Catalog

if TYPE_CHECKING:
    from helpers.spark_server import SparkServer

CatalogKind = Literal[
    "sqlite", "postgresql", "rest", "journal", "hive", "glue", "cluster", "server"
]
"""``rest`` sends the tables of a publish in one request, ``journal`` one after the other.
``hive`` is a Hive metastore; ``glue`` is AWS Glue by moto, with the warehouse in an S3 store.
``cluster`` is PostgreSQL with the warehouse in an S3 store, and a Spark cluster as the server.
``server`` is SQLite, with a Spark server that sparkwap does not start."""

KINDS: tuple[CatalogKind, ...] = get_args(CatalogKind)

Pointers = dict[str, tuple[str, str]]
"""Name -> kind (``table`` or ``view``) and metadata file."""

_POINTERS = """
    select table_namespace, table_name, iceberg_type, metadata_location
    from iceberg_tables where catalog_name = 'lake'
"""


def chosen_kind() -> CatalogKind:
    """The kind that the environment asks for."""
    asked = os.environ.get("SPARKWAP_TEST_CATALOG", "sqlite")
    assert asked in KINDS, f"SPARKWAP_TEST_CATALOG is {asked!r}; legal are {', '.join(KINDS)}"
    return cast(CatalogKind, asked)


KIND = chosen_kind()
SPARK = ".".join(pyspark.__version__.split(".")[:2])
"""The version of Spark, which `scripts/versions` changes."""
STAMPED = SPARK != "3.5"
"""Whether snapshots have the id of the run that wrote them."""
PYTHON_MODELS = SPARK != "3.5"
"""Whether Python models run: they need Spark Connect of 4.0 or later."""
TRANSACTIONS = KIND not in ("rest", "journal", "hive", "glue")
"""Whether the chosen catalog changes several tables in one transaction: SQL catalogs do."""
VIEWS = KIND != "glue"
"""Whether the chosen catalog has views."""
VIEW = "view" if VIEWS else "table"
"""The materialization of what would be a view where the catalog has views."""
FOLDED = KIND in ("hive", "glue")
"""Whether the chosen catalog keeps names in lower case only."""


class Address(Protocol):
    """Where a server listens."""

    @property
    def host(self) -> str: ...
    @property
    def thrift_port(self) -> int: ...
    @property
    def connect_url(self) -> str: ...


class Source(Protocol):
    """How a reader that has no part in sparkwap asks a catalog."""

    @property
    def files(self) -> Mapping[str, str]:
        """PyIceberg's properties of the file store; none for local files."""

    def pointers(self, schema: str) -> Pointers:
        """The members of a schema; by one state of the catalog where it has transactions."""

    def catalog(self) -> Catalog:
        """PyIceberg's catalog, new for each use."""


@dataclass(frozen=True)
class SqliteSource:
    """The catalog of an embedded server without more ado."""

    lake: Path
    files: Mapping[str, str] = field(default_factory=dict)

    def pointers(self, schema: str) -> Pointers:
        with closing(sqlite3.connect(f"file:{self.lake}/catalog.db?mode=ro", uri=True)) as database:
            rows = database.execute(_POINTERS).fetchall()
        return _members(rows, schema)

    def catalog(self) -> Catalog:
        uri = f"sqlite:///{self.lake}/catalog.db?timeout=60"
        return SqlCatalog("lake", uri=uri, warehouse=f"file://{self.lake}/warehouse")


@dataclass(frozen=True)
class PostgresSource:
    """A catalog in PostgreSQL."""

    uri: str
    warehouse: str
    files: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def _engine(self) -> Engine:
        return create_engine(self.uri, pool_pre_ping=True)

    def pointers(self, schema: str) -> Pointers:
        with self._engine.connect() as connection:
            rows = connection.execute(text(_POINTERS)).fetchall()
        return _members(rows, schema)

    def catalog(self) -> Catalog:
        # The server has 100 connections, and each catalog would keep one.
        catalog = SqlCatalog("lake", uri=self.uri, warehouse=self.warehouse, **self.files)
        catalog.engine.dispose()
        catalog.engine = create_engine(self.uri, poolclass=NullPool)
        return catalog


@dataclass(frozen=True)
class RestSource:
    """A REST catalog, asked by plain requests: one for each table, so at different moments."""

    uri: str
    warehouse: str
    files: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def _session(self) -> requests.Session:
        return requests.Session()

    def pointers(self, schema: str) -> Pointers:
        folder = f"{self.uri}/v1/namespaces/{quote(schema, safe='')}"
        found: Pointers = {}
        for kind in ("table", "view"):
            listed = self._get(f"{folder}/{kind}s") or {"identifiers": []}
            for name in (one["name"] for one in listed["identifiers"]):
                loaded = self._get(f"{folder}/{kind}s/{quote(name, safe='')}")
                if loaded is not None:
                    found[name] = (kind, loaded["metadata-location"])
        return found

    def _get(self, address: str) -> Any:
        """The answer; None where there is no such thing, as it may be gone since it was listed."""
        for _ in range(5):
            answer = self._session.get(address, timeout=60)
            # The server has found the row of a view, whose file is gone with the view meanwhile.
            if answer.status_code != 500:
                break
        if answer.status_code == 404:
            return None
        answer.raise_for_status()
        return answer.json()

    def catalog(self) -> Catalog:
        return RestCatalog("lake", type="rest", uri=self.uri, warehouse=self.warehouse)


@dataclass(frozen=True)
class HiveSource:
    """A Hive metastore, asked by PyIceberg's client: one table after the other."""

    uri: str
    warehouse: str
    files: Mapping[str, str] = field(default_factory=dict)

    def pointers(self, schema: str) -> Pointers:
        with HiveCatalog._create_hive_client({"uri": self.uri}) as client:
            names = client.get_all_tables(schema)
            if not names:
                return {}
            # Hive 4 has no `get_table_objects_by_name`.
            asked = GetTablesRequest(dbName=schema, tblNames=names)
            tables = client.get_table_objects_by_name_req(asked).tables
        return _entries([(table.tableName, table.parameters) for table in tables])

    def catalog(self) -> Catalog:
        # PyIceberg's own asks as Hive 3 does.
        return Hive4Catalog("lake", type="hive", uri=self.uri, warehouse=self.warehouse)


@dataclass(frozen=True)
class GlueSource:
    """AWS Glue, asked by its own client: some tables after others."""

    properties: Mapping[str, str]

    @property
    def files(self) -> Mapping[str, str]:
        return {key: value for key, value in self.properties.items() if key.startswith("s3.")}

    def pointers(self, schema: str) -> Pointers:
        client = GlueCatalog("lake", **self.properties).glue
        try:
            pages = list(client.get_paginator("get_tables").paginate(DatabaseName=schema))
        except client.exceptions.EntityNotFoundException:
            return {}
        tables = [table for page in pages for table in page["TableList"]]
        return _entries([(table["Name"], table["Parameters"]) for table in tables])

    def catalog(self) -> Catalog:
        return GlueCatalog("lake", **self.properties)


def _entries(tables: list[tuple[str, Mapping[str, str]]]) -> Pointers:
    kinds = {"iceberg": "table", "iceberg-view": "view"}
    found = [(name, kinds.get(given["table_type"].lower()), given) for name, given in tables]
    return {name: (kind, given["metadata_location"]) for name, kind, given in found if kind}


def _members(rows: Any, schema: str) -> Pointers:
    return {
        name: ("view" if kind == "VIEW" else "table", location)
        for namespace, name, kind, location in rows
        if namespace == schema
    }


@dataclass(frozen=True)
class RunningCatalog:
    """A catalog that functional tests run on.

    Attributes:
        kind: one of `KINDS`.
        uri: where it is; None for SQLite in the lake.
        server: the Spark server in place of the embedded one, if there is one.
    """

    kind: CatalogKind
    uri: str | None = None
    server: SparkServer | None = None

    def lake(self, otherwise: Path) -> Path:
        """The folder of the lake: that of a server with local files, else another one."""
        local = self.uri is None or self.kind == "hive"
        return self.server.folder if self.server and local else otherwise

    def endpoint(self, config: server.ServerConfig) -> Address:
        """Where the server is; the embedded one is started if it does not run."""
        return self.server or server.ensure(config, print)

    def process(self, lake: Path) -> psutil.Process:
        """The process of the server."""
        if self.server is not None:
            return psutil.Process(self.server.processes["driver"].pid)
        status = server.status(lake)
        assert status is not None
        return psutil.Process(status.endpoint.pid)

    def properties(self, config: server.ServerConfig) -> dict[str, str]:
        """PyIceberg's properties of the catalog."""
        return self.server.catalog if self.server else server.catalog_properties(config)

    def source(self, lake: Path) -> Source:
        """How a reader asks it."""
        if self.uri is None:
            return SqliteSource(lake)
        if self.kind == "glue" and self.server is not None:
            return GlueSource(self.server.catalog)
        if self.kind == "hive":
            return HiveSource(self.uri, f"file://{lake}/warehouse")
        if self.server is not None:
            files = dict(self.server.catalog)
            files.pop("type")
            return PostgresSource(files.pop("uri"), files.pop("warehouse"), files)
        warehouse = f"file://{lake}/warehouse"
        if self.kind == "postgresql":
            return PostgresSource(self.uri, warehouse)
        return RestSource(self.uri, warehouse)

    def output(self, lake: Path, memory: str, endpoint: Address) -> dict[str, Any]:
        """The profile's output for a project on it.

        The journal is chosen by a property of the catalog, which only the profile of a server that
        is there has; the same server is then taken for one.
        """
        if self.server is not None:
            return self.server.output
        if self.kind != "journal":
            more = {} if self.uri is None else {"catalog_uri": self.uri}
            return {"type": "sparkwap", "lake": str(lake), "memory": memory, **more}
        return {
            "type": "sparkwap",
            "method": "thrift",
            "host": endpoint.host,
            "port": endpoint.thrift_port,
            "user": "dbt",
            "connect_url": endpoint.connect_url,
            "catalog": {
                "type": "rest",
                "uri": self.uri,
                "warehouse": f"file://{lake}/warehouse",
                "wap.multi-table-commit": "false",
            },
        }


@contextmanager
def running_catalog(folder: Path) -> Iterator[RunningCatalog]:
    """The chosen catalog, started where it is a server of its own.

    ``SPARKWAP_TEST_CATALOG_URI`` names one that runs already: that of a kept lake, or of the tests
    that started this process.
    """
    given = os.environ.get("SPARKWAP_TEST_CATALOG_URI")
    if KIND == "sqlite" or given:
        yield RunningCatalog(KIND, given or None)
    elif KIND == "postgresql":
        from helpers.postgres import running_postgres

        with running_postgres() as database:
            yield RunningCatalog(KIND, database.uri)
    elif KIND == "cluster":
        from helpers.cluster import running_cluster

        with running_cluster(folder) as cluster:
            yield RunningCatalog(KIND, cluster.database.uri, cluster)
    elif KIND == "hive":
        from helpers.hive_spark import running_hive_server

        folder.mkdir(parents=True, exist_ok=True)
        with running_hive_server(folder) as hive:
            yield RunningCatalog(KIND, hive.metastore.uri, hive)
    elif KIND == "glue":
        from helpers.glue import running_glue_server

        folder.mkdir(parents=True, exist_ok=True)
        with running_glue_server(folder) as spark:
            yield RunningCatalog(KIND, spark.glue.endpoint, spark)
    elif KIND == "server":
        from helpers.spark_server import running_server

        with running_server(folder) as other:
            yield RunningCatalog(KIND, None, other)
    else:
        from helpers.rest import running_rest_server

        folder.mkdir(parents=True, exist_ok=True)
        with running_rest_server(folder) as rest:
            yield RunningCatalog(KIND, rest.uri)
