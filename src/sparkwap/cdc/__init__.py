"""Computes the state from a change log: one row per key, for any order of arrival.

`sparkwap.landing` writes the log. All functions take and return Spark DataFrames, classic or
Connect, and use SQL expressions only, so they need no Python environment on the server.

The order of events is (``_sequence``, ``_file_path``, ``_row``, ``_part``); the last event of a
key determines its row. Events with the same key, sequence and content are copies of one message:
the copy in the first file, by name, counts. Deleted keys stay in the state, so a late update does
not restore a key. A full load or a truncate is a reset: it deletes the keys whose last event is
before it.

A state has the entity's own columns (all text, as published) and these:

=============== ========= =========================================================================
``_op``         string    operation of the key's last event; the next seven describe this event too
``_sequence``   string    its place in the order of the source
``_event_time`` timestamp its time at the source
``_load_date``  date      the load date of its drop
``_file_path``  string    its file
``_row``        bigint    its position in the file
``_part``       int       1 for the second half of an update that changes the key
``_batch``      bigint    the load that read it
``_is_deleted`` boolean   the key is deleted; all own columns except the key are NULL
``row_hash``    string    SHA-256 of the own columns, which distinguishes NULL from empty; NULL for
                          deleted rows
``_stated``     map       the source events of columns that the last event does not have; see
                          `sparkwap.cdc.partial`. NULL without partial events
``_message``    string    content of the last event; NULL without partial events
=============== ========= =========================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkwap.cdc import partial as _partial
from sparkwap.cdc import resets
from sparkwap.cdc import whole as _whole
from sparkwap.cdc.event_sql import own_columns, quoted, row_hash
from sparkwap.core import node
from sparkwap.core.errors import ConfigError
from sparkwap.landing.formats import format_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["increment", "model", "row_hash", "state"]


def model(dbt: Any, session: SparkSession, log: DataFrame) -> DataFrame:
    """Return the rows that a ``cdc_`` model merges: the whole state, or the changes of new loads.

    The key and the kinds of events come from the landing entry of the raw model, or from
    ``config.meta.cdc`` of the model itself: ``key``, a list; ``partial`` and ``truncates``, true or
    false. The model is incremental, with strategy ``merge`` and the key as ``unique_key``.

    Raises:
        ConfigError: the key is missing, or the log does not have one of its columns.
    """
    this = node.current()
    entry = {**(this.parent_meta("landing") or {}), **(this.meta.get("cdc") or {})}
    how = _how(entry)
    if not dbt.is_incremental:
        return state(log, **how)
    return increment(log, session.table(f"{dbt.this}"), **how)


def _how(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the key and the kinds of events from a landing entry."""
    codes = [
        code for file in entry.get("files") or () for code in (file.get("codes") or {}).values()
    ]
    codes += (entry.get("codes") or {}).values()
    events = entry.get("kind") != "extract"  # extracts have full loads only
    return {
        "key": [str(k) for k in entry.get("key") or ()],
        "partial": bool(entry.get("partial", format_of(entry).partial)),
        "truncates": bool(entry.get("truncates", "truncate" in codes if codes else events)),
    }


def state(
    log: DataFrame, key: Sequence[str], *, partial: bool = False, truncates: bool = True
) -> DataFrame:
    """Return the state of a whole log, with one row for each key.

    Args:
        log: a raw table, see `sparkwap.landing`.
        key: the columns that identify a row, without NULLs.
        partial: whether some events do not have all columns.
        truncates: whether truncates are possible; the search for them reads the whole log.
    """
    _check_key(log, key)
    return _kind(log, key, partial).state(log, resets.newest(resets.collect(log, truncates)), key)


def increment(
    log: DataFrame,
    present: DataFrame,
    key: Sequence[str],
    *,
    partial: bool = False,
    truncates: bool = True,
) -> DataFrame:
    """Return the rows of a state that new loads change, to be merged into the state by key.

    New rows have a ``_batch`` above the highest ``_batch`` of the state. They are read with the
    state's rows of the same keys. The rest of the log is read only if a new event has the sequence
    of an event in the state, but other content. After a new full load or truncate, the older rows
    of the state are read too. New columns of the log require the whole state to be built again.

    Args:
        present: the state of the log's earlier loads; the others are those of `state`.
    """
    _check_key(log, key)
    kind = _kind(log, key, partial)
    seen = present.agg({"_batch": "max"}).collect()[0][0]
    happened = resets.collect(log, truncates)
    now, earlier = resets.newest(happened), resets.newest(happened, up_to=seen)
    grown = set(own_columns(log.columns)) != set(own_columns(present.columns))
    # A full load may get a new file with an earlier start. Then it deletes fewer keys than before.
    shrunk = now is not None and earlier is not None and now < earlier
    if seen is None or grown or shrunk:
        return kind.state(log, now, key)
    new = log.where(f"_batch > {seen}")
    touched = present.join(_whole.events(new).select(*key), [*key], "left_semi")
    if now != earlier:
        cleared = present.where(f"not _is_deleted and {_cleared(now, partial)}")
        touched = touched.unionByName(cleared.join(touched, [*key], "left_anti"))
    return kind.increment(log, new, touched, now, key)


def _cleared(reset: resets.Place | None, partial: bool) -> str:
    """Return SQL for whether a reset changes a row of a state."""
    if not partial:
        return resets.before(reset)
    return (
        f"({resets.before(reset)} or exists(map_values(_stated), x -> {resets.before(reset, 'x')}))"
    )


class _Kind(NamedTuple):
    state: Callable[[DataFrame, resets.Place | None, Sequence[str]], DataFrame]
    increment: Callable[
        [DataFrame, DataFrame, DataFrame, resets.Place | None, Sequence[str]], DataFrame
    ]


def _kind(log: DataFrame, key: Sequence[str], partial: bool) -> _Kind:
    # Without columns besides the key, no event can be partial.
    if partial and set(own_columns(log.columns)) > set(key):
        return _Kind(_partial.state, _partial.increment)
    return _Kind(_whole.state, _whole.increment)


def _check_key(log: DataFrame, key: Sequence[str]) -> None:
    lacking = [k for k in key if k not in log.columns]
    if lacking or not key:
        why = f"the raw table has no column {quoted(lacking)}" if lacking else "it is empty"
        raise ConfigError(
            f"The key of this state cannot be used: {why}. Nothing was read. Set `key: [...]` in "
            "the landing entry of the raw model, or in `config.meta.cdc` of this model."
        )
