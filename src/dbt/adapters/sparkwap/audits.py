"""What audits ask of the gate: figures of the candidate, what is known of the published ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.meta import available

from dbt.adapters.sparkwap.command import as_dbt_error
from dbt.adapters.sparkwap.command_run import CommandRun
from sparkwap.audits import anomaly
from sparkwap.audits.metrics import ROW_COUNT, Measured, rows_sql
from sparkwap.core.errors import ConfigError
from sparkwap.core.sqltext import literal, quote

if TYPE_CHECKING:
    from sparkwap.catalog import Identifier, TableState


class Audits:
    """What the generic audits and dbt's test ask of the gate.

    Args:
        runs: The command's run.
    """

    def __init__(self, runs: CommandRun) -> None:
        self._runs = runs
        self._command = runs.command

    @available.parse(lambda *a, **k: {})
    def known_metrics(
        self, name: str, test: Mapping[str, Any], metrics: Sequence[str], rule: Mapping[str, Any]
    ) -> dict[str, int]:
        """Those of an anomaly audit's metrics that need no query; its rule is checked first.

        Args:
            name: The audit's name, for messages.
            test: dbt's node of the test.
            metrics: Names of what it measures.
            rule: Its arguments, by the names of :class:`sparkwap.audits.anomaly.AnomalyRule`.
        """
        with as_dbt_error():
            run = self._runs.current()
            anomaly.AnomalyRule.from_arguments(name, rule)
            _, identifier = self._audited(name, test)
            if run is None or ROW_COUNT not in metrics or _where(test):
                return {}
            count = run.row_count(identifier)
            run.looked_at(str(test["unique_id"]), identifier)
            return {} if count is None else {ROW_COUNT: count}

    @available.parse(lambda *a, **k: "")
    def judge(
        self,
        name: str,
        test: Mapping[str, Any],
        values: Mapping[str, Any],
        rule: Mapping[str, Any],
        scope: str | None = None,
    ) -> str:
        """A query that returns those of a candidate's metrics that are anomalies.

        Args:
            name: As in :meth:`known_metrics`.
            test: Likewise.
            values: What was measured, by metric.
            rule: As in :meth:`known_metrics`.
            scope: What else the metrics depend on, besides the test's ``where``.
        """
        with as_dbt_error():
            run = self._runs.current()
            if run is None:
                return rows_sql(())
            checked = anomaly.AnomalyRule.from_arguments(name, rule)
            node_id, identifier = self._audited(name, test)
            whole_scope = "; ".join(part for part in (_where(test), scope) if part)
            now = datetime.now(UTC)
            judgements = tuple(
                anomaly.judge(
                    metric,
                    None if value is None else float(value),
                    run.baselines.history(identifier, metric, whole_scope),
                    checked,
                    now,
                )
                for metric, value in values.items()
            )
            measured = Measured(node_id, whole_scope, now, judgements)
            run.told.measured(str(test["unique_id"]), measured)
            return rows_sql(judgements)

    @available.parse(lambda *a, **k: {})
    def column_metrics(self, column: str, metrics: Any) -> dict[str, str]:
        """Metric -> SQL of what is to be measured of a column."""
        with as_dbt_error():
            return anomaly.column_metrics(column, quote(column), metrics)

    @available.parse(lambda *a, **k: "")
    def column_changes(self, test: Mapping[str, Any], allowed: Any) -> str:
        """A query that returns how a candidate's columns differ from the published ones."""
        with as_dbt_error():
            run, lake = self._runs.current(), self._command.lake
            _, identifier = self._audited("wap_schema_changes", test)
            published = lake.state(identifier)
            side = run.candidates.overlay.side_schema(identifier) if run else None
            candidate = lake.state((side, identifier[1])) if side else published
            never = published is None or (published.kind == "table" and published.main is None)
            found = (
                []
                if never or published is None or candidate is None
                else anomaly.column_changes(_columns(published), _columns(candidate), allowed or ())
            )
            if run is not None:
                run.looked_at(str(test["unique_id"]), identifier)
                words = "; ".join(one.words() for one in found) or None
                run.told.found(str(test["unique_id"]), words)
            return _changes_sql(found)

    @available.parse(lambda *a, **k: None)
    def error_if(self, test_id: str) -> str | None:
        """The `error_if` of a test of which somebody has accepted what it finds; None for its own.

        Args:
            test_id: dbt's unique id.
        """
        run = self._runs.current()
        if run is None:
            return None
        return run.rules.error_if(test_id, self._command.manifest.severity(test_id))

    @available.parse(lambda *a, **k: None)
    def sample(self, test: Mapping[str, Any], sql: str, result: Any) -> None:
        """Keep some of the rows that failed a test, where alerts are to show them.

        Args:
            test: dbt's node of the test.
            sql: The query of the rows that fail.
            result: What dbt's statement of the test has loaded.
        """
        if self._runs.alerts is not None:
            self._runs.alerts.keep_sample(str(test["unique_id"]), sql, result)

    def _audited(self, name: str, test: Mapping[str, Any]) -> tuple[str, Identifier]:
        """The node that a test is about, and its table."""
        nodes = (test.get("depends_on") or {}).get("nodes") or [None]
        node_id = str(test.get("attached_node") or nodes[0])
        identifier = self._command.manifest.table(node_id)
        if identifier is None:
            raise ConfigError(
                f"{name} is about {node_id}, which is no table or view of its own, so there is "
                "nothing published to compare with. The audit did not run. Put it on a model, "
                "seed or snapshot that is not ephemeral."
            )
        return node_id, identifier


def _changes_sql(found: Sequence[anomaly.ColumnChange]) -> str:
    rows = [
        f"({literal(one.column)}, {literal(one.change)}, {_text(one.before)}, {_text(one.after)})"
        for one in found
    ]
    values = ",\n    ".join(rows) or "('', '', '', '')"
    query = f"select * from values\n    {values}\nas changes (column_name, change, before, after)"
    return query if rows else f"{query} where false"


def _where(test: Mapping[str, Any]) -> str | None:
    where = (test.get("config") or {}).get("where")
    return str(where) if where else None


def _columns(state: TableState) -> list[tuple[str, str]]:
    return [(column.name, column.type) for column in state.columns]


def _text(value: str | None) -> str:
    return "cast(null as string)" if value is None else literal(value)
