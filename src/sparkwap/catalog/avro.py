"""Reads and rewrites Avro files (manifests, manifest lists, data files) with fastavro.

fastavro and PyArrow are imported with the first file, because most commands read none.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

MAGIC = b"Obj\x01"
_PRIMITIVES = ("boolean", "int", "long", "float", "double", "string", "bytes")


class AvroError(ValueError):
    """The file is not an Avro file, or fastavro does not support it."""


@dataclass(frozen=True)
class AvroFile:
    """An Avro file.

    Attributes:
        schema: The schema of the records, with Iceberg's field ids.
        header: The entries of the header, which include the schema as text.
    """

    schema: dict[str, Any]
    header: Mapping[str, str]
    records: tuple[dict[str, Any], ...]

    def with_records(self, records: Iterable[Mapping[str, Any]]) -> bytes:
        """Return the content of the same file with other records; not compressed."""
        return write(self.schema, records, self.header)

    def table(self) -> pa.Table:
        """Return the rows of a data file, with field ids as in Parquet.

        Nested columns are left out, and so are all columns of manifests and manifest lists; see
        `records` for these.
        """
        import pyarrow as pa

        columns, fields = [], []
        if not {"partition-spec", "snapshot-id"} & self.header.keys():
            for one in filter(_is_plain, self.schema["fields"]):
                name = one["name"]
                columns.append(pa.array([record[name] for record in self.records]))
                number = {"PARQUET:field_id": str(one["field-id"])} if "field-id" in one else None
                fields.append(pa.field(name, columns[-1].type, metadata=number))
        return pa.table(columns, schema=pa.schema(fields))


def _is_plain(field: Mapping[str, Any]) -> bool:
    """Return whether a column is not nested.

    Raises:
        AvroError: The values would come undecoded, such as a UUID as bytes.
    """
    from fastavro.read import LOGICAL_READERS

    union = field["type"] if isinstance(field["type"], list) else [field["type"]]
    kinds = [kind if isinstance(kind, dict) else {"type": kind} for kind in union if kind != "null"]
    kind = kinds[0] if len(kinds) == 1 else {"type": "union"}
    logical = kind.get("logicalType")
    if logical is None or kind["type"] in ("array", "map", "record"):
        return kind["type"] in _PRIMITIVES
    if logical == "uuid" or f"{kind['type']}-{logical}" not in LOGICAL_READERS:
        raise AvroError(f"values of type {logical} cannot be read")
    return True


def read(data: bytes) -> AvroFile:
    """Read a whole file."""
    import fastavro

    try:
        reader = fastavro.reader(io.BytesIO(data), handle_unicode_errors="replace")
        records: Any = tuple(reader)
    except Exception as error:  # fastavro raises many types of errors for a truncated file
        raise AvroError(f"{error or type(error).__name__}") from error
    schema: Any = reader.writer_schema
    return AvroFile(schema, dict(reader.metadata), records)


def write(
    schema: dict[str, Any], records: Iterable[Mapping[str, Any]], header: Mapping[str, str]
) -> bytes:
    """Return the content of a file with these records; not compressed."""
    import fastavro

    out = io.BytesIO()
    own = {key: text for key, text in header.items() if not key.startswith("avro.")}
    fastavro.writer(out, schema, records, metadata=own)
    return out.getvalue()
