"""The kinds of catalogs, by PyIceberg's property ``type``."""

from __future__ import annotations

from collections.abc import Mapping

from sparkwap.catalog.backend import CatalogBackend
from sparkwap.catalog.metastore_backend import MetastoreBackend
from sparkwap.catalog.sql_backend import SqlBackend
from sparkwap.core.errors import ConfigError

_NEEDED: Mapping[str, tuple[str, ...]] = {
    "sql": ("uri", "warehouse"),
    "rest": ("uri",),
    "hive": ("uri", "warehouse"),
    "glue": ("warehouse",),
}
"""Type of a catalog -> the properties that it cannot do without."""

_DATABASES = ("sqlite", "postgresql")


def backend_of(name: str, properties: Mapping[str, str]) -> CatalogBackend:
    """Return the catalog that properties describe."""
    kind = properties.get("type", "sql")
    if kind not in _NEEDED:
        raise ConfigError(
            f"The catalog type {kind!r} is not supported; nothing was done. Use type 'sql' with a "
            "'uri' of a SQLite or PostgreSQL database, type 'rest' with the 'uri' of an Iceberg "
            "REST catalog, type 'hive' with the 'uri' of a Hive metastore, or type 'glue'."
        )
    for key in _NEEDED[kind]:
        if not properties.get(key):
            raise ConfigError(f"The catalog needs the property {key!r}; nothing was done.")
    if kind == "sql":
        database = properties["uri"].partition(":")[0].partition("+")[0]
        if database not in _DATABASES:
            raise ConfigError(
                "The 'uri' of the catalog names a database that is not supported; nothing was "
                "done. Use a SQLite database (sqlite:///...) or a PostgreSQL database "
                "(postgresql+psycopg2://...)."
            )
        return SqlBackend(name, properties)
    # The clients of the others load slowly.
    if kind == "rest":
        from sparkwap.catalog.rest_backend import RestBackend

        return RestBackend(name, properties)
    if kind == "hive":
        from sparkwap.catalog.hive_metastore import HiveMetastore

        return MetastoreBackend(name, properties, HiveMetastore(name, properties))
    from sparkwap.catalog.glue_metastore import GlueMetastore

    return MetastoreBackend(name, properties, GlueMetastore(name, properties))
