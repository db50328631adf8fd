"""States of tables whose events state all columns: the last event of a key is its row.

One window finds the events with the highest sequence of their key, which nearly always is one. A
second one looks only at those, for the rare ties.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkwap.cdc.resets import Place, before
from sparkwap.cdc.sql import EVENT, PLACE_TYPE, own_columns, quote, quoted, row_hash, said

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A copy counts where it stands in the first of its files; events that say other things come in the
# order of file name, row and part. In lambdas, as a tie is rare, and a window would sort again.
_LAST = """
    size(_tops) = 1 or struct(_file_path, _row, _part) = array_max(transform(
        filter(_tops, x -> not exists(_tops, y ->
            y._op = x._op and y._said = x._said and y._file_path < x._file_path)),
        x -> struct(x._file_path, x._row, x._part)))
"""
_HELD = "filter(_tops, x -> x._held)[0]"
# A state holds the event that won its tie, not those that lost. A new event of the same sequence
# is settled if it is a copy from a later file; if it is not, the log has to tell.
_UNSETTLED = f"""
    size(_tops) > 1 and exists(_tops, x -> x._held) and exists(_tops, x -> not x._held and not (
        x._op = {_HELD}._op and x._said = {_HELD}._said and x._file_path > {_HELD}._file_path))
"""


def state(log: DataFrame, reset: Place | None, key: Sequence[str]) -> DataFrame:
    """The state of all that a log holds."""
    own = own_columns(log.columns)
    hashed = _latest(events(log), key).selectExpr(
        "*", f"{row_hash(own)} as row_hash", "false as _held"
    )
    return _finished(_with_ties(hashed, key).where(_LAST), reset, key, own)


def increment(
    log: DataFrame, new: DataFrame, present: DataFrame, reset: Place | None, key: Sequence[str]
) -> DataFrame:
    """The rows of the state that new rows of the log change, as they are after them.

    Args:
        log: the whole log; read only for keys with a tie that the present state cannot settle.
        new: the rows of the log that the present state does not know.
        present: the present state: those rows that may change.
        reset: see `resets.newest`.
        key: the key columns.
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
    # Computed once: for the question whether there are ties, and for whoever merges the rows.
    tops = _with_ties(hashed, key).selectExpr("*", f"{_UNSETTLED} as _unsettled").localCheckpoint()
    settled = _finished(tops.where("not _unsettled").where(_LAST), reset, key, own, keep=True)
    changed = settled.where("not _held or (_was_there and _is_deleted)").drop("_held", "_was_there")
    ties = tops.where("_unsettled").select(*key).distinct()
    if not ties.limit(1).collect():
        return changed
    return changed.unionByName(state(log.join(ties, [*key], "left_semi"), reset, key))


def events(log: DataFrame) -> DataFrame:
    """The events of a log that name a key."""
    return log.where("_kind = 'row' and _op <> 'truncate'").selectExpr(
        *(quote(c) for c in own_columns(log.columns)),
        *EVENT,
    )


def _latest(events: DataFrame, key: Sequence[str]) -> DataFrame:
    """The events with the highest sequence of their key."""
    # Of a rank that is 1, unlike of a maximum, Spark drops what it can before the shuffle.
    rank = f"rank() over (partition by {quoted(key)} order by _sequence desc) as _rank"
    return events.selectExpr("*", rank).where("_rank = 1").drop("_rank")


def _with_ties(latest: DataFrame, key: Sequence[str]) -> DataFrame:
    """Events of one sequence for each key; all of the key's are in ``_tops``."""
    top = f"struct(_held, _file_path, _row, _part, _op, {said('row_hash')} as _said)"
    return latest.selectExpr("*", f"collect_list({top}) over (partition by {quoted(key)}) as _tops")


def _finished(
    rows: DataFrame,
    reset: Place | None,
    key: Sequence[str],
    own: Sequence[str],
    keep: bool = False,
) -> DataFrame:
    """Last events as rows of a state: a deleted one says nothing but its key."""
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
