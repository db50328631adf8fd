"""A lake with three people in it, made without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from sparkwap.publish.lake import Lake

PEOPLE = pa.table(
    {
        "customer_id": pa.array([41, 42, 43], pa.int64()),
        "email": ["bo@mail.example", "anna.berg@mail.example", "cleo@mail.example"],
        "city": ["Oslo", "Oslo", "Bergen"],
    }
)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A lake; table ``s.people`` has one data file, with the subject 42 in the middle."""
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"{tmp_path}/warehouse",
    }
    lake = Lake("lake", properties)
    lake.ensure_schema("s")
    people(lake.catalog, "people")
    yield lake
    lake.close()


def people(catalog: SqlCatalog, name: str, rows: pa.Table = PEOPLE) -> None:
    """Make a table of people."""
    catalog.create_table(("s", name), rows.schema).append(rows)


def files(tmp_path: Path) -> list[str]:
    """All files of the warehouse."""
    return sorted(str(p) for p in (tmp_path / "warehouse").rglob("*") if p.is_file())
