"""Resets: full loads and truncates, which clear a whole table at once.

A full load begins before its lowest sequence; all files of one load date are one load. Truncates
with the same sequence are copies: the copy in the first file counts. A state needs the newest
reset, a history all resets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import date
from typing import TYPE_CHECKING, Any, TypeAlias

from sparkwap.cdc.event_sql import at_grain, copy_number, place
from sparkwap.core.sqltext import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Place: TypeAlias = tuple[str, str, int, int]
"""A place in the order of events: (``_sequence``, ``_file_path``, ``_row``, ``_part``)."""

_FULL_LOADS = "_kind = 'file' and _load = 'full' and _sequence is not null and _error is null"
_TRUNCATES = "_kind = 'row' and _op = 'truncate'"
IS_RESET = "_op in ('truncate', 'full_load')"
IS_EVENT = "_op not in ('truncate', 'full_load')"
"""Conditions for the rows of a history's query that are resets, and that are events of a key."""

_COLUMNS = ("_kind", "_load_date", "_sequence", "_file_path", "_row", "_part", "_batch")


def collect(log: DataFrame, truncates: bool) -> list[Mapping[str, Any]]:
    """Return the rows of a log that are resets: one for each file of a full load, and truncates.

    Without ``truncates``, only full loads are returned. Their search reads only the partition of
    the file rows; the search for truncates opens all files of the log.
    """
    which = f"({_FULL_LOADS}) or ({_TRUNCATES})" if truncates else _FULL_LOADS
    return [row.asDict() for row in log.where(which).select(*_COLUMNS).collect()]


def newest(rows: Iterable[Mapping[str, Any]], up_to: int | None = None) -> Place | None:
    """Return the place of the newest reset; keys whose last event is before it are deleted.

    Args:
        rows: see `collect`.
        up_to: the last load (``_batch``) whose rows are used; None for all loads.
    """
    begins: dict[date, str] = {}
    truncates: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for row in rows:
        if up_to is not None and row["_batch"] > up_to:
            continue
        sequence = row["_sequence"]
        if row["_kind"] == "file":
            begins[row["_load_date"]] = min(begins.get(row["_load_date"], sequence), sequence)
        else:
            files, at = truncates[sequence], (row["_row"], row["_part"])
            files[row["_file_path"]] = max(files.get(row["_file_path"], at), at)
    places: list[Place] = [(sequence, "", 0, 0) for sequence in begins.values()]
    for sequence, files in truncates.items():
        first = min(files)
        places.append((sequence, first, *files[first]))
    return max(places, default=None)


def before(reset: Place | None, at: str | None = None) -> str:
    """Return SQL for whether an event's place is before a reset."""
    if reset is None:
        return "false"
    sequence, file, row, part = reset
    return f"({at or place()} < {place(literal(sequence), literal(file), str(row), str(part))})"


def in_order(source: str, grain: str, loads: bool) -> str:
    """Return SQL of one row with all resets: ``resets``, an array of (at, time, load_date)."""
    found = f"""
        select
            {place()} as at,
            {at_grain("_event_time", grain)} as time,
            cast(null as date) as load_date
        from (
            select *, {copy_number("_sequence")} as _copy from ({source}) where _op = 'truncate'
        )
        where _copy = 1"""
    if loads:
        found += f"""
        union all
        select
            {place("min(_sequence)", "''", "0", "0")} as at,
            {at_grain("to_timestamp(_load_date || 'T00:00:00Z')", grain)} as time,
            _load_date as load_date
        from ({source})
        where _op = 'full_load' and _sequence is not null
        group by _load_date"""
    return f"select sort_array(collect_list(struct(at, time, load_date))) as resets from ({found})"
