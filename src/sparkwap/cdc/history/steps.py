"""The steps of keys, in their order: change events, versions that are known, and resets."""

from __future__ import annotations

from collections.abc import Iterable

from sparkwap.cdc.history.settings import History
from sparkwap.cdc.sql import copy_number, place, quote, quoted, said

_RESETS = "('truncate', 'full_load')"
IS_RESET = f"_op in {_RESETS}"
IS_EVENT = f"_op not in {_RESETS}"
"""Which rows of a model's query are of one key."""


def events(history: History, source: str) -> str:
    """SQL: change events as steps.

    Args:
        history: The settings.
        source: SQL of rows as the model selects them.
    """
    message = [quote(c) for c in sorted(history.payload)]
    message += ["sort_array(_absent) as _absent"] if history.partial else []
    digest = f"sha2(to_json(struct({', '.join(message) or '1 as one'})), 256)"
    held_on = "if(_load = 'full', _load_date, null)" if history.loads else "cast(null as date)"
    return f"""
        select
            {quoted([*history.keys, *history.payload])},
            {"_absent," if history.partial else ""}
            _op,
            {said(digest)} as _said,
            _op = 'delete' as _clears,
            {place()} as _at,
            {at_grain(history, "_event_time")} as _time,
            {held_on} as _held_on,
            cast(null as {history.grain}) as _head_from,
            cast(null as int) as _head_version,
            cast(null as string) as _head_flag
        from ({source})
        where {IS_EVENT}"""


def heads(history: History, source: str) -> str:
    """SQL: current versions as the first steps of their keys.

    The events that follow have a greater sequence and take effect later.

    Args:
        history: The settings.
        source: SQL of current rows of the history.
    """
    return f"""
        select
            {quoted([*history.keys, *history.payload])},
            {"cast(null as array<string>) as _absent," if history.partial else ""}
            'head' as _op,
            '' as _said,
            change_flag = 'D' as _clears,
            {place(file="''", row="0", part="0")} as _at,
            _event_time as _time,
            cast(null as date) as _held_on,
            valid_from as _head_from,
            version as _head_version,
            change_flag as _head_flag
        from ({source})"""


def resets(history: History, source: str) -> str:
    """SQL of one row with what deletes more than one key: ``resets``, an array of (at, time,
    load_date) in their order.

    Truncates, and full loads, which delete what they do not hold. See `sparkwap.cdc.resets`.

    Args:
        history: The settings.
        source: SQL of rows as the model selects them.
    """
    found = f"""
        select
            {place()} as at,
            {at_grain(history, "_event_time")} as time,
            cast(null as date) as load_date
        from (
            select *, {copy_number("_sequence")} as _copy from ({source}) where _op = 'truncate'
        )
        where _copy = 1"""
    if history.loads:
        begin = at_grain(history, "to_timestamp(_load_date || 'T00:00:00Z')")
        found += f"""
        union all
        select
            {place("min(_sequence)", "''", "0", "0")} as at,
            {begin} as time,
            _load_date as load_date
        from ({source})
        where _op = 'full_load' and _sequence is not null
        group by _load_date"""
    return f"select sort_array(collect_list(struct(at, time, load_date))) as resets from ({found})"


def at_grain(history: History, time: str) -> str:
    """SQL: a time at the history's grain; days are those of UTC, whatever the session's zone."""
    if history.grain == "date":
        return f"cast(to_utc_timestamp({time}, current_timezone()) as date)"
    return time


def same(one: str, other: str, columns: Iterable[str]) -> str:
    """SQL: whether rows of two tables are equal in some columns."""
    return " and ".join(f"{one}.{quote(c)} = {other}.{quote(c)}" for c in columns)
