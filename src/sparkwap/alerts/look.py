"""Finds the events of alerts in a lake: waiting candidates, quarantines and rollbacks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sparkwap.alerts import events
from sparkwap.alerts.events import Quarantined
from sparkwap.alerts.model import Event
from sparkwap.alerts.project import Project
from sparkwap.catalog import lease as leasing
from sparkwap.core import names
from sparkwap.gate.alert_settings import AlertSettings
from sparkwap.landing.raw_models import has_entry, open_rows, published
from sparkwap.ledger.code import BUILT

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from sparkwap.catalog import Identifier, OpenBranch
    from sparkwap.publish.lake import Lake

_ROLLBACK_HOURS = 24


def quarantined(catalog: Catalog, raw: Mapping[str, str]) -> list[Quarantined]:
    """Return the published quarantines of raw tables, given as ``schema.table`` by node id."""
    found = []
    for node_id, name in sorted(raw.items()):
        schema, _, table_name = name.partition(".")
        if (table := published(catalog, (schema, table_name))) is not None:
            bad = len(open_rows(table))
            rows = table.scan("_kind = 'row'").count() if bad else 0
            found.append(Quarantined(node_id, name, bad, rows))
    return found


def waiting(lake: Lake, settings: AlertSettings, project: Project, now: datetime) -> list[Event]:
    """Return the events of rejected and long held tables on branches without a running command."""
    busy = {lease.branch for lease in leasing.living(lake.leases)}
    found: list[Event] = []
    for branch in lake.branches.all():
        if branch.branch not in busy:
            found += events.of_branch(
                branch.branch,
                lake.ledger.branch_history(branch.branch).nodes,
                _candidates(branch),
                held_for=timedelta(hours=settings.held_hours),
                now=now,
                project=project,
            )
    return found


def _candidates(branch: OpenBranch) -> list[str]:
    tables = [".".join(table.identifier) for table in branch.tables]
    for side in branch.side:
        schema = names.split_side_schema(side.identifier[0], branch.branch)
        tables.append(f"{schema}.{side.identifier[1]}")
    return tables


def rollbacks(
    lake: Lake, project: Project, node_ids: Mapping[str, str], now: datetime
) -> list[Event]:
    """Return the events of the last day's rollbacks, which their commands may not have sent."""
    since = now - timedelta(hours=_ROLLBACK_HOURS)
    # Several rollbacks can each undo a part of the same publish, on a catalog without transactions.
    undone: defaultdict[tuple[str, str, datetime], set[Identifier]] = defaultdict(set)
    for row in lake.ledger.recent("publishes", since):
        if row["action"] == "rollback":
            rollback = row["publish_id"], row["run_id"], row["published_at"]
            undone[rollback].add((row["schema"], row["name"]))
    publishes = {one.publish_id: one for key in undone for one in lake.ledger.publish(key[0])}
    found: list[Event] = []
    for (publish_id, run_id, at), tables in undone.items():
        publish = publishes[publish_id]
        back = tuple(entry for entry in publish.entries if entry.identifier in tables)
        found += events.of_rollback(
            [replace(publish, entries=back)],
            run_id=run_id,
            at=at,
            project=project,
            node_ids=node_ids,
        )
    return found


def everything(
    lake: Lake, settings: AlertSettings, manifest: Mapping[str, Any], project: Project, run_id: str
) -> list[Event]:
    """Return all events of a lake now; ``run_id`` is for those that belong to no run."""
    now = datetime.now(UTC)
    nodes = [node for node in manifest["nodes"].values() if node["resource_type"] in BUILT]
    names = {node["unique_id"]: f"{node['schema']}.{node['alias']}" for node in nodes}
    node_ids = {name: node_id for node_id, name in names.items()}
    found = [*waiting(lake, settings, project, now), *rollbacks(lake, project, node_ids, now)]
    if settings.quarantine is not None:
        raw = {node["unique_id"]: names[node["unique_id"]] for node in nodes if has_entry(node)}
        bad = quarantined(lake.catalog, raw)
        found += events.of_quarantine(
            bad, settings.quarantine, run_id=run_id, at=now, project=project
        )
    return found
