"""A small reader of Avro files: independent of what wrote them, and of PyIceberg.

It can also write what it has read again, without some of the records: as it does not look into
them, it does so for files of any version of Iceberg's format.
"""

from __future__ import annotations

import io
import json
import secrets
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa

MAGIC = b"Obj\x01"
_SYNC = 16


class AvroError(ValueError):
    """The file is no Avro file, or uses what this reader does not know."""


@dataclass(frozen=True)
class AvroFile:
    """An Avro file: the texts of its header, and its records.

    Attributes:
        header: The header's entries as text.
        records: The records as dicts.
        raw: The bytes of each record.
    """

    header: Mapping[str, str]
    records: tuple[Any, ...]
    raw: tuple[bytes, ...] = ()

    def fields(self) -> list[str]:
        """The names of the records' fields, in order."""
        return [field["name"] for field in json.loads(self.header["avro.schema"])["fields"]]


def read(data: bytes) -> AvroFile:
    """Read a whole file.

    Raises:
        AvroError: It cannot be read to its end.
    """
    stream = io.BytesIO(data)
    if stream.read(4) != MAGIC:
        raise AvroError("no Avro file")
    header = {name: value.decode("utf-8", "replace") for name, value in _header(stream).items()}
    sync = _bytes(stream, _SYNC)
    reader = _Reader()
    schema = json.loads(header["avro.schema"])
    reader.learn(schema)
    records: list[Any] = []
    raw: list[bytes] = []
    while stream.tell() < len(data):
        count = _long(stream)
        block = _unpack(_bytes(stream, _long(stream)), header.get("avro.codec", "null"))
        inner = io.BytesIO(block)
        for _ in range(count):
            begin = inner.tell()
            records.append(reader.value(inner, schema))
            raw.append(block[begin : inner.tell()])
        if _bytes(stream, _SYNC) != sync:
            raise AvroError("a block ends without its mark")
    return AvroFile(header, tuple(records), tuple(raw))


def write(header: Mapping[str, str], raw: Iterable[bytes]) -> bytes:
    """A file of records that are encoded already, by the schema in the header; not compressed."""
    records = list(raw)
    entries = {**header, "avro.codec": "null"}
    out = [MAGIC, long_bytes(len(entries))]
    for name, value in entries.items():
        out += [text_bytes(name), text_bytes(value)]
    sync = secrets.token_bytes(_SYNC)
    out += [long_bytes(0), sync]
    if records:
        block = b"".join(records)
        out += [long_bytes(len(records)), long_bytes(len(block)), block, sync]
    return b"".join(out)


def text_bytes(value: str) -> bytes:
    """A text as Avro encodes it."""
    data = value.encode()
    return long_bytes(len(data)) + data


def long_bytes(value: int) -> bytes:
    """A whole number as Avro encodes it."""
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


@dataclass(frozen=True)
class Column:
    """A column of a data file in Avro.

    Attributes:
        name: Its name in the file.
        field: The same as a field of Arrow, with its id as Parquet's has it.
    """

    name: str
    field: pa.Field


def columns(file: AvroFile) -> list[Column]:
    """The columns of a data file that hold a plain value; those that nest are in `records` alone.

    Raises:
        AvroError: A column is of a type whose values are not read.
    """
    if "partition-spec" in file.header or "snapshot-id" in file.header:
        return []  # a manifest, or a list of them
    found = []
    for one in json.loads(file.header["avro.schema"]).get("fields", ()):
        kind = _arrow_type(one["type"])
        if kind is not None:
            number = {"PARQUET:field_id": str(one["field-id"])} if "field-id" in one else None
            found.append(Column(one["name"], pa.field(one["name"], kind, metadata=number)))
    return found


_ARROW = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "timestamp-micros": pa.timestamp("us"),
    "timestamp-millis": pa.timestamp("ms"),
}


def _arrow_type(schema: Any) -> pa.DataType | None:
    if isinstance(schema, list):
        kinds = [one for one in schema if one != "null"]
        return _arrow_type(kinds[0]) if len(kinds) == 1 else None
    if isinstance(schema, str):
        return _ARROW.get(schema)
    logical = schema.get("logicalType")
    if logical is None or logical in _ARROW:
        return _ARROW.get(logical or schema["type"]) if isinstance(schema["type"], str) else None
    raise AvroError(f"values of type {logical} are not read")


def _header(stream: BinaryIO) -> dict[str, bytes]:
    return {_text(stream): _bytes(stream, _long(stream)) for _ in _items(stream)}


def _unpack(block: bytes, codec: str) -> bytes:
    if codec == "null":
        return block
    if codec == "deflate":
        return zlib.decompress(block, -15)
    try:
        if codec == "snappy":
            raise AvroError("snappy blocks are not read")
        stream = pa.input_stream(pa.BufferReader(block), compression={"zstandard": "zstd"}[codec])
        return bytes(stream.read())
    except KeyError:
        raise AvroError(f"unknown codec {codec}") from None


class _Reader:
    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def learn(self, schema: Any) -> None:
        """Remember the named types of a schema."""
        if isinstance(schema, list):
            for one in schema:
                self.learn(one)
        elif isinstance(schema, dict):
            if "name" in schema and schema.get("type") in ("record", "enum", "fixed"):
                self._named[schema["name"]] = schema
            for field in schema.get("fields", ()):
                self.learn(field["type"])
            for inner in ("items", "values"):
                if inner in schema:
                    self.learn(schema[inner])

    def value(self, stream: BinaryIO, schema: Any) -> Any:
        """The next value."""
        if isinstance(schema, list):
            return self.value(stream, schema[_long(stream)])
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, dict | list):
            return self.value(stream, kind)
        if kind == "record":
            return {f["name"]: self.value(stream, f["type"]) for f in schema["fields"]}
        if kind == "array":
            return [self.value(stream, schema["items"]) for _ in _items(stream)]
        if kind == "map":
            return {_text(stream): self.value(stream, schema["values"]) for _ in _items(stream)}
        if kind == "fixed":
            return _bytes(stream, schema["size"])
        if kind == "enum":
            return schema["symbols"][_long(stream)]
        if kind in self._named:
            return self.value(stream, self._named[kind])
        return _primitive(stream, kind)


def _primitive(stream: BinaryIO, kind: str) -> Any:
    if kind == "null":
        return None
    if kind == "boolean":
        return _bytes(stream, 1) != b"\x00"
    if kind in ("int", "long"):
        return _long(stream)
    if kind == "float":
        return struct.unpack("<f", _bytes(stream, 4))[0]
    if kind == "double":
        return struct.unpack("<d", _bytes(stream, 8))[0]
    if kind == "string":
        return _text(stream)
    if kind == "bytes":
        return _bytes(stream, _long(stream))
    raise AvroError(f"unknown type {kind}")


def _items(stream: BinaryIO) -> Iterator[None]:
    """One turn for each item of an array or map."""
    while (count := _long(stream)) != 0:
        if count < 0:
            _long(stream)  # the size of the block, for those who skip it
        for _ in range(abs(count)):
            yield None


def _text(stream: BinaryIO) -> str:
    return _bytes(stream, _long(stream)).decode("utf-8", "replace")


def _long(stream: BinaryIO) -> int:
    shift, number = 0, 0
    while True:
        byte = _bytes(stream, 1)[0]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1)
        shift += 7


def _bytes(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise AvroError("the file ends too early")
    return data
