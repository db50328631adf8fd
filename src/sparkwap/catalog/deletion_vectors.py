"""Reads and writes deletion vectors, which name deleted rows of a data file by their positions.

A vector is a bitmap in a Puffin file (https://iceberg.apache.org/puffin-spec/, the blob type
``deletion-vector-v1``). PyIceberg reads them; nothing in Python writes them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyroaring import BitMap64

_PUFFIN, _VECTOR = b"PFA1", b"\xd1\xd3\x39\x64"
_POSITION_FIELD = 2147483645


class VectorError(ValueError):
    """The bytes are no deletion vector."""


def read(file: bytes, offset: int) -> BitMap64:
    """Return the positions in the vector at an offset of a Puffin file."""
    from pyroaring import BitMap64

    length = int.from_bytes(file[offset : offset + 4], "big")
    start, end = offset + 4, offset + 4 + length
    checked = file[start:end]
    checksum = file[end : end + 4]
    if checked[:4] != _VECTOR or int.from_bytes(checksum, "big") != zlib.crc32(checked):
        raise VectorError("there is no deletion vector, or it is damaged")
    return BitMap64.deserialize(checked[4:])


def write(vectors: Mapping[str, BitMap64]) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """Return a Puffin file, and the offset and length of the vector of each data file in it."""
    content, blobs = bytearray(_PUFFIN), []
    places: dict[str, tuple[int, int]] = {}
    for path, positions in vectors.items():
        checked = _VECTOR + positions.serialize()
        blob = len(checked).to_bytes(4, "big") + checked + zlib.crc32(checked).to_bytes(4, "big")
        places[path] = (len(content), len(blob))
        blobs.append(_described(path, len(positions), *places[path]))
        content += blob
    footer = json.dumps({"blobs": blobs}).encode()
    # The four flags say that the footer is not compressed.
    content += _PUFFIN + footer + len(footer).to_bytes(4, "little") + bytes(4) + _PUFFIN
    return bytes(content), places


def _described(path: str, count: int, offset: int, length: int) -> dict[str, Any]:
    return {
        "type": "deletion-vector-v1",
        "fields": [_POSITION_FIELD],
        # Unknown when the file is written, says the specification of vectors.
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": offset,
        "length": length,
        "properties": {"referenced-data-file": path, "cardinality": str(count)},
    }
