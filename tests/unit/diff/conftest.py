"""A lake in a folder, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparkwap.catalog import Identifier, Lake

BRANCH = "pr_1"


def rows(*ids: int) -> pa.Table:
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "v": pa.array([i % 3 for i in ids], pa.int32())}
    )


class Bench:
    """A lake, and what is written to it."""

    def __init__(self, folder: Path) -> None:
        properties = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"{folder}/warehouse"}
        self.folder = folder
        self.lake = Lake("lake", properties)
        self.lake.ensure_schema("s")

    def table(self, name: str, *batches: tuple[int, ...], **properties: str) -> Identifier:
        """A table with a file for each batch."""
        table = self.lake.catalog.create_table(("s", name), rows().schema, properties=properties)
        for batch in batches:
            table.append(rows(*batch))
        return "s", name

    def open(self, identifier: Identifier) -> Any:
        """Its branch, and PyIceberg's table with it."""
        self.lake.open_branch(identifier, BRANCH)
        return self.lake.catalog.load_table(identifier)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.lake.close()
