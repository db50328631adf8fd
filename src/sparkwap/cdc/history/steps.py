"""SQL of the steps of keys: change events, and known versions."""

from __future__ import annotations

from collections.abc import Iterable

from sparkwap.cdc.event_sql import at_grain, event_content, place, quote, quoted
from sparkwap.cdc.history.settings import HistorySettings
from sparkwap.cdc.resets import IS_EVENT
from sparkwap.core.sqltext import json_text


def events(history: HistorySettings, source: str) -> str:
    """Return SQL of the change events of a model's query as steps."""
    message = json_text(sorted(history.payload))
    if history.partial:
        message = f"concat({message}, coalesce(to_json(sort_array(_absent)), ''))"
    held_on = "if(_load = 'full', _load_date, null)" if history.loads else "cast(null as date)"
    return f"""
        select
            {quoted([*history.keys, *history.payload])},
            {"_absent," if history.partial else ""}
            _op,
            {event_content(f"sha2({message}, 256)")} as _content,
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
    """Return SQL of current versions as the first steps of their keys.

    The events after them have a greater sequence and a later time.
    """
    return f"""
        select
            {quoted([*history.keys, *history.payload])},
            {"cast(null as array<string>) as _absent," if history.partial else ""}
            'head' as _op,
            '' as _content,
            change_flag = 'D' as _clears,
            {place(file="''", row="0", part="0")} as _at,
            _event_time as _time,
            cast(null as date) as _held_on,
            valid_from as _head_from,
            version as _head_version,
            change_flag as _head_flag
        from ({source})"""


def same(left: str, right: str, columns: Iterable[str]) -> str:
    """Return SQL for whether rows of two tables have equal values in some columns."""
    return " and ".join(f"{left}.{quote(c)} = {right}.{quote(c)}" for c in columns)
