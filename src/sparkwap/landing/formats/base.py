"""The type `Format`, which holds everything that differs between the formats of landing files."""

from __future__ import annotations

import csv
import gzip
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, BinaryIO, cast

from sparkwap.landing.contents import Contents, Text, count_lines, unreadable
from sparkwap.landing.entry import Entry, FileLayout
from sparkwap.landing.formats.spark_texts import lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT_SETTINGS = ("delimiter", "multiline", "header")
"""The settings of an entry that only some formats read."""
SAMPLE_ROWS = 10_000
"""Maximum number of rows of a sample."""
# Limit for samples that are one line, or that inflate without end.
_MOST_CHARACTERS = 32_000_000


@dataclass(frozen=True)
class Group:
    """Files, or rows of files, that are parsed in the same way.

    Attributes:
        names: the names of the files, for messages.
        columns: the published columns, in order.
        paths: the paths of the files; in a replay, their names.
        sources: column of the log to the published columns that it is filled from.
        refused: columns of messages whose rows are bad, because a table cannot have them.
        crlf: see `Contents`.
    """

    entry: Entry
    layout: FileLayout
    names: tuple[str, ...]
    columns: tuple[str, ...]
    paths: tuple[str, ...]
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    crlf: bool = False


@dataclass
class FileSample:
    """Rows of a file, as texts by column.

    Attributes:
        rows: the rows; an empty text is None.
        typed: the types that the file declares, by column.
        delimiter: the delimiter; None if the format has none.
        multiline: whether the landing entry needs ``multiline``.
    """

    format: Format
    rows: list[dict[str, str | None]]
    typed: dict[str, str] = field(default_factory=dict)
    delimiter: str | None = None
    multiline: bool = False
    name: str = ""

    @property
    def columns(self) -> list[str]:
        """The column names, in order."""
        return list(dict.fromkeys(name for row in self.rows for name in row))


class Format(ABC):
    """Describes and reads the files of one format. `TextFormat` is the base for files of text.

    Attributes:
        columns_by_row: whether each row has its own columns. Such a format has `row_columns`.
        declares_strings: whether a text that looks like a number is a string.
        codes: code to operation, if the rows contain their operations in a way of their own.
        sequence, event_time, partial: defaults of the entry's settings of these names.
        settings: the settings among `FORMAT_SETTINGS` that the format reads; others are refused.
    """

    name: str
    suffixes: tuple[str, ...]
    columns_by_row: bool = False
    declares_strings: bool = False
    codes: Mapping[str, str] = MappingProxyType({})
    sequence: tuple[tuple[str, str], ...] = ()
    event_time: tuple[str, str] | None = None
    partial: bool = False
    settings: frozenset[str] = frozenset()

    @property
    def own_operations(self) -> bool:
        """Whether the format defines the operations, so that the entry must not."""
        return bool(self.codes)

    @property
    @abstractmethod
    def text_format(self) -> TextFormat:
        """The format of the texts of bad rows in the log."""

    @abstractmethod
    def look_into(self, path: Path, layout: FileLayout, entry: Entry) -> Contents:
        """Return the columns and the number of rows of a file.

        The rows are counted without Spark; the test `files_add_up` compares this count with Spark's
        rows. A file of 0 bytes has no header and gives no rows; the audits decide whether that is
        acceptable. Memory is bounded by a few times ``max_row_bytes`` of the entry.

        Raises:
            LandingError: the file is broken, is of another format, or is above a limit of the
                entry: too much text, too high a compression ratio, a row that is too long.
        """

    @abstractmethod
    def sample(self, path: Path) -> FileSample | None:
        """Return the first rows of a file; None if the content is of another format.

        Raises:
            OSError, ValueError: the file is broken.
        """

    @abstractmethod
    def rows(self, session: SparkSession, group: Group) -> DataFrame:
        """Return the rows of files as the frame that `sparkwap.landing.formats.frame` describes."""

    def row_columns(self, session: SparkSession, group: Group) -> dict[str, tuple[str, ...]]:
        """Return the columns of the rows of each file, by path; see ``columns_by_row``."""
        return {}


class TextFormat(Format):
    """A format whose files are text in UTF-8, which may be compressed by gzip.

    By default, each line that is not blank is a row.
    """

    @property
    def text_format(self) -> TextFormat:
        return self

    def look_into(self, path: Path, layout: FileLayout, entry: Entry) -> Contents:
        try:
            with path.open("rb") as file:
                packed = path.suffix == ".gz"
                stream = cast(BinaryIO, gzip.GzipFile(fileobj=file)) if packed else file
                return self.look(Text(stream, path, entry), layout, entry)
        except (OSError, EOFError, ValueError, zlib.error, csv.Error) as error:
            raise unreadable(path, f"{type(error).__name__}: {error}") from error

    def look(self, text: Text, layout: FileLayout, entry: Entry) -> Contents:
        """Return the columns and the number of rows of a text; read it whole to check it."""
        return Contents((), count_lines(text.lines()))

    def sample(self, path: Path) -> FileSample | None:
        opener = gzip.open if path.suffix.lower() == ".gz" else open
        with opener(path, "rt", encoding="utf-8-sig", newline="") as whole:
            return self.sample_text(whole.read(_MOST_CHARACTERS))

    @abstractmethod
    def sample_text(self, text: str) -> FileSample | None:
        """Return the first rows of a text, with the line ends of the file; see `sample`."""

    def texts(self, session: SparkSession, group: Group) -> DataFrame:
        """Return the texts of the rows of files: ``_path``, ``_line``, ``_text``."""
        return lines(session, group.paths)

    def rows(self, session: SparkSession, group: Group) -> DataFrame:
        return self.parse(self.texts(session, group), group)

    @abstractmethod
    def parse(self, texts: DataFrame, group: Group) -> DataFrame:
        """Return the rows of texts, from files or from bad rows of the log; see `rows`."""
