"""Formats of files, told by their content; and the rows and texts of a file."""

from __future__ import annotations

import gzip
import mmap
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from sparkwap.catalog import avro

_PARQUET_MAGIC = b"PAR1"


_GZIP_MAGIC = b"\x1f\x8b"


_BATCH_ROWS = 65_536


Data = bytes | mmap.mmap
"""The content of a file."""


def unpacked(path: str, data: Data) -> tuple[str, Data]:
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
    "parquet": (_PARQUET_MAGIC, "parquet"),
    "orc": (b"ORC", "orc"),
    "avro": (avro.MAGIC, "avro"),
}


_PACKED = {b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2", b"\x04\x22\x4d\x18": "lz4"}


# zip, xz, 7z, and Parquet whose footer is encrypted
_CLOSED = (b"PK\x03\x04", b"\xfd7zXZ", b"7z\xbc\xaf", b"PARE")


def rows_of(kind: str, data: Data) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
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


def decoded(data: bytes) -> Iterator[str]:
    """What bytes may say, in the encodings of those who deliver files."""
    yield data.decode("utf-8", "replace")
    try:
        data.decode()
    except UnicodeDecodeError:
        yield data.decode("latin-1")
    if b"\x00" in data:
        yield data.decode("utf-16-le", "replace")
        yield data.decode("utf-16-be", "replace")
