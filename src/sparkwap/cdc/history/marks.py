"""Queries the facts that statements depend on: the last batch of a table, the kinds of events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from sparkwap.cdc.event_sql import quote
from sparkwap.cdc.history.settings import HistorySettings
from sparkwap.cdc.resets import IS_RESET

Run: TypeAlias = Callable[[str], Sequence[Any]]
"""Sends a statement to Spark and returns the first row of its result; empty without rows."""


HIGHEST = "wap.highest-surrogate-key"
"""A table property: a surrogate key, perhaps of an erased row, that all later ones are above."""


class HistoryMarks(NamedTuple):
    """The last batch that a table has read, and its highest surrogate key."""

    batch: int
    number: int


class Met(NamedTuple):
    """Whether a log has resets and partial events."""

    resets: bool
    partial: bool


def met(history: HistorySettings, run: Run) -> Met:
    """Return whether the whole log has resets and partial events."""
    partial = "count(_absent)" if history.partial else "0"
    counts = run(f"select count_if({IS_RESET}), {partial} from ({history.sql})")
    return Met(*(count > 0 for count in counts))


def marks(table: str, surrogate_key: str | None, run: Run) -> HistoryMarks:
    """Return the marks of a table from Iceberg's column bounds; read rows only without bounds."""
    columns = [quote(c) for c in ("_batch", surrogate_key) if c]
    bounds = [f"max(readable_metrics.{c}.upper_bound)" for c in columns]
    unknown = "count_if(readable_metrics._batch.upper_bound is null)"
    found = run(f"select {', '.join([*bounds, unknown])} from {table}.files where content = 0")
    if found[-1] or None in found:
        found = run(f"select {', '.join(f'max({c})' for c in columns)} from {table}")
    batch, number = found[0], found[1] if surrogate_key else None
    return HistoryMarks(-1 if batch is None else int(batch), int(number or 0))
