"""Passes dbt's manifest and results to the OpenLineage events of a run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dbt.version import __version__ as dbt_version

from dbt.adapters.sparkwap.dbt_nodes import BUILT_TYPES, materialized
from dbt.adapters.sparkwap.run_results import dbt_failed
from sparkwap.gate.results import run_results

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

    from dbt.adapters.sparkwap.command import DbtCommand
    from sparkwap.lineage.model import Facts, Node, Version
    from sparkwap.runs.types import Invocation, RunEnd


def closed(
    command: DbtCommand, invocation: Invocation, end: RunEnd, results: Iterable[Any] = ()
) -> list[str]:
    """Send the events of a closed run if the project enables it; returns the lines to print.

    Never fails. A rebuild sends nothing: the run that is rebased does, with its tables.

    Args:
        command: The command.
        invocation: The run.
        end: Its end.
        results: dbt's results.
    """
    if invocation.settings.openlineage == "never" or invocation.rebuild_of is not None:
        return []
    from sparkwap.lineage.send import end_of_run

    return end_of_run(lambda: _events(command, invocation, end, list(results)))


def _events(
    command: DbtCommand, invocation: Invocation, end: RunEnd, results: Sequence[Any]
) -> list[RunEvent]:
    # Imported late, because it imports OpenLineage's client, which takes most of a second.
    from sparkwap.lineage import events, model, naming

    catalog = command.credentials.catalog_settings(command.project_root)
    about = model.Command(
        name=invocation.command,
        job=naming.command_job(invocation.project, os.environ),
        namespace=naming.job_namespace(os.environ),
        datasets=naming.dataset_namespace(catalog),
        dbt_version=dbt_version,
        parent=naming.parent(os.environ),
        failed=dbt_failed(results),
    )
    return events.events(
        run_results(invocation, end), about, _facts(command, invocation, end, results)
    )


def _facts(
    command: DbtCommand, invocation: Invocation, end: RunEnd, results: Sequence[Any]
) -> Facts:
    from sparkwap.lineage.model import Facts

    known: Mapping[str, Any] = command.dbt_manifest().nodes
    started = {result.node.unique_id: _started_at(result) for result in results}
    # A clone reads the tables of another state, which the manifest does not name.
    copies = invocation.command == "clone"
    return Facts(
        {
            node.node_id: _node(
                command, known[node.node_id], started.get(node.node_id), copies=copies
            )
            for node in end.nodes
            if node.node_id in known and node.node_id.partition(".")[0] in BUILT_TYPES
        },
        _versions(command, end.publish_id),
        {
            test.test_id: str(column)
            for test in end.tests
            if (column := getattr(known.get(test.test_id), "column_name", None))
        },
    )


def _node(command: DbtCommand, node: Any, started_at: datetime | None, *, copies: bool) -> Node:
    from sparkwap.lineage.model import Column, Node

    inputs = () if copies else command.manifest.inputs_of(node.unique_id)
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
