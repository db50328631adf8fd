"""dbt's results, so that `dbt retry` repeats what the gate has not published.

dbt writes ``run_results.json`` when it ends. One that is killed leaves the record of the run
before, and `dbt retry` would repeat that one. So a run puts a record down when it opens, which says
of all its nodes that they have not run; dbt writes over it in the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbt.artifacts.schemas.batch_results import BatchResults
from dbt.artifacts.schemas.results import RunStatus, TestStatus
from dbt.artifacts.schemas.run import RunExecutionResult, RunResult
from dbt.flags import get_flags
from dbt.utils import args_to_dict

from sparkwap.core.redaction import redact
from sparkwap.runs.state import UNFINISHED

if TYPE_CHECKING:
    from sparkwap.runs.types import TestFact

PASSED = frozenset({"pass", "warn"})
_HEADINGS = re.compile(
    r"^(?:(?:Runtime|Database|Compilation) Error(?: in [\w ]+ \S+ \([^)]*\))? +"
    r"|An error occurred during execution of unit test '[^']*'. )+"
)
_MACROS = re.compile(r"\n\s*> (?:in|called by) ")
_SHORT = 300
_CUT = " ..."


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


def mark_rejected(
    results: Iterable[Any], rejected: Mapping[str, str], tests: Iterable[TestFact]
) -> int:
    """Make dbt's own record say what the gate said, so that ``dbt retry`` does the right thing.

    dbt retries what did not succeed. A rejected table was built without an error, so to dbt only
    its test failed, and a retry would audit the same rows again. Here the table becomes an error,
    and its other tests are skipped: they have to see the rows that a retry will build. They have
    no message, as dbt counts what was skipped with one among the errors, and elsewhere not.

    :param rejected: reason by node id.
    :param tests: all tests of the project.
    :return: how many tests had passed and are skipped now.
    """
    again = 0
    reads = {test.test_id: test.reads for test in tests}
    for result in results:
        node_id = result.node.unique_id
        if node_id in rejected and str(result.status) == "success":
            result.status = RunStatus.Error
            result.message = f"Not published: {rejected[node_id]}"
        elif reads.get(node_id, frozenset()) & rejected.keys() and str(result.status) in PASSED:
            result.adapter_response = {**result.adapter_response, "audited": str(result.status)}
            result.message = None
            result.status = TestStatus.Skipped
            again += 1
    return again


def audited_again(count: int) -> str | None:
    """A line on the tests that :func:`mark_rejected` has skipped; None if it has skipped none."""
    if not count:
        return None
    tests, them = ("test", "it") if count == 1 else ("tests", "them")
    return (
        f"{count:,} {tests} passed above on rows that are rejected now: dbt counts {them} as "
        "skipped, to be run again on the rows that a retry builds."
    )


def dbt_failed(results: Iterable[Any]) -> bool:
    """Whether dbt itself ends with a failure, so that the exit code needs no help."""
    return any(
        str(r.status) in ("error", "fail", "runtime error", "partial success") for r in results
    )


def one_line(message: str | None) -> str | None:
    """An error of dbt's, short, without the headings and macros that say where it was."""
    if message is None:
        return None
    text = _MACROS.split(message, maxsplit=1)[0]
    short = redact(_HEADINGS.sub("", " ".join(text.split())))
    return short if len(short) <= _SHORT else short[: _SHORT - len(_CUT)] + _CUT


def deferred(manifest: Any, args: Any, selected: Collection[str]) -> frozenset[str]:
    """The nodes for which dbt reads the tables of another state: `--defer --favor-state`.

    :param manifest: dbt's own.
    :param args: those of the command line.
    :param selected: ids of the nodes that this invocation runs.
    """
    if not (getattr(args, "defer", False) and getattr(args, "favor_state", False)):
        return frozenset()
    return frozenset(
        key
        for key, node in manifest.nodes.items()
        if key not in selected and _is_elsewhere(node, getattr(node, "defer_relation", None))
    )


def _is_elsewhere(node: Any, other: Any) -> bool:
    # The same name is the same table: it is read on the branch.
    return other is not None and (other.schema, other.alias) != (node.schema, node.alias)
