"""The readers of ``analyses/readers``: what each engine sees of a snapshot."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

FOLDER = Path(__file__).parents[2] / "analyses/readers"
ENGINES = ("pyiceberg", "pandas", "polars", "duckdb", "duckdb without its extension")


@dataclass(frozen=True)
class Engines:
    """The scripts, as modules."""

    module: Callable[[str], Any]

    def rows(self, engine: str, table: Any, snapshot: int) -> list[dict[str, Any]]:
        """The rows of a snapshot as an engine gives them, in the order of ``id``."""
        name, _, without = engine.partition(" ")
        module = self.module(f"with_{name}")
        if name == "duckdb":
            connection = self.module("duckdb").connect() if without else module.connect()
            assert module.has_extension(connection) == (not without)
            rows = module.read(connection, table, snapshot).to_arrow_table()
        else:
            rows = module.read(table, snapshot)
        if name == "polars":
            rows = rows.collect().to_arrow()
        if name == "pandas":
            rows = pa.Table.from_pandas(rows, preserve_index=False)
        found: list[dict[str, Any]] = rows.to_pylist()
        return sorted(found, key=lambda row: row["id"])

    def find(self, lake: Path, *arguments: str) -> tuple[Any, int]:
        """Table and snapshot, as the command line of a script says them."""
        module = self.module("lake")
        table, snapshot = module.find(module.arguments([*arguments, "--lake", str(lake)]))
        return table, snapshot


@contextmanager
def engines() -> Iterator[Engines]:
    """Import the scripts while the block runs."""
    sys.path.insert(0, str(FOLDER))
    try:
        yield Engines(importlib.import_module)
    finally:
        sys.path.remove(str(FOLDER))
        for file in FOLDER.glob("*.py"):
            sys.modules.pop(file.stem, None)
