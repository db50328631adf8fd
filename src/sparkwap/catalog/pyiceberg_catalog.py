"""PyIceberg's SQL catalog on the database connections of a lake."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import PY_IO_IMPL
from sqlalchemy import Engine

from sparkwap.catalog.files import FILE_IO


class SharedSqlCatalog(SqlCatalog):
    """A `SqlCatalog` on an existing engine.

    PyIceberg's own engine would be a second pool of connections. It waits five seconds for
    SQLite's lock, and sparkwap's engine one minute.
    """

    def __init__(self, name: str, engine: Engine, properties: Mapping[str, str]) -> None:
        MetastoreCatalog.__init__(self, name, **{PY_IO_IMPL: FILE_IO, **properties})
        self.engine = engine
        self._schema_version = "v1"
