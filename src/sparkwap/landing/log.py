"""The rows of the log, from the texts that a format has taken apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkwap.landing import sql
from sparkwap.landing.entry import Entry, FileLayout
from sparkwap.landing.sql import quote, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOG = {
    "_op": "string", "_sequence": "string", "_event_time": "timestamp",
    "_absent": "array<string>", "_load_date": "date", "_file_path": "string", "_row": "bigint",
    "_part": "int", "_batch": "bigint", "_run": "string", "_kind": "string", "_raw": "string",
    "_error": "string", "_load": "string", "_file_sha256": "string", "_file_bytes": "bigint",
    "_file_rows": "bigint", "_file_columns": "array<string>",
}  # fmt: skip
"""The log's columns beside the entity's own, with their types."""

LISTED = (
    "_path string, _load_date date, _file_path string, _load string, _file_sha256 string, "
    "_file_bytes bigint, _file_rows bigint, _file_columns array<string>, _copy_of string"
)
"""What is known of each file before Spark reads it."""


def schema(columns: Sequence[str]) -> str:
    """The log's schema, as DDL."""
    own = [f"{quote(c)} string" for c in columns]
    return ", ".join([*own, *(f"{name} {kind}" for name, kind in LOG.items())])


def rows(
    parsed: DataFrame,
    listed: DataFrame,
    entry: Entry,
    layout: FileLayout,
    columns: Sequence[str],
    has_code: bool,
    undated: bool,
) -> DataFrame:
    """What the rows of some files are in the log, without ``_batch`` and ``_run``.

    Args:
        parsed: see `sparkwap.landing.formats`.
        listed: the files, with the columns `LISTED`.
        entry: the entry.
        layout: how the files look.
        columns: the log's own columns.
        has_code: whether the rows have operation codes.
        undated: whether some file's load date is the day of its latest event.
    """
    happened = sql.event_time(entry)
    day = "_load_date"
    if undated:
        latest = f"max(if(_skip is null, cast({happened} as date), null)) over (partition by _path)"
        # A file of which no row says when holds nothing but bad rows; any fixed day will do.
        day = f"coalesce(_load_date, {latest}, date '1970-01-01')"
    rules = [f"{sql.typed(entry, c)} as {quote(c)}" for c in entry.columns] if entry.rules else []
    found = parsed.join(listed, "_path", "left").selectExpr("*", f"{day} as _day", *rules)
    found = found.drop("_load_date").withColumnRenamed("_day", "_load_date")
    found = found.selectExpr("*", f"{sql.operation(layout, has_code)} as _op")
    fault = sql.fault(entry, layout, has_code, columns)
    found = found.selectExpr("*", f"{fault} as _fault")
    # A message stands or falls as a whole: no delete of an old key without the new one.
    whole = layout.format == "debezium"
    first = "min(_fault) over (partition by _path, _line)" if whole else "_fault"
    found = found.selectExpr("*", f"if(_skip is null, {first}, _skip) as _error")
    found = found.selectExpr("*", _KIND).where("_part = 0 or _kind = 'row'")
    return found.selectExpr(
        *(f"{sql.own(c)} as {quote(c)}" for c in columns),
        "if(_kind = 'row', _op, null) as _op",
        f"if(_kind = 'row', {sql.sequence(entry)}, null) as _sequence",
        f"if(_kind = 'row', coalesce({happened}, cast(_load_date as timestamp)), null)"
        " as _event_time",
        "if(_kind = 'row', _absent, null) as _absent",
        "_load_date",
        # A row whose file is not found by its path must not be lost silently.
        "if(_file_path is null, raise_error(concat('no landing file has the path ', _path)), "
        "_file_path) as _file_path",
        "_line as _row",
        "_part",
        "_kind",
        "if(_kind = 'row', null, _text) as _raw",
        "_error",
        "_load",
        *(f"cast(null as {LOG[c]}) as {c}" for c in _FILE_ONLY),
    )


_KIND = (
    "case when _skip is not null then 'skipped' when _error is null then 'row' else 'bad' end"
    " as _kind"
)
_FILE_ONLY = ("_file_sha256", "_file_bytes", "_file_rows", "_file_columns")


def files(listed: DataFrame, columns: Sequence[str]) -> DataFrame:
    """The rows of the files themselves, without ``_batch`` and ``_run``.

    Args:
        listed: the files, with the columns `LISTED` and ``_sequence``.
        columns: the log's own columns.
    """
    given = {
        "_kind": "'file'",
        "_error": "if(_copy_of is null, null, concat('skipped: it is ', _copy_of, ' once more'))",
        **{c: c for c in ("_load_date", "_file_path", "_load", "_sequence", *_FILE_ONLY)},
    }
    names = [c for c in LOG if c not in ("_batch", "_run")]
    return listed.selectExpr(
        *(f"cast(null as string) as {quote(c)}" for c in columns),
        *(f"{given[c]} as {c}" if c in given else f"cast(null as {LOG[c]}) as {c}" for c in names),
    )


def stamped(frame: DataFrame, columns: Sequence[str], batch: int, run_id: str) -> DataFrame:
    """A frame of log rows with the load that they belong to, in the log's order of columns."""
    stamp = {"_batch": f"{batch}L", "_run": text(run_id)}
    return frame.selectExpr(
        *(quote(c) for c in columns),
        *(f"cast({stamp.get(c, c)} as {kind}) as {c}" for c, kind in LOG.items()),
    )
