"""The format ``csv``: delimited text as in RFC 4180."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from sparkwap.landing.contents import Contents, Text, count_lines, unreadable
from sparkwap.landing.entry import Entry, FileLayout
from sparkwap.landing.errors import any_of
from sparkwap.landing.formats.base import SAMPLE_ROWS, FileSample, Group, TextFormat
from sparkwap.landing.formats.frame import NULL, flat, numbered
from sparkwap.landing.formats.spark_texts import NUMBER, PLACE, escape_glob, lines
from sparkwap.landing.row_sql import text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DELIMITERS = ",;\t|"
_BROKEN = "'wrong number of fields, or broken quotes'"


class CsvFormat(TextFormat):
    """Files with a header, or with the columns of the entry in their order."""

    name = "csv"
    suffixes = (".csv",)
    settings = frozenset({"delimiter", "multiline", "header"})

    def look(self, text: Text, layout: FileLayout, entry: Entry) -> Contents:
        # Python's limit is 128 KB for the whole process; `Text` checks the length of rows here.
        csv.field_size_limit(max(csv.field_size_limit(), entry.max_row_bytes))
        lines = text.lines()
        columns: tuple[str, ...] = ()
        first = next(lines, b"") if layout.header else b""
        if layout.header:
            columns = tuple(next(csv.reader([first.decode()], delimiter=entry.delimiter), []))
        blank = first and not columns
        if not columns:
            columns = (*((layout.operation,) if layout.operation else ()), *entry.columns)
        count, crlf = (
            _records(text, lines, entry, first[-2:])
            if entry.multiline
            else (count_lines(lines), False)
        )
        if blank and count:
            raise unreadable(text.path, "its first line is blank, and has to be the header")
        return Contents(columns, count, crlf=crlf)

    def sample_text(self, text: str) -> FileSample:
        stream = io.StringIO(text, newline="")
        first = stream.readline()
        delimiter = max(_DELIMITERS, key=first.count)
        header = next(csv.reader([first], delimiter=delimiter), [])
        twice = {name for name in header if header.count(name) > 1}
        if twice:
            raise ValueError(f"its header has more than one column {any_of(twice)}")
        rows = list(islice(csv.reader(stream, delimiter=delimiter), SAMPLE_ROWS))
        multiline = any("\n" in value for row in rows for value in row)
        whole = [row for row in rows if len(row) == len(header)]
        texts = [dict(zip(header, (v or None for v in row), strict=True)) for row in whole]
        return FileSample(self, texts, delimiter=delimiter, multiline=multiline)

    def texts(self, session: SparkSession, group: Group) -> DataFrame:
        return lines(session, group.paths, group.layout.header)

    def rows(self, session: SparkSession, group: Group) -> DataFrame:
        if group.entry.multiline:
            return _multiline_rows(session, group)
        return super().rows(session, group)

    def parse(self, texts: DataFrame, group: Group) -> DataFrame:
        options = (
            "map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '_corrupt', "
            # RFC 4180; Spark's own default is a backslash
            f"'escape', '\"', 'multiLine', '{str(group.entry.multiline).lower()}', "
            f"'sep', {text(group.entry.delimiter)})"
        )
        # Spark closes open quotes at the end of a text. With a delimiter there, a row has one more
        # empty field, unless open quotes make it a part of the last value.
        schema = text(_schema((*group.columns, "")))
        line = f"concat(_text, {text(group.entry.delimiter)})"
        parsed = texts.selectExpr("*", f"from_csv({line}, {schema}, {options}) as _v")
        whole = f"_v._corrupt is null and _v.f{len(group.columns)} is null"
        broken = f"if(_v is null or not ({whole}), {_BROKEN}, {NULL})"
        return flat(parsed, group, numbered(group.columns), broken)


def _records(
    text: Text, lines: Iterable[bytes], entry: Entry, first_end: bytes
) -> tuple[int, bool]:
    """Return the number of records that are not blank, and ``crlf`` of `Contents`.

    A record may have many lines. The first line end is that of the header, if there is one.
    """
    size = count = 0
    end, crlf = b"", False
    of_record: list[str] = []

    def decoded_lines() -> Iterator[str]:
        nonlocal size, end, first_end
        for line in lines:
            size += len(line)
            text.require_row(size)
            end = line[-2:]
            first_end = first_end or end
            of_record.append(line.decode())
            yield of_record[-1]
        if size:  # Spark takes the rest of the file for one value
            raise unreadable(text.path, f"it ends inside quotes, which row {count + 1:,} opens")

    for record in csv.reader(decoded_lines(), delimiter=entry.delimiter):
        count += bool(record)
        if len(of_record) > 1:  # quotes of a later row may have closed the quotes of this one
            _require_strict(text, of_record, entry, count)
        of_record.clear()
        size = 0
        crlf = crlf or end == b"\r\n"
    return count, crlf and first_end.endswith(b"\n") and first_end != b"\r\n"


def _require_strict(text: Text, lines: Iterable[str], entry: Entry, row: int) -> None:
    try:
        next(csv.reader(lines, delimiter=entry.delimiter, strict=True))
    except csv.Error as error:
        raise unreadable(
            text.path,
            f"row {row:,} opens quotes, which a later line closes with text behind them ({error}), "
            "so the row may contain other rows; a quote inside a value has to be written twice",
        ) from None


def _multiline_rows(session: SparkSession, group: Group) -> DataFrame:
    """Return the rows of files whose values contain line breaks, so that lines are not rows.

    The raw text of a valid row is built again from its fields.
    """
    names = [f"f{i}" for i in range(len(group.columns))]
    last = rf"regexp_replace({names[-1]}, '\\r\\z', '')" if group.crlf else names[-1]
    options = (
        f"map('escape', '\"', 'sep', {text(group.entry.delimiter)}, "
        "'ignoreLeadingWhiteSpace', 'false', 'ignoreTrailingWhiteSpace', 'false')"
    )
    parsed = (
        session.read.schema(_schema(group.columns))
        .options(header=group.layout.header, multiLine=True, encoding="UTF-8", escape='"')
        .options(mode="PERMISSIVE", columnNameOfCorruptRecord="_corrupt", sep=group.entry.delimiter)
        .csv([escape_glob(p) for p in group.paths])
        .selectExpr(
            *names[:-1],
            f"{last} as {names[-1]}",
            "_corrupt",
            "monotonically_increasing_id() as _number",
            *PLACE,
        )
        .selectExpr(
            "_path",
            f"cast({NUMBER} as bigint) as _line",
            f"coalesce(_corrupt, to_csv(struct({', '.join(names)}), {options})) as _text",
            "struct(*) as _v",
        )
    )
    broken = f"if(_v._corrupt is not null, {_BROKEN}, {NULL})"
    return flat(parsed, group, numbered(group.columns), broken)


def _schema(columns: Sequence[str]) -> str:
    return ", ".join([*(f"f{i} string" for i in range(len(columns))), "_corrupt string"])
