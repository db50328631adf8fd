"""A lake in a folder, without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparkwap.catalog import Identifier
from sparkwap.catalog.pointers import Pointer, PointerUpdate
from sparkwap.catalog.store import Staged
from sparkwap.publish.lake import Lake

BRANCH = "pr_1"


def rows(*ids: int) -> pa.Table:
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "v": pa.array([i % 3 for i in ids], pa.int32())}
    )


class Bench:
    """A lake, with methods that write to it."""

    def __init__(self, folder: Path) -> None:
        properties = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"{folder}/warehouse"}
        self.folder = folder
        self.lake = Lake("lake", properties)
        self.lake.ensure_schema("s")

    def table(self, name: str, *batches: tuple[int, ...], **properties: str) -> Identifier:
        """Create a table with a file for each batch."""
        table = self.lake.catalog.create_table(("s", name), rows().schema, properties=properties)
        for batch in batches:
            table.append(rows(*batch))
        return "s", name

    def view(self, name: str, schema: str = "s") -> None:
        """Create a view of one column, as Spark does."""
        location = f"{self.folder}/warehouse/{schema}/{name}"
        file = f"{location}/metadata/00000-{uuid.uuid4()}.gz.metadata.json"
        schemas = [{"schema-id": 0, "fields": [{"id": 0, "name": "id", "type": "long"}]}]
        versions = [{"version-id": 1, "schema-id": 0, "representations": []}]
        document = {
            "view-uuid": str(uuid.uuid4()),
            "format-version": 1,
            "location": location,
            "schemas": schemas,
            "current-version-id": 1,
            "versions": versions,
        }
        files = self.lake.store.write({file: document})
        swap = PointerUpdate(None, Pointer((schema, name), "view", file))
        self.lake.store.commit(lambda: Staged(None, [swap], files), "publish", tries=1)

    def folders(self) -> set[str]:
        """Return the names of the folders in the warehouse."""
        return {path.name for path in (self.folder / "warehouse").iterdir()}

    def open(self, identifier: Identifier) -> Any:
        """Open the branch on a table; returns PyIceberg's table."""
        self.lake.branches.open(identifier, BRANCH)
        return self.lake.catalog.load_table(identifier)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.lake.close()
