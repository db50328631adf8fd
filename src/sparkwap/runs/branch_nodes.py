"""The nodes that a run which ends decides on: its own, and those of earlier runs on the branch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparkwap.core import names
from sparkwap.gate.facts import LEFTOVER, MOVED, BuiltNode
from sparkwap.ledger.records import LOADED, token_of
from sparkwap.runs.candidates import VIEW, Candidates, target_of
from sparkwap.runs.checks import Checks
from sparkwap.runs.trail import Trail
from sparkwap.runs.types import Invocation, NodeFact, TestFact
from sparkwap.runs.watched import GateBypass

LEFT = (
    "left on the branch by an earlier run, and not audited as it is now; build it again, or drop "
    "the branch"
)


@dataclass(frozen=True, slots=True)
class BranchNodes:
    """Gathers the nodes of an audit branch, with what they were built on."""

    invocation: Invocation
    candidates: Candidates
    trail: Trail

    def leftovers(self, built: Sequence[BuiltNode]) -> list[BuiltNode]:
        """What earlier runs have left on the branch, and no run that ended has told the ledger of.

        Reads of the branch have seen it, so nothing may be published beside it.
        """
        known = {node.name.lower() for node in built} | {
            ".".join(key) for key in (*self.candidates.targets, *self.candidates.built.values())
        }
        left: set[str] = set()
        for one in self.candidates.lake.branches.all():
            if one.branch == self.invocation.branch:
                left |= {".".join(t.identifier) for t in one.tables if t.head != t.base}
                left |= {
                    f"{names.split_side_schema(s.identifier[0], one.branch)}.{s.identifier[1]}"
                    for s in one.side
                }
        return [
            BuiltNode(f"{LEFTOVER}.{name}", name, LEFTOVER, "failed", None, LEFT)
            for name in sorted(left)
            if name.lower() not in known
        ]

    def all_nodes(
        self,
        facts: Sequence[NodeFact],
        history: Iterable[Mapping[str, Any]],
        known: Collection[str],
    ) -> list[BuiltNode]:
        now = {
            fact.node_id: self._node(fact)
            for fact in facts
            if fact.node_id not in self.candidates.gone
        }
        checks = Checks(self.candidates.lake, self.invocation.run_id, self.invocation.branch)
        for row in history:
            node_id = row["node_id"]
            if (
                node_id in now
                or node_id in self.candidates.gone
                or node_id in self.candidates.built
                or row["verdict"] == "published"
            ):
                continue
            built = target_of(row)
            is_beside = self.candidates.overlay.side_schema(built.identifier) is not None
            target = checks.still_there(built, is_beside)
            if target is not None:
                self.candidates.take(node_id, target)
                now[node_id] = BuiltNode(
                    node_id,
                    target.name,
                    row["resource_type"],
                    row["status"],
                    target.candidate,
                    target.problem,
                    frozenset(row["parents"] or ()),
                    self._is_known(row, known),
                )
            elif row["resource_type"] != "failures":
                # What a run of this branch could not build holds up the branch until it is built.
                gone = built.candidate is not None
                now[node_id] = _not_there(row, gone=gone, known=self._is_known(row, known))
        return list(now.values())

    def _is_known(self, row: Mapping[str, Any], known: Collection[str]) -> bool:
        """Whether a command knows all tests of what an earlier run on the branch has left.

        Stored failures have none. The audits of another program's rows have run with it, and what
        they rejected is marked; a table that a project has published before has its tests, too.
        """
        node_id: str = row["node_id"]
        if node_id.startswith(LOADED):
            return self.candidates.lake.ledger.builder((row["schema"], row["name"])) is None
        return row["resource_type"] == "failures" or node_id in known

    def all_built_on(
        self,
        nodes: Sequence[BuiltNode],
        history: Iterable[Mapping[str, Any]],
        read_first: dict[str, frozenset[str]],
    ) -> dict[str, dict[str, str]]:
        """The candidates of the branch that each node was built on; its own one if it has added."""
        parents = {node.node_id: node.parents for node in nodes} | read_first
        before = {row["node_id"]: dict(row["built_on"] or ()) for row in history}

        def upstream(node_id: str) -> set[str]:
            found: set[str] = set()
            todo = [node_id]
            while todo:
                new = parents.get(todo.pop(), frozenset()) - found
                found |= new
                todo += new
            return found

        def of(node_id: str) -> dict[str, str]:
            stood = self.trail.stood.get(node_id)
            if stood is None:
                # One that failed while it added to its rows of before has them no more.
                lost = (
                    {node_id: self.candidates.found[node_id]}
                    if node_id in self.trail.continued
                    else {}
                )
                return before.get(node_id, {}) | lost
            wanted = upstream(node_id) | {node_id}
            on = {key: token for key, token in stood.items() if key in wanted}
            return before.get(node_id, {}) | on if node_id in self.trail.continued else on

        return {node.node_id: of(node.node_id) for node in nodes}

    def with_stale(
        self,
        nodes: Sequence[BuiltNode],
        history: Iterable[Mapping[str, Any]],
        present: Collection[str],
        built_on: Mapping[str, Mapping[str, str]],
    ) -> list[BuiltNode]:
        """The nodes, with the upstream tables that were built anew after them."""
        # What was published since is not on the branch any more.
        now = {row["node_id"]: token_of(row) for row in history}
        now |= {
            key: self.candidates.mark(self.candidates.targets[self.candidates.built[key]])
            for key in present
        }
        name_of = {row["node_id"]: f"{row['schema']}.{row['name']}" for row in history}
        name_of |= {node.node_id: node.name for node in nodes}
        return [
            replace(
                node,
                stale=tuple(
                    sorted(
                        name_of[key]
                        for key, token in built_on[node.node_id].items()
                        if key != node.node_id
                        and now.get(key, token) != token
                        and (key in present or not token.startswith(VIEW))
                    )
                ),
            )
            for node in nodes
        ]

    def _node(self, fact: NodeFact) -> BuiltNode:
        target = self.candidates.of(fact.node_id)
        # A view has the rows of what it reads; it was built empty if that was.
        status = {"success": self.invocation.part or "built", "skipped": "skipped"}.get(
            fact.status, "failed"
        )
        problem = target.problem if target else None
        if fact.status == "success" and target is None:
            status, problem = "failed", "its materialization does not go through the gate"
        if status == "failed" and problem is None and fact.message:
            problem = fact.message
        return BuiltNode(
            fact.node_id,
            ".".join(fact.identifier),
            fact.resource_type,
            status,
            target.candidate if target else None,
            problem,
            fact.parents,
        )

    def failures_nodes(self, tests: Sequence[TestFact]) -> list[BuiltNode]:
        nodes = []
        for test in tests:
            target = self.candidates.of(test.test_id)
            if target is not None:
                nodes.append(
                    BuiltNode(
                        test.test_id,
                        target.name,
                        "failures",
                        self.invocation.part or "built",
                        target.candidate,
                        target.problem,
                        test.reads,
                    )
                )
        return nodes


def with_caught(
    built: Sequence[BuiltNode], caught: Sequence[GateBypass]
) -> tuple[list[BuiltNode], list[BuiltNode]]:
    """The nodes, those that have moved `main` with that for a problem; and what nobody owns up to.

    All of the run waits for them: what else it has written, it may have written by the same means.
    """
    by_node: dict[str | None, list[GateBypass]] = {}
    known = {node.node_id for node in built}
    for one in caught:
        by_node.setdefault(one.node if one.node in known else None, []).append(one)
    guilty = [
        replace(
            node,
            problem="; ".join(
                [*(one.told for one in by_node[node.node_id]), *filter(None, [node.problem])]
            ),
        )
        if node.node_id in by_node
        else node
        for node in built
    ]
    others = [
        BuiltNode(
            f"{MOVED}.{'.'.join(one.identifier)}",
            ".".join(one.identifier),
            MOVED,
            "built",
            None,
            f"{one.told}; by {one.node or 'a hook'}",
        )
        for one in by_node.get(None, ())
    ]
    return guilty, list({node.node_id: node for node in others}.values())


def _not_there(row: Mapping[str, Any], *, gone: bool, known: bool) -> BuiltNode:
    """A node that an earlier run on the branch was to build, and of which nothing is there."""
    return BuiltNode(
        row["node_id"],
        f"{row['schema']}.{row['name']}",
        row["resource_type"],
        "failed" if gone else row["status"],
        None,
        "what an earlier run built is no longer on the branch" if gone else row["problem"],
        frozenset(row["parents"] or ()),
        known,
    )
