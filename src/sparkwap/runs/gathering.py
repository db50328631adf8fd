"""Gathers the facts for the decision at the end of a run, from the ledger and the catalog."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sparkwap.audits.incremental import Answer
from sparkwap.catalog import Candidate, Identifier
from sparkwap.core import names
from sparkwap.gate.facts import AuditTest, BuiltNode, TestResult, TestRule
from sparkwap.gate.settings import GateSettings
from sparkwap.ledger.records import BranchHistory
from sparkwap.runs import batches as batching
from sparkwap.runs.batches import Range
from sparkwap.runs.branch_nodes import BranchNodes, with_caught
from sparkwap.runs.candidates import Candidates
from sparkwap.runs.rules import Rules, failed_before, rule_of
from sparkwap.runs.trail import ByName, Trail
from sparkwap.runs.types import Invocation, NodeFact, RunNotes, TestFact, TestSeen
from sparkwap.runs.watched import GateBypass

_ENDED = ("pass", "warn", "fail")


@dataclass(frozen=True, slots=True)
class ClosingFacts:
    """The facts for the decision at the end of a run.

    Attributes:
        nodes: The nodes of this run and of earlier runs on the branch, stored failures, and changes
            of unknown origin.
        tables: The tables and views that this run builds, also without success, and those of the
            nodes of earlier runs.
        fresh: The results of this run.
        settings: The settings of the gate, as strict as the branch demands.
        now: Ids of the nodes that this run had to build.
        earlier: Ids of the nodes that only earlier runs have built.
        built_on: The candidates that each node was built on: node to token.
        begun: Ids of the nodes that this run has begun to build.
        continued: Ids of the nodes that have added rows to a candidate of an earlier run.
        named: The relations that the statements of the nodes and tests of this run have named; None
            if it may be any.
        reads: What nodes and tests of this run and of earlier runs have read from `main`, by node
            or test.
        batches: The time ranges that microbatch models had to build, by node.
        code: The digest of the text that made the candidate, by node.
        notices: Lines about time ranges that `main` will lack after the publish, by node.
        last: The time of the latest row of earlier runs on the branch; None without one.
    """

    nodes: tuple[BuiltNode, ...]
    candidates: Mapping[str, Candidate]
    tables: frozenset[Identifier]
    tests: tuple[TestFact, ...]
    expected: tuple[AuditTest, ...]
    results: tuple[TestResult, ...]
    fresh: tuple[TestResult, ...]
    settings: GateSettings
    now: frozenset[str]
    earlier: frozenset[str]
    caught: tuple[GateBypass, ...]
    built_on: Mapping[str, Mapping[str, str]]
    begun: frozenset[str]
    continued: frozenset[str]
    shared: Mapping[str, Answer]
    reads: Mapping[str, Mapping[str, str]]
    named: Mapping[str, list[str] | None]
    seconds: Mapping[str, float | None]
    batches: Mapping[str, tuple[Range, ...]]
    notices: Mapping[str, tuple[str, ...]]
    code: Mapping[str, str | None]
    last: datetime | None

    def is_of_this_run(self, node_id: str) -> bool:
        """Return whether this run alone has built a node, and has done all its audits.

        The ledger's rows of earlier runs name the candidate as it was then.
        """
        fresh = {one.test_id for one in self.fresh}
        return (
            node_id in self.now
            and node_id in self.begun
            and node_id not in self.continued
            and all(one.test_id in fresh for one in self.results if node_id in one.audited)
        )

    def with_moved(self, moved: Mapping[str, Candidate]) -> ClosingFacts:
        """Return the facts after candidates have moved to other snapshots with the same rows.

        Args:
            moved: The moved candidates, by node; each `is_of_this_run`.
        """
        new = {self.candidates[node_id].token: one.token for node_id, one in moved.items()}

        def token(old: str | None) -> str | None:
            return new.get(old, old)

        def tokens(of: Mapping[str, str]) -> dict[str, str]:
            return {node_id: str(token(old)) for node_id, old in of.items()}

        def snapshot(old: int | None) -> int | None:
            return None if old is None else int(str(token(str(old))))

        def results(of: Iterable[TestResult]) -> tuple[TestResult, ...]:
            return tuple(replace(one, audited=tokens(one.audited)) for one in of)

        return replace(
            self,
            nodes=tuple(replace(one, candidate=token(one.candidate)) for one in self.nodes),
            candidates={**self.candidates, **moved},
            results=results(self.results),
            fresh=results(self.fresh),
            built_on={node_id: tokens(of) for node_id, of in self.built_on.items()},
            shared={
                test_id: replace(
                    one,
                    snapshot=snapshot(one.snapshot),
                    parent_snapshot=snapshot(one.parent_snapshot),
                )
                for test_id, one in self.shared.items()
            },
        )


@dataclass(frozen=True, slots=True)
class Gathering:
    """Gathers the facts at the end of a run; reads the catalog and the ledger, changes nothing."""

    invocation: Invocation
    candidates: Candidates
    trail: Trail
    notes: RunNotes
    rules: Rules
    code_of: Callable[[str], str | None] = lambda node_id: None

    def facts(
        self,
        nodes: Sequence[NodeFact],
        tests: Sequence[TestFact],
        seen: Sequence[TestSeen],
        known: Collection[str],
        varied: bool,
        caught: Sequence[GateBypass],
    ) -> ClosingFacts:
        """Return the facts; `sparkwap.runs.run.Run.close` describes the arguments.

        ``caught`` are the changes of `main` by which the run has bypassed the gate.
        """
        own, branch = self.invocation.is_own, self.invocation.branch
        earlier = (
            BranchHistory((), ()) if own else self.candidates.lake.ledger.branch_history(branch)
        )
        of_branch = BranchNodes(
            self.invocation, self.candidates, self.trail, self.rules.table_of_node, self.code_of
        )
        mine = frozenset(self.candidates.built)
        built, candidates = of_branch.all_nodes(nodes, earlier.nodes, known)
        tables = {one.identifier for one in candidates.values()} | self.candidates.placed.keys()
        by_name = ByName(
            self.candidates.lake, branch, self.trail, self.candidates, built, candidates
        )
        built = [by_name.node(node) for node in built]
        tests = [by_name.test(test) for test in tests]
        built, moved = with_caught(built, caught)
        leftovers = moved + ([] if own else of_branch.leftovers(built, tables, known))
        settings = self.invocation.settings
        strange = leftovers or not all(node.known for node in built)
        if strange and settings.publish == "lineage":
            # It is not known which nodes have read them.
            settings = replace(settings, publish="run")
        present = {n.node_id: n.candidate for n in built if n.candidate is not None}
        built_on = of_branch.all_built_on(built, earlier.nodes, by_name.first)
        there = {n: candidates[n] for n in present}
        built = of_branch.with_stale(built, earlier.nodes, there, built_on)
        # The tests of this run have not audited what another run has built since it was opened.
        saw = self.candidates.found | {n: t for n, t in present.items() if n in mine}
        tokens = {n: saw[n] for n in present.keys() & saw.keys()}
        # Failures that an earlier run on the branch has stored are among its nodes already.
        ids_of_nodes = dict.fromkeys(node.node_id for node in built)
        failures = [n for n in of_branch.failures_nodes(tests) if n.node_id not in ids_of_nodes]
        ids = {t.test_id for t in tests}
        accepted = settings.disabled_tests == "publish"
        tests = [t for t in tests if not (t.disabled and accepted)]
        read = [t for t in tests if t.reads & ids_of_nodes.keys()]
        # dbt does not run disabled tests; those of disabled tables do not concern what was built.
        disabled = [TestSeen(t.test_id, "disabled", None, None) for t in read if t.disabled]
        fresh = self._results(tests, [*seen, *disabled], tokens, by_name)
        results = [*fresh, *map(result_of, earlier.tests)]
        expected = self._expected(read, results)
        if settings.warnings != "publish":
            lost = self.rules.gone(ids_of_nodes, ids) if varied else []
            theirs = self.rules.of_others(
                {n: one for n, one in candidates.items() if n in ids_of_nodes}
            )
            expected += [*lost, *theirs]
            results += [TestResult(one.test_id, "gone") for one in lost]
            results += [TestResult(one.test_id, "elsewhere") for one in theirs]
        # A build that adds no row leaves the same candidate, but counts as a new build.
        earlier_present = {n: token for n, token in present.items() if n not in mine}
        expected += failed_before(earlier.tests, tests, earlier_present)
        now = frozenset(fact.node_id for fact in nodes)
        reran = {one.test_id for one in seen}
        rows = [(r["node_id"], r) for r in earlier.nodes if r["node_id"] not in now]
        rows += [(r["test_id"], r) for r in earlier.tests if r["test_id"] not in reran]
        ranges = self._batches(nodes, earlier.nodes)
        return ClosingFacts(
            nodes=(*built, *failures, *leftovers),
            candidates=candidates,
            tables=frozenset(tables),
            tests=tuple(tests),
            expected=tuple(expected),
            results=tuple(results),
            fresh=tuple(fresh),
            settings=settings,
            now=now,
            earlier=frozenset(n.node_id for n in [*built, *leftovers]) - now,
            caught=tuple(caught),
            built_on=built_on,
            begun=frozenset(self.trail.begun),
            continued=frozenset(self.trail.continued),
            shared=dict(self.trail.shared),
            reads={key: dict(row.get("reads") or {}) for key, row in rows} | self.trail.reads,
            named={
                key: by_name.named(key)
                for key in (*(n.node_id for n in nodes), *(t.test_id for t in seen))
            },
            seconds={n.node_id: n.seconds for n in nodes} | {t.test_id: t.seconds for t in seen},
            batches=ranges,
            notices=self._lacking(nodes, ranges),
            code={r["node_id"]: r.get("code") for r in earlier.nodes}
            | {n.node_id: n.code for n in nodes},
            last=earlier.last,
        )

    def _batches(
        self, nodes: Sequence[NodeFact], history: Iterable[Mapping[str, Any]]
    ) -> dict[str, tuple[Range, ...]]:
        """Return the time ranges that the candidates of microbatch models should have, by node."""
        found = {fact.node_id: fact.batches for fact in nodes}
        for row in history:
            node_id = row["node_id"]
            if node_id not in found or node_id in self.trail.continued:
                found[node_id] = batching.merged([*found.get(node_id, ()), *batching.read(row)])
        return found

    def _lacking(
        self, nodes: Sequence[NodeFact], ranges: Mapping[str, tuple[Range, ...]]
    ) -> dict[str, tuple[str, ...]]:
        """Return lines about the batches that `main` still lacks after the publish, by node."""
        found = {}
        for fact in nodes:
            if fact.batches:
                rows = self.candidates.lake.ledger.builds(fact.node_id, fact.identifier)
                own = batching.BatchBuild(ranges[fact.node_id], datetime.now(UTC), published=True)
                lacking = batching.lacking([*batching.builds(rows), own])
                found[fact.node_id] = tuple(batching.notices(fact.node_id, lacking))
        return found

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

    def _results(
        self,
        tests: Sequence[TestFact],
        seen: Sequence[TestSeen],
        tokens: Mapping[str, str],
        by_name: ByName,
    ) -> list[TestResult]:
        by_id = {test.test_id: test for test in tests}
        found = []
        for one in seen:
            test = by_id.get(one.test_id)
            reads = test.reads - by_name.early.get(one.test_id, set()) if test else frozenset()
            # A test that ended in an error may not have come to its statement.
            if one.status in _ENDED:
                reads &= by_name.seen.get(one.test_id, reads)
            found.append(
                TestResult(
                    one.test_id,
                    self._status_of(one, test),
                    one.failures,
                    one.message,
                    {n: tokens[n] for n in reads & tokens.keys()},
                    self.notes.findings.get(one.test_id),
                    self._rule_of(test, one),
                )
            )
        return found

    def _rule_of(self, test: TestFact | None, seen: TestSeen) -> TestRule | None:
        if test is None:
            return None
        run = self.invocation
        sql = names.live_sql(seen.sql, run.branch, run.run_id) if seen.sql else None
        token = hashlib.sha256(sql.encode()).hexdigest() if sql and not test.varies else None
        return TestRule(test.severity, test.inputs, test.code, token, test.given)

    def _status_of(self, seen: TestSeen, test: TestFact | None) -> str:
        """Return the status of a result; no test passes in a run that builds no or few rows."""
        # A unit test reads its own rows, also with --empty or --sample.
        part = None if test and test.kind == "unit" else self.invocation.part
        return part if part is not None and seen.status in ("pass", "warn") else seen.status


def result_of(row: Mapping[str, Any]) -> TestResult:
    """Return a test result from the ledger's row of an earlier run on the branch."""
    return TestResult(
        row["test_id"],
        row["status"],
        row["failures"],
        row["message"],
        dict(row["audited"] or {}),
        row.get("finding"),
        rule_of(row),
    )
