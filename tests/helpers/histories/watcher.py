"""A reader who notes what the tables of a schema are, whenever one of them is another."""

from __future__ import annotations

import threading
import time
from functools import cache
from types import TracebackType

from pyiceberg.io import load_file_io
from pyiceberg.table import StaticTable

from helpers.histories.checker import Fact, Version
from helpers.lake import Reader

_Files = tuple[tuple[str, str], ...]


class Watcher:
    """Notes each state of the catalog's pointers that it finds, in a thread, while it is entered.

    Args:
        reader: The lake.
        schema: The schema to look at.
    """

    def __init__(self, reader: Reader, schema: str) -> None:
        self._reader, self._schema = reader, schema
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.states: list[dict[str, str]] = []
        self.looks = 0

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def versions(self) -> list[Version]:
        """What a reader saw, each that differs from the one before."""
        found: list[Version] = []
        for state in self.states:
            version = {name: self.rows_at(location) for name, location in state.items()}
            if not found or found[-1] != version:
                found.append(version)
        return found

    def rows_at(self, location: str, snapshot: int | None = None) -> frozenset[Fact]:
        """The rows of a snapshot, or of ``main``, by PyIceberg's plan of its data files."""
        return _rows_at(location, snapshot, tuple(self._reader.files.items()))

    def _watch(self) -> None:
        last = False
        while not last:
            last = self._stop.is_set()
            pointers = self._reader.pointers(self._schema)
            state = {name: location for name, (_, location) in pointers.items()}
            self.looks += 1
            if not self.states or self.states[-1] != state:
                self.states.append(state)
            time.sleep(0.002)


@cache
def _rows_at(location: str, snapshot: int | None, files: _Files) -> frozenset[Fact]:
    table = StaticTable.from_metadata(location, dict(files))
    tasks = table.scan(snapshot_id=snapshot).plan_files()
    return frozenset(row for task in tasks for row in _rows_of_file(task.file.file_path, files))


@cache
def _rows_of_file(path: str, files: _Files) -> frozenset[Fact]:
    import pyarrow.parquet as pq

    with load_file_io(dict(files), path).new_input(path).open() as stream:
        found = pq.read_table(stream).to_pylist()
    return frozenset(Fact(row["by"], row["number"], row["ok"]) for row in found)
