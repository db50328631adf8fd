"""Passes dbt's manifest and results to the OpenLineage events of a run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dbt.version import __version__ as dbt_version

from dbt.adapters.sparkwap.dbt_nodes import BUILT_TYPES, materialized
from dbt.adapters.sparkwap.run_results import failed
from sparkwap.runs.results import RunResults, run_results

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

    from dbt.adapters.sparkwap.command import DbtCommand
    from sparkwap.core.command_end import CommandEnd
    from sparkwap.lineage.model import Facts, Node, Version
    from sparkwap.runs.run import Run
    from sparkwap.runs.types import RunEnd


def closed(command: DbtCommand, run: Run, end: RunEnd, results: Iterable[Any] = ()) -> list[str]:
    """Send the events of a closed run if the project enables it; returns the lines to print.

    Never fails. A rebuild sends nothing: the run that is rebased does, with its tables.
    """
    if run.settings.openlineage == "never" or run.invocation.rebuild_of is not None:
        return []
    return _sent(command, run_results(run.invocation, end), list(results))


def published(command: DbtCommand, ends: Iterable[CommandEnd]) -> list[str]:
    """Send the events of ``wap_publish``, as `closed` does."""
    runs = [end.result for end in ends if isinstance(end.result, RunResults)]
    if command.settings.openlineage == "never":
        return []
    return [line for run in runs for line in _sent(command, run, ())]


def _sent(command: DbtCommand, run: RunResults, results: Sequence[Any]) -> list[str]:
    from sparkwap.lineage.send import end_of_run

    return end_of_run(lambda: _events(command, run, results))


def _events(command: DbtCommand, run: RunResults, results: Sequence[Any]) -> list[RunEvent]:
    # Imported late, because it imports OpenLineage's client, which takes most of a second.
    from sparkwap.lineage import events, model, naming

    catalog = command.credentials.catalog_settings(command.project_root)
    about = model.Command(
        job=naming.command_job(run.project, os.environ),
        namespace=naming.job_namespace(os.environ),
        datasets=naming.dataset_namespace(catalog),
        dbt_version=dbt_version,
        parent=naming.parent(os.environ),
        failed=bool(failed(results)),
    )
    return events.events(run, about, _facts(command, run, results))


def _facts(command: DbtCommand, run: RunResults, results: Sequence[Any]) -> Facts:
    from sparkwap.lineage.model import Facts

    known: Mapping[str, Any] = command.dbt_manifest().nodes
    built = [table.node_id for table in run.tables if table.node_id in known]
    columns = {
        test.test_id: getattr(known.get(test.test_id), "column_name", None) for test in run.tests
    }
    started = {result.node.unique_id: _started_at(result) for result in results}
    return Facts(
        {
            node_id: _node(command, known[node_id], started.get(node_id))
            for node_id in built
            if node_id.partition(".")[0] in BUILT_TYPES
        },
        _versions(command, run.publish_id),
        {test_id: str(column) for test_id, column in columns.items() if column},
    )


def _node(command: DbtCommand, node: Any, started_at: datetime | None) -> Node:
    from sparkwap.lineage.model import Column, Node

    # A clone reads the tables of another state, which the manifest does not name.
    inputs = [] if command.name == "clone" else command.manifest.inputs_of(node.unique_id)
    return Node(
        inputs=tuple(".".join(table) for table in inputs),
        columns=tuple(
            Column(column.name, column.data_type, column.description or None)
            for column in node.columns.values()
        ),
        description=node.description or "",
        materialized="seed" if str(node.resource_type) == "seed" else materialized(node),
        started_at=started_at,
    )


def _versions(command: DbtCommand, publish_id: str | None) -> dict[str, Version]:
    """Return what a publish did to its tables, as the ledger has it."""
    from sparkwap.lineage.model import Version

    found = command.lake.ledger.publish(publish_id) if publish_id else []
    return {
        ".".join(entry.identifier): Version(
            entry.how, entry.candidate, is_new=entry.base_metadata_location is None
        )
        for publish in found
        if publish.publish_id == publish_id
        for entry in publish.entries
    }


def _started_at(result: Any) -> datetime | None:
    """Return when dbt began to execute a node; its times are in UTC, without a zone."""
    times = [one.started_at for one in result.timing if one.name == "execute" and one.started_at]
    return times[0].replace(tzinfo=UTC) if times else None
