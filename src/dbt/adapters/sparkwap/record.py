"""dbt's record of a run that has not come to its end.

dbt writes ``run_results.json`` when it ends. One that is killed leaves the record of the run
before, and `dbt retry` would repeat that one. So a run puts a record down when it opens, which says
of all its nodes that they have not run; dbt writes over it in the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dbt.artifacts.schemas.batch_results import BatchResults
from dbt.artifacts.schemas.results import RunStatus
from dbt.artifacts.schemas.run import RunExecutionResult, RunResult
from dbt.flags import get_flags
from dbt.utils import args_to_dict

from sparkwap.runs.state import UNFINISHED


def to_retry(path: Path) -> list[str]:
    """Ids of the nodes of a record that `dbt retry` runs, by dbt's own rule.

    Where others tell what they have selected (``selected_resources``), a retry tells nothing.

    :param path: the ``run_results.json`` that is retried.
    """
    from dbt.task.retry import RETRYABLE_STATUSES  # it imports all of dbt's commands

    return [
        one["unique_id"]
        for one in json.loads(path.read_text())["results"]
        if one["status"] in RETRYABLE_STATUSES and not one["unique_id"].startswith("operation.")
    ]


def all_batches(path: Path, node_id: str) -> BatchResults | None:
    """All batches of a microbatch model in a record, as batches that have failed.

    Counted from today, others might be run than those that the record is about.

    :param path: the ``run_results.json`` that is retried.
    :return: None where the record has no batches of it.
    """
    found = [
        BatchResults.from_dict(one["batch_results"])
        for one in json.loads(path.read_text())["results"]
        if one["unique_id"] == node_id and one.get("batch_results")
    ]
    batches = sorted({batch for one in found for batch in [*one.successful, *one.failed]})
    return BatchResults(failed=batches) if batches else None


def write_unfinished(path: Path, manifest: Any, selected: Iterable[str]) -> None:
    """Record of all nodes that this invocation has selected that they have not run.

    :param path: dbt's ``run_results.json``.
    :param manifest: dbt's manifest.
    :param selected: ids of the nodes.
    """
    flags = get_flags()
    if not getattr(flags, "WRITE_JSON", True):
        return
    nodes = {**manifest.nodes, **manifest.unit_tests}
    results = [
        RunResult(
            status=RunStatus.Skipped,
            timing=[],
            thread_id="main",
            execution_time=0.0,
            adapter_response={},
            message=UNFINISHED,
            failures=None,
            node=nodes[node_id],
        )
        for node_id in sorted(selected)
        if node_id in nodes
    ]
    if results:
        record = RunExecutionResult(results=results, elapsed_time=0.0, args=args_to_dict(flags))
        path.parent.mkdir(parents=True, exist_ok=True)
        record.write(str(path))
