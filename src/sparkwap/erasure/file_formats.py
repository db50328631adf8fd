"""Detects the format of a file by its content, and reads its rows and texts."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from sparkwap.catalog import avro

_GZIP_MAGIC = b"\x1f\x8b"
_BATCH_ROWS = 65_536
_PART, _OVERLAP = 2 << 20, 256 << 10

Data: TypeAlias = bytes | pa.NativeFile
"""The content of a file, or the open file, of which only what is needed is read at a time."""


def size_of(data: Data) -> int:
    """Return the number of bytes."""
    return len(data) if isinstance(data, bytes) else int(data.size())


def whole(data: Data) -> bytes:
    """Return all bytes."""
    return data if isinstance(data, bytes) else bytes(data.read_at(data.size(), 0))


def parts(data: Data) -> Iterator[bytes]:
    """Yield the bytes in parts of 2 MB; what has at most 256 KB is whole in one of them."""
    size = size_of(data)
    for at in range(0, max(size - _OVERLAP, 1), _PART - _OVERLAP):
        count = min(_PART, size - at)
        yield data[at : at + count] if isinstance(data, bytes) else bytes(data.read_at(count, at))


def opened(data: Data) -> pa.NativeFile:
    """Return the open file, at its beginning."""
    if isinstance(data, bytes):
        return pa.BufferReader(data)
    data.seek(0)
    return data


def magic_of(data: Data) -> bytes:
    """Return the first bytes, which tell the format."""
    return data[:6] if isinstance(data, bytes) else bytes(data.read_at(6, 0))


def unpacked(path: str, data: Data) -> tuple[str, Data]:
    """Return the format of a file, by its content, and its decompressed content.

    Raises:
        ValueError: The content does not have the format of the file's name, or it is compressed or
            encrypted in an unknown way, so a search of its bytes would find nothing.
    """
    magic = magic_of(data)
    claims = path.rpartition(".")[2].lower()
    for kind, mark in _FORMATS.items():
        if magic.startswith(mark):
            return kind, data
        if claims == kind and size_of(data):
            raise ValueError(f"no {kind} file")
    if magic.startswith(_GZIP_MAGIC):
        content = gzip.decompress(whole(data))
        return ("gzip json", content) if path.endswith(".json") else ("bytes", content)
    for mark, codec in _PACKED.items():
        if magic.startswith(mark):
            with pa.CompressedInputStream(opened(data), codec) as stream:
                return "bytes", stream.read()
    if magic.startswith(_CLOSED):
        raise ValueError("an archive")
    return ("json", data) if path.endswith(".json") else ("bytes", data)


_FORMATS = {"parquet": b"PAR1", "orc": b"ORC", "avro": avro.MAGIC}
"""Format, as which its files also end -> their first bytes."""

_PACKED = {b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2", b"\x04\x22\x4d\x18": "lz4"}

# zip, xz, 7z, and Parquet whose footer is encrypted
_CLOSED = (b"PK\x03\x04", b"\xfd7zXZ", b"7z\xbc\xaf", b"PARE")


def rows_of(
    kind: str, data: Data, keep: Callable[[pa.Field], bool] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield batches of the rows of a data file, with the columns to keep; none of other files.

    Args:
        keep: Which columns are needed; others may be read too. All if None.
    """

    def names(schema: pa.Schema) -> list[str] | None:
        # The reader of ORC confuses columns of one name, and `a.b` with the field of a struct.
        if keep is None or len(set(schema.names)) < len(schema) or "." in "".join(schema.names):
            return None
        return [field.name for field in schema if keep(field)]

    if kind == "parquet":
        # A buffer would hold all row groups.
        parquet = pq.ParquetFile(opened(data), pre_buffer=False)
        yield from parquet.iter_batches(_BATCH_ROWS, columns=names(parquet.schema_arrow))
    elif kind == "orc":
        stripes = orc.ORCFile(opened(data))
        for at in range(stripes.nstripes):
            yield stripes.read_stripe(at, columns=names(stripes.schema))
    elif kind == "avro":
        yield from avro.read(whole(data)).table().to_batches()


def decoded(data: bytes) -> Iterator[str]:
    """Yield the text of bytes, in the encodings that delivered files may have."""
    yield data.decode("utf-8", "replace")
    try:
        data.decode()
    except UnicodeDecodeError:
        yield data.decode("latin-1")
    if b"\x00" in data:
        yield data.decode("utf-16-le", "replace")
        yield data.decode("utf-16-be", "replace")
