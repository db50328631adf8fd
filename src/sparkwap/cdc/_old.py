"""From a change log to the state it describes: one row a key, whatever the order of arrival.

The log is what `sparkwap.landing` writes. All functions take and return Spark DataFrames, classic
or Connect, and use SQL expressions only, so that they need no environment setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkwap.cdc.sql import quote as _quote
from sparkwap.cdc.sql import row_hash

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LATEST = (
    # Inside one drop a full load comes before the changes, whatever the files are called.
    "row_number() over (partition by {key} order by "
    "_load_date desc, if(_op = 'load', 0, 1) desc, _file_path desc, _row desc) as _rank"
)


def current(log: DataFrame, key: Sequence[str]) -> DataFrame:
    """The state after all that the log holds: one row a key, deleted keys left out.

    A full load replaces all that was there before its load date; changes follow on it. For one
    key the last row counts: by load date, then full load before changes, then file name, then
    position in the file. No two rows of a log are equal in these, so the result depends on the
    log's content alone. Rows with an ``_error`` take no part.

    Args:
        log: a raw table, see `sparkwap.landing`.
        key: the columns that name a row, without NULLs.

    Returns:
        The entity's own columns, as text, and

        - ``row_hash`` string: SHA-256 of those columns, the same for equal rows only, NULL told
          from empty; made for change detection (``check_cols``)
        - ``loaded_at`` timestamp: load date of the row that counts
        - ``as_of`` timestamp: load date of the newest file in the log, the same in all rows
    """
    if not key:
        raise ValueError("current() needs at least one key column")
    bounds = (
        log.where("_kind = 'file'")
        .selectExpr(
            "max(_load_date) as as_of",
            "max(if(_load = 'full', _load_date, null)) as full_load",
        )
        .collect()[0]
    )
    rows = log.where("_kind = 'row' and _error is null")
    if bounds["full_load"] is not None:
        rows = rows.where(f"_load_date >= date '{bounds['full_load']}'")
    as_of = "null" if bounds["as_of"] is None else f"'{bounds['as_of']}'"
    own = [c for c in log.columns if not c.startswith("_")]
    return (
        rows.selectExpr("*", _LATEST.format(key=", ".join(_quote(k) for k in key)))
        .where("_rank = 1 and _op <> 'delete'")
        .selectExpr(
            *(_quote(c) for c in own),
            f"{row_hash(own)} as row_hash",
            "cast(_load_date as timestamp) as loaded_at",
            f"cast({as_of} as timestamp) as as_of",
        )
    )
