"""Parses the text of landing files with Spark.

A number in JSON is kept as text: ``1.10`` stays ``1.10``, and no digit of a decimal is lost.

Each format gives the same frame, with one row for each future row of the log:

============== ============= ======================================================================
``_path``      string        the file's path; in a replay, its name
``_line``      bigint        position in the file, from 1, header not counted
``_part``      int           0; 1 for the second half of a change of keys
``_text``      string        the row as in the file
``_own``       struct        the entity's own columns, as texts; an empty text is NULL
``_code``      string        operation code, or NULL
``_order``     array<string> the texts of the sequence columns
``_time``      string        the text of the event time
``_absent``    array<string> columns that the row does not have, or NULL
``_broken``    string        the reason why the text cannot be parsed, or NULL
``_skip``      string        the reason why the row is counted but not read, or NULL
============== ============= ======================================================================
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sparkwap.landing.drift import Mapped
from sparkwap.landing.entry import Entry, FileLayout
from sparkwap.landing.row_sql import quote, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Spark reads a number with a fraction as a double. So such numbers are quoted first, with a prefix
# that Unicode reserves for internal use: ``1.10`` becomes "\ufdd01.10".
_MARK = "\ufdd0"
_FRACTION = (
    r'((?:[^"0-9-]++'  # neither text nor number
    r'|"[^"\\]*+(?:\\.[^"\\]*+)*+"'  # a text
    r"|(?!-0(?![0-9]))-?[0-9]++(?![.eE])"  # a whole number: Spark keeps all of its digits
    r"|-(?![0-9]))*+)"
    r"(-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+)"
    # A number must end here. Quotes would make invalid JSON valid, or change a name.
    r"(?=[ \t\r\n]*+(?:[,}\]]|$))"
)
_MARKED = f'"?{_MARK}([-+.0-9eE]+)"?'

NULL = "cast(null as string)"
_PLACE = (
    "_metadata.file_block_start as _start",
    # file:///a%20b -> /a b; a plus sign in a path is not a space
    "regexp_replace(url_decode(replace(_metadata.file_path, '+', '%2B')), '^file:/+', '/')"
    " as _path",
)
# Splits of a file are in order, and row numbers increase within a split.
_NUMBER = "row_number() over (partition by _path order by _start, _number)"


# ---------------------------------------------------------------- texts with their places


def lines(session: SparkSession, paths: Sequence[str], header: bool) -> DataFrame:
    """Return ``_path``, ``_line``, ``_text`` of all lines except blank lines and the header."""
    skipped = 1 if header else 0
    return (
        session.read.text([_escape_glob(p) for p in paths])
        .selectExpr("value", "monotonically_increasing_id() as _number", *_PLACE)
        .selectExpr(
            "_path",
            f"cast({_NUMBER} as bigint) - {skipped} as _line",
            "regexp_replace(value, '^\\\\uFEFF', '') as _text",
        )
        # Spark's CSV reader treats the same lines as blank, like Java's String.trim().
        .where("_line > 0 and _text rlike '[^\\\\x00-\\\\x20]'")
    )


def documents(session: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the same columns for files of one JSON document: an object, or a list of objects."""
    whole = "regexp_replace(value, '^\\\\uFEFF', '')"
    return (
        session.read.text([_escape_glob(p) for p in paths], wholetext=True)
        .selectExpr(f"{whole} as value", *_PLACE)
        .where("trim(value) <> ''")
        .selectExpr(
            "_path",
            f"posexplode(if(ltrim(value) like '[%', from_json({exact('value')}, 'array<string>'), "
            "array(value))) as (_position, _document)",
        )
        .selectExpr(
            "_path", "cast(_position + 1 as bigint) as _line", f"{plain('_document')} as _text"
        )
    )


def _escape_glob(path: str) -> str:
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)


# ---------------------------------------------------------------- CSV


_BROKEN_CSV = "'wrong number of fields, or broken quotes'"


def csv_rows(
    texts: DataFrame, entry: Entry, layout: FileLayout, columns: Sequence[str], mapped: Mapped
) -> DataFrame:
    """Return the rows of CSV texts with ``columns``, in that order."""
    options = (
        "map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '_corrupt', "
        # RFC 4180; Spark's own default is a backslash
        f"'escape', '\"', 'multiLine', '{str(entry.multiline).lower()}', "
        f"'sep', {text(entry.delimiter)})"
    )
    parsed = texts.selectExpr(
        "*", f"from_csv(_text, {text(_csv_schema(columns))}, {options}) as _v"
    )
    broken = f"if(_v is null or _v._corrupt is not null, {_BROKEN_CSV}, {NULL})"
    return _flat(parsed, entry, layout, _numbered(columns), mapped, broken)


def csv_records(
    session: SparkSession,
    paths: Sequence[str],
    entry: Entry,
    layout: FileLayout,
    columns: Sequence[str],
    mapped: Mapped,
) -> DataFrame:
    """Return the rows of CSV files whose values contain line breaks, so that lines are not rows.

    The raw text of a valid row is built again from its fields.
    """
    raw = ", ".join(f"f{i}" for i in range(len(columns)))
    parsed = (
        session.read.schema(_csv_schema(columns))
        .options(header=layout.header, multiLine=True, encoding="UTF-8", escape='"')
        .options(mode="PERMISSIVE", columnNameOfCorruptRecord="_corrupt", sep=entry.delimiter)
        .csv([_escape_glob(p) for p in paths])
        .selectExpr("*", "monotonically_increasing_id() as _number", *_PLACE)
        .selectExpr(
            "_path",
            f"cast({_NUMBER} as bigint) as _line",
            f"coalesce(_corrupt, to_csv(struct({raw}), map('escape', '\"'))) as _text",
            "struct(*) as _v",
        )
    )
    broken = f"if(_v._corrupt is not null, {_BROKEN_CSV}, {NULL})"
    return _flat(parsed, entry, layout, _numbered(columns), mapped, broken)


def _csv_schema(columns: Sequence[str]) -> str:
    return ", ".join([*(f"f{i} string" for i in range(len(columns))), "_corrupt string"])


def _numbered(columns: Sequence[str]) -> dict[str, str]:
    """Return SQL for the texts of the published columns, numbered in ``_v``: any name is legal."""
    return {name: f"nullif(_v.f{i}, '')" for i, name in enumerate(columns)}


# ---------------------------------------------------------------- Parquet


def parquet_rows(
    session: SparkSession,
    paths: Sequence[str],
    entry: Entry,
    layout: FileLayout,
    columns: Sequence[str],
    mapped: Mapped,
) -> DataFrame:
    """Return the rows of Parquet files with one schema; the raw text of a row is a JSON object."""
    frame = session.read.parquet(*[_escape_glob(p) for p in paths])
    kinds = {f.name: f.dataType.simpleString() for f in frame.schema.fields}
    nested = ("struct<", "array<", "map<")
    texts = [
        f"to_json({quote(c)}) as f{i}"
        if kinds[c].startswith(nested)
        else f"cast({quote(c)} as string) as f{i}"
        for i, c in enumerate(columns)
    ]
    whole = ", ".join(f"{text(c)}, f{i}" for i, c in enumerate(columns))
    parsed = frame.selectExpr(*texts, "_metadata.row_index as _index", *_PLACE).selectExpr(
        "_path",
        "cast(_index + 1 as bigint) as _line",
        f"to_json(named_struct({whole})) as _text",
        "struct(*) as _v",
    )
    return _flat(parsed, entry, layout, _numbered(columns), mapped, NULL)


# ---------------------------------------------------------------- JSON


def json_rows(
    texts: DataFrame, entry: Entry, layout: FileLayout, columns: Sequence[str], mapped: Mapped
) -> DataFrame:
    """Return the rows of JSON objects, which may have any of ``columns``."""
    parsed = texts.selectExpr("*", f"{json_object(exact('_text'), columns)} as _v").selectExpr(
        "*", "json_object_keys(_text) as _keys"
    )
    fields = {name: json_field("_v", name) for name in columns}
    absent = absent_columns(mapped, "_keys", lambda _: "false") if entry.partial else None
    broken = f"if(_v is null or _keys is null, 'not a JSON object', {NULL})"
    return _flat(parsed, entry, layout, fields, mapped, broken, absent)


def json_columns(texts: DataFrame) -> dict[str, tuple[str, ...]]:
    """Return the sorted columns of the JSON objects of each file, by path."""
    return keys_by_path(texts.selectExpr("_path", "json_object_keys(_text) as _keys"))


def keys_by_path(frame: DataFrame) -> dict[str, tuple[str, ...]]:
    rows = (
        frame.selectExpr("_path", "explode(_keys) as _key")
        .groupBy("_path")
        .agg({"_key": "collect_set"})
        .collect()
    )
    return {row[0]: tuple(sorted(row[1])) for row in rows}


def json_object(value: str, columns: Sequence[str]) -> str:
    """Return SQL for a JSON text as a struct of texts; NULL if it is not a JSON object."""
    schema = ", ".join(f"{quote(c)} string" for c in [*columns, "_corrupt"])
    options = "map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '_corrupt')"
    return f"from_json({value}, {text(schema)}, {options})"


def exact(value: str) -> str:
    """Return SQL for a JSON text with numbers with fractions as marked texts (see `plain`)."""
    found, quoted = text(rf"\G{_FRACTION}"), text(f'$1"{_MARK}$2"')
    marked = f"regexp_replace({value}, {found}, {quoted})"
    return f"if({value} rlike '[0-9][.eE]|-0', {marked}, {value})"


def plain(value: str) -> str:
    """Return SQL for a value or a part of the JSON text of `exact`, without marks."""
    return (
        f"if(contains({value}, {text(_MARK)}), "
        f"regexp_replace({value}, {text(_MARKED)}, '$1'), {value})"
    )


def json_field(struct: str, name: str) -> str:
    return f"nullif({plain(f'{struct}.{quote(name)}')}, '')"


def absent_columns(mapped: Mapped, keys: str, unavailable: object) -> str:
    """Return SQL for the columns of the log that an object does not have; NULL if it has all."""
    is_unavailable = unavailable if callable(unavailable) else lambda _: "false"
    items = []
    for column, sources in mapped.sources.items():
        known = ", ".join(text(s) for s in sources)
        there = f"arrays_overlap({keys}, array({known}))" if sources else "false"
        items.append(f"if({there} and not ({is_unavailable(column)}), {NULL}, {text(column)})")
    listed = f"filter(array({', '.join(items)}), c -> c is not null)"
    return f"if(cardinality({listed}) = 0, cast(null as array<string>), {listed})"


# ---------------------------------------------------------------- all formats


def _flat(
    parsed: DataFrame,
    entry: Entry,
    layout: FileLayout,
    fields: Mapping[str, str],
    mapped: Mapped,
    broken: str,
    absent: str | None = None,
) -> DataFrame:
    """Return the frame of a flat format: one row of the file gives one row of the log."""
    code = fields.get(layout.operation or "", NULL)
    order = ", ".join(fields.get(name, NULL) for name, _ in entry.sequence) or NULL
    return parsed.selectExpr(
        "_path",
        "_line",
        "0 as _part",
        "_text",
        f"{columns_struct(mapped, fields)} as _own",
        f"{code} as _code",
        f"array({order}) as _order",
        f"{fields.get(entry.event_time[0], NULL) if entry.event_time else NULL} as _time",
        f"{absent or 'cast(null as array<string>)'} as _absent",
        f"{broken} as _broken",
        f"{NULL} as _skip",
    )


def columns_struct(mapped: Mapped, fields: Mapping[str, str]) -> str:
    """Return SQL for the entity's own columns as a struct of texts."""
    items = []
    for column, sources in mapped.sources.items():
        given = [fields[s] for s in sources if s in fields]
        value = f"coalesce({', '.join(given)})" if given else NULL
        items.append(f"{text(column)}, {value}")
    return f"named_struct({', '.join(items)})"
