"""What a run's end is decided on, read from the ledger and the catalog; nothing is written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sparkwap.core import names
from sparkwap.gate.settings import GateSettings
from sparkwap.gate.summary import LEFTOVER, MOVED
from sparkwap.gate.verdicts import AuditTest, BuiltNode, Rule, TestResult
from sparkwap.ledger.ledger import LOADED, BranchHistory, token_of
from sparkwap.runs import batches as batching
from sparkwap.runs.batches import Range
from sparkwap.runs.candidates import VIEW, Candidates, target_of
from sparkwap.runs.checks import Checks
from sparkwap.runs.rules import Rules, failed_before, rule_of
from sparkwap.runs.trail import ByName, Trail
from sparkwap.runs.types import Invocation, NodeFact, TestFact, TestSeen, Told
from sparkwap.runs.watched import Caught

LEFT = (
    "left on the branch by an earlier run, and not audited as it is now; build it again, or drop "
    "the branch"
)

_ENDED = ("pass", "warn", "fail")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a run's end is decided on.

    Attributes:
        nodes: what was built now and before, stored failures, and what nobody answers for.
        tests: the tests that count.
        expected: the audits that have to pass.
        results: the results of this run and of earlier ones; ``fresh`` are this run's.
        settings: the gate's, as strict as what is on the branch demands.
        now: ids of the nodes that this run was to build; ``earlier`` are those of earlier runs.
        caught: what the run has moved of `main` past the gate.
        built_on: the candidates that each node was built on: node to token.
        earlier_reads: what nodes of earlier runs have read from `main`, by node.
        reads: what nodes and tests of this run and earlier ones have read, by node or test.
        seconds: what a build or test took, as far as known.
        batches: the ranges of time that microbatch models were to build, by node.
    """

    nodes: tuple[BuiltNode, ...]
    tests: tuple[TestFact, ...]
    expected: tuple[AuditTest, ...]
    results: tuple[TestResult, ...]
    fresh: tuple[TestResult, ...]
    settings: GateSettings
    now: frozenset[str]
    earlier: frozenset[str]
    caught: tuple[Caught, ...]
    built_on: Mapping[str, Mapping[str, str]]
    earlier_reads: Mapping[str, Mapping[str, str]]
    reads: Mapping[str, Mapping[str, str]]
    seconds: Mapping[str, float | None]
    batches: Mapping[str, tuple[Range, ...]]


@dataclass(frozen=True, slots=True)
class Gathering:
    """Gathers the facts on a run that ends; ``caught`` tells what it has moved past the gate."""

    invocation: Invocation
    candidates: Candidates
    trail: Trail
    told: Told
    rules: Rules
    caught: Callable[[], list[Caught]]

    def facts(
        self,
        nodes: Sequence[NodeFact],
        tests: Sequence[TestFact],
        seen: Sequence[TestSeen],
        known: Collection[str],
        varied: bool,
    ) -> Facts:
        """Gather them; see :meth:`sparkwap.runs.run.Run.close` for the parameters."""
        own, branch = self.invocation.is_own, self.invocation.branch
        earlier = (
            BranchHistory((), ()) if own else self.candidates.lake.ledger.branch_history(branch)
        )
        mine = frozenset(self.candidates.built)
        built = self._all_nodes(nodes, earlier.nodes, known)
        by_name = ByName(self.candidates.lake, branch, self.trail, self.candidates, built)
        built = [by_name.node(node) for node in built]
        tests = [by_name.test(test) for test in tests]
        caught = tuple(self.caught())
        built, moved = _with_caught(built, caught)
        leftovers = moved + ([] if own else self._leftovers(built))
        settings = self.invocation.settings
        strange = leftovers or not all(node.known for node in built)
        if strange and settings.publish == "lineage":
            # Which nodes have read them is not known.
            settings = replace(settings, publish="run")
        present = {n.node_id: n.candidate for n in built if n.candidate is not None}
        built_on = self._all_built_on(built, earlier.nodes, by_name.first)
        built = self._with_stale(built, earlier.nodes, present, built_on)
        # What another run has put there since this one was opened, no test of this one has audited.
        saw = self.candidates.found | {n: t for n, t in present.items() if n in mine}
        tokens = {n: saw[n] for n in present.keys() & saw.keys()}
        # Failures that an earlier run on the branch has stored are among its nodes already.
        there = dict.fromkeys(node.node_id for node in built)
        failures = [node for node in self._failures_nodes(tests) if node.node_id not in there]
        ids = {t.test_id for t in tests}
        accepted = settings.disabled_tests == "publish"
        tests = [t for t in tests if not (t.disabled and accepted)]
        read = [t for t in tests if t.reads & there.keys()]
        # dbt runs none that is off; those of tables that are off say nothing of what was built.
        disabled = [TestSeen(t.test_id, "disabled", None, None) for t in read if t.disabled]
        fresh = self._results(tests, [*seen, *disabled], tokens, by_name)
        results = [*fresh, *map(_result_of, earlier.tests)]
        expected = self._expected(read, results)
        if settings.warnings != "publish":
            lost = self.rules.gone(there, ids) if varied else []
            theirs = self.rules.of_others(there)
            expected += [*lost, *theirs]
            results += [TestResult(one.test_id, "gone") for one in lost]
            results += [TestResult(one.test_id, "elsewhere") for one in theirs]
        # A build that adds nothing leaves the candidate that was there, and is a new one even so.
        standing = {n: token for n, token in present.items() if n not in mine}
        expected += failed_before(earlier.tests, tests, standing)
        now = frozenset(fact.node_id for fact in nodes)
        earlier_reads = {
            row["node_id"]: dict(row.get("reads") or {})
            for row in earlier.nodes
            if row["node_id"] not in now
        }
        ranges = self._batches(nodes, earlier.nodes)
        self._tell_lacking(nodes, ranges)
        tests_reads = {row["test_id"]: dict(row.get("reads") or {}) for row in earlier.tests}
        return Facts(
            nodes=(*built, *failures, *leftovers),
            tests=tuple(tests),
            expected=tuple(expected),
            results=tuple(results),
            fresh=tuple(fresh),
            settings=settings,
            now=now,
            earlier=frozenset(n.node_id for n in [*built, *leftovers]) - now,
            caught=caught,
            built_on=built_on,
            earlier_reads=earlier_reads,
            reads=tests_reads | earlier_reads | self.trail.reads,
            seconds={n.node_id: n.seconds for n in nodes} | {t.test_id: t.seconds for t in seen},
            batches=ranges,
        )

    def _batches(
        self, nodes: Sequence[NodeFact], history: Iterable[Mapping[str, Any]]
    ) -> dict[str, tuple[Range, ...]]:
        """The ranges of time that the candidates of microbatch models were to have, by node."""
        found = {fact.node_id: fact.batches for fact in nodes}
        for row in history:
            node_id = row["node_id"]
            if node_id not in found or node_id in self.trail.continued:
                found[node_id] = batching.merged([*found.get(node_id, ()), *batching.read(row)])
        return found

    def _tell_lacking(
        self, nodes: Sequence[NodeFact], ranges: Mapping[str, tuple[Range, ...]]
    ) -> None:
        """Tell of batches that `main` lacks and will lack when what this run has is published."""
        for fact in nodes:
            if fact.batches:
                rows = self.candidates.lake.ledger.builds(fact.node_id, fact.identifier)
                own = batching.Build(ranges[fact.node_id], datetime.now(UTC), published=True)
                lacking = batching.lacking([*batching.builds(rows), own])
                for notice in batching.notices(fact.node_id, lacking):
                    self.told.tell(fact.node_id, notice)

    def _expected(
        self, tests: Sequence[TestFact], results: Sequence[TestResult]
    ) -> list[AuditTest]:
        former = self.rules.former(results)
        return [
            AuditTest(
                t.test_id,
                t.name,
                t.reads,
                t.kind,
                former.get(t.test_id),
                accepted=self.rules.accepted(t.test_id, t.severity),
                code=t.code,
            )
            for t in tests
        ]

    def _leftovers(self, built: Sequence[BuiltNode]) -> list[BuiltNode]:
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

    def _all_nodes(
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

    def _all_built_on(
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

    def _with_stale(
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

    def _failures_nodes(self, tests: Sequence[TestFact]) -> list[BuiltNode]:
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

    def _results(
        self,
        tests: Sequence[TestFact],
        seen: Sequence[TestSeen],
        tokens: Mapping[str, str],
        by_name: ByName,
    ) -> list[TestResult]:
        by_id = {test.test_id: test for test in tests}

        def read(one: TestSeen) -> AbstractSet[str]:
            reads = _reads(by_id.get(one.test_id)) - by_name.early.get(one.test_id, set())
            # A test that ended in an error may not have come to its statement.
            return reads & by_name.seen.get(one.test_id, reads) if one.status in _ENDED else reads

        return [
            TestResult(
                one.test_id,
                self._status_of(one, by_id.get(one.test_id)),
                one.failures,
                one.message,
                {n: tokens[n] for n in read(one) & tokens.keys()},
                self.told.findings.get(one.test_id),
                self._rule_of(by_id.get(one.test_id), one),
            )
            for one in seen
        ]

    def _rule_of(self, test: TestFact | None, seen: TestSeen) -> Rule | None:
        if test is None:
            return None
        run = self.invocation
        sql = names.live_sql(seen.sql, run.branch, run.run_id) if seen.sql else None
        token = hashlib.sha256(sql.encode()).hexdigest() if sql else None
        return Rule(test.severity, test.inputs, test.code, token, test.given)

    def _status_of(self, seen: TestSeen, test: TestFact | None) -> str:
        """The status of a result; one that saw none or a part of the rows has passed nothing."""
        # A unit test reads rows of its own, whatever dbt was told of the tables.
        part = None if test and test.kind == "unit" else self.invocation.part
        return part if part is not None and seen.status in ("pass", "warn") else seen.status


def _with_caught(
    built: Sequence[BuiltNode], caught: Sequence[Caught]
) -> tuple[list[BuiltNode], list[BuiltNode]]:
    """The nodes, those that have moved `main` with that for a problem; and what nobody owns up to.

    All of the run waits for them: what else it has written, it may have written by the same means.
    """
    by_node: dict[str | None, list[Caught]] = {}
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


def _reads(test: TestFact | None) -> frozenset[str]:
    return test.reads if test is not None else frozenset()


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


def _result_of(row: Mapping[str, Any]) -> TestResult:
    """A test result that an earlier run on the branch wrote into the ledger."""
    return TestResult(
        row["test_id"],
        row["status"],
        row["failures"],
        row["message"],
        dict(row["audited"] or {}),
        row.get("finding"),
        rule_of(row),
    )
