"""Computes versions from the ordered steps of each key.

A step is an event, or a known version (``_head_from`` is set) before new events. The rules, in this
order:

- copies of one message count once, at the place in their first file
- a truncate, or a full load without the key, deletes the key
- columns that a partial event does not have keep their value
- a step that is later in the order but earlier in time gets its predecessor's time
- the last of several steps with the same time counts
- a step that changes no tracked column makes no version
"""

from __future__ import annotations

from collections.abc import Sequence

from sparkwap.cdc.event_sql import copy_number, quote, quoted
from sparkwap.cdc.history.settings import HistorySettings
from sparkwap.core.sqltext import json_text, literal

_HEAD = ("_head_from", "_head_version", "_head_flag")
_SO_FAR = "order by _at rows between unbounded preceding and current row"


def versions(history: HistorySettings, steps: str, resets: str | None = None) -> str:
    """Return SQL of keys, payload, the added columns, ``_sequence`` and ``_event_time``.

    Args:
        steps: SQL of steps, see `steps.events` and `steps.heads`.
        resets: SQL of resets, see `resets.in_order`; None for none.
    """
    parts = {"key_steps": steps, "distinct_steps": _first_copies(history)}
    if resets is not None:
        parts |= _cleared(history, [*parts][-1], resets)
    if history.partial:
        parts |= _filled(history, [*parts][-1])
    parts |= _changed(history, [*parts][-1])
    parts["versions"] = _spans(history)
    return f"{with_(parts)}\n{_finished(history)}"


def with_(parts: dict[str, str]) -> str:
    """Return the ``with`` clause of named queries."""
    return "with " + ",\n".join(f"{name} as ({sql}\n)" for name, sql in parts.items())


def version_hash(columns: Sequence[str]) -> str:
    """Return SQL for a hash of the tracked columns.

    The hash is null-safe. Each value is hashed with its name, so there are no collisions. A new
    column that is NULL does not change the hash.
    """
    return f"sha2({json_text(sorted(columns), nulls=False)}, 256)"


def _first_copies(history: HistorySettings) -> str:
    # Distributed by key, so that the following windows need no further shuffle.
    return f"""
        select * from (
            select *, {copy_number(f"{history.key}, _at._sequence, _op, _content", "_at.")} as _copy
            from (select * from key_steps distribute by {history.key})
        )
        where _copy = 1"""


def _cleared(history: HistorySettings, source: str, resets: str) -> dict[str, str]:
    """Return SQL of the steps, with a deletion after each last step before a reset."""
    by_key = f"partition by {history.key}"
    carried = [quoted([*history.keys, *history.payload]), *(["_absent"] * history.partial)]
    heads = [f"if(_is_reset, null, {c}) as {c}" for c in _HEAD]
    return {
        "followed": f"""
        select
            *,
            lead(_at) over ({by_key} order by _at) as _next_at,
            lead(_time) over ({by_key} order by _at) as _next_time,
            collect_set(_held_on) over ({by_key}) as _held
        from {source}""",
        # The first reset between a step and the next; after it, the key is already deleted. A
        # known version is later than all resets with its sequence.
        "met": f"""
        select
            followed.*,
            get(filter(
                found.resets,
                one -> one.at > followed._at
                and (followed._head_from is null or one.at._sequence > followed._at._sequence)
                and (followed._next_at is null or one.at < followed._next_at)
            ), 0) as _reset
        from followed
        cross join ({resets}) as found""",
        # A load with the key replaces its row, at the time of the new row.
        "cleared": f"""
        select
            {", ".join([*carried, *heads])},
            _is_reset or _clears as _clears,
            if(_is_reset, _reset.at, _at) as _at,
            case
                when not _is_reset then _time
                when _next_at is not null and array_contains(_held, _reset.load_date)
                    then _next_time
                else _reset.time
            end as _time
        from met
        lateral view explode(
            if(_reset is null or _clears, array(false), array(false, true))
        ) as _is_reset""",
    }


def _filled(history: HistorySettings, source: str) -> dict[str, str]:
    """Return SQL of the steps with the last known value of each column since the last delete."""
    columns = [f"{_last_stated(history, c)} as {quote(c)}" for c in history.payload]
    return {
        "lived": f"""
        select *, count_if(_clears) over (partition by {history.key} {_SO_FAR}) as _life
        from {source}""",
        "filled": f"""
        select {", ".join([history.key, *columns, *_HEAD, "_clears", "_at", "_time"])}
        from lived""",
    }


def _last_stated(history: HistorySettings, column: str) -> str:
    absent = f"coalesce(array_contains(_absent, {literal(column)}), false)"
    # A known version has all columns, also if it is a recorded delete.
    unstated = f"_head_from is null and (_clears or {absent})"
    value = f"if({unstated}, null, struct({quote(column)} as stated))"
    return f"(last_value({value}, true) over (partition by {history.key}, _life {_SO_FAR})).stated"


def _changed(history: HistorySettings, source: str) -> dict[str, str]:
    """Return SQL of the steps that change a tracked column, each with its start of validity."""
    by_key = f"partition by {history.key}"
    gone = "_clears"
    if history.delete_when:
        gone += f" or coalesce(({history.delete_when}), false)"
    return {
        "judged": f"""
        select *, {version_hash(history.tracked)} as row_hash, {gone} as _gone
        from {source}""",
        "timed": f"""
        select
            *,
            if(_gone, null, row_hash) as _state,
            coalesce(_head_from, max(_time) over ({by_key} {_SO_FAR})) as _from,
            max(_time) over ({by_key}) as _last_time,
            max(_at._sequence) over ({by_key}) as _last_sequence
        from judged""",
        "settled": f"""
        select * from (
            select *, lead(_from) over ({by_key} order by _at) as _next_from from timed
        )
        where _next_from is null or _next_from > _from""",
        "changed": f"""
        select * from (
            select *, lag(_state) over ({by_key} order by _at) as _state_before from settled
        )
        where _head_from is not null or not (_state <=> _state_before)""",
    }


def _spans(history: HistorySettings) -> str:
    """Return SQL of the steps with their version number and the start of the next version."""
    by_key = f"partition by {history.key}"
    counted, image = "not _gone", ""
    if history.deletes == "record":
        values = f"struct({quoted([*history.payload, 'row_hash'])})"
        row = f"if(_clears and _head_from is null, null, {values})"
        counted = "true"
        image = f"last_value({row}, true) over ({by_key} {_SO_FAR}) as _image,"
    return f"""
        select
            *,
            {image}
            lead(_from) over ({by_key} order by _at) as _until,
            lag(_state) over ({by_key} order by _at) as _prior,
            max(_head_version) over ({by_key}) as _first_version,
            count_if({counted}) over ({by_key} {_SO_FAR}) as _number
        from changed"""


def _finished(history: HistorySettings) -> str:
    record = history.deletes == "record"
    values = [quote(c) for c in (*history.payload, "row_hash")]
    ended = "date_sub(_until, 1)" if history.expire == "day_before" else "_until"
    open_end = "'9999-12-31'" if history.open_end else "null"
    return f"""
        select
            {history.key},
            {", ".join(f"_image.{c} as {c}" for c in values) if record else ", ".join(values)},
            _from as valid_from,
            coalesce({ended}, cast({open_end} as {history.grain})) as valid_to,
            _until is null as is_current,
            cast(coalesce(_first_version, 1) + _number - 1 as int) as version,
            case
                when _head_flag is not null then _head_flag
                when _gone then 'D'
                when _prior is null then 'I'
                else 'U'
            end as change_flag,
            if(_until is null, _last_sequence, null) as _sequence,
            if(_until is null, _last_time, null) as _event_time
        from versions
        {"" if record else "where not _gone"}"""
