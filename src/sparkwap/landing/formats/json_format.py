"""The format ``json``: lines that are JSON objects, or one JSON document in a file."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from sparkwap.landing.contents import Contents, Text, unreadable
from sparkwap.landing.entry import Entry, FileLayout
from sparkwap.landing.formats.base import SAMPLE_ROWS, FileSample, Group, TextFormat
from sparkwap.landing.formats.frame import absent_columns, flat, refused_names
from sparkwap.landing.formats.json_sql import exact, is_whole, json_field, json_object, row_text
from sparkwap.landing.formats.spark_texts import documents, lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Whole numbers with at most this many digits are a bigint.
_BIGINT_DIGITS = 18


class JsonFormat(TextFormat):
    """Files whose rows are JSON objects; with ``multiline``, a file is one object or a list."""

    name = "json"
    suffixes = (".json", ".jsonl", ".ndjson")
    columns_by_row = True
    declares_strings = True
    settings = frozenset({"multiline"})

    def look(self, text: Text, layout: FileLayout, entry: Entry) -> Contents:
        if entry.multiline:
            return Contents((), _count_objects(text))
        return super().look(text, layout, entry)

    def sample_text(self, text: str) -> FileSample | None:
        return self.sample_of(*read_objects(text))

    def sample_of(self, objects: Sequence[dict[str, Any]], multiline: bool) -> FileSample:
        """Return the sample of JSON objects."""
        kinds: dict[str, set[str]] = {}
        for item in objects:
            for name, value in item.items():
                if value is not None:
                    kinds.setdefault(name, set()).add(_kind(value))
        typed = {name: _common(found) for name, found in kinds.items()}
        rows = [{name: _text_of(value) for name, value in item.items()} for item in objects]
        # A JSON string may be a time, for which JSON has no type of its own; `guess` decides.
        return FileSample(self, rows, {n: k for n, k in typed.items() if k != "string"},
                          multiline=multiline)  # fmt: skip

    def texts(self, session: SparkSession, group: Group) -> DataFrame:
        return (documents if group.entry.multiline else lines)(session, group.paths)

    def row_columns(self, session: SparkSession, group: Group) -> dict[str, tuple[str, ...]]:
        found = (
            self.keys(self.texts(session, group), group.entry)
            .selectExpr("_path", "explode(_keys) as _key")
            .groupBy("_path")
            .agg({"_key": "collect_set"})
            .collect()
        )
        return {row[0]: tuple(sorted(row[1])) for row in found}

    def keys(self, texts: DataFrame, entry: Entry) -> DataFrame:
        """Return ``_path``, ``_text`` and ``_keys``, the columns of each row."""
        return texts.selectExpr("_path", "_text", f"json_object_keys({row_text(entry)}) as _keys")

    def parse(self, texts: DataFrame, group: Group) -> DataFrame:
        given = row_text(group.entry)
        value = json_object(exact("_given"), group.columns)
        parsed = texts.selectExpr("*", f"{given} as _given").selectExpr(
            "*", f"{value} as _v", "json_object_keys(_given) as _keys"
        )
        fields = {name: json_field("_v", name) for name in group.columns}
        absent = absent_columns(group.sources, "_keys") if group.entry.partial else None
        broken = (
            f"case when _v is null or _keys is null or not {is_whole('_given')} "
            f"then 'not a JSON object' {refused_names('_keys', group)} end"
        )
        return flat(parsed, group, fields, broken, absent)


def _count_objects(text: Text) -> int:
    whole = text.whole().decode()
    if not whole.strip():
        return 0
    try:
        document = json.loads(whole)
    except RecursionError:
        raise unreadable(text.path, "its JSON is nested too deeply") from None
    return len(document) if isinstance(document, list) else 1


# ---------------------------------------------------------------- samples


def read_objects(text: str) -> tuple[list[dict[str, Any]], bool]:
    """Return the first objects of a JSON text, and whether it is one document."""
    stream = io.StringIO(text, newline="")
    first = stream.readline()
    lines = [first, *islice(stream, SAMPLE_ROWS)]
    try:
        values, multiline = [json.loads(line) for line in lines if line.strip()], False
    except ValueError:
        document = json.loads(text)
        values, multiline = document if isinstance(document, list) else [document], True
    if len(values) == 1 and isinstance(values[0], list):
        values, multiline = values[0], True
    return [value for value in values if isinstance(value, dict)], multiline


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "bigint" if abs(value) < 10**_BIGINT_DIGITS else "decimal(38,0)"
    return "double" if isinstance(value, float) else "string"


def _common(kinds: set[str]) -> str:
    if len(kinds) == 1:
        return next(iter(kinds))
    return "double" if kinds == {"bigint", "double"} else "string"


def _text_of(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    return json.dumps(value, ensure_ascii=False)
