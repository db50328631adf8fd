"""The proof: every file of the lake is read, and none holds the subject.

Nothing here trusts what the erasure did. Files are listed from the folders, not from the catalog,
and read by PyArrow and fastavro: all values of all columns, the statistics of Parquet footers,
the column bounds of manifests, partition values in paths, summaries of snapshots, and the plain
bytes of all else.
"""

from __future__ import annotations

import gzip
import json
import mmap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import orc

from sparkwap.catalog import avro
from sparkwap.catalog.files import plain_location
from sparkwap.catalog.model import Identifier
from sparkwap.erasure.search import Search, bound_text, text_of
from sparkwap.erasure.subject_tables import SubjectTable

PARQUET_MAGIC = b"PAR1"
_GZIP_MAGIC = b"\x1f\x8b"
_FIELD_ID = b"PARQUET:field_id"
_ORC_FIELD_ID = b"iceberg.id"
_BATCH_ROWS = 65_536

Data = bytes | mmap.mmap
"""The content of a file."""

Wanted = Mapping[str, frozenset[str]]
"""Column (lower case) -> what of the subject it may hold."""


@dataclass(frozen=True)
class Owned:
    """A table by whose columns the files below its folder are read.

    Attributes:
        identifier: Schema and table.
        folder: Its location.
        place: What of it is marked; None for a table that no mark reaches.
        fields: Field id -> the column's present name, which old files may call otherwise.
        partitions: Partition spec id -> for each of its fields the column (lower case) and type,
            or None where the value is not the column's own.
    """

    identifier: Identifier
    folder: str
    place: SubjectTable | None
    fields: Mapping[int, str] = field(default_factory=dict)
    partitions: Mapping[int, Sequence[tuple[str, str] | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Scanned:
    """A file that was read.

    Attributes:
        path: Where it is.
        format: ``parquet``, ``orc``, ``avro``, ``json``, ``gzip json`` or ``bytes``; ``unreadable``
            for what is none of these, or not what its name says.
        size: Bytes.
        table: The table in whose folder it is; None for none.
        found: Where in it the subject is: ``column email``, ``bound of column email``. Never a
            value.
    """

    path: str
    format: str
    size: int
    table: Identifier | None
    found: tuple[str, ...]


@dataclass(frozen=True)
class Scanner:
    """Reads files and tells where the subject is.

    Attributes:
        search: What is looked for.
        tables: The tables of the lake.
        ignored: ``schema.table.column`` in lower case that are not looked at, by request.
    """

    search: Search
    tables: Sequence[Owned]
    ignored: frozenset[str] = frozenset()

    def owner(self, path: str) -> Owned | None:
        """The table in whose folder a file is."""
        folder = plain_location(path)
        while "/" in folder:
            folder = folder.rpartition("/")[0]
            if folder in self._by_folder:
                return self._by_folder[folder]
        return None

    @cached_property
    def _by_folder(self) -> Mapping[str, Owned]:
        # A clone shares the folder of its table; what is marked says more.
        tables = sorted(self.tables, key=lambda table: table.place is not None)
        return {plain_location(table.folder): table for table in tables}

    def scan(self, path: str, data: Data) -> Scanned:
        """Read one file, wholly.

        A file that cannot be read counts as one that holds the subject.
        """
        owner = self.owner(path)
        look = _Look(self, owner, self._wanted(owner))
        kind = "unreadable"
        try:
            kind, content = _kind(path, data)
            found = {
                "parquet": look.parquet,
                "orc": look.orc,
                "avro": look.avro,
                "json": look.json,
                "gzip json": look.json,
                "bytes": look.plain,
            }[kind](content)
            named = self.search.in_text(path) or self.search.in_text(unquote(path))
            if named or self.search.in_pairs(path, look.wanted):
                found = [*found, "its path"]
        except Exception as error:
            found = [f"cannot be read ({type(error).__name__}), so it may hold the subject"]
        table = owner.identifier if owner else None
        return Scanned(path, kind, len(data), table, tuple(dict.fromkeys(found)))

    def _wanted(self, owner: Owned | None) -> Wanted:
        if owner is None:
            return self._anywhere
        return owner.place.wanted(self.search) if owner.place else self._elsewhere

    @cached_property
    def _anywhere(self) -> Wanted:
        """All marked columns: for files of tables that are no more, whose marks nobody knows."""
        wanted: dict[str, frozenset[str]] = {}
        for place in (table.place for table in self.tables if table.place):
            for name, values in place.wanted(self.search).items():
                wanted[name] = wanted.get(name, frozenset()) | values
        return wanted

    @cached_property
    def _elsewhere(self) -> Wanted:
        """Columns of any table that are named like a marked key, unless the name says little."""
        wanted: dict[str, frozenset[str]] = {}
        for table in self.tables:
            for name in table.place.keys if table.place else ():
                if len(name) > len("code"):
                    wanted[name.lower()] = self.search.keys
        return wanted

    def collect(self, path: str, data: Data) -> dict[str, set[tuple[str, bool]]]:
        """The subject's personal values in a data file, by column, each with "is it a text"."""
        owner = self.owner(path)
        if owner is None or owner.place is None or not owner.place.keys:
            return {}
        found: dict[str, set[tuple[str, bool]]] = {}
        for mine, cells in self._personal(owner, path, data):
            for name, column in cells:
                for value, own in zip(column, mine, strict=True):
                    text = text_of(value)
                    if own and text:
                        found.setdefault(name, set()).add((text, isinstance(value, str)))
        return found

    def shared(self, path: str, data: Data, values: Wanted) -> dict[str, set[str]]:
        """Which of ``values`` other people have too, in a data file."""
        owner = self.owner(path)
        if owner is None or owner.place is None or not owner.place.keys:
            return {}
        found: dict[str, set[str]] = {}
        for mine, cells in self._personal(owner, path, data):
            for name, column in cells:
                wanted = values.get(name, frozenset())
                for value, own in zip(column, mine, strict=True):
                    text = text_of(value)
                    if not own and text in wanted:
                        found.setdefault(name, set()).add(text)
        return found

    def _personal(
        self, owner: Owned, path: str, data: Data
    ) -> Iterator[tuple[list[bool], list[tuple[str, list[Any]]]]]:
        """Portions of rows: whether each is the subject's, and its personal columns."""
        place = owner.place
        if place is None:
            return
        for schema, batches in _rows(_kind(path, data)[0], data):
            present = {_name(f, owner): index for index, f in enumerate(schema)}
            keys = [present[k.lower()] for k in place.keys if k.lower() in present]
            personal = [(p.lower(), present[p.lower()]) for p in place.personal
                        if p.lower() in present]  # fmt: skip
            if not keys or not personal:
                return
            for batch in batches:
                mine = [
                    any(text_of(value) in self.search.keys for value in row)
                    for row in zip(*(batch.column(key).to_pylist() for key in keys), strict=True)
                ]
                yield mine, [(name, batch.column(at).to_pylist()) for name, at in personal]


@dataclass(frozen=True)
class _Look:
    """One file, by the columns of its table."""

    scanner: Scanner
    owner: Owned | None
    wanted: Wanted

    @property
    def search(self) -> Search:
        return self.scanner.search

    def parquet(self, data: Data) -> list[str]:
        file = pq.ParquetFile(pa.BufferReader(data))
        found = [f"column {n}" for n in self._cells("parquet", data)]
        found += [f"statistics of column {n}" for n in self._statistics(file)]
        for name, value in (file.metadata.metadata or {}).items():
            if self.search.in_text(value.decode("utf-8", "replace")):
                found.append(f"footer entry {name.decode('utf-8', 'replace')}")
        return found

    def orc(self, data: Data) -> list[str]:
        found = [f"column {name}" for name in self._cells("orc", data)]
        for name, value in (orc.ORCFile(pa.BufferReader(data)).metadata or {}).items():
            if self.search.in_text(value.decode("utf-8", "replace")):
                found.append(f"footer entry {name.decode('utf-8', 'replace')}")
        return found

    def _cells(self, kind: str, data: Data) -> Iterator[str]:
        names: set[str] = set()
        for fields, batches in _rows(kind, data):
            for batch in batches:
                for field_, column in zip(fields, batch.columns, strict=True):
                    name = _name(field_, self.owner)
                    if name not in names and self._any(column, name):
                        names.add(name)
        yield from sorted(names)

    def _any(self, column: pa.Array, name: str) -> bool:
        if self._ignored(name):
            return False
        if pa.types.is_nested(column.type):
            return any(self._any(inner, inner_name) for inner_name, inner in _parts(column, name))
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        wanted = self.wanted.get(name, frozenset())
        texts = _is_text(column.type)
        if not (texts or wanted or self.search.numbers):
            return False
        values = pc.unique(column).to_pylist()
        if self._raw(name):
            return any(self.search.in_raw(value) for value in values if value)
        if texts:
            return any(self.search.in_column(value, wanted) for value in values)
        wanted = wanted | self.search.numbers
        return any(text_of(value) in wanted for value in values)

    def _raw(self, name: str) -> bool:
        place = self.owner.place if self.owner else None
        return place is not None and name in {text.lower() for text in place.texts}

    def _statistics(self, file: pq.ParquetFile) -> Iterator[str]:
        names: set[str] = set()
        for group in range(file.metadata.num_row_groups):
            row_group = file.metadata.row_group(group)
            for index in range(row_group.num_columns):
                column = row_group.column(index)
                name = self._leaf(file, str(column.path_in_schema))
                statistics = column.statistics
                if statistics is None or not statistics.has_min_max or self._ignored(name):
                    continue
                wanted = self.wanted.get(name, frozenset())
                for bound in (statistics.min, statistics.max):
                    if self.search.in_bound(text_of(bound), wanted):
                        names.add(name)
        yield from sorted(names)

    def _leaf(self, file: pq.ParquetFile, path: str) -> str:
        if "." not in path:
            name: str = _name(file.schema_arrow.field(path), self.owner)
            return name
        return path.lower()

    def _ignored(self, name: str) -> bool:
        if self.owner is None:
            return False
        return ".".join((*self.owner.identifier, name)).lower() in self.scanner.ignored

    def avro(self, data: Data) -> list[str]:
        file = avro.read(bytes(data))
        fields = _iceberg_fields(file.header)
        # A table's rows, by the present names of its columns; else a list of its files.
        found = [f"column {name}" for name in self._cells("avro", data)]
        for record in file.records:
            found.extend(self._record(record, fields))
        for name, value in file.header.items():
            if self.search.in_text(value) and not self._only_names(value):
                found.append(f"header entry {name}")
        return found

    @staticmethod
    def _only_names(value: str) -> bool:
        return value.startswith(("{", "[")) and '"default"' not in value

    def _record(
        self, value: Any, fields: Mapping[int, tuple[str, str]], name: str = ""
    ) -> Iterator[str]:
        if isinstance(value, dict):
            for key, inner in value.items():
                if key in ("lower_bounds", "upper_bounds") and fields:
                    yield from self._bounds(inner or (), fields)
                elif key == "partitions" and "partition_spec_id" in value:
                    yield from self._summaries(inner or (), value["partition_spec_id"])
                else:
                    yield from self._record(inner, fields, key)
        elif isinstance(value, list):
            for inner in value:
                yield from self._record(inner, fields, name)
        elif isinstance(value, str):
            if self.search.in_text(value) or self.search.in_pairs(value, self.wanted):
                yield f"entry {name}"
            elif value in self.wanted.get(name.lower(), frozenset()):
                yield f"partition {name}"
        elif isinstance(value, bytes):
            if self.search.in_text(value.decode("utf-8", "replace")):
                yield f"entry {name}"
        elif value is not None and text_of(value) in self.wanted.get(name.lower(), frozenset()):
            yield f"partition {name}"

    def _summaries(self, summaries: Iterable[Mapping[str, Any]], spec: int) -> Iterator[str]:
        """The bounds of partition values in a manifest list, which does not tell their types."""
        columns = self.owner.partitions.get(spec, ()) if self.owner else ()
        for index, summary in enumerate(summaries):
            name, kind = (columns[index] if index < len(columns) else None) or ("", "string")
            wanted = self.wanted.get(name, frozenset())
            for bound in (summary.get("lower_bound"), summary.get("upper_bound")):
                if bound is not None and self.search.in_bound(bound_text(kind, bound), wanted):
                    yield f"bound of partition {name or index}"

    def _bounds(
        self, bounds: Iterable[Mapping[str, Any]], fields: Mapping[int, tuple[str, str]]
    ) -> Iterator[str]:
        for bound in bounds:
            written, kind = fields.get(bound["key"], ("?", "string"))
            name = (self.owner.fields.get(bound["key"], written) if self.owner else written).lower()
            if self._ignored(name):
                continue
            text = bound_text(kind, bound["value"])
            if self.search.in_bound(text, self.wanted.get(name, frozenset())):
                yield f"bound of column {name}"

    def json(self, data: Data) -> list[str]:
        return list(dict.fromkeys(self._document(json.loads(bytes(data)), "")))

    def _document(self, value: Any, where: str) -> Iterator[str]:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if self._says(str(key)):
                    yield f"name in {where or 'the document'}"
                yield from self._document(inner, str(key))
        elif isinstance(value, list):
            for inner in value:
                yield from self._document(inner, where)
        elif isinstance(value, str) and self._says(value):
            yield where or "the document"

    def _says(self, text: str) -> bool:
        return self.search.in_text(text) or self.search.in_pairs(text, self.wanted)

    def plain(self, data: Data) -> list[str]:
        found = any(self.search.in_text(text) for text in _texts(bytes(data)))
        return ["its bytes"] if found else []


def _kind(path: str, data: Data) -> tuple[str, Data]:
    """What a file is, by its content, and its content unpacked.

    Raises:
        ValueError: It is not what its name says, or packed in a way that is not known here: its
            plain bytes would show nothing of what it holds.
    """
    magic = bytes(data[:6])
    claims = path.rpartition(".")[2].lower()
    for kind, (mark, ending) in _FORMATS.items():
        if magic.startswith(mark):
            return kind, data
        if claims == ending and len(data):
            raise ValueError(f"no {kind} file")
    if magic.startswith(_GZIP_MAGIC):
        content = gzip.decompress(data)
        return ("gzip json", content) if path.endswith(".json") else ("bytes", content)
    for mark, codec in _PACKED.items():
        if magic.startswith(mark):
            with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
                return "bytes", stream.read()
    if magic.startswith(_CLOSED):
        raise ValueError("an archive")
    return ("json", data) if path.endswith(".json") else ("bytes", data)


_FORMATS = {
    "parquet": (PARQUET_MAGIC, "parquet"),
    "orc": (b"ORC", "orc"),
    "avro": (avro.MAGIC, "avro"),
}
_PACKED = {b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2", b"\x04\x22\x4d\x18": "lz4"}
# zip, xz, 7z, and Parquet whose footer is encrypted
_CLOSED = (b"PK\x03\x04", b"\xfd7zXZ", b"7z\xbc\xaf", b"PARE")


def _rows(kind: str, data: Data) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    """The rows of a data file, in portions; nothing for files of another kind."""
    if kind == "parquet":
        parquet = pq.ParquetFile(pa.BufferReader(data))
        yield parquet.schema_arrow, parquet.iter_batches(_BATCH_ROWS)
    elif kind == "orc":
        stripes = orc.ORCFile(pa.BufferReader(data))
        yield stripes.schema, (stripes.read_stripe(at) for at in range(stripes.nstripes))
    elif kind == "avro":
        table = avro.read(bytes(data)).table()
        yield table.schema, iter(table.to_batches())


def _texts(data: bytes) -> Iterator[str]:
    """What bytes may say, in the encodings of those who deliver files."""
    yield data.decode("utf-8", "replace")
    try:
        data.decode()
    except UnicodeDecodeError:
        yield data.decode("latin-1")
    if b"\x00" in data:
        yield data.decode("utf-16-le", "replace")
        yield data.decode("utf-16-be", "replace")


def _name(field_: pa.Field, owner: Owned | None) -> str:
    """The name under which a file's column is known today, in lower case."""
    metadata = field_.metadata or {}
    number = metadata.get(_FIELD_ID) or metadata.get(_ORC_FIELD_ID)
    if owner is not None and number is not None:
        return owner.fields.get(int(number), str(field_.name)).lower()
    return str(field_.name).lower()


def _parts(column: pa.Array, name: str) -> Iterator[tuple[str, pa.Array]]:
    kind = column.type
    if pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            # A product's `id` inside a struct is not the key `id`.
            yield f"{name}.{kind.field(index).name.lower()}", column.field(index)
    elif pa.types.is_map(kind):
        yield name, column.keys
        yield name, column.items
    else:
        yield name, column.flatten()


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _iceberg_fields(header: Mapping[str, str]) -> dict[int, tuple[str, str]]:
    """Field id -> name and type, from the schema in a manifest's header; empty for other files."""
    try:
        schema = json.loads(header["schema"])
    except (KeyError, ValueError):
        return {}
    found: dict[int, tuple[str, str]] = {}

    def walk(kind: Any, above: str) -> None:
        if not isinstance(kind, Mapping):
            return
        for one in kind.get("fields", ()):
            name = f"{above}{one['name']}"
            found[one["id"]] = (name, one["type"] if isinstance(one["type"], str) else "")
            walk(one["type"], f"{name}.")
        for part in ("element", "key", "value"):
            if part in kind:
                inner = kind[part]
                text = inner if isinstance(inner, str) else ""
                found[kind[f"{part}-id"]] = (f"{above}{part}", text)
                walk(inner, f"{above}{part}.")

    walk(schema, "")
    return found


# -- the report ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Proof:
    """What the reader found in the whole lake.

    Attributes:
        files: All files, in order of their paths.
    """

    files: tuple[Scanned, ...]

    @property
    def holding(self) -> tuple[Scanned, ...]:
        """The files that hold the subject."""
        return tuple(file for file in self.files if file.found)

    @property
    def clean(self) -> bool:
        """Whether no file holds the subject."""
        return not self.holding


def scan(
    scanner: Scanner,
    paths: Collection[str],
    read: Callable[[str], Data],
    spread: Callable[[Callable[[str], Scanned | None], Iterable[str]], list[Scanned | None]],
) -> Proof:
    """Read all files.

    Args:
        scanner: Reads one.
        paths: All files.
        read: The content of a file, as it is.
        spread: Calls a function for each path, by several threads.
    """

    def one(path: str) -> Scanned | None:
        try:
            data = read(path)
        except FileNotFoundError:
            return None  # a writer beside us took it away
        return scanner.scan(path, data)

    found = spread(one, sorted(paths))
    return Proof(tuple(file for file in found if file is not None))
