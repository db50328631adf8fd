"""Changes dbt's results so that `dbt retry` repeats the nodes that the gate has not published.

dbt writes ``run_results.json`` at its end. If it is killed, the file of the previous run stays, and
`dbt retry` would repeat that run. So a run writes a file at its start in which all its nodes are
skipped; dbt overwrites it at the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbt.artifacts.schemas.batch_results import BatchResults
from dbt.artifacts.schemas.results import RunStatus, TestStatus
from dbt.artifacts.schemas.run import RunExecutionResult, RunResult
from dbt.flags import get_flags
from dbt.utils import args_to_dict

from sparkwap.core.redaction import redact
from sparkwap.core.sqltext import quote
from sparkwap.runs.state import UNFINISHED

if TYPE_CHECKING:
    from sparkwap.catalog import Identifier
    from sparkwap.runs.types import TestFact

PASSED = frozenset({"pass", "warn"})
_HEADINGS = re.compile(
    r"^(?:(?:Runtime|Database|Compilation) Error(?: in [\w ]+ \S+ \([^)]*\))? +"
    r"|An error occurred during execution of unit test '[^']*'. )+"
)
_MACROS = re.compile(r"\n\s*> (?:in|called by) ")
# The columns that differ come after these parts of dbt's messages.
_ADVICE = re.compile(
    r"Please ensure the name, data_type, and number of columns .*?(?=\| column_name)"
    r"|They can be reconciled in several ways:.*?Additional troubleshooting context:",
    re.DOTALL,
)
_RULE = re.compile(r"^ *\|[ |-]+\| *\n", re.MULTILINE)
_SHORT = 300
_CUT = " ..."


def to_retry(path: Path) -> list[str]:
    """Return the ids of the nodes that `dbt retry` runs, by dbt's own rule.

    A retry does not set ``selected_resources``, as other commands do.
    """
    # Imported late, because it imports all of dbt's commands.
    from dbt.task.retry import RETRYABLE_STATUSES

    return [
        result["unique_id"]
        for result in json.loads(path.read_text())["results"]
        if result["status"] in RETRYABLE_STATUSES
        and not result["unique_id"].startswith("operation.")
    ]


def all_batches(path: Path, node_id: str) -> BatchResults | None:
    """Return all batches of a microbatch model in retried results, as failed ones; None if none.

    Without them, dbt would count the batches from today, which may be other ones.
    """
    found = [
        BatchResults.from_dict(result["batch_results"])
        for result in json.loads(path.read_text())["results"]
        if result["unique_id"] == node_id and result.get("batch_results")
    ]
    batches = sorted({b for results in found for b in [*results.successful, *results.failed]})
    return BatchResults(failed=batches) if batches else None


def write_unfinished(path: Path, manifest: Any, selected: Iterable[str]) -> None:
    """Write results in which all selected nodes of this invocation are skipped."""
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
    """Write the gate's verdicts into dbt's results, so that ``dbt retry`` builds rejected tables.

    dbt retries the nodes that failed. dbt has built a rejected table without an error, so only its
    test failed, and a retry would audit the same rows again. Here the table becomes an error, and
    its other tests become skipped, because they must audit the rows that a retry builds. These
    tests get no message, because dbt counts skipped results that have a message as errors in some
    places only.

    Args:
        results: dbt's results, which are changed.
        rejected: Reason by node id.

    Returns:
        The number of passed tests that are now skipped.
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


def locate_failures(
    results: Iterable[Any], side_schema: Callable[[Identifier], str | None], kept: Collection[str]
) -> None:
    """Let dbt name stored failures where they are, in a side schema, if they were not published."""
    for node in (result.node for result in results):
        if getattr(node, "should_store_failures", False) and node.unique_id not in kept:
            side = side_schema((node.schema, node.alias))
            if side is not None:
                node.relation_name = f"{quote(side)}.{quote(node.alias)}"


def audited_again(count: int) -> str | None:
    """Return a line about the tests that :func:`mark_rejected` has skipped; None if none."""
    if not count:
        return None
    tests, them = ("test", "it") if count == 1 else ("tests", "them")
    return (
        f"{count:,} {tests} passed above on rows that are rejected now: dbt counts {them} as "
        "skipped, to be run again on the rows that a retry builds."
    )


def failed(results: Iterable[Any]) -> list[str]:
    """Return the names of nodes and tests for which dbt itself ends with a nonzero exit code."""
    statuses = ("error", "fail", "runtime error", "partial success")
    return [str(r.node.name) for r in results if str(r.status) in statuses]


def one_line(message: str | None) -> str | None:
    """Return dbt's error in one short line, without dbt's headings, advice and list of macros."""
    if message is None:
        return None
    text = _RULE.sub("", _ADVICE.sub("", _MACROS.split(message, maxsplit=1)[0]))
    short = redact(_HEADINGS.sub("", " ".join(text.split())))
    return short if len(short) <= _SHORT else short[: _SHORT - len(_CUT)] + _CUT


def deferred(manifest: Any, args: Any, selected: Collection[str]) -> frozenset[str]:
    """Return the nodes whose tables dbt reads from another state: `--defer --favor-state`."""
    if not (getattr(args, "defer", False) and getattr(args, "favor_state", False)):
        return frozenset()
    return frozenset(
        key
        for key, node in manifest.nodes.items()
        if key not in selected and _is_elsewhere(node, getattr(node, "defer_relation", None))
    )


def _is_elsewhere(node: Any, other: Any) -> bool:
    # A table of the same name is the same table, and is read on the branch.
    return other is not None and (other.schema, other.alias) != (node.schema, node.alias)
