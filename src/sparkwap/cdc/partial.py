"""Computes states with partial events: each column has the value of the last event that has it.

An event without a column does not change it. A delete sets all columns to NULL. So each column has
its own place in the order of events, and the event with the greatest place counts, for any order of
arrival. Two columns of the state support this:

- ``_stated`` map<string, struct>: for each column that the last event does not have, the place of
  the last event that has it, or NULL; NULL if the last event has all columns
- ``_message`` string: the content of the last event, to distinguish a copy from another event
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkwap.cdc.event_sql import (
    EVENT,
    PLACE_TYPE,
    copy_number,
    event_content,
    own_columns,
    place,
    quote,
    quoted,
    row_hash,
)
from sparkwap.cdc.resets import Place, before
from sparkwap.core.sqltext import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_IS_COPY = (
    "_sequence = _of_held._sequence and _op = _of_held._op and _message = _of_held._message "
    "and _file_path > _of_held._file_path"
)


def state(log: DataFrame, reset: Place | None, key: Sequence[str]) -> DataFrame:
    """Return the state of a whole log."""
    own = own_columns(log.columns)
    return _finished(_best(_first_copies(_events(log), key), reset, key, own), reset, key, own)


def increment(
    log: DataFrame, new: DataFrame, present: DataFrame, reset: Place | None, key: Sequence[str]
) -> DataFrame:
    """Return the rows of the state that new rows of the log change; see `whole.increment`.

    The result has all rows of ``present``, also unchanged rows.
    """
    own = own_columns(log.columns)
    held = present.selectExpr(
        *(quote(c) for c in own), *EVENT, "_message", "true as _held", "_stated"
    )
    by_key = f"over (partition by {quoted(key)})"
    # Computed once, and read twice: by the query for ties, and by the merge.
    all_rows = (
        _events(new)
        .unionByName(held)
        .selectExpr(
            "*",
            "max(if(_held, struct(_sequence, _op, _message, _file_path, "
            "array_append(coalesce(transform(map_values(_stated), x -> x._sequence), array()), "
            f"_sequence) as _sequences), null)) {by_key} as _of_held",
        )
        .selectExpr(
            "*",
            "max(not _held and _of_held is not null and array_contains(_of_held._sequences, "
            f"_sequence) and not ({_IS_COPY})) {by_key} as _unsettled",
        )
        .localCheckpoint()
    )
    settled = _first_copies(all_rows.where("not _unsettled"), key)
    ties = all_rows.where("_unsettled").select(*key).distinct()
    changed = _finished(_best(settled, reset, key, own), reset, key, own)
    if not ties.limit(1).collect():
        return changed
    return changed.unionByName(state(log.join(ties, [*key], "left_semi"), reset, key))


def _events(log: DataFrame) -> DataFrame:
    own = own_columns(log.columns)
    stated = [
        f"if(array_contains(_absent, {literal(c)}), null, {quote(c)}) as {quote(c)}" for c in own
    ]
    message = f"concat({row_hash(own)}, coalesce(to_json(array_sort(_absent)), ''))"
    absent = "transform(array_sort(_absent), x -> struct(x, cast(null as " + PLACE_TYPE + ")))"
    return (
        log.where("_kind = 'row' and _op <> 'truncate'")
        .selectExpr(*stated, *EVENT, "if(_op = 'delete', null, _absent) as _absent")
        .selectExpr(
            *(quote(c) for c in own),
            *EVENT,
            f"{event_content(message)} as _message",
            "false as _held",
            f"map_from_entries({absent}) as _stated",
        )
    )


def _first_copies(events: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return the events without their copies in later files."""
    number = copy_number(f"{quoted(key)}, _sequence, _op, _message")
    return events.selectExpr("*", f"{number} as _copy").where("_copy = 1")


def _best(
    events: DataFrame, reset: Place | None, key: Sequence[str], own: Sequence[str]
) -> DataFrame:
    """Return the last event of each key, with the latest place and value of each column.

    These are in ``_best``: an array of structs, in the order of the columns besides the key.
    """
    by_key = f"over (partition by {quoted(key)})"
    payload = [c for c in own if c not in key]
    latest = ", ".join(f"max({_value_of(c, reset)}) {by_key}" for c in payload)
    return (
        events.selectExpr("*", f"{place()} as _place")
        .selectExpr("*", f"max(_place) {by_key} as _last", f"array({latest}) as _best")
        .where("_place = _last")
    )


def _value_of(column: str, reset: Place | None) -> str:
    """Return SQL for an event's place and value of a column; NULL without one after the reset."""
    name = literal(column)
    place = f"if(coalesce(map_contains_key(_stated, {name}), false), _stated[{name}], _place)"
    return (
        f"case when {place} is not null and not {before(reset, place)} "
        f"then struct({place} as _at, {quote(column)} as _value) end"
    )


def _finished(
    rows: DataFrame, reset: Place | None, key: Sequence[str], own: Sequence[str]
) -> DataFrame:
    """Return the last events as rows of a state; deleted rows have only their key."""
    payload = [c for c in own if c not in key]
    values = {c: f"if(_is_deleted, null, _best[{n}]._value)" for n, c in enumerate(payload)}
    places = ", ".join(
        f"struct({literal(c)}, _best[{n}]._at as _at)" for n, c in enumerate(payload)
    )
    elsewhere = f"filter(array({places}), x -> x._at is null or x._at <> _place)"
    elsewhere = f"if(size({elsewhere}) = 0, null, map_from_entries({elsewhere}))"
    return (
        rows.selectExpr("*", f"_op = 'delete' or {before(reset, '_place')} as _is_deleted")
        .selectExpr(
            *(f"{values.get(c, quote(c))} as {quote(c)}" for c in own),
            "_op",
            "_is_deleted",
            *EVENT[1:],
            f"if(_is_deleted, null, {elsewhere}) as _stated",
            "_message",
        )
        .selectExpr(
            *(quote(c) for c in own),
            *("_op", "_is_deleted", *EVENT[1:]),
            f"if(_is_deleted, null, {row_hash(own)}) as row_hash",
            *("_stated", "_message"),
        )
    )
