"""The nodes of a closing run: its own nodes, and those of earlier runs on its branch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparkwap.catalog import Candidate, Identifier
from sparkwap.core import names
from sparkwap.gate.facts import LEFTOVER, MOVED, NO_NODE, BuiltNode
from sparkwap.ledger.records import LOADED, candidate_of, token_of
from sparkwap.runs.candidates import VIEW, Candidates
from sparkwap.runs.checks import Checks
from sparkwap.runs.trail import Trail
from sparkwap.runs.types import Invocation, NodeFact, TestFact
from sparkwap.runs.watched import GateBypass

LEFT = (
    "left on the branch by an earlier run, and not audited in its present state; build it again, "
    "or drop the branch"
)
FOREIGN_LEFT = (
    f"left on the branch by an earlier run, and {NO_NODE}; build it in the project that has it, "
    "or drop the branch"
)
LOST = "the candidate of an earlier run is no longer on the branch"


@dataclass(frozen=True, slots=True)
class BranchNodes:
    """Collects the nodes of an audit branch, and the candidates that they were built on."""

    invocation: Invocation
    candidates: Candidates
    trail: Trail
    table_of_node: Callable[[str], Identifier | None]
    code_of: Callable[[str], str | None] = lambda node_id: None

    def leftovers(
        self,
        built: Sequence[BuiltNode],
        tables: Collection[Identifier],
        of_project: Collection[str],
    ) -> list[BuiltNode]:
        """Return the objects on the branch that the ledger does not know of.

        Runs that died have left them. Later nodes may have read them, so they hold up the branch.

        Args:
            built: The nodes of the branch.
            tables: The tables and views that this run builds, and those of these nodes.
            of_project: Ids of the nodes of the project.
        """
        known = {node.name.lower() for node in built} | {".".join(key) for key in tables}
        left: set[str] = set()
        for one in self.candidates.lake.branches.all():
            if one.branch == self.invocation.branch:
                left |= {".".join(t.identifier) for t in one.tables if t.head != t.base}
                left |= {
                    f"{names.split_side_schema(s.identifier[0], one.branch)}.{s.identifier[1]}"
                    for s in one.side
                    if names.run_of_throw_away(s.identifier[0], one.branch) is None
                }
        new = sorted(name for name in left if name.lower() not in known)
        here = {".".join(self.table_of_node(n) or ()).lower() for n in of_project} if new else set()
        return [
            BuiltNode(
                f"{LEFTOVER}.{name}",
                name,
                LEFTOVER,
                "failed",
                None,
                LEFT if name.lower() in here else FOREIGN_LEFT,
            )
            for name in new
        ]

    def all_nodes(
        self,
        facts: Sequence[NodeFact],
        history: Iterable[Mapping[str, Any]],
        known: Collection[str],
    ) -> tuple[list[BuiltNode], dict[str, Candidate]]:
        """Return the nodes of this run and the unpublished ones of earlier runs on the branch.

        Args:
            history: The ledger's rows of ``nodes`` of the branch.
            known: Ids of the nodes whose tests this command knows.

        Returns:
            The nodes, and the candidates of those that have one, by node.
        """
        candidates = self.candidates.by_node()
        now = {
            fact.node_id: self._node(fact)
            for fact in facts
            if fact.node_id not in self.candidates.gone
        }
        if self.invocation.part:
            # What a failed build on a part of the rows has left is nothing to add to.
            for node_id in [n for n, one in now.items() if one.status == "failed"]:
                now[node_id] = replace(now[node_id], candidate=None)
                candidates.pop(node_id, None)
        checks = Checks(self.candidates.lake, self.invocation.run_id, self.invocation.branch)
        for row in history:
            node_id = row["node_id"]
            if (
                node_id in now
                or node_id in self.candidates.gone
                or node_id in candidates
                or row["verdict"] == "published"
            ):
                continue
            built = candidate_of(row)
            is_beside = self.candidates.overlay.side_schema(built.identifier) is not None
            present = checks.still_there(built, is_beside)
            node = replace(node_of(row), known=self._is_known(row, known))
            if present is not None:
                candidates[node_id] = present
                code = row.get("code")
                now[node_id] = replace(
                    node,
                    candidate=present.token,
                    problem=present.problem,
                    # A node of another project has no code here.
                    outdated=code is not None and self.code_of(node_id) not in (code, None),
                )
            elif built.token is not None and node.kind != "failures":
                now[node_id] = replace(node, status="failed", candidate=None, problem=LOST)
            elif node.kind != "failures":
                # A failed node of an earlier run holds up the branch until it is built.
                now[node_id] = node
        return list(now.values()), candidates

    def _is_known(self, row: Mapping[str, Any], known: Collection[str]) -> bool:
        """Return whether this command knows all tests of a node of an earlier run.

        Stored failures have no tests. A program other than dbt audits its tables itself, and marks
        rejected ones; but if a project has published the table before, its tests count, too.
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
        """Return the candidates that each node was built on, by node.

        The node's own candidate is among them if the node has added rows to it.
        """
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
            candidates = self.trail.candidates_at_build.get(node_id)
            if candidates is None:
                # A node that failed while it added rows to its candidate has lost that candidate.
                lost = (
                    {node_id: self.candidates.found[node_id]}
                    if node_id in self.trail.continued
                    else {}
                )
                return before.get(node_id, {}) | lost
            wanted = upstream(node_id) | {node_id}
            on = {key: token for key, token in candidates.items() if key in wanted}
            return before.get(node_id, {}) | on if node_id in self.trail.continued else on

        return {node.node_id: of(node.node_id) for node in nodes}

    def with_stale(
        self,
        nodes: Sequence[BuiltNode],
        history: Iterable[Mapping[str, Any]],
        present: Mapping[str, Candidate],
        built_on: Mapping[str, Mapping[str, str]],
    ) -> list[BuiltNode]:
        """Return the nodes with ``stale``: upstream tables that were built again after them."""
        # Tables that were published since are not on the branch any more.
        now = {row["node_id"]: token_of(row) for row in history}
        now |= {key: self.candidates.mark(candidate) for key, candidate in present.items()}
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
        candidate = self.candidates.of(fact.node_id)
        # In a run with --empty or --sample, this also holds for views.
        status = {"success": self.invocation.part or "built", "skipped": "skipped"}.get(
            fact.status, "failed"
        )
        problem = candidate.problem if candidate else None
        if fact.status == "success" and candidate is None:
            status, problem = "failed", "its materialization does not go through the gate"
        if status == "failed" and problem is None and fact.message:
            problem = fact.message
        return BuiltNode(
            fact.node_id,
            ".".join(fact.identifier),
            fact.resource_type,
            status,
            candidate.token if candidate else None,
            problem,
            fact.parents,
        )

    def failures_nodes(self, tests: Sequence[TestFact]) -> list[BuiltNode]:
        """Return the tables of stored failures that this run has built, as nodes."""
        status = self.invocation.part or "built"
        return [
            BuiltNode(
                test.test_id, one.name, "failures", status, one.token, one.problem, test.reads
            )
            for test in tests
            if (one := self.candidates.of(test.test_id)) is not None
        ]


def with_caught(
    built: Sequence[BuiltNode], caught: Sequence[GateBypass]
) -> tuple[list[BuiltNode], list[BuiltNode]]:
    """Return the nodes with their gate bypasses as problems, and nodes for all other bypasses.

    They hold up the whole run, because other writes may have bypassed the gate in the same way.
    """
    by_node: dict[str | None, list[GateBypass]] = {}
    known = {node.node_id for node in built}
    for one in caught:
        by_node.setdefault(one.node if one.node in known else None, []).append(one)
    marked = [
        replace(
            node,
            problem="; ".join(
                [*(one.message for one in by_node[node.node_id]), *filter(None, [node.problem])]
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
            f"{one.message}; by {one.node or 'a hook'}",
        )
        for one in by_node.get(None, ())
    ]
    return marked, list({node.node_id: node for node in others}.values())


def node_of(row: Mapping[str, Any]) -> BuiltNode:
    """Return a node as a run has left it in the ledger's ``nodes``."""
    return BuiltNode(
        row["node_id"],
        f"{row['schema']}.{row['name']}",
        row["resource_type"],
        row["status"],
        token_of(row),
        row["problem"],
        frozenset(row["parents"] or ()),
    )
