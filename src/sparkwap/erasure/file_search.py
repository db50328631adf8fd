"""Searches one file for the subject, by the columns of its table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from sparkwap.catalog import avro
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.sparksql import inner_fields
from sparkwap.core.names import LEDGER_SCHEMA
from sparkwap.core.personal import QUARANTINED_ROW
from sparkwap.erasure.cells import candidates, is_text, plain
from sparkwap.erasure.file_formats import Data, decoded, magic_of, opened, parts, rows_of, whole
from sparkwap.erasure.search import Search, bound_text, text_of
from sparkwap.erasure.subject_tables import SubjectTable

_FIELD_ID = b"PARQUET:field_id"
_ORC_FIELD_ID = b"iceberg.id"
_DELETED_IN = {2147483546: "path of deleted rows"}
"""Iceberg's column in position deletes, by its field id."""

_PATHS = ("file_path", "manifest_path", "referenced_data_file")
_NAMING_FILES = (b"SQLite", b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83", b"PFA1")
"""The first bytes of the catalog's database, its write-ahead log, and Puffin files."""

# fmt: off
LEDGER_IDS = frozenset({
    "action", "audited", "base_metadata", "branch", "built_on", "candidate", "candidate_metadata",
    "command", "folder", "how", "inputs", "kind", "metric", "moves", "name", "named", "node_id",
    "object", "outcome", "parents", "pins", "project", "published_metadata", "reads",
    "resource_type", "route", "schema", "scope", "severity", "state", "status", "subject",
    "tables", "tag", "tags", "target", "test_id", "test_name", "undone_metadata", "verdict",
    "what",
})
# fmt: on
"""The columns of the ledger in which only ids, names and fixed words stand."""

Wanted = Mapping[str, frozenset[str]]
"""Column (lower case) -> the subject's keys or values that it may hold."""


@dataclass(frozen=True)
class Owned:
    """A table, for the search of the files in its folder.

    Attributes:
        place: Its marked columns; None for a table without marks.
        fields: Field id -> the present name of the column; old files may have another name.
        partitions: Partition spec id -> for each of its fields the column (lower case) and type,
            or None if the partition value is not the column's value.
    """

    identifier: Identifier
    folders: Sequence[str]
    place: SubjectTable | None
    fields: Mapping[int, str] = field(default_factory=dict)
    partitions: Mapping[int, Sequence[tuple[str, str] | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class FileSearch:
    """Searches one file.

    Attributes:
        ignored: Columns to leave out, ``schema.table.column`` in lower case.
        owner: The table in whose folder the file is; None if there is none.
    """

    search: Search
    ignored: frozenset[str]
    owner: Owned | None
    wanted: Wanted

    def parquet(self, data: Data) -> list[str]:
        file = pq.ParquetFile(opened(data))
        found = [f"column {n}" for n in self._cells("parquet", data)]
        found += [f"statistics of column {n}" for n in self._statistics(file)]
        return [*found, *self._footer(file.metadata.metadata)]

    def orc(self, data: Data) -> list[str]:
        found = [f"column {name}" for name in self._cells("orc", data)]
        return [*found, *self._footer(orc.ORCFile(opened(data)).metadata)]

    def _footer(self, entries: Mapping[bytes, bytes] | None) -> Iterator[str]:
        for name, value in (entries or {}).items():
            if self.search.in_names.in_text(value.decode("utf-8", "replace")):
                yield f"footer entry {name.decode('utf-8', 'replace')}"

    def _cells(self, kind: str, data: Data) -> Iterator[str]:
        names: set[str] = set()
        for batch in rows_of(kind, data):
            for field_, column in zip(batch.schema, batch.columns, strict=True):
                name = column_name(field_, self.owner)
                if name not in names and self.holds(column, name):
                    names.add(name)
        yield from sorted(names)

    def holds(self, column: pa.Array, name: str) -> bool:
        """Return whether a column of this name holds the subject."""
        if self._ignored(name):
            return False
        column = plain(column)
        if pa.types.is_nested(column.type):
            return any(self.holds(inner, inner_name) for inner_name, inner in _parts(column, name))
        search, wanted = self._search_of(name), self.wanted.get(name, frozenset())
        if self._raw(name):
            if not pa.types.is_null(column.type) and not _is_string(column.type):
                raise ValueError(f"{name} is no text")
            values = candidates(column, (), search.raw_tokens)
            return any(search.in_raw(value) for value in values if value)
        if is_text(column.type):
            values = candidates(column, wanted, search.tokens)
            return any(search.in_column(value, wanted) for value in values)
        wanted |= search.numbers
        return bool(wanted) and any(text_of(v) in wanted for v in candidates(column, wanted))

    def _raw(self, name: str) -> bool:
        place = self.owner.place if self.owner else None
        return place is not None and name in {text.lower() for text in place.texts}

    def _search_of(self, column: str) -> Search:
        """Return the search for the values of a column, which may be names."""
        name = column.partition(".")[0]
        schema = self.owner.identifier[0] if self.owner else None
        if schema == LEDGER_SCHEMA and name in LEDGER_IDS:
            return self.search.in_ids
        # The paths of landing files and of data files.
        of_quarantine = name == "file_path" and self._raw(QUARANTINED_ROW)
        is_path = of_quarantine or name in ("_file_path", *_DELETED_IN.values())
        return self.search.in_names if is_path else self.search

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
                    if self._search_of(name).in_bound(text_of(bound), wanted):
                        names.add(name)
        yield from sorted(names)

    def _leaf(self, file: pq.ParquetFile, path: str) -> str:
        if "." not in path:
            name: str = column_name(file.schema_arrow.field(path), self.owner)
            return name
        return path.lower()

    def _ignored(self, name: str) -> bool:
        if self.owner is None:
            return False
        return ".".join((*self.owner.identifier, name)).lower() in self.ignored

    def avro(self, data: Data) -> list[str]:
        file = avro.read(whole(data))
        fields = _iceberg_fields(file.header)
        # A data file has columns; a manifest or manifest list has records about files.
        found = [f"column {name}" for name in self._cells("avro", data)]
        look = self
        if {"partition-spec", "snapshot-id"}.isdisjoint(file.header):
            look = replace(self, search=replace(self.search, names=frozenset()))
        for record in file.records:
            found.extend(look._record(record, fields))
        for name, value in file.header.items():
            if self.search.in_names.in_text(value) and not self._only_names(value):
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
            search = self.search.in_names if name in _PATHS else self.search
            if search.in_text(value) or search.in_pairs(value, self.wanted):
                yield f"entry {name}"
            elif value in self.wanted.get(name.lower(), frozenset()):
                yield f"partition {name}"
        elif isinstance(value, bytes):
            if self.search.in_text(value.decode("utf-8", "replace")):
                yield f"entry {name}"
        elif value is not None and text_of(value) in self.wanted.get(name.lower(), frozenset()):
            yield f"partition {name}"

    def _summaries(self, summaries: Iterable[Mapping[str, Any]], spec: int) -> Iterator[str]:
        """Search the bounds of partition values in a manifest list, which has no types."""
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
            written, kind = fields.get(bound["key"], (_DELETED_IN.get(bound["key"], "?"), "string"))
            name = (self.owner.fields.get(bound["key"], written) if self.owner else written).lower()
            if self._ignored(name):
                continue
            text = bound_text(kind, bound["value"])
            if self._search_of(name).in_bound(text, self.wanted.get(name, frozenset())):
                yield f"bound of column {name}"

    def json(self, data: Data) -> list[str]:
        document = json.loads(whole(data))
        is_metadata = isinstance(document, Mapping) and "format-version" in document
        search = self.search.in_names if is_metadata else self.search
        return list(dict.fromkeys(self._document(document, "", search)))

    def _document(self, value: Any, where: str, search: Search) -> Iterator[str]:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if self._names_subject(str(key), search):
                    yield f"name in {where or 'the document'}"
                # The default of a column is data.
                of_value = self.search if str(key).endswith("-default") else search
                yield from self._document(inner, str(key), of_value)
        elif isinstance(value, list):
            for inner in value:
                yield from self._document(inner, where, search)
        elif isinstance(value, str) and self._names_subject(value, search):
            yield where or "the document"

    def _names_subject(self, text: str, search: Search) -> bool:
        return search.in_text(text) or search.in_pairs(text, self.wanted)

    def plain(self, data: Data) -> list[str]:
        names = magic_of(data).startswith(_NAMING_FILES)
        search = self.search.in_names if names else self.search
        texts = (text for part in parts(data) for text in decoded(part))
        found = any(search.in_text(text) for text in texts)
        return ["its bytes"] if found else []


def column_name(field_: pa.Field, owner: Owned | None) -> str:
    """Return the present name of a file's column, in lower case."""
    metadata = field_.metadata or {}
    number = metadata.get(_FIELD_ID) or metadata.get(_ORC_FIELD_ID)
    if number is not None and int(number) in _DELETED_IN:
        return _DELETED_IN[int(number)]
    if owner is not None and number is not None:
        return owner.fields.get(int(number), str(field_.name)).lower()
    return str(field_.name).lower()


def leaves(column: pa.Array, name: str) -> Iterator[tuple[str, pa.Array]]:
    """Yield the plain columns in a column, with their names, such as ``contact.email``."""
    column = plain(column)
    if not pa.types.is_nested(column.type):
        yield name, column
        return
    for inner_name, inner in _parts(column, name):
        yield from leaves(inner, inner_name)


def _parts(column: pa.Array, name: str) -> Iterator[tuple[str, pa.Array]]:
    kind = column.type
    if pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            # A field `id` of a struct is not the key column `id`.
            yield f"{name}.{kind.field(index).name.lower()}", column.field(index)
    elif pa.types.is_map(kind):
        yield name, column.keys
        yield name, column.items
    else:
        yield name, column.flatten()


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _iceberg_fields(header: Mapping[str, str]) -> dict[int, tuple[str, str]]:
    """Return field id -> name and type from the schema in a manifest's header; else nothing."""
    try:
        schema = json.loads(header["schema"])
    except (KeyError, ValueError):
        return {}
    found: dict[int, tuple[str, str]] = {}

    def walk(kind: Any, above: str) -> None:
        for number, name, inner, _ in inner_fields(kind):
            found[number] = (f"{above}{name}", inner if isinstance(inner, str) else "")
            walk(inner, f"{above}{name}.")

    walk(schema, "")
    return found
