"""The proof: reads every file of the lake, and checks that no file holds the subject.

The proof does not use the results of the erasure. It lists the files of the folders, adds those to
which tables refer or have referred elsewhere, and reads them with PyArrow and fastavro: all values
of all columns, the statistics of Parquet footers, the column bounds of manifests, partition values
in paths, summaries of snapshots, and the bytes of all other files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from sparkwap.catalog.files import plain_location
from sparkwap.catalog.model import Identifier
from sparkwap.erasure.cells import candidates, equal, filled, filtered, matching, plain
from sparkwap.erasure.file_formats import Data, rows_of, size_of, unpacked
from sparkwap.erasure.file_search import FileSearch, Owned, Wanted, column_name, leaves
from sparkwap.erasure.search import Search, text_of


@dataclass(frozen=True)
class Scanned:
    """A file that was read.

    Attributes:
        format: ``parquet``, ``orc``, ``avro``, ``json``, ``gzip json`` or ``bytes``; ``unreadable``
            if its content does not have the format of its name.
        size: Its size in bytes.
        table: The table in whose folder the file is; None if there is none.
        found: The places of the subject in the file, without values: ``column email``,
            ``bound of column email``.
    """

    path: str
    format: str
    size: int
    table: Identifier | None
    found: tuple[str, ...]


@dataclass(frozen=True)
class Scanner:
    """Reads files and finds the subject in them.

    Attributes:
        ignored: Columns that the request excludes, ``schema.table.column`` in lower case.
        reach: File, in one spelling -> the tables that refer to it, for files outside of the
            folders of tables.
        replaced: Former tables with marks, for values that only their files have.
    """

    search: Search
    tables: Sequence[Owned]
    ignored: frozenset[str] = frozenset()
    reach: Mapping[str, set[Identifier]] = field(default_factory=dict)
    replaced: Sequence[Owned] = ()

    def owner(self, path: str) -> Owned | None:
        """Return the table in whose folder a file is, or one that refers to it."""
        if table := _nearest(path, self._by_folder):
            return table
        names = self.reach.get(plain_location(path), ())
        tables = (table for table in self.tables if table.identifier in names)
        return max(tables, key=lambda table: table.place is not None, default=None)

    @cached_property
    def _by_folder(self) -> Mapping[str, Owned]:
        # A clone shares the folder of its table; the table with marks comes last and wins.
        return _by_folder(sorted(self.tables, key=lambda table: table.place is not None))

    @cached_property
    def _by_former_folder(self) -> Mapping[str, Owned]:
        return _by_folder(self.replaced)

    def scan(self, path: str, data: Data) -> Scanned:
        """Search a whole file; a file that cannot be read counts as holding the subject."""
        owner = self.owner(path)
        look = FileSearch(self.search, self.ignored, owner, self._wanted(owner))
        kind = "unreadable"
        try:
            kind, content = unpacked(path, data)
            found = {
                "parquet": look.parquet,
                "orc": look.orc,
                "avro": look.avro,
                "json": look.json,
                "gzip json": look.json,
                "bytes": look.plain,
            }[kind](content)
            of_paths = self.search.in_names
            named = of_paths.in_text(path) or of_paths.in_text(unquote(path))
            if named or self.search.in_pairs(path, look.wanted):
                found = [*found, "its path"]
        except Exception as error:
            found = [f"cannot be read ({type(error).__name__}), so it may hold the subject"]
        table = owner.identifier if owner else None
        return Scanned(path, kind, size_of(data), table, tuple(dict.fromkeys(found)))

    def _wanted(self, owner: Owned | None) -> Wanted:
        if owner is None:
            return self._anywhere
        return owner.place.wanted(self.search) if owner.place else self._elsewhere

    @cached_property
    def _anywhere(self) -> Wanted:
        """All marked columns, for files of former tables, whose marks are not known."""
        wanted: dict[str, frozenset[str]] = {}
        for place in (table.place for table in self.tables if table.place):
            for name, values in place.wanted(self.search).items():
                wanted[name] = wanted.get(name, frozenset()) | values
        return wanted

    @cached_property
    def _elsewhere(self) -> Wanted:
        """The names of marked keys, for tables without marks, except short names such as ``id``."""
        wanted: dict[str, frozenset[str]] = {}
        for table in self.tables:
            for name in table.place.keys if table.place else ():
                if len(name) > len("code"):
                    wanted[name.lower()] = self.search.keys
        return wanted

    def collect(self, path: str, data: Data) -> dict[str, set[tuple[str, bool]]]:
        """Return the subject's personal values in a data file, by column.

        Each value comes with a flag: whether it is a text.
        """
        found: dict[str, set[tuple[str, bool]]] = {}
        for name, column in self._personal(path, data, of_others=False):
            for value in column.to_pylist():
                if text := text_of(value):
                    found.setdefault(name, set()).add((text, isinstance(value, str)))
        return found

    def shared(self, path: str, data: Data, values: Wanted) -> dict[str, set[str]]:
        """Return the values of a data file that also belong to other people, by column.

        A row without a key, or with one that is nobody's, may be the subject's.
        """
        found: dict[str, set[str]] = {}
        for name, column in self._personal(path, data, of_others=True):
            wanted = values.get(name, frozenset())
            for text in map(text_of, candidates(column, wanted)):
                if text in wanted:
                    found.setdefault(name, set()).add(text)
        return found

    def staying(
        self,
        path: str,
        data: Data,
        keys: Collection[str] | None,
        changed: Collection[str] | None,
        hidden: pa.Array | None = None,
    ) -> set[str]:
        """Return the columns of a marked table's file in which rows hold the subject that stay.

        Args:
            keys: The subject's keys; None if all rows stay.
            changed: The columns (lower case) that get other values in the subject's rows; None if
                these rows are deleted.
            hidden: The positions of the rows that delete files hide, which do not stay.
        """
        owner = self.owner(path)
        if owner is None or owner.place is None:
            return set()
        look = FileSearch(self.search, self.ignored, owner, self._wanted(owner))
        of_keys, texts = (
            {name.lower() for name in names if keys is not None}
            for names in (owner.place.keys, owner.place.texts)
        )
        found: set[str] = set()
        at = 0
        for batch in rows_of(unpacked(path, data)[0], data):
            numbers = pa.array(range(at, at + len(batch)), pa.int64())
            at += len(batch)
            names = [column_name(field, owner) for field in batch.schema]
            columns = list(zip(names, batch.columns, strict=True))
            none = pc.is_in(numbers, pa.array([], pa.int64()) if hidden is None else hidden)
            naming = [
                matching(column, (), self.search.raw_tokens, self.search.in_raw)
                for name, column in columns
                if name in texts
            ]
            own = [equal(column, keys or ()) for name, column in columns if name in of_keys]
            gone = reduce(pc.or_, naming, none)
            own_gone = reduce(pc.or_, own, gone)
            for name, column in columns:
                going = own_gone if changed is None or name in changed else gone
                if name not in found and look.holds(filtered(column, pc.invert(going)), name):
                    found.add(name)
        return found

    def _personal(
        self, path: str, data: Data, *, of_others: bool
    ) -> Iterator[tuple[str, pa.Array]]:
        """Yield the personal values in the subject's rows, or in those of others.

        They come by the names of the columns and of their fields.
        """
        owner = self.owner(path) or _nearest(path, self._by_former_folder)
        place = owner.place if owner else None
        if place is None or not (place.keys and place.personal):
            return
        keys = {key.lower() for key in place.keys}
        personal = {part for n in place.personal for part in (n, n.partition(".")[0])}
        needed = keys.union(map(str.lower, personal))

        def marked(field: pa.Field) -> bool:
            return column_name(field, owner) in needed

        for batch in rows_of(unpacked(path, data)[0], data, marked):
            columns = [
                (column_name(field, owner), plain(column))
                for field, column in zip(batch.schema, batch.columns, strict=True)
            ]
            found = [column for name, column in columns if name in keys]
            if not found:
                continue
            rows = reduce(pc.or_, [equal(column, self.search.keys) for column in found])
            if of_others:
                keyed = (pc.and_not(filled(one), equal(one, place.nobody)) for one in found)
                rows = pc.and_not(reduce(pc.or_, keyed), rows)
            for name, column in columns:
                for inner_name, inner in leaves(filtered(column, rows), name):
                    if place.is_personal(inner_name):
                        yield inner_name, inner


def _by_folder(tables: Iterable[Owned]) -> dict[str, Owned]:
    return {plain_location(one): table for table in tables for one in table.folders}


def _nearest(path: str, tables: Mapping[str, Owned]) -> Owned | None:
    """Return the table of the innermost folder in which a file is."""
    folder = plain_location(path)
    while "/" in folder:
        folder = folder.rpartition("/")[0]
        if folder in tables:
            return tables[folder]
    return None


@dataclass(frozen=True)
class Proof:
    """The result of reading the whole lake.

    Attributes:
        files: All files, in order of their paths.
    """

    files: tuple[Scanned, ...]

    @property
    def holding(self) -> tuple[Scanned, ...]:
        """The files that hold the subject."""
        return tuple(file for file in self.files if file.found)

    def tables(self, reach: Mapping[str, set[Identifier]]) -> set[Identifier]:
        """Return the tables that refer to files which hold the subject.

        Args:
            reach: File, in one spelling -> the tables that refer to it.
        """
        holding = (plain_location(file.path) for file in self.holding)
        return set().union(*(reach.get(path, set()) for path in holding))

    @property
    def clean(self) -> bool:
        """Whether no file holds the subject."""
        return not self.holding
