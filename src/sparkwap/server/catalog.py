"""The catalog of a lake, as Spark and as PyIceberg see it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from sparkwap.core.errors import CatalogError, ConfigError
from sparkwap.core.redaction import is_secret
from sparkwap.server.config import LakePaths, ServerConfig

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

CATALOG_NAME = "lake"

# Each Spark session opens a connection and never closes it; PostgreSQL has 100 by default. It ends
# those that are idle for so long (since version 14); Iceberg connects again where one was in use.
IDLE_CONNECTION = {"options": "-c idle_session_timeout=60000"}
_IDLE_CONNECTION_ENDED = "57P05"

# Spark and PyIceberg write to one SQLite file: a writer waits this long for the other's commit.
BUSY_SECONDS = 60


def catalog_properties(config: ServerConfig) -> dict[str, str]:
    """Return the properties with which PyIceberg opens the server's catalog.

    Use: ``load_catalog(CATALOG_NAME, **catalog_properties(config))``. Needs no running server.

    Raises:
        ConfigError: ``catalog_uri`` is not a URI of a supported catalog.
    """
    if uses_rest(config):
        uri = str(config.catalog_uri)
        return {"type": "rest", "uri": uri, "warehouse": warehouse_uri(config.layout)}
    return {"type": "sql", "uri": _python_uri(config), "warehouse": warehouse_uri(config.layout)}


def warehouse_uri(layout: LakePaths) -> str:
    """Return the warehouse's location as both engines write it into metadata."""
    return f"file://{layout.warehouse}"


def spark_catalog(config: ServerConfig) -> dict[str, str]:
    """Return the Spark settings of the catalog, credentials included."""
    prefix = f"spark.sql.catalog.{CATALOG_NAME}"
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.warehouse": warehouse_uri(config.layout),
        # PyIceberg moves refs beside Spark: a cached table would show the state before a publish.
        f"{prefix}.cache-enabled": "false",
        **{f"{prefix}.{key}": value for key, value in _access(config).items()},
    }


def uses_rest(config: ServerConfig) -> bool:
    """Tell whether the catalog is an Iceberg REST catalog."""
    return str(config.catalog_uri or "").startswith(("http://", "https://"))


def uses_postgres(config: ServerConfig) -> bool:
    """Tell whether the catalog is in PostgreSQL (its driver is then needed)."""
    return config.catalog_uri is not None and not uses_rest(config)


def prepare(config: ServerConfig) -> None:
    """Make the catalog's tables and the namespace ``default`` where they are absent.

    A Thrift client begins with ``use default``, so without that namespace no session opens.

    Raises:
        CatalogError: the database cannot be reached or written.
    """
    if config.catalog_uri is None:
        _create_sqlite(config.layout)
    from pyiceberg.catalog import load_catalog  # takes a second, and only a start needs it

    version = {} if uses_rest(config) else {"schema_version": "v1"}
    try:
        catalog = load_catalog(CATALOG_NAME, **catalog_properties(config), **version)
        catalog.create_namespace_if_not_exists("default")
        catalog.close()
    except ImportError as error:
        raise CatalogError(
            f"The catalog needs a database driver that is not installed ({error}). "
            "The server was not started. Run: pip install 'dbt-sparkwap[postgres]'"
        ) from error
    except Exception as error:
        raise CatalogError(
            f"The catalog {_shown(config)} cannot be opened: {_first_line(error)}. The server was "
            "not started. Check `catalog_uri` in profiles.yml and that the catalog is up."
        ) from error


def _create_sqlite(layout: LakePaths) -> None:
    try:
        # Made with the owner's rights before SQLite would make it with the world's. Never opened if
        # it is there: closing it would take the locks of all connections of this process with it,
        # and another process could remove the log that they go on writing to.
        with suppress(FileExistsError):
            os.close(os.open(layout.sqlite, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with closing(sqlite3.connect(layout.sqlite, timeout=BUSY_SECONDS)) as database:
            # Readers do not block the writer, nor the other way round; kept in the file itself.
            database.execute("pragma journal_mode = wal")
    except (OSError, sqlite3.Error) as error:
        raise CatalogError(
            f"The catalog {layout.sqlite} cannot be opened: {error}. The server was not started. "
            "Check that the lake directory is writable and on a local disk."
        ) from error


def _python_uri(config: ServerConfig) -> str:
    if config.catalog_uri is None:
        return f"sqlite:///{config.layout.sqlite}?timeout={BUSY_SECONDS}"
    _postgres_url(config.catalog_uri)
    return config.catalog_uri


def _access(config: ServerConfig) -> dict[str, str]:
    if uses_rest(config):
        return {"type": "rest", "uri": str(config.catalog_uri)}
    return {
        "type": "jdbc",
        # V1 has a column for the kind of an object, and with it views.
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
        "retryable_status_codes": _IDLE_CONNECTION_ENDED,
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
        raise ConfigError(f"`catalog_uri` is not a URI. Legal is: {expected}") from None
    if url.get_backend_name() != "postgresql" or not url.database:
        shown = url.render_as_string(hide_password=True)
        raise ConfigError(f"`catalog_uri` is {shown}, which is not supported. Legal is: {expected}")
    return url


def _shown(config: ServerConfig) -> str:
    if config.catalog_uri is None:
        return str(config.layout.sqlite)
    return _postgres_url(config.catalog_uri).render_as_string(hide_password=True)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
