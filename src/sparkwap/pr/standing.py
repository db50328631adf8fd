"""The state of the branch of a pull request, from the rows of the ledger."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sparkwap.catalog.model import Difference
from sparkwap.gate.verdicts import PUBLISHING_OFF
from sparkwap.ledger.records import latest, time_of, token_of
from sparkwap.runs.rebase import FOLLOWED

Row = dict[str, Any]
Outcome = Literal[
    "nothing", "unfinished", "ready", "held", "rejected", "moved", "stale", "published", "undone",
    "discarded", "gone",
]  # fmt: skip
"""``nothing``: never audited, or no node differed; ``unfinished``: the audit died or is running;
``ready``: all tables passed and wait for the publish; ``stale``: they passed with other code than
the present; ``held``: a test did not run, or a rule of the gate holds a table; ``rejected``: a test
or a build failed; ``moved``: it was ready, and main moved before its publish; ``undone``: its
publish was rolled back, also in part; ``gone``: built, but neither on the branch nor published."""


@dataclass(frozen=True, slots=True)
class BranchState:
    """The state of a branch in the ledger.

    Attributes:
        nodes: The latest row of each model, seed and snapshot that waits on the branch, or was
            published from it, by name.
        tests: The latest row of each test that has run since the first of these nodes was built.
        makers: Node id -> the run that built the present candidate.
        manifests: Run id -> hash of the run's code.
        published_by: The publish of the branch, also an undone one; None if it was not published.
    """

    branch: str
    outcome: Outcome
    nodes: tuple[Row, ...] = ()
    tests: tuple[Row, ...] = ()
    makers: Mapping[str, str] = field(default_factory=dict)
    manifests: Mapping[str, str | None] = field(default_factory=dict)
    published_by: str | None = None


def standing(
    branch: str,
    *,
    is_open: bool,
    nodes: Sequence[Row],
    tests: Sequence[Row],
    runs: Sequence[Row],
    undone: Collection[str] = (),
) -> BranchState:
    """Return the state of a branch.

    Args:
        is_open: Whether it has a table or view.
        nodes: Its rows in the ledger's table ``nodes`` since it was last discarded.
        tests: Its rows in the table ``tests`` since then.
        runs: Its rows in the table ``runs``, newest first.
        undone: The publishes, of any branch, that were rolled back, also in part.
    """
    last = latest(nodes, "node_id", "built_at")
    gated = [row for row in last if row["resource_type"] != "failures"]
    waiting = [row for row in gated if row["verdict"] != "published"]
    # A branch that was opened again under the same name does not have the published tables.
    shown = waiting if is_open else gated
    outcome = _outcome(is_open, gated, waiting, runs)
    by = {row["run_id"]: row["publish_id"] for row in runs}
    published_by = next((row["publish_id"] for row in runs if row["publish_id"]), None)
    made_by = {by.get(row["run_id"]) for row in gated} or {published_by}
    if outcome == "published" and not made_by.isdisjoint(undone):
        outcome = "undone"
    makers = {row["node_id"]: _maker(row, nodes) for row in shown}
    begun = [time_of(row["started_at"]) for row in runs if row["run_id"] in makers.values()]
    since = min(begun, default=time_of(None))
    before = {row["run_id"] for row in runs if time_of(row["started_at"]) < since}
    return BranchState(
        branch,
        outcome,
        tuple(sorted(shown, key=lambda row: (row["schema"], row["name"]))),
        latest([t for t in tests if t["run_id"] not in before], "test_id", "executed_at"),
        makers,
        {row["run_id"]: row.get("manifest_hash") for row in reversed(runs)},
        published_by if outcome in ("published", "undone") else None,
    )


def _outcome(
    is_open: bool, gated: Sequence[Row], waiting: Sequence[Row], runs: Sequence[Row]
) -> Outcome:
    # What is left after a publish, such as stored failures, may have been discarded later.
    last = next((row for row in runs if row["outcome"] != "discarded"), None)
    published = last is not None and last["publish_id"] is not None
    if not is_open:
        if waiting:
            return "gone"
        if gated or published:
            return "published"
        return "discarded" if any(row["outcome"] == "discarded" for row in runs) else "nothing"
    if not waiting:
        return "published" if gated and published else "unfinished"
    rejected = [row for row in waiting if row["verdict"] == "rejected"]
    if rejected:
        return "moved" if _moved(rejected, runs) else "rejected"
    clean = all(row["reason"] in (None, PUBLISHING_OFF) for row in waiting)
    return "ready" if clean else "held"


def _moved(rejected: Sequence[Row], runs: Sequence[Row]) -> bool:
    """Return whether a refused publish rejected all these tables because main had moved."""
    messages = {row["run_id"]: row["message"] for row in runs if row["outcome"] == "rejected"}
    if any(row["reason"] != messages.get(row["run_id"], "") for row in rejected):
        return False
    kinds = {kind for row in rejected for kind in (row.get("refusal") or "").split(",") if kind}
    followed: frozenset[Difference] = FOLLOWED
    return bool(kinds) and kinds <= set(followed)


def _maker(row: Row, nodes: Sequence[Row]) -> str:
    """Return the run that built a candidate; later runs on the branch also write rows of it."""
    same = [r for r in nodes if r["node_id"] == row["node_id"] and token_of(r) == token_of(row)]
    return str(min(same, key=lambda r: time_of(r["built_at"]))["run_id"])
