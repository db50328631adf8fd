"""What a reader of ``main`` sees: through PyIceberg and a catalog connection of its own.

Nothing here uses sparkwap: a reader of the lake does not have it.
"""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyhive import hive
from pyiceberg.catalog import Catalog
from pyiceberg.io import load_file_io
from pyiceberg.table import StaticTable
from thrift.transport.TTransport import TTransportException

from helpers.catalogs import TRANSACTIONS, Source, SqliteSource
from helpers.s3 import Store


@dataclass(frozen=True)
class Look:
    """One table or view at one moment.

    Attributes:
        kind: ``table`` or ``view``.
        columns: names, in order.
        rows: the rows of ``main`` as dicts; empty for a view, whose rows only an engine can tell.
        location: its metadata file.
        text: the SQL of a view.
    """

    kind: str
    columns: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    location: str
    text: str = ""

    def values(self, *columns: str) -> list[Any]:
        """The rows, sorted: plain values of one column, tuples of several."""
        if len(columns) == 1:
            return sorted((row[columns[0]] for row in self.rows), key=repr)
        return sorted((tuple(row[c] for c in columns) for row in self.rows), key=repr)

    def seen(self) -> tuple[Any, ...]:
        """What a reader can tell two states of a table apart by."""
        rows = tuple(sorted(repr(sorted(row.items())) for row in self.rows))
        return self.kind, self.columns, rows, self.text


@dataclass
class Reader:
    """Reads a lake by its catalog and PyIceberg.

    Attributes:
        lake: the lake directory.
        source: how it asks the catalog; of SQLite, if none is given.
    """

    lake: Path
    source: Source | None = None

    def __post_init__(self) -> None:
        self._source = self.source or SqliteSource(self.lake)

    @property
    def catalog(self) -> Catalog:
        """PyIceberg's catalog, new for each use; also for tests that are another writer."""
        return self._source.catalog()

    @property
    def files(self) -> Mapping[str, str]:
        """PyIceberg's properties of the file store; none for local files."""
        return self._source.files

    @property
    def store(self) -> Store | None:
        """The S3 store of the warehouse; None for local files."""
        return Store(self.files["s3.endpoint"]) if self.files else None

    def pointers(self, schema: str) -> dict[str, tuple[str, str]]:
        """Name -> kind and metadata file of a schema's members: one state of the catalog, where
        that has transactions."""
        return self._source.pointers(schema)

    def look(self, schema: str) -> dict[str, Look]:
        """All tables and views of a schema, by one state of the catalog."""
        return {
            name: self._view(location) if kind == "view" else self._table(location)
            for name, (kind, location) in self.pointers(schema).items()
        }

    def table(self, schema: str, name: str) -> Look:
        """One table."""
        return self.look(schema)[name]

    def metadata(self, schema: str, name: str) -> dict[str, Any]:
        """A table's metadata: refs, snapshots with their summaries, properties."""
        return self._document(self.pointers(schema)[name][1])

    def ledger(self, table: str, **match: Any) -> list[dict[str, Any]]:
        """Rows of a table of the ledger."""
        rows = self.look("wap_ledger")[table].rows
        return [row for row in rows if all(row[k] == v for k, v in match.items())]

    def _document(self, location: str) -> dict[str, Any]:
        files = load_file_io(dict(self.files), location)
        with files.new_input(location).open() as stream:
            content = stream.read()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        document: dict[str, Any] = json.loads(content)
        return document

    def _table(self, location: str) -> Look:
        table = StaticTable.from_metadata(location, dict(self.files))
        columns = tuple(field.name for field in table.schema().fields)
        # A table whose refs lack `main` reads as empty.
        rows: Sequence[dict[str, Any]] = table.scan().to_arrow().to_pylist()
        return Look("table", columns, tuple(rows), location)

    def _view(self, location: str) -> Look:
        document = self._document(location)
        version = next(
            v for v in document["versions"] if v["version-id"] == document["current-version-id"]
        )
        schema = next(s for s in document["schemas"] if s["schema-id"] == version["schema-id"])
        columns = tuple(f["name"] for f in schema["fields"])
        return Look("view", columns, (), location, version["representations"][0]["sql"])

    def _state(self, location: str) -> Any:
        document = self._document(location)
        if "current-version-id" in document:
            return self._view(location).text
        columns = next(
            tuple(f["name"] for f in s["fields"])
            for s in document["schemas"]
            if s["schema-id"] == document["current-schema-id"]
        )
        main = (document.get("refs") or {}).get("main") or {}
        return main.get("snapshot-id"), columns

    @contextmanager
    def polling(self, schema: str) -> Iterator[Poller]:
        """Look again and again in a thread while the block runs."""
        poller = Poller(self, schema)
        thread = threading.Thread(target=poller.run, daemon=True)
        thread.start()
        try:
            yield poller
        finally:
            poller.stop.set()
            thread.join()
        if poller.error is not None:
            raise poller.error


@dataclass
class Poller:
    """The distinct states of a schema that a reader saw, in the order in which it saw them.

    A state is what ``main`` of each table and the text of each view are, by one SQL statement; on a
    REST catalog by a request for each.
    """

    reader: Reader
    schema: str
    states: list[dict[str, Any]] = field(default_factory=list)
    polls: int = 0
    error: BaseException | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Poll until stopped; once more after it, for the last state."""
        known: dict[str, Any] = {}
        try:
            while True:
                last = self.stop.is_set()
                state = {
                    name: known.setdefault(location, self.reader._state(location))
                    if location not in known
                    else known[location]
                    for name, (_, location) in self.reader.pointers(self.schema).items()
                }
                self.polls += 1
                if not self.states or self.states[-1] != state:
                    self.states.append(state)
                if last:
                    return
                self.stop.wait(0.002)
        except BaseException as error:
            self.error = error

    def only_move(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The first and the last state, between which there may have been no other.

        A mix of old and new tables would be a third state. Without transactions readers may see
        one; then no table may have been anything but what it was and what it became.
        """
        shown = [sorted(state) for state in self.states]
        if TRANSACTIONS:
            assert len(self.states) == 2, shown
        old, new = self.states[0], self.states[-1]
        for name in {name for state in self.states for name in state}:
            seen = [state.get(name) for state in self.states]
            turns = [
                one for one, next_one in zip(seen, [*seen[1:], ...], strict=True) if one != next_one
            ]
            assert turns in ([old.get(name)], [old.get(name), new.get(name)]), (name, turns)
        return old, new


class SparkReader:
    """A plain Spark session that knows of no branch: what a BI tool would have.

    Tests may kill or restart the server between two statements: then the next one opens a session
    on the new server.
    """

    def __init__(self, connect: Callable[[], hive.Connection]) -> None:
        self._connect = connect
        self._connection: hive.Connection | None = None

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a query, sorted."""
        with closing(self._cursor()) as cursor:
            cursor.execute(sql)
            return sorted((tuple(row) for row in cursor.fetchall()), key=repr)

    def run(self, sql: str) -> None:
        """Run a statement that has no rows."""
        with closing(self._cursor()) as cursor:
            cursor.execute(sql)

    def close(self) -> None:
        """End the session, if its server has not ended it."""
        if self._connection is not None:
            with suppress(TTransportException):
                self._connection.close()
            self._connection = None

    def _cursor(self) -> hive.Cursor:
        if self._connection is not None:
            cursor = self._connection.cursor()
            try:
                cursor.execute("select 1")
                return cursor
            except TTransportException:
                self._connection = None
        self._connection = self._connect()
        return self._connection.cursor()
