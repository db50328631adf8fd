"""The table of a history as a whole: its rows from the whole log, and how far it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from sparkwap.cdc.history import steps
from sparkwap.cdc.history.settings import History
from sparkwap.cdc.history.versions import versions
from sparkwap.cdc.sql import quote

Run: TypeAlias = Callable[[str], Sequence[Any]]
"""Sends a statement to Spark and returns the first row of its result, empty where there is none."""


class Marks(NamedTuple):
    """How far a table is: the batch that was read last, and the highest surrogate key."""

    batch: int
    number: int


class Met(NamedTuple):
    """Whether a log has what few logs have: resets, and events that leave columns out."""

    resets: bool
    partial: bool


def whole(history: History, run: Run, numbered: str | None = None) -> str:
    """SQL of the whole history from the whole log.

    Args:
        history: The settings.
        run: Asks what the log has.
        numbered: The published state of the table, whose versions keep their surrogate keys; None
            if there is none.
    """
    found = met(history, run)
    resets = steps.resets(history, history.sql) if found.resets else None
    history = replace(history, partial=found.partial)
    rows = versions(history, steps.events(history, history.sql), resets)
    return _numbered(history, rows, numbered)


def shape(history: History) -> str:
    """SQL of what has the columns of the history, and no rows."""
    nothing = f"select * from ({history.sql}) where false"
    history = replace(history, sql=nothing, partial=False)
    return _numbered(history, versions(history, steps.events(history, nothing)), None)


def met(history: History, run: Run) -> Met:
    """What the whole log has."""
    partial = "count(_absent)" if history.partial else "0"
    counts = run(f"select count_if({steps.IS_RESET}), {partial} from ({history.sql})")
    return Met(*(count > 0 for count in counts))


def marks(table: str, surrogate_key: str | None, run: Run) -> Marks:
    """How far a table is, by the bounds that Iceberg keeps of its files, without reading rows."""
    columns = [quote(c) for c in ("_batch", surrogate_key) if c]
    bounds = [f"max(readable_metrics.{c}.upper_bound)" for c in columns]
    unknown = "count_if(readable_metrics._batch.upper_bound is null)"
    found = run(f"select {', '.join([*bounds, unknown])} from {table}.files where content = 0")
    if found[-1] or None in found:
        found = run(f"select {', '.join(f'max({c})' for c in columns)} from {table}")
    batch, number = found[0], found[1] if surrogate_key else None
    return Marks(-1 if batch is None else int(batch), int(number or 0))


def _numbered(history: History, rows: str, published: str | None) -> str:
    """Versions with the batch up to which they are built, and with their surrogate keys."""
    number = history.surrogate_key
    made = {"_batch": f"(select max(_batch) from ({history.sql}))"}
    if number:
        made[number] = f"cast({_number(history, published)} as bigint)"
    columns = [f"{made[c]} as {quote(c)}" if c in made else f"versions.{quote(c)}"
               for c in history.columns]  # fmt: skip
    sql = f"select {', '.join(columns)}\nfrom ({rows}) as versions"
    if published:
        same = steps.same("versions", "known", [*history.keys, "valid_from"])
        sql += f"\nleft join {published} as known on {same}"
    return sql


def _number(history: History, published: str | None) -> str:
    order = ", ".join(f"versions.{quote(c)}" for c in ("valid_from", *history.keys))
    if not published:
        return f"row_number() over (order by {order})"
    column = quote(str(history.surrogate_key))
    new = f"known.{column} is null"
    following = f"row_number() over (partition by {new} order by {order})"
    highest = f"(select max({column}) from {published})"
    return f"coalesce(known.{column}, {highest}, 0) + if({new}, {following}, 0)"
