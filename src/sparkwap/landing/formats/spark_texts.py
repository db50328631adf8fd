"""Reads the texts of landing files with Spark, with their places in the files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkwap.landing.formats.json_sql import exact, plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLACE = (
    "_metadata.file_block_start as _start",
    # file:///a%20b -> /a b; a plus sign in a path is not a space
    "regexp_replace(url_decode(replace(_metadata.file_path, '+', '%2B')), '^file:/+', '/')"
    " as _path",
)
# Splits of a file are in order, and row numbers increase within a split.
NUMBER = "row_number() over (partition by _path order by _start, _number)"


def lines(session: SparkSession, paths: Sequence[str], header: bool = False) -> DataFrame:
    """Return ``_path``, ``_line``, ``_text`` of all lines except blank lines and the header."""
    skipped = 1 if header else 0
    return (
        session.read.text([escape_glob(p) for p in paths])
        .selectExpr("value", "monotonically_increasing_id() as _number", *PLACE)
        .selectExpr(
            "_path",
            f"cast({NUMBER} as bigint) - {skipped} as _line",
            "regexp_replace(value, '^\\\\uFEFF', '') as _text",
        )
        # Spark's CSV reader treats the same lines as blank, like Java's String.trim().
        .where("_line > 0 and _text rlike '[^\\\\x00-\\\\x20]'")
    )


def documents(session: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the same columns for files of one JSON document: an object, or a list of objects."""
    whole = "regexp_replace(value, '^\\\\uFEFF', '')"
    return (
        session.read.text([escape_glob(p) for p in paths], wholetext=True)
        .selectExpr(f"{whole} as value", *PLACE)
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


def escape_glob(path: str) -> str:
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)
