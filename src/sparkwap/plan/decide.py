"""Decides which nodes and tests a build would have to run. Pure.

A node may be left out only if it is proven that its code and all that it reads are as they were
when its present table was built. What is not known counts as changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from sparkwap.core.text import counted, some_of
from sparkwap.landing.entry import REPLAY

Action = Literal["build", "reuse"]


@dataclass(frozen=True, slots=True)
class Input:
    """A table or view that a node has read.

    Attributes:
        then: Its state when the node was built; None if it was not recorded.
        now: Its present state; None if it is not known.
    """

    name: str
    then: str | None
    now: str | None


@dataclass(frozen=True, slots=True)
class Known:
    """The last build of a node that is live, or the last result of a test.

    Attributes:
        code: The digests of the parts of its code then; None if the code is not stored.
        problem: Why it cannot be used again, although nothing has changed; None if it can.
        clean: Whether a test has passed without a failing row or a warning.
    """

    run_id: str
    at: datetime
    code: Mapping[str, str] | None
    inputs: tuple[Input, ...]
    problem: str | None = None
    clean: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a node or test.

    Attributes:
        parents: The ids of the nodes that it reads directly, ephemeral models looked through.
        code: The digests of the parts of its present code.
        uncertain: Why its result may change although its code and inputs do not; None if it
            cannot.
        known: None if it was never published, or if the test has no result of what is live.
        unread: The number of its unread landing files.
        seconds: What its build usually takes; None if it is not known.
    """

    node_id: str
    parents: tuple[str, ...]
    code: Mapping[str, str]
    uncertain: str | None = None
    known: Known | None = None
    unread: int = 0
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What happens to a node or test, and why.

    Attributes:
        action: ``build`` (a test: run it), or ``reuse``.
        reasons: Why it is built; empty for `reuse`.
        seconds: What it usually takes; None if it is not known.
        known: The build that is used again, or would be replaced.
    """

    node_id: str
    action: Action
    reasons: tuple[str, ...]
    seconds: float | None
    known: Known | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of all nodes, parents first, and of the tests."""

    nodes: tuple[Step, ...]
    tests: tuple[Step, ...]
    of_nodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def stale(self) -> tuple[str, ...]:
        """The ids to select: nodes to build, and tests to run of nodes that are not built."""
        built = {step.node_id for step in self.nodes if step.action == "build"}
        tests = [
            step.node_id
            for step in self.tests
            if step.action == "build" and built.isdisjoint(self.of_nodes.get(step.node_id, ()))
        ]
        return (*(step.node_id for step in self.nodes if step.action == "build"), *tests)


REBUILDS = ("full_refresh", "empty", "sample", "event_time_start", "event_time_end", "defer")
"""Flags of dbt with which a node has other rows than those of its last publish."""


def asked_again(variables: Mapping[str, Any], environment: Mapping[str, str]) -> str | None:
    """Return the variable that asks for a build of what has not changed; None if there is none.

    Args:
        variables: dbt's variables, also those in the scope of a package.
    """
    scopes = [variables, *(one for one in variables.values() if isinstance(one, Mapping))]
    names = ("scd2_restate", "landing_replay")
    found = next((name for name in names if any(one.get(name) for one in scopes)), None)
    return found or ("landing_replay" if environment.get(REPLAY) else None)


def decide(nodes: Sequence[Facts], tests: Iterable[Facts], name_of: Mapping[str, str]) -> Plan:
    """Return what a build would do.

    Args:
        nodes: The models, seeds and snapshots, parents before children.
        name_of: Names by id, for messages.
    """
    steps: dict[str, Step] = {}
    for facts in nodes:
        steps[facts.node_id] = _step(facts, steps, name_of, "it was never published")
    of_nodes = {facts.node_id: facts.parents for facts in tests}
    found = tuple(
        _step(facts, steps, name_of, "it has not audited what is live") for facts in tests
    )
    return Plan(tuple(steps.values()), found, of_nodes)


def _step(facts: Facts, before: Mapping[str, Step], name_of: Mapping[str, str], never: str) -> Step:
    reasons = list(_reasons(facts, never))
    rebuilt = [one for one in facts.parents if one in before and before[one].action == "build"]
    if rebuilt:
        names = some_of([name_of.get(one, one) for one in rebuilt])
        reasons.append(f"it reads {names}, which {'is' if len(rebuilt) == 1 else 'are'} built")
    action: Action = "build" if reasons else "reuse"
    return Step(facts.node_id, action, tuple(reasons), facts.seconds, facts.known)


def _reasons(facts: Facts, never: str) -> Iterable[str]:
    known = facts.known
    if facts.unread:
        yield counted(facts.unread, "unread landing file")
    if known is None:
        yield never
        return
    if known.problem:
        yield known.problem
    if known.code is None:
        yield "the code of its last build is not stored"
    elif known.code != facts.code:
        parts = sorted(
            part
            for part in known.code.keys() | facts.code.keys()
            if known.code.get(part) != facts.code.get(part)
        )
        yield f"its code has changed: {some_of(parts)}"
    if facts.uncertain:
        yield facts.uncertain
    unknown = [one.name for one in known.inputs if one.then is None or one.now is None]
    moved = [one.name for one in known.inputs if one.name not in unknown and one.then != one.now]
    if moved:
        yield f"{some_of(moved)} {'has' if len(moved) == 1 else 'have'} changed"
    if unknown:
        yield f"what it has read of {some_of(unknown)} is not known"
