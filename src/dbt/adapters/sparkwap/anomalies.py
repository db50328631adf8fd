"""The anomaly audits: from dbt's test to the facts that are judged, and back to a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sparkwap.audits import anomaly
from sparkwap.audits.metrics import ROW_COUNT, Measured, rows_sql
from sparkwap.core.errors import ConfigError
from sparkwap.core.sqltext import literal

if TYPE_CHECKING:
    from dbt.adapters.sparkwap.facts import Manifest
    from sparkwap.catalog import Identifier, TableState
    from sparkwap.publish.lake import Lake
    from sparkwap.runs.run import Run


def known(
    run: Run | None,
    manifest: Manifest,
    name: str,
    test: Mapping[str, Any],
    metrics: Sequence[str],
    rule: Mapping[str, Any],
) -> dict[str, int]:
    """Those metrics that a table's metadata tells; see ``SparkWapAdapter.wap_known_metrics``."""
    anomaly.Rule.from_arguments(name, rule)
    _, identifier = _audited(manifest, name, test)
    if run is None or ROW_COUNT not in metrics or _where(test):
        return {}
    count = run.row_count(identifier)
    run.looked_at(str(test["unique_id"]), identifier)
    return {} if count is None else {ROW_COUNT: count}


def judged(
    run: Run | None,
    manifest: Manifest,
    name: str,
    test: Mapping[str, Any],
    values: Mapping[str, Any],
    rule: Mapping[str, Any],
    scope: str | None,
) -> str:
    """The query of an anomaly audit; see ``SparkWapAdapter.wap_judge``."""
    if run is None:
        return rows_sql(())
    checked = anomaly.Rule.from_arguments(name, rule)
    node_id, identifier = _audited(manifest, name, test)
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
    run.told.measured(str(test["unique_id"]), Measured(node_id, whole_scope, now, judgements))
    return rows_sql(judgements)


def column_changes(
    lake: Lake, run: Run | None, manifest: Manifest, test: Mapping[str, Any], allowed: Any
) -> str:
    """The query of ``wap_schema_changes``; no rows while nothing is published."""
    _, identifier = _audited(manifest, "wap_schema_changes", test)
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
        run.told.found(str(test["unique_id"]), "; ".join(one.words() for one in found) or None)
    rows = [
        f"({literal(one.column)}, {literal(one.change)}, {_text(one.before)}, {_text(one.after)})"
        for one in found
    ]
    values = ",\n    ".join(rows) or "('', '', '', '')"
    query = f"select * from values\n    {values}\nas changes (column_name, change, before, after)"
    return query if rows else f"{query} where false"


def _audited(manifest: Manifest, name: str, test: Mapping[str, Any]) -> tuple[str, Identifier]:
    """The node that a test is about, and its table."""
    nodes = (test.get("depends_on") or {}).get("nodes") or [None]
    node_id = str(test.get("attached_node") or nodes[0])
    identifier = manifest.table(node_id)
    if identifier is None:
        raise ConfigError(
            f"{name} is about {node_id}, which is no table or view of its own, so there is nothing "
            "published to compare with. The audit did not run. Put it on a model, seed or "
            "snapshot that is not ephemeral."
        )
    return node_id, identifier


def _where(test: Mapping[str, Any]) -> str | None:
    where = (test.get("config") or {}).get("where")
    return str(where) if where else None


def _columns(state: TableState) -> list[tuple[str, str]]:
    return [(column.name, column.type) for column in state.columns]


def _text(value: str | None) -> str:
    return "cast(null as string)" if value is None else literal(value)
