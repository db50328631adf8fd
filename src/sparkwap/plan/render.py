"""A plan as text, JSON and Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from sparkwap.core import next_command
from sparkwap.core.names import short_run_id
from sparkwap.core.text import counted
from sparkwap.ledger.code import name_of
from sparkwap.plan.decide import Plan, Step


def text(plan: Plan) -> list[str]:
    """Return the lines for the terminal."""
    steps = list(_shown(plan))
    wide = max((len(name_of(step.node_id)) for step in steps), default=0)
    lines = [_head(plan)]
    for step in steps:
        cost = f"  {_cost([step])}" if step.action == "build" else ""
        lines.append(
            f"  {_word(step):<6} {name_of(step.node_id):<{wide}}  {_why(step)}{cost}".rstrip()
        )
    left = len(plan.tests) - sum(step.node_id.startswith("test.") for step in steps)
    if left:
        others = counted(left, "other test")
        lines.append(f"  {others}: each runs if a node that it reads is built, else it is reused")
    if plan.stale:
        lines.append(f"Build these alone: {next_command.sparkwap('build --stale')}")
    return lines


def markdown(plan: Plan) -> list[str]:
    """Return the lines of a table for a comment on a pull request."""
    rows = [
        f"| {_word(step)} | `{name_of(step.node_id)}` | {_why(step)} | {_cost([step])} |"
        for step in _shown(plan)
    ]
    head = [_head(plan), "", "| | node | why | usual time |", "|---|---|---|---|"]
    return [*head, *rows]


@dataclass(frozen=True)
class PlannedStep:
    """What a build does with a node or test; ``last_run`` built or audited it last."""

    unique_id: str
    action: str
    reasons: tuple[str, ...]
    usual_seconds: float | None
    last_run: str | None
    last_at: datetime | None


@dataclass(frozen=True)
class PlanResult:
    """The plan of a build; ``stale`` are the nodes and tests that ``--stale`` selects."""

    stale: tuple[str, ...]
    nodes: tuple[PlannedStep, ...]
    tests: tuple[PlannedStep, ...]


def document(plan: Plan) -> PlanResult:
    """Return the plan for programs: each step with its action, reasons and usual seconds."""

    def planned(step: Step) -> PlannedStep:
        last = (step.known.run_id, step.known.at) if step.known else (None, None)
        return PlannedStep(step.node_id, step.action, step.reasons, step.seconds, *last)

    return PlanResult(plan.stale, tuple(map(planned, plan.nodes)), tuple(map(planned, plan.tests)))


def _shown(plan: Plan) -> Iterator[Step]:
    """Yield all nodes, and the tests to run of nodes that are not built."""
    stale = set(plan.stale)
    yield from plan.nodes
    yield from (step for step in plan.tests if step.node_id in stale)


def _head(plan: Plan) -> str:
    stale = set(plan.stale)
    built = [step for step in plan.nodes if step.node_id in stale]
    if not stale:
        nodes = counted(len(plan.nodes), "node")
        return f"Nothing to build: {nodes} unchanged since the last publish."
    alone = [step for step in plan.tests if step.node_id in stale]
    also = f" and {counted(len(alone), 'test')} of what is live" if alone else ""
    cost, whole = _cost([*built, *alone]), _cost(plan.nodes)
    usual = f": {cost} of {whole}, without their tests" if cost and whole else ""
    return f"To build: {len(built):,} of {counted(len(plan.nodes), 'node')}{also}{usual}"


def _word(step: Step) -> str:
    if step.action == "reuse":
        return "reuse"
    return "test" if step.node_id.startswith("test.") else "build"


def _why(step: Step) -> str:
    if step.action == "reuse" and step.known is not None:
        at = f"{step.known.at:%Y-%m-%d %H:%M} UTC"
        return f"as published at {at} (run {short_run_id(step.known.run_id)})"
    return "; ".join(step.reasons)


def _cost(steps: Iterable[Step]) -> str:
    known = [step.seconds for step in steps if step.seconds is not None]
    return f"about {sum(known):,.1f} s" if known else ""
