"""The checked settings of a model with ``materialized: scd2``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sparkwap.cdc import resets
from sparkwap.cdc.event_sql import quoted
from sparkwap.core.errors import ConfigError
from sparkwap.core.text import listed

LOG_COLUMNS = ("_op", "_sequence", "_event_time", "_file_path", "_row", "_part", "_batch")
"""Columns that the model's query must select from the log."""

MADE = ("valid_from", "valid_to", "is_current", "version", "change_flag", "row_hash")
"""Columns that the history adds for readers."""

KEPT = ("_sequence", "_event_time", "_batch")
"""Columns that the next run needs: the last event of a key, on its current row only, and the last
batch of the log when the row was built."""

_LEGAL = {
    "grain": ("timestamp", "date"),
    "expire": ("next_start", "day_before"),
    "deletes": ("close", "record"),
}
_LAST_DAY = "9999-12-31"


@dataclass(frozen=True)
class HistorySettings:
    """The settings of a history.

    Attributes:
        sql: The model's query: one row per event.
        payload: The other columns of the query, without the log's columns.
        tracked: Payload columns whose change makes a version.
        open_end: Whether the end of a current version is 9999-12-31, and not NULL.
        delete_when: SQL condition for events that count as deletes; None for none.
        highest: A surrogate key that all new ones are above.
        partial: Whether events may be partial (``_absent``).
        loads: Whether full loads can delete keys (``_load``, ``_load_date``).
    """

    sql: str
    keys: Sequence[str]
    payload: Sequence[str]
    tracked: Sequence[str]
    types: Mapping[str, str]
    grain: str = "timestamp"
    expire: str = "next_start"
    deletes: str = "close"
    open_end: bool = False
    delete_when: str | None = None
    surrogate_key: str | None = None
    highest: int = 0
    partial: bool = False
    loads: bool = False

    def resets(self, source: str) -> str:
        """Return SQL of the resets among the rows of the model's query, see `resets.in_order`."""
        return resets.in_order(source, self.grain, self.loads)

    @cached_property
    def key(self) -> str:
        """The quoted key columns."""
        return quoted(self.keys)

    @property
    def columns(self) -> list[str]:
        """The columns of the history, in order."""
        number = [self.surrogate_key] if self.surrogate_key else []
        return [*number, *self.keys, *self.payload, *MADE, *KEPT]


def read_settings(
    name: str, config: Mapping[str, Any], sql: str, types: Mapping[str, str], highest: int = 0
) -> HistorySettings:
    """Return the settings of a model's history."""
    keys = listed(config.get("unique_key"))
    payload = [c for c in types if c not in keys and not c.startswith("_")]
    surrogate = config.get("surrogate_key")
    history = HistorySettings(
        sql=sql,
        keys=keys,
        payload=payload,
        tracked=listed(config.get("tracked_columns")) or payload,
        types=types,
        **{setting: config.get(setting, legal[0]) for setting, legal in _LEGAL.items()},
        open_end=config.get("open_end") is not None,
        delete_when=config.get("delete_when"),
        surrogate_key="version_key" if surrogate is True else surrogate or None,
        highest=highest,
        partial="_absent" in types,
        loads="_load" in types and "_load_date" in types,
    )
    faults = _faults(history, config.get("open_end"))
    if faults:
        raise ConfigError(
            f"The history {name} cannot be built; nothing was written. Correct: "
            f"{'; '.join(faults)}. The query must select the columns of change_events(); "
            "docs/history.md lists the settings."
        )
    return history


def _faults(history: HistorySettings, open_end: object) -> list[str]:
    faults = [
        f"{setting} is '{getattr(history, setting)}'; legal values: {', '.join(legal)}"
        for setting, legal in _LEGAL.items()
        if getattr(history, setting) not in legal
    ]
    if history.expire == "day_before" and history.grain != "date":
        faults.append("expire 'day_before' needs grain 'date'")
    if open_end is not None and str(open_end) != _LAST_DAY:
        faults.append(f"open_end is '{open_end}'; legal values: null, '{_LAST_DAY}'")
    if not history.keys:
        faults.append("unique_key is missing")
    needed = [*history.keys, *history.tracked, *LOG_COLUMNS]
    faults += [f"the query has no column {c}" for c in needed if c not in history.types]
    faults += [
        f"the query's column {c} has the name of a column that the history adds"
        for c in history.payload
        if c in (*MADE, history.surrogate_key)
    ]
    return faults


def restated(name: str, given: Any) -> str | None:
    """Return the SQL condition for a model's keys in the var ``scd2_restate``; None for none."""
    found = []
    for item in given if isinstance(given, list | tuple) else [given] if given else []:
        if not isinstance(item, Mapping) or not item.get("model") or not item.get("where"):
            raise ConfigError(
                f"scd2_restate is '{item}'. Nothing was built. It needs model and where, such as "
                '{model: dim_customers, where: "customer_id between 1 and 100"}.'
            )
        if item["model"] == name:
            found.append(f"({item['where']})")
    return " or ".join(found) or None
