"""The settings of a lake's catalog, for Spark and for PyIceberg."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from sparkwap.core import next_command
from sparkwap.core.errors import CatalogError, ConfigError
from sparkwap.core.redaction import is_secret
from sparkwap.core.text import first_line
from sparkwap.server.config import LakePaths, ServerConfig

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

CATALOG_NAME = "lake"

# Each Spark session opens a connection and never closes it; PostgreSQL allows 100 by default. Since
# version 14, PostgreSQL can close idle connections; Iceberg reconnects if it needs a closed one.
IDLE_CONNECTION = {"options": "-c idle_session_timeout=60000"}
# Ended for that reason, or known as closed before anything is sent, as after a restart of the
# database. Other errors may come after a commit: repeated, it could be made twice.
SAFE_TO_REPEAT = "57P05,08003"

# Spark and PyIceberg write to one SQLite file; a writer waits up to this time for the other writer.
BUSY_SECONDS = 60


def catalog_properties(config: ServerConfig) -> dict[str, str]:
    """Return the PyIceberg properties of the server's catalog.

    Use: ``load_catalog(CATALOG_NAME, **catalog_properties(config))``. Needs no running server.
    """
    kind, uri = "sql", config.catalog_uri
    if uri is None:
        uri = f"sqlite:///{config.layout.sqlite}?timeout={BUSY_SECONDS}"
    elif uses_rest(config):
        kind = "rest"
    else:
        _postgres_url(uri)
    return {"type": kind, "uri": uri, "warehouse": warehouse_uri(config.layout)}


def warehouse_uri(layout: LakePaths) -> str:
    """Return the warehouse's location, as Spark and PyIceberg write it into metadata."""
    return f"file://{layout.warehouse}"


def spark_catalog(config: ServerConfig) -> dict[str, str]:
    """Return the Spark settings of the catalog, including credentials."""
    prefix = f"spark.sql.catalog.{CATALOG_NAME}"
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.warehouse": warehouse_uri(config.layout),
        # PyIceberg also moves refs: a table in Spark's cache would show the state before a publish.
        f"{prefix}.cache-enabled": "false",
        **{f"{prefix}.{key}": value for key, value in _access(config).items()},
    }


def uses_rest(config: ServerConfig) -> bool:
    """Return whether the catalog is an Iceberg REST catalog."""
    return str(config.catalog_uri or "").startswith(("http://", "https://"))


def uses_postgres(config: ServerConfig) -> bool:
    """Return whether the catalog is in PostgreSQL, which needs its driver."""
    return config.catalog_uri is not None and not uses_rest(config)


def prepare(config: ServerConfig) -> None:
    """Create the catalog's tables and the namespace ``default`` if they are missing.

    A Thrift client begins with ``use default``, which fails without that namespace.

    Raises:
        CatalogError: the database cannot be reached or written.
    """
    if config.catalog_uri is None:
        _create_sqlite(config.layout)
    from pyiceberg.catalog import load_catalog  # a slow import, needed only for a start

    version = {} if uses_rest(config) else {"schema_version": "v1"}
    try:
        catalog = load_catalog(CATALOG_NAME, **catalog_properties(config), **version)
        catalog.create_namespace_if_not_exists("default")
        catalog.close()
    except ImportError as error:
        raise CatalogError(
            f"The catalog needs a database driver that is not installed ({error}). "
            f"The server was not started. Run: {next_command.install('postgres')}"
        ) from error
    except Exception as error:
        reason = (first_line(str(error)) or type(error).__name__).rstrip(".")
        raise CatalogError(
            f"The catalog {_shown(config)} cannot be opened: {reason}. The server was "
            "not started. Check `catalog_uri` in profiles.yml and that the catalog is up."
        ) from error


def _create_sqlite(layout: LakePaths) -> None:
    try:
        # Created here, because SQLite would create it readable by everybody. An existing file must
        # not be opened: closing it would release the locks of all connections of this process, and
        # another process could remove the log while they write to it.
        with suppress(FileExistsError):
            os.close(os.open(layout.sqlite, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with closing(sqlite3.connect(layout.sqlite, timeout=BUSY_SECONDS)) as database:
            # Readers and the writer do not block each other; the mode is stored in the file.
            database.execute("pragma journal_mode = wal")
    except (OSError, sqlite3.Error) as error:
        raise CatalogError(
            f"The catalog {layout.sqlite} cannot be opened: {error}. The server was not started. "
            "Check that the lake directory is writable and on a local disk."
        ) from error


def _access(config: ServerConfig) -> dict[str, str]:
    if uses_rest(config):
        return {"type": "rest", "uri": str(config.catalog_uri)}
    return {
        "type": "jdbc",
        # V1 supports views.
        "jdbc.schema-version": "V1",
        # Each session opens its own pool; one statement at a time needs one connection.
        "clients": "1",
        **_jdbc(config),
    }


def _jdbc(config: ServerConfig) -> dict[str, str]:
    if config.catalog_uri is None:
        busy_ms = BUSY_SECONDS * 1000
        return {"uri": f"jdbc:sqlite:{config.layout.sqlite}?busy_timeout={busy_ms}"}
    url = _postgres_url(config.catalog_uri)
    host = url.host or "localhost"
    secret = {key: str(value) for key, value in url.query.items() if is_secret(key)}
    given = {key: value for key, value in url.query.items() if key not in secret}
    query = urlencode({**IDLE_CONNECTION, **given}, quote_via=quote)
    settings = {
        "uri": f"jdbc:postgresql://{host}:{url.port or 5432}/{url.database}?{query}",
        "retryable_status_codes": SAFE_TO_REPEAT,
    }
    settings |= {f"jdbc.{key}": value for key, value in secret.items()}
    if url.username:
        settings["jdbc.user"] = url.username
    if url.password:
        settings["jdbc.password"] = str(url.password)
    return settings


def _postgres_url(uri: str) -> URL:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    expected = (
        "postgresql+psycopg2://user:password@host:5432/database, or https://host for a REST catalog"
    )
    try:
        url = make_url(uri)
    except ArgumentError:
        raise ConfigError(f"`catalog_uri` is not a URI. Legal: {expected}") from None
    if url.get_backend_name() != "postgresql" or not url.database:
        shown = url.render_as_string(hide_password=True)
        raise ConfigError(f"`catalog_uri` is {shown}, which is not supported. Legal: {expected}")
    return url


def _shown(config: ServerConfig) -> str:
    if config.catalog_uri is None:
        return str(config.layout.sqlite)
    return _postgres_url(config.catalog_uri).render_as_string(hide_password=True)
