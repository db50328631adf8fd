"""The next commands after a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sparkwap.core import next_command
from sparkwap.gate.facts import LEFTOVER, LOAD, MOVED, NO_NODE, NOT_RUN, PARTIAL, BuiltNode
from sparkwap.gate.verdicts import (
    CHANGED_RULE,
    HELD_WARNING,
    PUBLISHING_OFF,
    UNTESTED,
    Outcome,
    Verdict,
    nearest_upstream,
)

if TYPE_CHECKING:
    from sparkwap.runs.types import RunEnd

_UNBUILT = (LOAD, MOVED)
_ACCEPTS_SHOWN = 3


class NodeOutcome(NamedTuple):
    """A node, its outcome and its verdict; a refused publish leaves it on the branch."""

    outcome: Outcome
    node: BuiltNode
    verdict: Verdict


def node_outcomes(closing: RunEnd) -> list[NodeOutcome]:
    """Return the outcome of each node after the publish, or after the catalog refused it."""
    return [_node_outcome(node, closing) for node in closing.nodes]


def _node_outcome(node: BuiltNode, closing: RunEnd) -> NodeOutcome:
    verdict = closing.decision.verdicts[node.node_id]
    if verdict.outcome == "published" and closing.refused is not None:
        verdict = Verdict("held", ("the catalog refused the publish",))
    return NodeOutcome(verdict.outcome, node, verdict)


def next_steps(closing: RunEnd, branch: str) -> list[tuple[str, str]]:
    """Return the next steps after a run: the purpose of each, and its command."""
    kept = [row for row in node_outcomes(closing) if row.outcome != "published"]
    if not kept:
        return []
    if any(NO_NODE in (row.node.problem or "") for row in kept):
        # No command builds this table again.
        return [("discard it", discard_command(branch))]
    ways: list[tuple[str, str]] = []
    stopped = closing.refused is not None
    # dbt cannot write these rows again.
    loads = [
        row.node for row in kept if row.node.kind == LOAD and (stopped or row.outcome == "rejected")
    ]
    rejected = [
        row
        for row in kept
        if row.outcome == "rejected" and row.node.kind not in _UNBUILT and row.node.known
    ]
    looked_at = next((node for _, node, _ in rejected if node.candidate), None)
    if looked_at is not None:
        query = f"select * from {{{{ {_ref(looked_at.node_id)} }}}}"
        look = f'show --inline "{query}"'
        ways.append(("look at it as built", next_command.dbt(look, branch=branch)))
    foreign = [row for row in kept if not row.node.known and row.node not in loads]
    if foreign:
        # Only the node's own project has its code and its tests.
        rebuilt = any(row.outcome == "rejected" for row in foreign)
        command = next_command.dbt("build" if rebuilt else "test", branch=branch)
        ways.append(("in the project that has it", command))
    if rejected:
        # A retry repeats this invocation. If it only tested, it would read the same rows again.
        again = any(node.node_id in closing.earlier for _, node, _ in rejected)
        if not again:
            ways.append(("after a fix of it", "dbt retry"))
        failed = list(dict.fromkeys(name for *_, verdict in rejected for name in verdict.failed))
        for number, name in enumerate(failed[:_ACCEPTS_SHOWN], 1):
            what = f"test {number} of {len(failed)}" if len(failed) > 1 else "it"
            ways.append((f"accept {what} as it is", _accept(branch, name)))
        fixed = "after a fix" if again else "after any other fix"
        ways.append((fixed, _build_again([node for _, node, _ in rejected], closing, branch)))
    elif any(row.node.kind == MOVED for row in kept):
        ways.append(("after a fix of it", next_command.dbt("build", branch=branch)))
    elif not stopped and not loads:
        ways += _ways_from_held(kept, branch)
    elif stopped:
        # `main` has moved since the refused candidates were built.
        refused = [node for _, node, _ in kept if node.kind not in ("failures", LOAD)]
        if any(node.node_id in closing.continued for node in refused):
            # Any other command would build today's batches.
            ways.append(("build all its batches on main as it is", "dbt retry"))
        elif refused:
            ways.append(("build on main as it is", _build(refused, branch)))
    return [*ways, ("discard it", discard_command(branch))]


def discard_command(branch: str) -> str:
    """Return the command that discards an audit branch."""
    return next_command.operation("wap_discard", branch)


def _accept(branch: str, test: str) -> str:
    return next_command.operation("wap_accept", branch, test=test, reason="<why>")


def _build_again(rejected: Sequence[BuiltNode], closing: RunEnd, branch: str) -> str:
    """Return the command that builds rejected nodes and all that they are built from.

    It builds the whole project if other nodes on the branch read what it builds: they would be
    held, because their rows are of the former builds.
    """
    nodes = {node.node_id: node for node in closing.nodes}
    above, waiting = set[str](), [node.node_id for node in rejected]
    while waiting:
        new = (nodes[waiting.pop()].parents & nodes.keys()) - above
        above |= new
        waiting += new
    named = {node.node_id for node in rejected}
    below = nearest_upstream(nodes, named).keys() | named
    others = nearest_upstream(nodes, above).keys() - above - below
    if any(nodes[one].kind != "failures" for one in others):
        return _build((), branch)
    return _build(rejected, branch, upstream=True)


def _build(nodes: Sequence[BuiltNode], branch: str, *, upstream: bool = False) -> str:
    # A leftover has only the name of its table, which dbt cannot select.
    named = [] if any(node.kind == LEFTOVER for node in nodes) else [n.node_id for n in nodes]
    return next_command.build(named, branch, upstream=upstream)


def _ways_from_held(kept: Sequence[NodeOutcome], branch: str) -> Iterable[tuple[str, str]]:
    test = next_command.dbt("test", branch=branch)
    reasons = {reason for _, _, verdict in kept for reason in verdict.reasons}
    missing = any(verdict.passed < verdict.expected for _, _, verdict in kept)
    if reasons & set(PARTIAL.values()):
        nodes = [node for _, node, _ in kept if node.status in PARTIAL]
        yield "build it whole", _build(nodes, branch)
    elif old := [node for _, node, _ in kept if node.stale or node.outdated]:
        yield "build it again", _build(old, branch)
    elif any(reason.endswith(NOT_RUN["disabled"]) for reason in reasons):
        # If there is no other test, `dbt test` does nothing and runs no hooks.
        publish = next_command.operation(
            "wap_publish", branch, settings={"disabled_tests": "publish"}
        )
        yield "enable the test, and run it", test
        yield "publish without it", publish
    elif missing:
        yield "run the tests, and publish", test
    if UNTESTED in reasons:
        yield "after adding tests", test
    if any(reason.endswith((HELD_WARNING, CHANGED_RULE)) for reason in reasons):
        accepted = next_command.dbt("test", branch=branch, warnings="publish")
        yield "accept the warnings", accepted
    if PUBLISHING_OFF in reasons and not missing:
        yield "publish it", next_command.operation("wap_publish", branch)


def _ref(node_id: str) -> str:
    """Return the `ref` of a node: `model.shop.orders.v2` -> `ref('orders', v=2)`."""
    parts = node_id.split(".", 2)
    name, dot, version = parts[-1].rpartition(".v")
    if not dot:
        return f"ref('{parts[-1]}')"
    quoted = version if re.fullmatch(r"[\d.]+", version) else f"'{version}'"
    return f"ref('{name}', v={quoted})"
