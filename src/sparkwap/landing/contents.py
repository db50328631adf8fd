"""Checks the size and the whole text of a file, in bounded memory, before Spark reads it.

Spark silently replaces bytes that are not UTF-8, inflates archives without a limit, and holds a
line of any length in memory. This module checks for these cases first: a file that cannot be read
as a whole is an error of its own table only.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

from sparkwap.landing.entry import Entry
from sparkwap.landing.errors import AGAIN, LandingError

_CHUNK = 1 << 20
# Spark's CSV reader treats these bytes as blank, like Java's String.trim().
_BLANK = bytes(range(0x21))
_BOM = codecs.BOM_UTF8
_OTHER_BOMS = {codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}
_OTHER_FORMATS = {
    b"\x1f\x8b": "a gzip archive; give it a name that ends in .gz",
    b"BZh": "a bzip2 archive; unpack it, or pack it with gzip",
    b"\x28\xb5\x2f\xfd": "a Zstandard archive; unpack it, or pack it with gzip",
    b"\xfd7zXZ\x00": "an xz archive; unpack it, or pack it with gzip",
    b"\x04\x22\x4d\x18": "an LZ4 archive; unpack it, or pack it with gzip",
    b"PK\x03\x04": "a zip archive (or a spreadsheet); unpack it, or save it as text",
    b"PAR1": "a Parquet file; set format: parquet in the landing entry",
}
"""First bytes of files that are no text, with what they are and what to do."""
# Text has few NULs. ASCII text in UTF-16 is half NULs, and is valid UTF-8.
_NULS_OF_UTF16 = 0.3
# Small files may inflate by any ratio without harm.
_RATIO_COUNTS_FROM = 64 << 20


@dataclass(frozen=True)
class Contents:
    """The columns and the row count of a file.

    Attributes:
        columns: the published names in order; empty if each row has its own columns.
        rows: the number of rows, without header and blank lines.
        types: the types that the file declares. Spark reads files of other types apart: it would
            read all of them by the types of the first.
        crlf: whether records end in CRLF, but the first line ends in LF. Spark takes the end of the
            first line, also inside a value, for the end of all records.
    """

    columns: tuple[str, ...]
    rows: int
    types: tuple[str, ...] = ()
    crlf: bool = False


def require_size(path: Path, size: int, entry: Entry) -> None:
    """Check the size of a file before the file is read."""
    if size > entry.max_bytes:
        raise beyond(path, f"it has {size:,} bytes", "max_bytes", entry.max_bytes)


def require_ratio(path: Path, size: int, packed: int, entry: Entry) -> None:
    """Check the size of the content of a packed file.

    Raises:
        LandingError: the compression ratio is greater than ``max_ratio`` of the entry.
    """
    if size > max(_RATIO_COUNTS_FROM, packed * entry.max_ratio):
        what = f"it inflates to more than {entry.max_ratio:,} times its size of {packed:,} bytes"
        raise beyond(path, what, "max_ratio", entry.max_ratio)


def unreadable(path: Path, why: str) -> LandingError:
    """Return the error for a file that cannot be read as a whole."""
    return LandingError(
        f"{path} cannot be read: {why}. Nothing was read from this drop; main is as it was. Put a "
        f"good file in its place, then {AGAIN}"
    )


def beyond(path: Path, what: str, setting: str, limit: int) -> LandingError:
    """Return the error for a file that exceeds a limit of its entry."""
    return LandingError(
        f"{path} is refused: {what}, more than {setting} of the landing entry allows ({limit:,}). "
        f"Nothing was read from this drop; main is as it was. If the file is right, set {setting} "
        f"in the entry, else put a good file in its place. Then {AGAIN}"
    )


# ---------------------------------------------------------------- text


class Text:
    """The bytes of a text, checked while they are read."""

    def __init__(self, stream: BinaryIO, path: Path, entry: Entry) -> None:
        self.path = path
        self.entry = entry
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._size = 0
        self._packed = path.stat().st_size

    def read(self, size: int) -> bytes:
        """Return the next bytes, without a byte order mark; empty at the end of the file."""
        chunk = self._stream.read(size)
        if not self._size:
            self._require_utf8_mark(chunk)
        self._require_utf8(chunk)
        chunk_start, self._size = self._size, self._size + len(chunk)
        self._require_limits()
        return chunk.removeprefix(_BOM) if not chunk_start else chunk

    def lines(self) -> Iterator[bytes]:
        """Yield the lines with their ends: like Spark, a line feed, a carriage return, or both."""
        rest = b""
        while chunk := self.read(_CHUNK):
            # A carriage return at the end of a chunk may be the first half of a line end.
            found = (rest + chunk).splitlines(keepends=True)
            rest = found.pop() if not found[-1].endswith(b"\n") else b""
            for line in found:
                self.require_row(len(line))
                yield line
            self.require_row(len(rest))
        if rest:
            yield rest

    def whole(self) -> bytes:
        """Return the whole text, which is one row."""
        text = self.read(self.entry.max_row_bytes + 1)
        self.require_row(len(text))
        return text + self.read(1)

    def require_row(self, size: int) -> None:
        """Check the size of a row."""
        limit = self.entry.max_row_bytes
        if size > limit:
            raise beyond(self.path, f"a row has more than {limit:,} bytes", "max_row_bytes", limit)

    def _require_utf8_mark(self, start: bytes) -> None:
        for mark, name in _OTHER_BOMS.items():
            if start.startswith(mark):
                raise unreadable(
                    self.path, f"it begins with the mark of {name}, so it is not UTF-8"
                )
        if start[:4096].count(0) > _NULS_OF_UTF16 * len(start[:4096]):
            self._refuse(start, "it is full of NULs, like UTF-16, so it is not UTF-8 text")

    def _require_utf8(self, chunk: bytes) -> None:
        try:
            self._decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            at = self._size + error.start
            start = b"" if self._size else chunk
            self._refuse(start, f"it is not UTF-8 ({error.reason} at byte {at:,})")

    def _refuse(self, start: bytes, why: str) -> NoReturn:
        """Raise the error for a file that is no text; `start` are its first bytes, if known."""
        other = next((what for mark, what in _OTHER_FORMATS.items() if start.startswith(mark)), "")
        raise unreadable(self.path, f"it is {other}" if other else why)

    def _require_limits(self) -> None:
        most = self.entry.max_bytes
        if self._size > most:
            raise beyond(self.path, f"its text has more than {most:,} bytes", "max_bytes", most)
        require_ratio(self.path, self._size, self._packed, self.entry)


def count_lines(lines: Iterable[bytes]) -> int:
    """Return the number of lines that are not blank."""
    return sum(bool(line.strip(_BLANK)) for line in lines)
