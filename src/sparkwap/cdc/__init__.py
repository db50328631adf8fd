"""From a change log to the state it describes: one row a key, whatever the order of arrival.

The log is what `sparkwap.landing` writes. All functions take and return Spark DataFrames, classic
or Connect, and use SQL expressions only, so that they need no environment setting.

The order of events is (``_sequence``, ``_file_path``, ``_row``, ``_part``); the last event of a
key says what its row is. Events of one key with one sequence that say the same are one message,
delivered more than once: it counts where it stands in the first of its files, by name. Deletes are
remembered, so that a late update does not bring a key back. A full load or a truncate is a reset:
keys whose last event is before it are gone.

What a state has beside the entity's own columns (all text, as published):

=============== ========= =========================================================================
``_op``         string    of the key's last event, like the next seven
``_sequence``   string    its place in the order of the source
``_event_time`` timestamp when it happened at the source
``_load_date``  date      the drop that brought it
``_file_path``  string    the file that it is in
``_row``        bigint    its position in that file
``_part``       int       1 for the second half of an update that changes the key
``_batch``      bigint    the load that read it
``_is_deleted``    boolean   the key is gone; the row has its key, and NULL in all other own columns
``row_hash``    string    SHA-256 of the own columns, the same for equal rows only, NULL told from
                          empty; NULL for deleted rows
``_stated``     map       where columns that the last event does not state come from; see
                          `sparkwap.cdc.partial`. NULL without partial events, like the next
``_message``    string    what the last event said
=============== ========= =========================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkwap.cdc import partial as _partial
from sparkwap.cdc import resets
from sparkwap.cdc import whole as _whole
from sparkwap.cdc.sql import own_columns, quoted, row_hash
from sparkwap.core import node
from sparkwap.core.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["increment", "model", "row_hash", "state"]


def model(dbt: Any, session: SparkSession, log: DataFrame) -> DataFrame:
    """The rows that a ``cdc_`` model has to merge: all of the state, or what new loads change.

    The key, and what kinds of events there can be, come from the landing entry of the raw model, or
    from ``config.meta.cdc`` of the model itself: ``key``, a list; ``partial`` and ``truncates``,
    true or false. The model is incremental, with strategy ``merge`` and the key as ``unique_key``.

    Args:
        dbt: the object that dbt hands to a Python model.
        session: the session that dbt hands to a Python model.
        log: ``dbt.ref()`` of the raw model.

    Raises:
        ConfigError: there is no key, or the log lacks one of its columns.
    """
    this = node.current()
    entry = {**(this.parent_meta("landing") or {}), **(this.meta.get("cdc") or {})}
    how = _how(entry)
    if not dbt.is_incremental:
        return state(log, **how)
    return increment(log, session.table(f"{dbt.this}"), **how)


def _how(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The key, and what kinds of events there can be, from a landing entry."""
    debezium = entry.get("format") == "debezium"
    codes = [
        code for file in entry.get("files") or () for code in (file.get("codes") or {}).values()
    ]
    codes += (entry.get("codes") or {}).values()
    events = entry.get("kind") != "extract"  # extracts are full loads and nothing else
    return {
        "key": [str(k) for k in entry.get("key") or ()],
        "partial": bool(entry.get("partial", debezium)),
        "truncates": bool(entry.get("truncates", "truncate" in codes if codes else events)),
    }


def state(
    log: DataFrame, key: Sequence[str], *, partial: bool = False, truncates: bool = True
) -> DataFrame:
    """The state of all that a log holds, one row for each key that it names.

    Args:
        log: a raw table, see `sparkwap.landing`.
        key: the columns that name a row, without NULLs.
        partial: some events do not state all columns.
        truncates: there may be truncates, which have to be looked for in all of the log.

    Raises:
        ConfigError: there is no key, or the log lacks one of its columns.
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
    """The rows of a state that the log's new loads change, to be merged into it by key.

    New are rows with a ``_batch`` above all that the state has. They are read, with the state's
    rows of the same keys; the rest of the log is not, unless an event has the sequence of one that
    is already in the state and says something else. After a new full load or truncate the state's
    rows before it are read too. Columns that are new in the log need the whole state anew.

    Args:
        log: a raw table.
        present: the state of the log's earlier loads.
        key: the columns that name a row, without NULLs.
        partial: some events do not state all columns.
        truncates: there may be truncates, which have to be looked for in all of the log.

    Raises:
        ConfigError: there is no key, or the log lacks one of its columns.
    """
    _check_key(log, key)
    kind = _kind(log, key, partial)
    seen = present.agg({"_batch": "max"}).collect()[0][0]
    happened = resets.collect(log, truncates)
    now, earlier = resets.newest(happened), resets.newest(happened, up_to=seen)
    grown = set(own_columns(log.columns)) != set(own_columns(present.columns))
    # A full load may get a file that begins before its others: then less is gone than was.
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
    """SQL: whether a reset changes a row of a state."""
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
    # Without a column beside the key there is nothing that an event could leave out.
    if partial and set(own_columns(log.columns)) > set(key):
        return _Kind(_partial.state, _partial.increment)
    return _Kind(_whole.state, _whole.increment)


def _check_key(log: DataFrame, key: Sequence[str]) -> None:
    lacking = [k for k in key if k not in log.columns]
    if lacking or not key:
        what = f"the raw table has no column {quoted(lacking)}" if lacking else "it is empty"
        raise ConfigError(
            f"The key of this state cannot be used: {what}. Nothing was read. Say `key: [...]` in "
            "the landing entry of the raw model, or in `config.meta.cdc` of this one."
        )
