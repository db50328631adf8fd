"""Texts of landing files, taken apart by Spark.

A number in JSON is its text: ``1.10`` stays so, and no digit of a decimal is lost.

Each format gives the same frame, one row for each row of the log to be:

============== ============= ======================================================================
``_path``      string        the file's path, or in a replay its name
``_line``      bigint        position in the file, from 1, header not counted
``_part``      int           0; 1 for the second half of a change of keys
``_text``      string        the row as it stands in the file
``_own``       struct        the log's own columns, as texts; an empty text is NULL
``_code``      string        operation code, NULL where there is none
``_order``     array<string> the sequence columns' texts
``_time``      string        the event time's text
``_absent``    array<string> columns that the row does not state, or NULL
``_broken``    string        why the text cannot be taken apart, or NULL
``_skip``      string        why the row is counted, and not read, or NULL
============== ============= ======================================================================
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sparkwap.landing.drift import Mapped
from sparkwap.landing.entry import Entry, Layout
from sparkwap.landing.sql import quote, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLACEHOLDER = "__debezium_unavailable_value"
"""What Debezium sends for a large value that did not change."""

# Spark reads a number with a fraction as a double. So such numbers are put in quotes before, behind
# a character that Unicode has set apart for a program's own use: ``1.10`` is "\ufdd01.10".
_MARK = "\ufdd0"
_FRACTION = (
    r'((?:[^"0-9-]++'  # neither text nor number
    r'|"[^"\\]*+(?:\\.[^"\\]*+)*+"'  # a text
    r"|(?!-0(?![0-9]))-?[0-9]++(?![.eE])"  # a whole number, all of whose digits Spark keeps
    r"|-(?![0-9]))*+)"
    r"(-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+)"
    # What is no JSON, or a name: quotes would make it right.
    r"(?=[ \t\r\n]*+(?:[,}\]]|$))"
)
_MARKED = f'"?{_MARK}([-+.0-9eE]+)"?'

_NULL = "cast(null as string)"
_PLACE = (
    "_metadata.file_block_start as _start",
    # file:///a%20b -> /a b; a plus sign stands for itself in a path
    "regexp_replace(url_decode(replace(_metadata.file_path, '+', '%2B')), '^file:/+', '/')"
    " as _path",
)
# Files are split in order, and a split numbers its rows upward.
_NUMBER = "row_number() over (partition by _path order by _start, _number)"


# ---------------------------------------------------------------- texts with their places


def lines(session: SparkSession, paths: Sequence[str], header: bool) -> DataFrame:
    """``_path``, ``_line``, ``_text`` of all lines that are not blank; a header is left out."""
    skipped = 1 if header else 0
    return (
        session.read.text([_escape_glob(p) for p in paths])
        .selectExpr("value", "monotonically_increasing_id() as _number", *_PLACE)
        .selectExpr(
            "_path",
            f"cast({_NUMBER} as bigint) - {skipped} as _line",
            "regexp_replace(value, '^\\\\uFEFF', '') as _text",
        )
        # What Spark's CSV reader takes for blank, too: Java's String.trim().
        .where("_line > 0 and _text rlike '[^\\\\x00-\\\\x20]'")
    )


def documents(session: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Likewise, of files that are one JSON document each: an object, or a list of them."""
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


def csv_rows(
    texts: DataFrame, entry: Entry, layout: Layout, columns: Sequence[str], mapped: Mapped
) -> DataFrame:
    """Rows of CSV texts whose columns are ``columns``, in that order."""
    fields = {name: f"nullif(_v.f{i}, '')" for i, name in enumerate(columns)}
    schema = ", ".join([*(f"f{i} string" for i in range(len(columns))), "_corrupt string"])
    options = (
        "map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '_corrupt', "
        # RFC 4180; Spark's own default is a backslash
        f"'escape', '\"', 'multiLine', '{str(entry.multiline).lower()}', "
        f"'sep', {text(entry.delimiter)})"
    )
    parsed = texts.selectExpr("*", f"from_csv(_text, {text(schema)}, {options}) as _v")
    broken = "if(_v is null or _v._corrupt is not null, 'wrong number of fields, or broken quotes'"
    return _flat(parsed, entry, layout, fields, mapped, f"{broken}, {_NULL})")


def csv_records(
    session: SparkSession,
    paths: Sequence[str],
    entry: Entry,
    layout: Layout,
    columns: Sequence[str],
    mapped: Mapped,
) -> DataFrame:
    """Rows of CSV files whose values hold line breaks, so that lines are not rows.

    The raw text of a row that can be taken apart is put together again from its fields.
    """
    schema = ", ".join([*(f"f{i} string" for i in range(len(columns))), "_corrupt string"])
    raw = ", ".join(f"f{i}" for i in range(len(columns)))
    parsed = (
        session.read.schema(schema)
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
    fields = {name: f"nullif(_v.f{i}, '')" for i, name in enumerate(columns)}
    broken = "if(_v._corrupt is not null, 'wrong number of fields, or broken quotes'"
    return _flat(parsed, entry, layout, fields, mapped, f"{broken}, {_NULL})")


# ---------------------------------------------------------------- Parquet


def parquet_rows(
    session: SparkSession,
    paths: Sequence[str],
    entry: Entry,
    layout: Layout,
    columns: Sequence[str],
    mapped: Mapped,
) -> DataFrame:
    """Rows of Parquet files with one schema; the raw text of a row is a JSON object."""
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
    fields = {name: f"nullif(_v.f{i}, '')" for i, name in enumerate(columns)}
    return _flat(parsed, entry, layout, fields, mapped, _NULL)


# ---------------------------------------------------------------- JSON


def json_rows(
    texts: DataFrame, entry: Entry, layout: Layout, columns: Sequence[str], mapped: Mapped
) -> DataFrame:
    """Rows of JSON objects, which may have any of ``columns``."""
    parsed = texts.selectExpr("*", f"{json_object(exact('_text'), columns)} as _v").selectExpr(
        "*", "json_object_keys(_text) as _keys"
    )
    fields = {name: _json_field("_v", name) for name in columns}
    absent = _absent(mapped, "_keys", lambda _: "false") if entry.partial else None
    broken = f"if(_v is null or _keys is null, 'not a JSON object', {_NULL})"
    return _flat(parsed, entry, layout, fields, mapped, broken, absent)


def json_columns(texts: DataFrame) -> dict[str, tuple[str, ...]]:
    """The columns that the JSON objects of each file have, sorted, by path."""
    return _keys_by_path(texts.selectExpr("_path", "json_object_keys(_text) as _keys"))


def _keys_by_path(frame: DataFrame) -> dict[str, tuple[str, ...]]:
    rows = (
        frame.selectExpr("_path", "explode(_keys) as _key")
        .groupBy("_path")
        .agg({"_key": "collect_set"})
        .collect()
    )
    return {row[0]: tuple(sorted(row[1])) for row in rows}


def json_object(value: str, columns: Sequence[str]) -> str:
    """SQL: a JSON text as a struct of texts; NULL if it is no JSON object."""
    schema = ", ".join(f"{quote(c)} string" for c in [*columns, "_corrupt"])
    options = "map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '_corrupt')"
    return f"from_json({value}, {text(schema)}, {options})"


def exact(value: str) -> str:
    """SQL: a JSON text whose numbers with fractions are texts, behind a mark: see `plain`."""
    found, quoted = text(rf"\G{_FRACTION}"), text(f'$1"{_MARK}$2"')
    marked = f"regexp_replace({value}, {found}, {quoted})"
    return f"if({value} rlike '[0-9][.eE]|-0', {marked}, {value})"


def plain(value: str) -> str:
    """SQL: a value out of such a JSON text, or a part of the text, without marks."""
    return (
        f"if(contains({value}, {text(_MARK)}), "
        f"regexp_replace({value}, {text(_MARKED)}, '$1'), {value})"
    )


def _json_field(struct: str, name: str) -> str:
    return f"nullif({plain(f'{struct}.{quote(name)}')}, '')"


def _absent(mapped: Mapped, keys: str, unavailable: object) -> str:
    """SQL: those columns of the log that an object does not state; NULL if it states all."""
    tell = unavailable if callable(unavailable) else lambda _: "false"
    items = []
    for column, sources in mapped.sources.items():
        known = ", ".join(text(s) for s in sources)
        there = f"arrays_overlap({keys}, array({known}))" if sources else "false"
        items.append(f"if({there} and not ({tell(column)}), {_NULL}, {text(column)})")
    listed = f"filter(array({', '.join(items)}), c -> c is not null)"
    return f"if(cardinality({listed}) = 0, cast(null as array<string>), {listed})"


# ---------------------------------------------------------------- Debezium

_ENVELOPE = ("payload", "before", "after", "op", "ddl", "tableChanges")
_KEYS = "coalesce(json_object_keys({0}), cast(array() as array<string>))"


def envelopes(texts: DataFrame) -> DataFrame:
    """Debezium's messages without their wrapper: ``_message`` and its main parts, as texts.

    A message is ``{"payload": {...}}`` (with or without a schema), or the payload itself.
    """
    return (
        texts.selectExpr("*", f"{exact('_text')} as _marked", "trim(_text) as _trimmed")
        .selectExpr("*", f"{json_object('_marked', _ENVELOPE)} as _w")
        .selectExpr("*", f"{_KEYS.format('_text')} as _outer")
        .selectExpr(
            "*",
            "array_contains(_outer, 'payload') as _wrapped",
            "if(array_contains(_outer, 'payload'), _w.payload, _marked) as _message",
        )
        .selectExpr(
            "*",
            f"if(_wrapped, {json_object('_message', _ENVELOPE)}, _w) as _e",
            f"{_KEYS.format('_message')} as _parts",
        )
    )


def debezium_columns(messages: DataFrame) -> dict[str, tuple[str, ...]]:
    """The columns that the images of each file's messages have, sorted, by path."""
    keys = f"concat({_KEYS.format('_e.after')}, {_KEYS.format('_e.before')}) as _keys"
    return _keys_by_path(messages.selectExpr("_path", keys))


def debezium_rows(
    messages: DataFrame, entry: Entry, columns: Sequence[str], mapped: Mapped
) -> DataFrame:
    """Rows of Debezium messages; an update that changes the key gives two."""
    parsed = messages.selectExpr(
        "*",
        f"{json_object('_e.before', columns)} as _before",
        f"{json_object('_e.after', columns)} as _after",
        f"array({', '.join(_at(name) for name, _ in entry.sequence)}) as _order",
        f"{_at(entry.event_time[0]) if entry.event_time else _NULL} as _time",
        f"{_broken_message()} as _broken",
        f"{_skipped_message()} as _skip",
    ).selectExpr(
        "*",
        f"{_struct(mapped, _fields('_before', columns))} as _old",
        f"{_struct(mapped, _fields('_after', columns))} as _new",
        f"{_partial_images(entry, mapped, columns)} as _missing",
    )
    moved = " or ".join(
        f"(_old.{quote(k)} is not null and _new.{quote(k)} is not null "
        f"and _old.{quote(k)} <> _new.{quote(k)})"
        for k in entry.key
    )
    # Part, operation code, image, and what the image lacks.
    row = "named_struct('p', {0}, 'c', {1}, 'i', {2}, 'a', {3})"
    none = "cast(null as array<string>)"
    rows = (
        f"case when _e.op = 'd' then array({row.format(0, '_e.op', '_old', none)}) "
        f"when _e.op = 't' then array({row.format(0, '_e.op', _nothing(mapped), none)}) "
        f"when _e.op = 'u' and ({moved}) then array({row.format(0, text('d'), '_old', none)}, "
        f"{row.format(1, text('c'), '_new', '_missing')}) "
        f"else array({row.format(0, '_e.op', '_new', '_missing')}) end"
    )
    return parsed.selectExpr("*", f"explode({rows}) as _r").selectExpr(
        "_path", "_line", "_r.p as _part", "_text", "_r.i as _own", "_r.c as _code", "_order",
        "_time", "_r.a as _absent", "_broken", "_skip",
    )  # fmt: skip


def _broken_message() -> str:
    """SQL: why a message cannot be used, whatever the table; NULL if it can."""
    return (
        "case when _trimmed = 'null' then null "
        "when _w is null or _w._corrupt is not null or cardinality(_outer) = 0 and "
        "_trimmed not rlike '^\\\\{\\\\s*\\\\}$' then 'not a JSON object' "
        "when _wrapped and _message is null then null "
        f"when {_schema_change()} then null "
        "when _wrapped and (_e is null or _e._corrupt is not null) "
        "then 'the payload is not a JSON object' "
        "when not array_contains(_parts, 'op') then 'no payload: a message has an op' "
        "when _e.op in ('c', 'u', 'r') and _e.after is null then 'no after image' "
        "when _e.op = 'd' and _e.before is null then 'no before image' end"
    )


def _schema_change() -> str:
    return (
        "not array_contains(_parts, 'op') and "
        "(array_contains(_parts, 'ddl') or array_contains(_parts, 'tableChanges'))"
    )


def _skipped_message() -> str:
    """SQL: what a message is that is counted, and nothing else; NULL if it is a change."""
    return (
        "case when _trimmed = 'null' or (_wrapped and _message is null) then 'tombstone' "
        f"when {_schema_change()} then 'schema change' end"
    )


def _at(path: str) -> str:
    """SQL: the text at a path of a message, such as ``source.lsn``."""
    return plain(f"get_json_object(_message, {text('$.' + path)})")


def _fields(struct: str, columns: Sequence[str]) -> dict[str, str]:
    return {c: f"nullif({_json_field(struct, c)}, {text(PLACEHOLDER)})" for c in columns}


def _partial_images(entry: Entry, mapped: Mapped, columns: Sequence[str]) -> str:
    """SQL: the columns whose values the after image does not state."""

    def unavailable(column: str) -> str:
        tests = [f"coalesce(_after.{quote(s)} = {text(PLACEHOLDER)}, false)"
                 for s in mapped.sources[column]]  # fmt: skip
        return " or ".join(tests) or "false"

    # Without `partial` a column that is nowhere in the image is NULL; a placeholder never is.
    everything = f"array({', '.join(text(c) for c in columns)})" if columns else "array('')"
    keys = _KEYS.format("_e.after") if entry.partial else everything
    return _absent(mapped, keys, unavailable)


# ---------------------------------------------------------------- all formats


def _flat(
    parsed: DataFrame,
    entry: Entry,
    layout: Layout,
    fields: Mapping[str, str],
    mapped: Mapped,
    broken: str,
    absent: str | None = None,
) -> DataFrame:
    """The frame of a format whose rows are flat: one row of the file, one row of the log."""
    code = fields.get(layout.operation or "", _NULL)
    order = ", ".join(fields.get(name, _NULL) for name, _ in entry.sequence) or _NULL
    return parsed.selectExpr(
        "_path",
        "_line",
        "0 as _part",
        "_text",
        f"{_struct(mapped, fields)} as _own",
        f"{code} as _code",
        f"array({order}) as _order",
        f"{fields.get(entry.event_time[0], _NULL) if entry.event_time else _NULL} as _time",
        f"{absent or 'cast(null as array<string>)'} as _absent",
        f"{broken} as _broken",
        f"{_NULL} as _skip",
    )


def _struct(mapped: Mapped, fields: Mapping[str, str]) -> str:
    """SQL: the log's own columns as a struct of texts."""
    items = []
    for column, sources in mapped.sources.items():
        given = [fields[s] for s in sources if s in fields]
        value = f"coalesce({', '.join(given)})" if given else _NULL
        items.append(f"{text(column)}, {value}")
    return f"named_struct({', '.join(items)})"


def _nothing(mapped: Mapped) -> str:
    return _struct(mapped, {})
