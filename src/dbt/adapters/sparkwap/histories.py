"""The calls of the macros for histories and typed columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from dbt.adapters.base.column import Column
from dbt.adapters.base.meta import available
from dbt.adapters.base.relation import BaseRelation

from dbt.adapters.sparkwap.command import DbtCommand, as_dbt_error
from dbt.adapters.sparkwap.placement import Placement
from sparkwap.cdc import history
from sparkwap.cdc.widening import Widening
from sparkwap.landing.row_sql import plain_cast

Describe = Callable[[BaseRelation], Iterable[Column]]


class Histories:
    """The methods for histories and typed columns."""

    def __init__(self, command: DbtCommand, placement: Placement, describe: Describe) -> None:
        self._command, self._connections = command, command.connections
        self._placement, self._describe = placement, describe

    @available.parse(lambda *a, **k: None)
    def history(self, model: Mapping[str, Any], sql: str, restate: Any) -> history.HistoryBuild:
        """Return the statements of a model with ``materialized: scd2``."""
        types = dict(self._connections.query_types(sql))
        highest = int(self.kept_properties(model).get(history.HIGHEST, 0))
        with as_dbt_error():
            settings = history.read_settings(model["name"], model["config"], sql, types, highest)
            keys = history.restated(model["name"], restate)
        return history.HistoryBuild(settings, keys, self._first_row)

    @available.parse(lambda *a, **k: {})
    def kept_properties(self, model: Mapping[str, Any]) -> dict[str, str]:
        """Return the properties of a history's table that a table in its place has to have too."""
        state = self._command.lake.state((model["schema"], model["alias"]))
        properties = state.properties if state else {}
        return {key: properties[key] for key in (history.HIGHEST,) if key in properties}

    @available.parse(lambda model, columns, *a, **k: columns)
    def widened_events(
        self,
        model: Mapping[str, Any],
        columns: Mapping[str, str],
        table: BaseRelation | None,
        log: Any,
        restate: Any,
    ) -> dict[str, str]:
        """Return the columns of a history's events, with wider types where the log needs them."""
        casts = {n: cast for n, sql in columns.items() if (cast := plain_cast(sql))}
        with as_dbt_error():
            full = table is None or history.restated(model["name"], restate)
        seen = None if full else str(table)
        return self._widening(model, table).events(columns, casts, str(log), seen)

    @available.parse(lambda model, column, kind, *a, **k: kind)
    def widened_type(
        self,
        model: Mapping[str, Any],
        column: str,
        kind: str,
        name: str,
        table: BaseRelation | None,
        state: Any,
    ) -> str:
        """Return the type of `exact_cast`, or a wider type if values of the state need it."""
        return self._widening(model, table).typed(column, kind, name, str(state))

    def _widening(self, model: Mapping[str, Any], table: BaseRelation | None) -> Widening:
        columns = self._describe(table) if table else []
        tell = partial(self._placement.tell, model["unique_id"])
        return Widening({c.name: c.dtype for c in columns}, self._first_row, tell)

    def _first_row(self, sql: str) -> list[Any]:
        """Send a statement, and return the first row of its result; empty if there is none."""
        _, table = self._connections.execute(sql, fetch=True)
        return list(table.rows[0].values()) if table.rows else []
