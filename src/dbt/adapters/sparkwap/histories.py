"""What the macros of histories and of typed columns ask, with dbt's relations and statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from dbt.adapters.base.column import Column
from dbt.adapters.base.meta import available
from dbt.adapters.base.relation import BaseRelation

from dbt.adapters.sparkwap.command import as_dbt_error
from dbt.adapters.sparkwap.connections import SparkWapConnectionManager
from dbt.adapters.sparkwap.placement import Placement
from sparkwap.cdc import history
from sparkwap.cdc.widening import Cast, widened
from sparkwap.core.sqltext import quote
from sparkwap.landing.sql import plain_cast

Describe = Callable[[BaseRelation], Iterable[Column]]


class HistoryBuild:
    """One build of a model with ``materialized: scd2``.

    Args:
        settings: What the model says.
        restate: SQL: keys to build again; None for none.
        run: Sends a statement.
        describe: The columns of a table.
    """

    def __init__(
        self,
        settings: history.History,
        restate: str | None,
        run: history.Run,
        describe: Describe,
    ) -> None:
        self._settings, self._restate = settings, restate
        self._run, self._describe = run, describe

    def whole_sql(self, relation: BaseRelation, published: Any) -> str:
        """The whole history; a version that the published table has keeps its number."""
        number = self._settings.surrogate_key
        known = bool(number and published and number in (c.name for c in self._describe(relation)))
        return history.whole(self._settings, self._run, str(published) if known else None)

    def shape_sql(self) -> str:
        """A query without rows that has the columns of the history."""
        return history.shape(self._settings)

    def marks(self, relation: BaseRelation) -> history.Marks:
        """How far the table is."""
        return history.marks(str(relation), self._settings.surrogate_key, self._run)

    def extension(
        self, relation: BaseRelation, columns: list[str], marks: history.Marks, stage: str
    ) -> history.Extension:
        """What brings the table up to the log.

        Args:
            relation: The table, in its place.
            columns: The columns to write.
            marks: How far the table was.
            stage: Tells this run's temporary tables from others': a run that failed may have left
                its own in the session.
        """
        settings = replace(
            self._settings,
            payload=[c for c in self._settings.payload if c in columns],
            tracked=[c for c in self._settings.tracked if c in columns],
        )
        stage = f"{relation.identifier}_{stage}_"
        return history.Extension(settings, str(relation), marks, stage, self._restate, self._run)


class Widening:
    """Wider types for the columns of one model.

    Args:
        table: The model's table; None if it is built anew.
        run: Sends a statement.
        describe: The columns of a table.
        tell: Keeps a notice for the summary of the run.
    """

    def __init__(
        self,
        table: BaseRelation | None,
        run: history.Run,
        describe: Describe,
        tell: Callable[[str], None],
    ) -> None:
        self._table, self._run, self._describe, self._tell = table, run, describe, tell

    def events(self, columns: Mapping[str, str], log: str, restate: bool) -> dict[str, str]:
        """SQL by column of events, see the macro `change_events`.

        Args:
            columns: SQL by name.
            log: The log.
            restate: Whether rows count that the table has seen.
        """
        casts = {n: Cast(*cast, n) for n, sql in columns.items() if (cast := plain_cast(sql))}

        def rows() -> str:
            new = self._table is None or restate
            seen = -1 if new else history.marks(str(self._table), None, self._run).batch
            return f"{log} where _kind = 'row' and _batch > {seen}"

        wide = self._wide(casts, rows)
        fitting = {name: f"cast({casts[name].text} as {kind})" for name, kind in wide.items()}
        return {**columns, **fitting}

    def typed(self, columns: Mapping[str, str | None], state: str) -> dict[str, str | None]:
        """Types of columns, see the macro `widened`.

        Args:
            columns: By source column ``type`` or ``type as name``; None for one that is left out.
            state: The table with the values.
        """
        casts = {}
        for column, wanted in columns.items():
            if wanted is not None:
                kind, _, name = wanted.partition(" as ")
                casts[column] = Cast(quote(column), kind, name or column)
        wide = self._wide(casts, lambda: f"{state} where not _is_deleted")
        fitting = {name: f"{kind} as {casts[name].column}" for name, kind in wide.items()}
        return {**columns, **fitting}

    def _wide(self, casts: Mapping[str, Cast], rows: Callable[[], str]) -> dict[str, str]:
        standing = {c.name: c.dtype for c in self._describe(self._table)} if self._table else {}
        types, notices = widened(
            casts, standing, lambda counts: self._run(f"select {counts} from {rows()}")
        )
        for notice in notices:
            self._tell(notice)
        return types


class Histories:
    """Histories and typed columns, as macros ask for them.

    Args:
        connections: The adapter's connections.
        placement: Keeps what a build has to tell.
        describe: The columns of a table.
    """

    def __init__(
        self, connections: SparkWapConnectionManager, placement: Placement, describe: Describe
    ) -> None:
        self._connections, self._placement = connections, placement
        self._describe = describe

    @available.parse(lambda *a, **k: None)
    def history(self, model: Mapping[str, Any], sql: str, restate: Any) -> HistoryBuild:
        """What builds a model with ``materialized: scd2``.

        Args:
            model: dbt's node.
            sql: The model's query.
            restate: The var `scd2_restate`.
        """
        types = dict(self._connections.query_types(sql))
        with as_dbt_error():
            settings = history.read_settings(model["name"], model["config"], sql, types)
            keys = history.restated(model["name"], restate)
        return HistoryBuild(settings, keys, self._first_row, self._describe)

    @available.parse(lambda model, columns, *a, **k: columns)
    def widened_events(
        self,
        model: Mapping[str, Any],
        columns: Mapping[str, str],
        table: BaseRelation | None,
        log: Any,
        restate: Any,
    ) -> dict[str, str]:
        """The columns of a history's events, with the wider types that values of the log need.

        Args:
            model: dbt's node.
            columns: SQL by name.
            table: The history; None if it is built anew.
            log: The log.
            restate: The var `scd2_restate`.
        """
        with as_dbt_error():
            keys = history.restated(model["name"], restate)
        return self._widening(model, table).events(columns, str(log), keys is not None)

    @available.parse(lambda model, columns, *a, **k: columns)
    def widened_types(
        self,
        model: Mapping[str, Any],
        columns: Mapping[str, str | None],
        table: BaseRelation | None,
        state: Any,
    ) -> dict[str, str | None]:
        """The columns of `typed_columns`, with the wider types that values of the state need.

        Args:
            model: dbt's node.
            columns: Types by source column.
            table: The model's table; None if there is none.
            state: The table with the values.
        """
        return self._widening(model, table).typed(columns, str(state))

    def _widening(self, model: Mapping[str, Any], table: BaseRelation | None) -> Widening:
        tell = partial(self._placement.tell, model["unique_id"])
        return Widening(table, self._first_row, self._describe, tell)

    def _first_row(self, sql: str) -> list[Any]:
        """Send a statement; the first row of its result, empty where there is none."""
        _, table = self._connections.execute(sql, fetch=True)
        return list(table.rows[0].values()) if table.rows else []
