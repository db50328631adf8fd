"""Builds the rows of the log from the frame of a format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkwap.landing import messages, row_sql
from sparkwap.landing.entry import Entry, FileLayout
from sparkwap.landing.formats import FORMATS
from sparkwap.landing.row_sql import quote, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOG = {
    "_op": "string", "_sequence": "string", "_event_time": "timestamp",
    "_absent": "array<string>", "_load_date": "date", "_file_path": "string", "_row": "bigint",
    "_part": "int", "_batch": "bigint", "_run": "string", "_kind": "string", "_raw": "string",
    "_error": "string", "_load": "string", "_file_sha256": "string", "_file_bytes": "bigint",
    "_file_rows": "bigint", "_file_columns": "array<string>",
}  # fmt: skip
"""The log's columns besides the entity's own, with their types."""

LISTED = (
    "_path string, _load_date date, _file_path string, _load string, _file_sha256 string, "
    "_file_bytes bigint, _file_rows bigint, _file_columns array<string>, _copy_of string"
)
"""The metadata of each file, known before Spark reads it."""


def log_columns(entry: Entry) -> dict[str, str]:
    """Return the columns of the log of an entry besides the entity's own, with their types."""
    return {**LOG, **messages.COLUMNS} if entry.topic else LOG


def schema(columns: Sequence[str], entry: Entry) -> str:
    """Return the log's schema as DDL."""
    own = [f"{quote(c)} string" for c in columns]
    return ", ".join([*own, *(f"{name} {kind}" for name, kind in log_columns(entry).items())])


def rows(
    parsed: DataFrame,
    listed: DataFrame,
    entry: Entry,
    layout: FileLayout,
    columns: Sequence[str],
    has_code: bool,
    undated: bool,
) -> DataFrame:
    """Return the log rows of some files, without ``_batch`` and ``_run``.

    The column ``_bad_sequence``, which the log does not have, is the order of bad rows.

    Args:
        parsed: see `sparkwap.landing.formats.frame`.
        listed: the files, with the columns `LISTED`.
        undated: whether the load date of some file is the day of its latest event; of bad rows
            only if it has no others.
    """
    rules = (
        [f"{row_sql.typed(entry, c)} as {quote(c)}" for c in entry.columns] if entry.rules else []
    )
    found = parsed.join(listed, "_path", "left").selectExpr("*", *rules)
    found = found.selectExpr("*", f"{row_sql.operation(layout, has_code)} as _op")
    fault = row_sql.fault(entry, layout, has_code, columns)
    found = found.selectExpr("*", f"{fault} as _fault")
    # A message is good or bad as a whole: an old key is not deleted without adding the new key.
    whole = FORMATS[layout.format].own_operations
    first = "min(_fault) over (partition by _path, _line)" if whole else "_fault"
    found = found.selectExpr("*", f"if(_skip is null, {first}, _skip) as _error")
    found = found.selectExpr("*", _KIND).where("_part = 0 or _kind = 'row'")
    happened = row_sql.event_time(entry)
    if undated:
        latest = [
            f"max(if(_kind = '{kind}', cast({happened} as date), null)) over (partition by _path)"
            for kind in ("row", "bad")
        ]
        # A file without any event time has bad rows only, so any fixed day is acceptable.
        day = f"coalesce(_load_date, {', '.join(latest)}, date '1970-01-01') as _day"
        found = found.selectExpr("*", day).drop("_load_date")
        found = found.withColumnRenamed("_day", "_load_date")
    return found.selectExpr(
        *(f"{row_sql.own(c)} as {quote(c)}" for c in columns),
        "if(_kind = 'row', _op, null) as _op",
        f"if(_kind = 'row', {row_sql.sequence(entry)}, null) as _sequence",
        f"if(_kind = 'bad', {row_sql.known_sequence(entry)}, null) as _bad_sequence",
        f"if(_kind = 'row', coalesce({happened}, cast(_load_date as timestamp)), null)"
        " as _event_time",
        "if(_kind = 'row', _absent, null) as _absent",
        "_load_date",
        # A row without a matching file must not be lost silently.
        "if(_file_path is null, raise_error(concat('no landing file has the path ', _path)), "
        "_file_path) as _file_path",
        "_line as _row",
        "_part",
        "_kind",
        "if(_kind = 'row', null, _text) as _raw",
        "_error",
        "_load",
        *(f"cast(null as {LOG[c]}) as {c}" for c in _FILE_ONLY),
        *(messages.COLUMNS if entry.topic else ()),
    )


_KIND = (
    "case when _skip is not null then 'skipped' when _error is null then 'row' else 'bad' end"
    " as _kind"
)
_FILE_ONLY = ("_file_sha256", "_file_bytes", "_file_rows", "_file_columns")


def files(listed: DataFrame, columns: Sequence[str], entry: Entry) -> DataFrame:
    """Return the ``file`` rows, without ``_batch`` and ``_run``.

    Args:
        listed: the files, with the columns `LISTED` and ``_sequence``.
    """
    given = {
        "_kind": "'file'",
        "_error": "if(_copy_of is null, null, concat('skipped: it is a copy of ', _copy_of))",
        **{c: c for c in ("_load_date", "_file_path", "_load", "_sequence", *_FILE_ONLY)},
    }
    kinds = log_columns(entry)
    names = [c for c in kinds if c not in ("_batch", "_run")]
    return listed.selectExpr(
        *(f"cast(null as string) as {quote(c)}" for c in columns),
        *(f"{given.get(c, f'cast(null as {kinds[c]})')} as {c}" for c in names),
    )


def stamped(
    frame: DataFrame, columns: Sequence[str], entry: Entry, batch: int, run_id: str
) -> DataFrame:
    """Return log rows with the number and run id of their load, in the log's order of columns."""
    stamp = {"_batch": f"{batch}L", "_run": text(run_id)}
    return frame.selectExpr(
        *(quote(c) for c in columns),
        *(f"cast({stamp.get(c, c)} as {kind}) as {c}" for c, kind in log_columns(entry).items()),
    )
