"""Read a table with DuckDB: through its Iceberg extension, or through Arrow without it.

The extension comes with `INSTALL iceberg`, from DuckDB's own server; where that is not reached, as
a wheel (`pip install duckdb-extension-iceberg duckdb-extension-avro`, of DuckDB's very version).
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import duckdb
from lake import arguments, find
from pyiceberg.table import Table

EXTENSIONS = ("avro", "iceberg")


def connect() -> duckdb.DuckDBPyConnection:
    """A connection, with the extension where there is one."""
    connection = duckdb.connect()
    for name in EXTENSIONS:
        found = importlib.util.find_spec(f"duckdb_extension_{name}")
        files = Path(str(found.origin)).parent.rglob(f"{name}.duckdb_extension") if found else ()
        try:
            connection.load_extension(str(next(iter(files), name)))
        except duckdb.Error:
            return connection
    return connection


def has_extension(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether DuckDB itself can read Iceberg."""
    query = "select 1 from duckdb_extensions() where extension_name = 'iceberg' and loaded"
    return connection.execute(query).fetchone() is not None


def read(
    connection: duckdb.DuckDBPyConnection, table: Table, snapshot: int
) -> duckdb.DuckDBPyRelation:
    """Its rows, to be queried on. The catalog is asked by PyIceberg: DuckDB attaches REST only."""
    if not has_extension(connection):
        return connection.from_arrow(table.scan(snapshot_id=snapshot).to_arrow())
    # Only an id is safe: the argument `version` takes a branch's name, and reads main.
    return connection.sql(
        "select * from iceberg_scan(?, snapshot_from_id := ?::ubigint)",
        params=[table.metadata_location, snapshot],
    )


if __name__ == "__main__":
    print(read(connect(), *find(arguments())))
