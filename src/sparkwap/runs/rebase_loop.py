"""The rebase of a run after main has moved: builds again, and takes over the result.

The build is another invocation of dbt on the same audit branch. From the branch's history in the
ledger, it decides on the whole branch and publishes it. Its result is read from the ledger.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, cast

from sparkwap.catalog import Difference, LedgerRows
from sparkwap.core.names import short_run_id
from sparkwap.core.retry import wait_seconds
from sparkwap.core.text import counted
from sparkwap.gate.verdicts import Decision, RunOutcome, Verdict
from sparkwap.runs import rebase
from sparkwap.runs.branch_nodes import node_of
from sparkwap.runs.gathering import result_of
from sparkwap.runs.rebase import Rebase
from sparkwap.runs.rows import run_row
from sparkwap.runs.run import Run
from sparkwap.runs.types import RunEnd

LONGEST_WAIT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of the dbt process that built again.

    Attributes:
        run_id: The run of the process; None if it has not opened a run.
        words: The last message of the process, in one line.
    """

    run_id: str | None
    words: str


Build = Callable[[tuple[str, ...], float | None], Ended]
"""Builds the nodes with these ids, with all their tests, on the same branch; the second argument is
a time limit in seconds, or None."""


def follow(
    run: Run,
    closing: RunEnd,
    build: Build,
    tell: Callable[[str], None],
    *,
    sleep: Callable[[float], None] = time.sleep,
    draw: Callable[[], float] = random.random,
) -> RunEnd:
    """Build again until the publish succeeds, as often as the settings allow.

    Args:
        closing: The end of the run, with a `RunEnd.rebase`.
        draw: Returns a random number from 0 to 1.

    Returns:
        The final end of the run, which the ledger also has.
    """
    tries = run.settings.rebuilds
    taken = (datetime.now(UTC) - run.invocation.started_at).total_seconds()
    limit = rebase.limit_seconds(run.settings.rebuild_timeout, taken)
    while closing.rebase is not None:
        wait = wait_seconds(
            closing.tries + 1, draw(), run.settings.rebuild_wait, LONGEST_WAIT_SECONDS
        )
        tell(_announced(closing, closing.rebase, wait, tries))
        sleep(wait)
        ended = build(closing.rebase.nodes, limit)
        tried = replace(
            closing,
            tries=closing.tries + 1,
            waited=closing.waited + wait,
            rebuilt=_names(closing, closing.rebase.nodes),
            rebuilt_by=ended.run_id,
        )
        closing = _taken_over(run, tried, ended, tell)
    outcome = "rejected" if closing.refused is not None else closing.decision.outcome
    row = run_row(
        run.invocation,
        outcome,
        closing.code_hash,
        message=closing.refused,
        publish_id=closing.publish_id,
        tries=closing.tries,
        waited_seconds=round(closing.waited, 3),
    )
    run.lake.ledger.append(LedgerRows("runs", [row]))
    return closing


def _announced(closing: RunEnd, plan: Rebase, wait: float, tries: int) -> str:
    moved, nodes = _names(closing, plan.moved), _names(closing, plan.nodes)
    return (
        f"sparkwap: main moved under {', '.join(moved[:3])}{' ...' if len(moved) > 3 else ''} "
        f"before the publish. Building {counted(len(nodes), 'node')} again on "
        f"main as it is now, in {wait:.1f} s (try {closing.tries + 1} of {tries})"
    )


def _names(closing: RunEnd, node_ids: Sequence[str]) -> tuple[str, ...]:
    names = {node.node_id: node.name for node in closing.nodes}
    return tuple(names.get(node_id, node_id) for node_id in node_ids)


def _rows_of(run: Run, ended: Ended) -> list[dict[str, Any]]:
    return run.lake.ledger.of_run("runs", ended.run_id) if ended.run_id else []


def _taken_over(run: Run, before: RunEnd, ended: Ended, tell: Callable[[str], None]) -> RunEnd:
    ledger = run.lake.ledger
    if not _rows_of(run, ended):
        # It may have died during a sequential publish.
        for line in run.lake.publishing.recover():
            tell(line)
    runs = _rows_of(run, ended)
    if not runs:
        why = f"the build on the present main did not end properly: {ended.words}"
        return replace(before, rebase=None, gave_up=why)
    row = runs[-1]
    rows = ledger.of_run("nodes", str(ended.run_id))
    refused = row["message"]
    nodes = tuple(map(node_of, rows))
    verdicts = {one["node_id"]: _verdict(one, refused, before) for one in rows}
    published = tuple(n for n, verdict in verdicts.items() if verdict.outcome == "published")
    decision = Decision(
        verdicts,
        published,
        cast(RunOutcome, row["outcome"]),
        failed=any(verdict.outcome == "rejected" for verdict in verdicts.values()),
    )
    refusals = {one["node_id"]: _kinds(one) for one in rows if one.get("refusal")}
    plan = rebase.decide(
        refusals,
        nodes,
        # This run can build all of them; otherwise there had been no first try.
        verdicts.keys() if run.invocation.repeats else verdicts.keys() - before.earlier,
        tried=before.tries,
        tries=run.settings.rebuilds,
    )
    return replace(
        before,
        decision=decision,
        nodes=nodes,
        published=0 if refused is not None else len(published),
        refused=refused,
        seconds=0.0,
        refusals=refusals,
        rebase=plan if isinstance(plan, Rebase) else None,
        gave_up=plan.reason if isinstance(plan, rebase.GiveUp) else "",
        publish_id=row["publish_id"],
        results=(*map(result_of, ledger.of_run("tests", str(ended.run_id))), *before.results),
    )


def _verdict(row: Mapping[str, Any], refused: str | None, before: RunEnd) -> Verdict:
    """Return the verdict in the ledger, with the number of tests from the run's first verdict."""
    known = before.decision.verdicts.get(row["node_id"], Verdict("held"))
    passed = row["verdict"] == "published" or (refused is not None and row["reason"] == refused)
    if passed:
        return replace(
            known, outcome="published", reasons=(), passed=known.expected, expected=known.expected
        )
    return Verdict(row["verdict"], tuple(r for r in (row["reason"],) if r), (), 0, known.expected)


def _kinds(row: Mapping[str, Any]) -> tuple[Difference, ...]:
    return tuple(cast(Difference, kind) for kind in row["refusal"].split(","))


def format_rebase(closing: RunEnd) -> list[str]:
    """Return the lines of the summary about the rebase."""
    lines = []
    if closing.tries:
        by = f" by run {short_run_id(closing.rebuilt_by)}" if closing.rebuilt_by else ""
        lines.append(
            f"main moved: built {counted(len(closing.rebuilt), 'node')} again on main as it was "
            f"then{by}; {closing.tries} {'tries' if closing.tries != 1 else 'try'}, "
            f"waited {closing.waited:.1f} s"
        )
    if closing.gave_up:
        lines.append(f"not built again: {closing.gave_up}")
    return lines
