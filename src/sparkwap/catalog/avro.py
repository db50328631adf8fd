"""Avro files: manifests, their lists, and data files; read, and written again, by fastavro.

It is imported when the first file is read, as most commands read none.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

MAGIC = b"Obj\x01"
_PRIMITIVES = ("boolean", "int", "long", "float", "double", "string", "bytes")


class AvroError(ValueError):
    """The file is no Avro file, or uses what fastavro does not know."""


@dataclass(frozen=True)
class AvroFile:
    """An Avro file.

    Attributes:
        schema: That of its records, with Iceberg's field ids.
        header: The entries of its header, the schema as text among them.
        records: The records.
    """

    schema: dict[str, Any]
    header: Mapping[str, str]
    records: tuple[dict[str, Any], ...]

    def with_records(self, records: Iterable[Mapping[str, Any]]) -> bytes:
        """The same file with other records; not compressed."""
        return write(self.schema, records, self.header)

    def table(self) -> pa.Table:
        """The rows of a data file, with field ids as Parquet has them.

        Columns that nest are left out, and all columns of a manifest or a list of them: they are in
        `records` alone.

        Raises:
            AvroError: A column is of a type whose values are not read.
        """
        columns, fields = [], []
        if not {"partition-spec", "snapshot-id"} & self.header.keys():
            for one in filter(_is_plain, self.schema["fields"]):
                name = one["name"]
                columns.append(pa.array([record[name] for record in self.records]))
                number = {"PARQUET:field_id": str(one["field-id"])} if "field-id" in one else None
                fields.append(pa.field(name, columns[-1].type, metadata=number))
        return pa.table(columns, schema=pa.schema(fields))


def _is_plain(field: Mapping[str, Any]) -> bool:
    """Whether a column does not nest.

    Raises:
        AvroError: Its values come as they are encoded, a UUID as bytes.
    """
    from fastavro.read import LOGICAL_READERS

    union = field["type"] if isinstance(field["type"], list) else [field["type"]]
    kinds = [kind if isinstance(kind, dict) else {"type": kind} for kind in union if kind != "null"]
    kind = kinds[0] if len(kinds) == 1 else {"type": "union"}
    logical = kind.get("logicalType")
    if logical is None or kind["type"] in ("array", "map", "record"):
        return kind["type"] in _PRIMITIVES
    if logical == "uuid" or f"{kind['type']}-{logical}" not in LOGICAL_READERS:
        raise AvroError(f"values of type {logical} are not read")
    return True


def read(data: bytes) -> AvroFile:
    """Read a whole file.

    Raises:
        AvroError: It cannot be read to its end.
    """
    import fastavro

    try:
        reader = fastavro.reader(io.BytesIO(data), handle_unicode_errors="replace")
        records: Any = tuple(reader)
    except Exception as error:  # of a torn file fastavro raises whatever comes of it
        raise AvroError(f"{error or type(error).__name__}") from error
    schema: Any = reader.writer_schema
    return AvroFile(schema, dict(reader.metadata), records)


def write(
    schema: dict[str, Any], records: Iterable[Mapping[str, Any]], header: Mapping[str, str]
) -> bytes:
    """A file of these records; not compressed."""
    import fastavro

    out = io.BytesIO()
    own = {key: text for key, text in header.items() if not key.startswith("avro.")}
    fastavro.writer(out, schema, records, metadata=own)
    return out.getvalue()
