"""Reads what a log already has: files and columns, the position in a topic, open bad rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from sparkwap.landing.entry import Entry
from sparkwap.landing.row_sql import text
from sparkwap.landing.topic import RANGE, Known, known_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class KnownFiles:
    """The files and columns that a log already has.

    Attributes:
        files: file name to SHA-256; empty for messages.
        dates: file name to load date.
        columns: file name to published columns.
        extras: the entity's columns that the entry does not name.
        batch: number of the last load; 0 for none.
    """

    files: Mapping[str, str]
    dates: Mapping[str, date | None]
    columns: Mapping[str, tuple[str, ...]]
    extras: tuple[str, ...]
    batch: int


NOTHING = KnownFiles({}, {}, {}, (), 0)


def known_log(table: DataFrame, entry: Entry, with_files: bool) -> KnownFiles:
    """Return what a log has: one query for its file rows, if asked for; one for its last load."""
    own = [c for c in table.columns if not c.startswith("_")]
    files = table.where("_kind = 'file'").select(
        "_file_path", "_file_sha256", "_load_date", "_file_columns"
    )
    rows = files.collect() if with_files else []
    batch = table.selectExpr("max(_batch)").collect()[0][0]
    return KnownFiles(
        files={row["_file_path"]: row["_file_sha256"] or "" for row in rows},
        dates={row["_file_path"]: row["_load_date"] for row in rows},
        columns={row["_file_path"]: tuple(row["_file_columns"] or ()) for row in rows},
        extras=tuple(c for c in own if c not in entry.columns),
        batch=batch or 0,
    )


def read_known(table: DataFrame, topic: str) -> Known:
    """Return what a log has of a topic, by the range of each partition that ends last."""
    named = text(f"^{RANGE.pattern}$")
    place = f"if(_file_path rlike {named}, substring_index(_file_path, '/', 3), '')"
    from pyspark.sql.functions import expr

    last = (
        table.where("_kind = 'file'")
        .selectExpr("_file_path", f"{place} as _place")
        .groupBy("_place")
        # The digits of a range's end are padded, so that they sort like offsets.
        .agg(expr("max_by(_file_path, substring_index(_file_path, '-', -1))"))
    )
    return known_of([row[1] for row in last.collect()], topic)


def open_bad_rows(table: DataFrame) -> DataFrame:
    """Return the bad rows of a log that no later load has replaced, with all columns of the log."""
    bad = table.where("_kind = 'bad'").alias("b")
    later = table.where("_kind in ('row', 'bad')").alias("l")
    # The load date is the log's partition: Spark scans only the drops that have bad rows.
    same = "b._load_date = l._load_date and b._file_path = l._file_path and b._row = l._row"
    from pyspark.sql.functions import expr

    return bad.join(later, expr(f"{same} and l._batch > b._batch"), "left_anti")
