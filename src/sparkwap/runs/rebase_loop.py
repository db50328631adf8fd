"""A run that goes on after main moved: it builds again, and takes over how that ended.

The build is another invocation of dbt on the same audit branch. It decides over the whole branch
and publishes it, as the ledger has the branch's history; what came of it is read from there.
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
from sparkwap.gate.facts import BuiltNode
from sparkwap.gate.verdicts import Decision, RunOutcome, Verdict
from sparkwap.runs import rebase
from sparkwap.runs.rebase import Rebase
from sparkwap.runs.rows import run_row
from sparkwap.runs.run import Run
from sparkwap.runs.types import RunEnd


@dataclass(frozen=True, slots=True)
class Ended:
    """How the dbt that built again came to its end.

    Attributes:
        run_id: its run; None if it did not get as far.
        words: what it said last, one line.
    """

    run_id: str | None
    words: str


Build = Callable[[tuple[str, ...], float | None], Ended]
"""Builds the nodes with these ids, with all their tests, on the same branch; it is stopped when it
has taken so many seconds, if a number is given."""


def follow(
    run: Run,
    closing: RunEnd,
    build: Build,
    tell: Callable[[str], None],
    *,
    sleep: Callable[[float], None] = time.sleep,
    draw: Callable[[], float] = random.random,
) -> RunEnd:
    """Build again, as often as the settings allow, until nothing is refused any more.

    :param closing: how the run ended at first, with :attr:`~sparkwap.runs.types.RunEnd.rebase`.
    :param tell: prints a line while the user waits.
    :return: how it ended at last; the ledger has it too.
    """
    tries = run.settings.rebuilds
    taken = (datetime.now(UTC) - run.invocation.started_at).total_seconds()
    limit = rebase.limit_seconds(run.settings.rebuild_timeout, taken)
    publish_id = None
    while closing.rebase is not None:
        wait = rebase.wait_seconds(closing.tries, run.settings.rebuild_wait, draw())
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
        closing, publish_id = _taken_over(run, tried, ended, tell)
    outcome = "rejected" if closing.refused is not None else closing.decision.outcome
    row = run_row(
        run.invocation,
        outcome,
        closing.code_hash,
        message=closing.refused,
        publish_id=publish_id,
        tries=closing.tries,
        waited_seconds=round(closing.waited, 3),
    )
    run.lake.ledger.append(LedgerRows("runs", [row]))
    return closing


def _announced(closing: RunEnd, plan: Rebase, wait: float, tries: int) -> str:
    moved, nodes = _names(closing, plan.moved), _names(closing, plan.nodes)
    return (
        f"sparkwap: main moved under {', '.join(moved[:3])}{' ...' if len(moved) > 3 else ''} "
        f"before the publish. Building {len(nodes)} node{'s' if len(nodes) != 1 else ''} again on "
        f"main as it is now, in {wait:.1f} s (try {closing.tries + 1} of {tries})"
    )


def _names(closing: RunEnd, node_ids: Sequence[str]) -> tuple[str, ...]:
    names = {node.node_id: node.name for node in closing.nodes}
    return tuple(names.get(node_id, node_id) for node_id in node_ids)


def _rows_of(run: Run, ended: Ended) -> list[dict[str, Any]]:
    return run.lake.ledger.of_run("runs", ended.run_id) if ended.run_id else []


def _taken_over(
    run: Run, before: RunEnd, ended: Ended, tell: Callable[[str], None]
) -> tuple[RunEnd, str | None]:
    """The closing of the build that ended, and the id of its publish."""
    ledger = run.lake.ledger
    if not _rows_of(run, ended):
        # It may have died in the middle of a journalled publish.
        for line in run.lake.publishing.recover():
            tell(line)
    runs = _rows_of(run, ended)
    if not runs:
        why = f"the build on main as it is now did not come to its end: {ended.words}"
        return replace(before, rebase=None, gave_up=why), None
    row = runs[-1]
    rows = ledger.of_run("nodes", str(ended.run_id))
    refused = row["message"]
    nodes = tuple(_node(one) for one in rows)
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
        # It was built by this run, or would have stopped the first try.
        verdicts.keys() if run.invocation.repeats else verdicts.keys() - before.earlier,
        tried=before.tries,
        tries=run.settings.rebuilds,
    )
    closing = replace(
        before,
        decision=decision,
        nodes=nodes,
        published=0 if refused is not None else len(published),
        refused=refused,
        seconds=0.0,
        refusals=refusals,
        rebase=plan if isinstance(plan, Rebase) else None,
        gave_up=plan.reason if isinstance(plan, rebase.GiveUp) else "",
    )
    return closing, row["publish_id"]


def _node(row: Mapping[str, Any]) -> BuiltNode:
    snapshot = row["candidate_snapshot"]
    return BuiltNode(
        row["node_id"],
        f"{row['schema']}.{row['name']}",
        row["resource_type"],
        row["status"],
        str(snapshot) if snapshot is not None else row["candidate_metadata"],
        row["problem"],
        frozenset(row["parents"] or ()),
    )


def _verdict(row: Mapping[str, Any], refused: str | None, before: RunEnd) -> Verdict:
    """The verdict in the ledger; how many tests there are, the run's own has told before."""
    known = before.decision.verdicts.get(row["node_id"], Verdict("held"))
    passed = row["verdict"] == "published" or (refused is not None and row["reason"] == refused)
    if passed:
        return replace(
            known, outcome="published", reasons=(), passed=known.expected, expected=known.expected
        )
    return Verdict(row["verdict"], tuple(r for r in (row["reason"],) if r), (), 0, known.expected)


def _kinds(row: Mapping[str, Any]) -> tuple[Difference, ...]:
    return tuple(cast(Difference, kind) for kind in row["refusal"].split(","))


def told(closing: RunEnd) -> list[str]:
    """What the summary says of it, line by line."""
    lines = []
    if closing.tries:
        count = len(closing.rebuilt)
        by = f" by run {short_run_id(closing.rebuilt_by)}" if closing.rebuilt_by else ""
        lines.append(
            f"main moved: built {count} node{'s' if count != 1 else ''} again on main as it was "
            f"then{by}; {closing.tries} {'tries' if closing.tries != 1 else 'try'}, "
            f"waited {closing.waited:.1f} s"
        )
    if closing.gave_up:
        lines.append(f"not built again: {closing.gave_up}")
    return lines
