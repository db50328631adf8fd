"""Read a table with Polars, lazily: filters and columns go down to the files."""

from __future__ import annotations

import polars as pl
from lake import arguments, find
from pyiceberg.table import Table


def read(table: Table, snapshot: int) -> pl.LazyFrame:
    """Its rows, when they are collected."""
    return pl.scan_iceberg(table, snapshot_id=snapshot)


if __name__ == "__main__":
    print(read(*find(arguments())).collect())
