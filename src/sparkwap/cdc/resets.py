"""Resets: what clears a whole table at once, a full load or a truncate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import date
from typing import TYPE_CHECKING, Any, TypeAlias

from sparkwap.cdc.sql import PLACE, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Place: TypeAlias = tuple[str, str, int, int]
"""A place in the order of events: (``_sequence``, ``_file_path``, ``_row``, ``_part``)."""

_FULL_LOADS = "_kind = 'file' and _load = 'full' and _sequence is not null and _error is null"
_TRUNCATES = "_kind = 'row' and _op = 'truncate'"
_COLUMNS = ("_kind", "_load_date", "_sequence", "_file_path", "_row", "_part", "_batch")


def collect(log: DataFrame, truncates: bool) -> list[Mapping[str, Any]]:
    """The rows of a log that make resets: one for each file of a full load, and the truncates.

    Without ``truncates`` only the full loads, which are in the partition of the file rows; to find
    a truncate, Spark has to open all files of the log.
    """
    which = f"({_FULL_LOADS}) or ({_TRUNCATES})" if truncates else _FULL_LOADS
    return [row.asDict() for row in log.where(which).select(*_COLUMNS).collect()]


def newest(rows: Iterable[Mapping[str, Any]], up_to: int | None = None) -> Place | None:
    """The place of the newest reset; keys whose last event is before it are gone.

    A full load begins before its least sequence; all files of one load date are one load. Truncates
    of one sequence are copies: it counts where it stands in the first of their files.

    Args:
        rows: see `collect`.
        up_to: look only at rows of loads (``_batch``) up to this one.
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


def before(reset: Place | None, place: str = PLACE) -> str:
    """SQL: whether an event's place is before a reset."""
    if reset is None:
        return "false"
    sequence, file, row, part = reset
    texts = f"{text(sequence)} as _sequence, {text(file)} as _file_path"
    return f"({place} < struct({texts}, {row}L as _row, {part} as _part))"
