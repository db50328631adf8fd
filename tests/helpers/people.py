"""A lake with three people in it, made without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from sparkwap.publish.lake import Lake

PEOPLE = pa.table(
    {
        "customer_id": pa.array([41, 42, 43], pa.int64()),
        "email": ["bo@mail.example", "anna.berg@mail.example", "cleo@mail.example"],
        "city": ["Oslo", "Oslo", "Bergen"],
    }
)


@contextmanager
def lake_of_people(folder: Path) -> Iterator[Lake]:
    """A lake; table ``s.people`` has one data file, with the subject 42 in the middle."""
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"{folder}/warehouse",
    }
    lake = Lake("lake", properties)
    lake.ensure_schema("s")
    people(lake.catalog, "people")
    yield lake
    lake.close()


def people(catalog: SqlCatalog, name: str, rows: pa.Table = PEOPLE) -> None:
    """Make a table of people."""
    catalog.create_table(("s", name), rows.schema).append(rows)


def files(folder: Path) -> list[str]:
    """All files of the warehouse."""
    return sorted(str(p) for p in (folder / "warehouse").rglob("*") if p.is_file())
