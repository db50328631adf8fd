"""Computes states without partial events: the last event of a key is its row.

The first window finds the events with the highest sequence of their key, usually one event per key.
The second window reads only these events, for the rare ties.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkwap.cdc.event_sql import (
    EVENT,
    PLACE_TYPE,
    event_content,
    own_columns,
    quote,
    quoted,
    row_hash,
)
from sparkwap.cdc.resets import Place, before

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The copy in the first file counts; events with other content are ordered by file name, row and
# part. These are lambdas, because ties are rare and a window would sort again.
_LAST = """
    size(_tops) = 1 or struct(_file_path, _row, _part) = array_max(transform(
        filter(_tops, x -> not exists(_tops, y ->
            y._op = x._op and y._content = x._content and y._file_path < x._file_path)),
        x -> struct(x._file_path, x._row, x._part)))
"""
_HELD = "filter(_tops, x -> x._held)[0]"
# A state has only the event that won its tie. A new event with the same sequence is settled if it
# is a copy from a later file; otherwise the state of its key is computed from the log.
_UNSETTLED = f"""
    size(_tops) > 1 and exists(_tops, x -> x._held) and exists(_tops, x -> not x._held and not (
        x._op = {_HELD}._op and x._content = {_HELD}._content
        and x._file_path > {_HELD}._file_path))
"""


def state(log: DataFrame, reset: Place | None, key: Sequence[str]) -> DataFrame:
    """Return the state of a whole log."""
    own = own_columns(log.columns)
    hashed = _latest(events(log), key).selectExpr(
        "*", f"{row_hash(own)} as row_hash", "false as _held"
    )
    return _finished(_with_ties(hashed, key).where(_LAST), reset, key, own)


def increment(
    log: DataFrame, new: DataFrame, present: DataFrame, reset: Place | None, key: Sequence[str]
) -> DataFrame:
    """Return the rows of the state that new rows of the log change.

    Args:
        log: the whole log; read only for keys with a tie that the present state cannot settle.
        new: the rows of the log that are not in the present state yet.
        present: the rows of the present state that may change.
    """
    own = own_columns(log.columns)
    held = present.selectExpr(
        *(quote(c) if c in key else f"cast(null as string) as {quote(c)}" for c in own),
        *EVENT,
        "row_hash",
        "true as _held",
        "not _is_deleted as _was_there",
    )
    known = events(new).selectExpr(
        "*", "cast(null as string) as row_hash", "false as _held", "false as _was_there"
    )
    latest = _latest(known.unionByName(held), key)
    others = [quote(c) for c in latest.columns if c != "row_hash"]
    hashed = latest.selectExpr(*others, f"coalesce(row_hash, {row_hash(own)}) as row_hash")
    # Computed once, and read twice: by the query for ties, and by the merge.
    tops = _with_ties(hashed, key).selectExpr("*", f"{_UNSETTLED} as _unsettled").localCheckpoint()
    settled = _finished(tops.where("not _unsettled").where(_LAST), reset, key, own, keep=True)
    changed = settled.where("not _held or (_was_there and _is_deleted)").drop("_held", "_was_there")
    ties = tops.where("_unsettled").select(*key).distinct()
    if not ties.limit(1).collect():
        return changed
    return changed.unionByName(state(log.join(ties, [*key], "left_semi"), reset, key))


def events(log: DataFrame) -> DataFrame:
    """Return the events of a log that have a key."""
    return log.where("_kind = 'row' and _op <> 'truncate'").selectExpr(
        *(quote(c) for c in own_columns(log.columns)),
        *EVENT,
    )


def _latest(events: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return the events with the highest sequence of their key."""
    # For rank = 1, unlike for a maximum, Spark drops rows before the shuffle.
    rank = f"rank() over (partition by {quoted(key)} order by _sequence desc) as _rank"
    return events.selectExpr("*", rank).where("_rank = 1").drop("_rank")


def _with_ties(latest: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return the latest events, with all latest events of the same key in ``_tops``."""
    top = f"struct(_held, _file_path, _row, _part, _op, {event_content('row_hash')} as _content)"
    return latest.selectExpr("*", f"collect_list({top}) over (partition by {quoted(key)}) as _tops")


def _finished(
    rows: DataFrame,
    reset: Place | None,
    key: Sequence[str],
    own: Sequence[str],
    keep: bool = False,
) -> DataFrame:
    """Return the last events as rows of a state; deleted rows have only their key."""
    values = {c: f"if(_is_deleted, null, {quote(c)})" for c in own if c not in key}
    return rows.selectExpr("*", f"_op = 'delete' or {before(reset)} as _is_deleted").selectExpr(
        *(f"{values.get(c, quote(c))} as {quote(c)}" for c in own),
        "_op",
        "_is_deleted",
        *EVENT[1:],
        "if(_is_deleted, null, row_hash) as row_hash",
        f"cast(null as map<string, {PLACE_TYPE}>) as _stated",
        "cast(null as string) as _message",
        *(("_held", "_was_there") if keep else ()),
    )
