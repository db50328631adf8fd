"""The steps of keys, in their order: change events, and versions that are known."""

from __future__ import annotations

from collections.abc import Iterable

from sparkwap.cdc.history.settings import HistorySettings
from sparkwap.cdc.resets import IS_EVENT
from sparkwap.cdc.sql import at_grain, place, quote, quoted, said


def events(history: HistorySettings, source: str) -> str:
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
            {at_grain("_event_time", history.grain)} as _time,
            {held_on} as _held_on,
            cast(null as {history.grain}) as _head_from,
            cast(null as int) as _head_version,
            cast(null as string) as _head_flag
        from ({source})
        where {IS_EVENT}"""


def heads(history: HistorySettings, source: str) -> str:
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


def same(one: str, other: str, columns: Iterable[str]) -> str:
    """SQL: whether rows of two tables are equal in some columns."""
    return " and ".join(f"{one}.{quote(c)} = {other}.{quote(c)}" for c in columns)
