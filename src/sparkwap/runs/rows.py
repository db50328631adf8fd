"""The rows of a run in the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sparkwap.audits.incremental import Answer
from sparkwap.catalog import Difference, LedgerRows
from sparkwap.gate.facts import LEFTOVER, MOVED, NOT_RUN, BuiltNode, TestResult
from sparkwap.gate.verdicts import Decision
from sparkwap.ledger.manifests import Packed
from sparkwap.ledger.records import candidate_columns, time_after
from sparkwap.runs import batches
from sparkwap.runs.gathering import ClosingFacts
from sparkwap.runs.types import Invocation, RunNotes, TestFact


def run_row(
    run: Invocation, outcome: str, code_hash: str | None = None, **more: Any
) -> dict[str, Any]:
    """Return the row of a run in the ledger's ``runs``, which records its end."""
    return {
        "run_id": run.run_id,
        "branch": run.branch,
        "command": run.command,
        "project": run.project,
        "target": run.target_name,
        "started_at": run.started_at,
        "ended_at": datetime.now(UTC),
        "outcome": outcome,
        "message": None,
        "tries": 0,
        "waited_seconds": 0.0,
        "rebuild_of": run.rebuild_of,
        "manifest_hash": code_hash,
        "session": run.session,
        "as_of": str(run.replay.moment) if run.replay else None,
        "pins": run.replay.recorded_pins() if run.replay else {},
        **more,
    }


@dataclass(frozen=True, slots=True)
class Rows:
    """Makes the ledger's rows of a run after its decision."""

    run: Invocation
    notes: RunNotes
    facts: ClosingFacts
    decision: Decision

    def all(self, code: Packed | None) -> list[LedgerRows]:
        """Return the rows of all tables; ``code`` is the manifest to store, or None."""
        # Later than the rows of earlier runs, also if the clock of their machine is ahead.
        now = time_after(self.facts.last)
        row = run_row(self.run, self.decision.outcome, code.hash if code else None, ended_at=now)
        tests = {test.test_id: test for test in self.facts.tests}
        return [
            LedgerRows("manifests", self._manifest(code, now) if code else []),
            LedgerRows("runs", [row]),
            LedgerRows(
                "nodes",
                [
                    self._node(node, now)
                    for node in self.facts.nodes
                    # Do not change the verdict that another project has written for its node.
                    if node.kind not in (LEFTOVER, MOVED)
                    and (node.known or node.node_id in self.facts.begun)
                ],
            ),
            LedgerRows(
                "tests",
                [self._test(one, tests.get(one.test_id), now) for one in self.facts.fresh],
            ),
            LedgerRows("metrics", [row for one in self.facts.fresh for row in self._metrics(one)]),
            *self.notes.rows,
        ]

    def _manifest(self, code: Packed, now: datetime) -> list[dict[str, Any]]:
        return [
            {
                "hash": code.hash,
                "project": self.run.project,
                "run_id": self.run.run_id,
                "stored_at": now,
                "content": code.content,
            }
        ]

    def _test(self, one: TestResult, test: TestFact | None, now: datetime) -> dict[str, Any]:
        answer, rule = self._answer(one), one.rule
        return {
            "run_id": self.run.run_id,
            "branch": self.run.branch,
            "test_id": one.test_id,
            "test_name": test.name if test else "",
            "status": one.status,
            "failures": one.failures,
            "severity": test.severity if test else "",
            "message": one.message,
            "audited": dict(one.audited),
            "executed_at": now,
            "reads": self.facts.reads.get(one.test_id, {}),
            "named": self.facts.named.get(one.test_id),
            "finding": one.finding,
            "seconds": self.facts.seconds.get(one.test_id),
            "answered": answer.how,
            "basis": answer.basis,
            "snapshot": answer.snapshot,
            "parent_snapshot": answer.parent_snapshot,
            "whole_at": answer.whole_at,
            "increments": answer.since,
            "inputs": rule.inputs if rule else None,
            "code": rule.code if rule else None,
            "sql": rule.sql if rule else None,
            "given": rule.given if rule else None,
        }

    def _answer(self, result: TestResult) -> Answer:
        """Return how a test was answered; nothing builds on it if it saw another candidate."""
        answer = self.facts.shared.get(result.test_id, Answer("alone"))
        seen = set(result.audited.values())
        return answer if seen and seen <= answer.states else Answer(answer.how)

    def _metrics(self, result: TestResult) -> list[dict[str, Any]]:
        """Return the metrics of a test's result; none if it did not measure the candidate."""
        measured = self.notes.measures.get(result.test_id)
        candidate = result.audited.get(measured.node_id) if measured else None
        present = self.facts.candidates.get(measured.node_id) if measured else None
        if measured is None or candidate is None or present is None or result.status in NOT_RUN:
            return []
        if candidate != present.token:
            # Another run has replaced the candidate; it is unknown which of them was measured.
            return []
        schema, name = present.identifier
        common = {
            "run_id": self.run.run_id,
            "branch": self.run.branch,
            "test_id": result.test_id,
            "schema": schema,
            "name": name,
        }
        return measured.rows(common, candidate)

    def _node(self, node: BuiltNode, now: datetime) -> dict[str, Any]:
        verdict = self.decision.verdicts[node.node_id]
        schema, _, name = node.name.partition(".")
        return {
            "run_id": self.run.run_id,
            "branch": self.run.branch,
            "node_id": node.node_id,
            "resource_type": node.kind,
            "schema": schema,
            "name": name,
            **candidate_columns(self.facts.candidates.get(node.node_id)),
            "status": node.status,
            "problem": node.problem,
            "parents": sorted(node.parents),
            "built_on": self.facts.built_on.get(node.node_id, {}),
            "verdict": verdict.outcome,
            "reason": "; ".join(verdict.reasons) or None,
            "built_at": now,
            "reads": self.facts.reads.get(node.node_id, {}),
            "named": self.facts.named.get(node.node_id),
            "seconds": self.facts.seconds.get(node.node_id),
            "batches": batches.written(self.facts.batches.get(node.node_id, ())),
            "write_mode": self.notes.write_modes.get(node.node_id),
            "code": self.facts.code.get(node.node_id),
        }


def refused_rows(
    rows: Sequence[LedgerRows],
    message: str,
    refusals: Mapping[str, Sequence[Difference]],
    *,
    rebase_follows: bool,
) -> list[LedgerRows]:
    """Return the ledger's rows of a run whose publish the catalog refused.

    Args:
        refusals: Node id -> the kinds of differences for which its publish was refused.
        rebase_follows: Whether a rebase follows, which writes the row of the run at its end.
    """

    def refused(table: str, row: Mapping[str, Any]) -> Mapping[str, Any]:
        if table == "runs":
            return {**row, "outcome": "rejected", "message": message}
        if table != "nodes" or row["verdict"] != "published":
            return row
        return {
            **row,
            "verdict": "rejected",
            "reason": message,
            "refusal": ",".join(refusals.get(row["node_id"], ())) or None,
            # A sequential publish has written rows before its start; these are later.
            "built_at": time_after(row["built_at"]),
        }

    return [
        LedgerRows(one.table, [refused(one.table, row) for row in one.rows])
        for one in rows
        if one.table != "runs" or not rebase_follows
    ]
