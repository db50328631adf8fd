"""The airports data: real revisions of public data, their history worked out without Spark.

It is not part of this repository; ``AIRPORTS_DATA=<folder>`` names its place.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("AIRPORTS_DATA", ROOT.parent / "shared" / "data" / "airports"))
FORMATS = ("dms", "debezium")
CLEAN, DIRTY = "cdc", "cdc_dirty"
FIRST = {"dms": "LOAD*", "debezium": "0000_*_snapshot*"}
"""The full load of each shape of change data."""

needs_airports = pytest.mark.skipif(
    not DATA.is_dir(),
    reason="the airports data is not part of this repository; "
    "AIRPORTS_DATA=<folder> names its place",
)


def facts(entity: str) -> dict[str, Any]:
    """What is known of a table: its key, its columns and their types, its renames."""
    known = json.loads((DATA / "entities.json").read_text())["entities"]
    return dict(known[entity])


def expected(name: str) -> list[dict[str, str]]:
    """The rows of a file of the truth."""
    with (DATA / "expected" / name).open(newline="") as file:
        return list(csv.DictReader(file))


def is_parquet(entity: str, shape: str, state: str) -> bool:
    """Whether the files are Parquet, as only those of one table are, where they are clean."""
    return (entity, shape, state) == ("runways", "dms", CLEAN)


def change_files(entity: str, shape: str, state: str) -> tuple[list[Path], list[Path]]:
    """The files of the full load, which always is a clean one, and those of the changes."""
    loads = sorted((DATA / CLEAN / entity / shape).glob(FIRST[shape]))
    changes = sorted((DATA / state / entity / shape).glob("[0-9]*"))
    return loads, [file for file in changes if not file.match(FIRST[shape])]


def deliver(file: Path, folder: Path, state: str) -> None:
    """Copy a file to a landing folder; a Parquet one to dirty ones, which are text, as CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".parquet" and state == DIRTY:
        pc.write_csv(pq.read_table(file), folder / file.with_suffix(".csv").name)
    else:
        shutil.copy(file, folder)
