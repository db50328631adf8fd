"""The format ``debezium``: lines that are Debezium messages in JSON.

A message is ``{"payload": {...}}`` (with or without a schema), or the payload itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sparkwap.landing import messages
from sparkwap.landing.entry import Entry
from sparkwap.landing.formats.base import FileSample, Group
from sparkwap.landing.formats.frame import NULL, absent_columns, columns_struct, refused_names
from sparkwap.landing.formats.json_format import JsonFormat, read_objects
from sparkwap.landing.formats.json_sql import exact, is_whole, json_field, json_object, plain
from sparkwap.landing.row_sql import quote, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CODES = {"r": "load", "c": "insert", "u": "update", "d": "delete", "t": "truncate"}
_PLACEHOLDER = "__debezium_unavailable_value"
"""Debezium sends this text in place of a large value that did not change."""
_ENVELOPE = ("payload", "before", "after", "op", "ddl", "tableChanges")
_KEYS = "coalesce(json_object_keys({0}), cast(array() as array<string>))"
_NAMES = f"concat({_KEYS.format('_e.after')}, {_KEYS.format('_e.before')})"
"""SQL for the columns of both images of a message."""


class DebeziumFormat(JsonFormat):
    """JSON files whose objects are messages; the columns are those of the row images."""

    name = "debezium"
    codes = CODES
    sequence = (("source.lsn", "bigint"),)
    event_time = ("source.ts_ms", "bigint")
    partial = True

    def sample_text(self, text: str) -> FileSample | None:
        if '"op"' not in text:
            return None
        objects, _ = read_objects(text)
        images = [image for message in objects for image in _images(message)]
        return self.sample_of(images, multiline=False) if images else None

    def keys(self, texts: DataFrame, entry: Entry) -> DataFrame:
        keys = f"{_NAMES} as _keys"
        return _envelopes(texts).selectExpr("_path", "_text", keys)

    def parse(self, texts: DataFrame, group: Group) -> DataFrame:
        return _rows(_envelopes(texts), group)


def _images(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the row image of a Debezium message: the after image, else the before image."""
    payload = message.get("payload", message)
    if not isinstance(payload, dict) or "op" not in payload:
        return []
    return [i for i in (payload.get("after"), payload.get("before")) if isinstance(i, dict)][:1]


def _envelopes(texts: DataFrame) -> DataFrame:
    """Return the messages without their wrapper: ``_message`` and its main parts, as texts."""
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


def _rows(envelopes: DataFrame, group: Group) -> DataFrame:
    """Return the rows of Debezium messages; an update that changes the key gives two rows."""
    entry, columns = group.entry, group.columns
    parsed = envelopes.selectExpr(
        "*",
        f"{json_object('_e.before', columns)} as _before",
        f"{json_object('_e.after', columns)} as _after",
        f"array({', '.join(_at(name, entry) for name, _ in entry.sequence)}) as _order",
        f"{_at(entry.event_time[0], entry) if entry.event_time else NULL} as _time",
        f"{_broken_message(group)} as _broken",
        f"{_skipped_message()} as _skip",
    ).selectExpr(
        "*",
        f"{columns_struct(group.sources, _fields('_before', columns))} as _old",
        f"{columns_struct(group.sources, _fields('_after', columns))} as _new",
        f"{_partial_images(group)} as _missing",
    )
    moved = " or ".join(
        f"(_old.{quote(k)} is not null and _new.{quote(k)} is not null "
        f"and _old.{quote(k)} <> _new.{quote(k)})"
        for k in entry.key
    )
    # Part, operation code, image, and the columns that the image does not have.
    row = "named_struct('p', {0}, 'c', {1}, 'i', {2}, 'a', {3})"
    none, empty = "cast(null as array<string>)", columns_struct(group.sources, {})
    rows = (
        f"case when _e.op = 'd' then array({row.format(0, '_e.op', '_old', none)}) "
        f"when _e.op = 't' then array({row.format(0, '_e.op', empty, none)}) "
        f"when _e.op = 'u' and ({moved}) then array({row.format(0, text('d'), '_old', none)}, "
        f"{row.format(1, text('c'), '_new', '_missing')}) "
        f"else array({row.format(0, '_e.op', '_new', '_missing')}) end"
    )
    found = [
        "_path", "_line", "_r.p as _part", "_text", "_r.i as _own", "_r.c as _code", "_order",
        "_time", "_r.a as _absent", "_broken", "_skip", *(messages.COLUMNS if entry.topic else ()),
    ]  # fmt: skip
    return parsed.selectExpr("*", f"explode({rows}) as _r").selectExpr(*found)


def _broken_message(group: Group) -> str:
    """Return SQL for the reason why a message is invalid for every table; NULL if it is valid."""
    return (
        "case when _trimmed = 'null' then null "
        "when _w is null or _w._corrupt is not null or cardinality(_outer) = 0 and "
        "_trimmed not rlike '^\\\\{\\\\s*\\\\}$' then 'not a JSON object' "
        f"when not {is_whole('_text')} then 'not a JSON object' "
        "when _wrapped and _message is null then null "
        f"when {_schema_change()} then null "
        "when _wrapped and (_e is null or _e._corrupt is not null) "
        "then 'the payload is not a JSON object' "
        "when not array_contains(_parts, 'op') then 'no payload: a message has an op' "
        "when _e.op in ('c', 'u', 'r') and _e.after is null then 'no after image' "
        "when _e.op = 'd' and _e.before is null then 'no before image' "
        f"{refused_names(_NAMES, group)} end"
    )


def _schema_change() -> str:
    return (
        "not array_contains(_parts, 'op') and "
        "(array_contains(_parts, 'ddl') or array_contains(_parts, 'tableChanges'))"
    )


def _skipped_message() -> str:
    """Return SQL for the kind of a message that is only counted; NULL if it is a change."""
    return (
        "case when _trimmed = 'null' or (_wrapped and _message is null) then 'tombstone' "
        f"when {_schema_change()} then 'schema change' end"
    )


def _at(path: str, entry: Entry) -> str:
    """Return SQL for the text at a path of a message, such as ``source.lsn``."""
    if entry.topic and path in messages.FIELDS:
        return messages.FIELDS[path]
    return plain(f"get_json_object(_message, {text('$.' + path)})")


def _fields(struct: str, columns: Sequence[str]) -> dict[str, str]:
    return {c: f"nullif({json_field(struct, c)}, {text(_PLACEHOLDER)})" for c in columns}


def _partial_images(group: Group) -> str:
    """Return SQL for the columns whose values the after image does not have."""

    def unavailable(column: str) -> str:
        tests = [f"coalesce(_after.{quote(s)} = {text(_PLACEHOLDER)}, false)"
                 for s in group.sources[column]]  # fmt: skip
        return " or ".join(tests) or "false"

    # Without `partial`, a column that is missing in the image is NULL. A placeholder is always
    # an absent value.
    everything = f"array({', '.join(map(text, group.columns or ('',)))})"
    keys = _KEYS.format("_e.after") if group.entry.partial else everything
    return absent_columns(group.sources, keys, unavailable)
