"""The audits' calls of the gate: metrics of the candidate, and the published ones to compare."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.meta import available
from dbt.adapters.base.relation import BaseRelation

from dbt.adapters.sparkwap.command import as_dbt_error
from dbt.adapters.sparkwap.command_run import CommandRun
from dbt.adapters.sparkwap.relation import SparkWapRelation, identifier_of
from dbt.adapters.sparkwap.reuse import Reuse
from sparkwap.audits import anomaly, constraints
from sparkwap.audits.metrics import ROW_COUNT, Measured, rows_sql
from sparkwap.audits.shared_statement import counts_of, statement
from sparkwap.core.errors import ConfigError
from sparkwap.core.sqltext import literal, quote

if TYPE_CHECKING:
    from sparkwap.catalog import Identifier, TableState


class Audits:
    """The methods that the generic audits and the test materialization call."""

    def __init__(self, runs: CommandRun, reuse: Reuse) -> None:
        self._runs = runs
        self._reuse = reuse
        self._command = runs.command

    @available.parse(lambda *a, **k: {})
    def known_metrics(
        self, name: str, test: Mapping[str, Any], metrics: Sequence[str], rule: Mapping[str, Any]
    ) -> dict[str, int]:
        """Check an anomaly audit's rule, and return the metrics that need no query."""
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
        """Return a query that returns the anomalies among a candidate's metrics."""
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
            run.notes.measured(str(test["unique_id"]), measured)
            return rows_sql(judgements)

    @available.parse(lambda *a, **k: {})
    def column_metrics(self, column: str, metrics: Any) -> dict[str, str]:
        """Return the SQL of a column's metrics, by metric."""
        with as_dbt_error():
            return anomaly.column_metrics(column, quote(column), metrics)

    @available.parse(lambda *a, **k: "")
    def column_changes(self, test: Mapping[str, Any], allowed: Any) -> str:
        """Return a query that returns the differences between candidate and published columns."""
        with as_dbt_error():
            run, lake = self._runs.current(), self._command.lake
            _, identifier = self._audited("wap_schema_changes", test)
            published = lake.state(identifier)
            side = run.candidates.overlay.side_schema(identifier) if run else None
            candidate = lake.state((side, identifier[1])) if side else published
            found: list[anomaly.ColumnChange] = []
            if published and candidate and (published.kind == "view" or published.main):
                before, after = _columns(published), _columns(candidate)
                found = anomaly.column_changes(before, after, allowed or ())
            if run is not None:
                run.looked_at(str(test["unique_id"]), identifier)
                words = "; ".join(change.words() for change in found) or None
                run.notes.found(str(test["unique_id"]), words)
            return _changes_sql(found)

    @available.parse(lambda *a, **k: None)
    def error_if(self, test_id: str) -> str | None:
        """Return the `error_if` that replaces the test's own after an acceptance, or None."""
        run = self._runs.current()
        if run is None:
            return None
        return run.rules.error_if(test_id, self._command.manifest.severity(test_id))

    @available.parse(lambda *a, **k: None)
    def sample(self, test: Mapping[str, Any], sql: str, result: Any) -> None:
        """Keep some of the rows that fail a test, if alerts show them."""
        if self._runs.alerts is not None:
            self._runs.alerts.keep_sample(str(test["unique_id"]), sql, result)

    @available.parse(lambda *a, **k: None)
    def enforce_constraints(self, model: Mapping[str, Any], relation: BaseRelation) -> None:
        """Raise if a built table breaks a constraint of its contract, or a foreign key to it.

        Foreign keys of models that this command builds are checked when these are built.
        """
        with as_dbt_error():
            state = self._runs.state(identifier_of(relation))
            columns = state.columns if state else ()
            required = {(column.name.lower(),) for column in columns if column.required}
            checks = [
                (replace(one, to=_place(one.to)), str(relation))
                for one in constraints.constraints_of(model)
                # Spark refuses to write NULL into these columns.
                if one.type != "not_null" or tuple(map(str.lower, one.columns)) not in required
            ]
            checks += self._referring(str(model["unique_id"]), relation)
            parts = [(one, *part) for one, table in checks for part in one.queries(table).items()]
            if not parts:
                return
            queries = dict(enumerate(sql for _, _, sql in parts))
            counts = counts_of(self._command.connections.rows_of(statement(queries)))
            constraints.require_kept(
                str(model["name"]),
                [(one, what, counts[at]) for at, (one, what, _) in enumerate(parts)],
            )

    def _referring(
        self, node_id: str, relation: BaseRelation
    ) -> list[tuple[constraints.Constraint, str]]:
        """Return the foreign keys to a table, of models that are not built, and their tables."""
        found = []
        for child, key in self._foreign_keys.get(node_id, ()):
            own = SparkWapRelation.create_from(self._command.config, child)
            state = self._runs.state(identifier_of(own))
            there = {column.name.lower() for column in state.columns} if state else set()
            if there.issuperset(column.lower() for column in key.columns):
                found.append((replace(key, to=str(relation), of=child.name), str(own)))
        return found

    @cached_property
    def _foreign_keys(self) -> Mapping[str, list[tuple[Any, constraints.Constraint]]]:
        """The models that are not built in this command, with their foreign keys to a node."""
        manifest, selected = self._command.dbt_manifest(), self._runs.selected
        found: dict[str, list[tuple[Any, constraints.Constraint]]] = {}
        for child in manifest.nodes.values():
            if str(child.resource_type) != "model" or not child.contract.enforced:
                continue
            if child.unique_id in selected and not self._reuse.is_known(child.unique_id):
                continue
            for key in constraints.constraints_of(child.to_dict()):
                if "(" in key.to:
                    parent = manifest.find_node_from_ref_or_source(key.to).unique_id
                elif key.to:
                    parent = self._command.manifest.owner(_table(key.to))
                else:
                    continue
                found.setdefault(parent, []).append((child, key))
        return found

    def _audited(self, name: str, test: Mapping[str, Any]) -> tuple[str, Identifier]:
        """Return the tested node and its table."""
        nodes = (test.get("depends_on") or {}).get("nodes") or [None]
        node_id = str(test.get("attached_node") or nodes[0])
        identifier = self._command.manifest.table(node_id)
        if identifier is None:
            raise ConfigError(
                f"{name} cannot audit {node_id}, because it is neither a table nor a view, so no "
                "published state exists to compare with. The audit did not run. Put the audit on a "
                "model, seed or snapshot that is not ephemeral."
            )
        return node_id, identifier


def _table(name: str) -> Identifier:
    """Return schema and name of a table that the expression of a foreign key names."""
    schema, table = name.split(".")[-2:]
    return schema, table


def _place(to: str) -> str:
    """Return where this run has a table that the expression of a foreign key names."""
    if not re.fullmatch(r"\w+(\.\w+)+", to):
        return to
    schema, table = _table(to)
    return SparkWapRelation.create(schema=schema, identifier=table).render()


def _changes_sql(found: Sequence[anomaly.ColumnChange]) -> str:
    rows = [
        f"({literal(change.column)}, {literal(change.change)}, {_text(change.before)}, "
        f"{_text(change.after)})"
        for change in found
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
