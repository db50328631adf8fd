"""The rules of tests in the ledger: thresholds of earlier publishes, and accepted failures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sparkwap.catalog import Candidate, Identifier
from sparkwap.core.names import LEDGER_SCHEMA
from sparkwap.gate.audit_outcomes import rejects
from sparkwap.gate.facts import Acceptance, AuditTest, TestResult, TestRule
from sparkwap.gate.thresholds import accepting
from sparkwap.runs.candidates import Candidates
from sparkwap.runs.types import DAY, TestFact


@dataclass(frozen=True)
class Rules:
    """Reads the rules and acceptances of the tests of a run's nodes from the ledger.

    Attributes:
        table_of_node: Returns schema and name of the table of a node; None if there is none.
    """

    candidates: Candidates
    table_of_node: Callable[[str], Identifier | None]

    def _table_of(self, node_id: str) -> Identifier | None:
        """Return the table of a node, from its build or else the code; None if it has none."""
        return self.candidates.table_of(node_id) or self.table_of_node(node_id)

    def gone(self, built: Iterable[str], there: set[str]) -> list[AuditTest]:
        """Return the tests that audited the last publish of nodes, and no longer exist."""
        nodes = {n: key for n in built if (key := self._table_of(n)) is not None}
        return [
            AuditTest(
                row["test_id"],
                row["test_name"],
                frozenset(dict(row["audited"]).keys() & nodes.keys()),
                "data",
            )
            for row in self.candidates.lake.ledger.tests_of(nodes)
            if row["test_id"] not in there
        ]

    def of_others(self, candidates: Mapping[str, Candidate]) -> list[AuditTest]:
        """Return the tests of other projects on tables that they published and this run builds."""
        nodes_by_table = {
            one.identifier: node_id
            for node_id, one in candidates.items()
            if one.base_metadata is not None
        }
        found = self.candidates.lake.ledger.tests_of_others(nodes_by_table)
        return [
            AuditTest(row["test_id"], row["test_name"], frozenset({nodes_by_table[key]}), "data")
            for key, rows in found.items()
            for row in rows
        ]

    def former(self, results: Sequence[TestResult]) -> dict[str, TestRule]:
        """Return the rules at the last publish, by test.

        Only of tests that may let rows pass now by another rule.
        """
        asked = {
            one.test_id
            for one in results
            if one.rule is not None
            and (
                one.status == "warn"
                or "_if " in one.rule.severity
                or one.rule.inputs
                or (one.rule.sql and one.rule.given)
            )
        }
        # A run without thresholds that was given nothing from outside reads nothing here.
        before = self.candidates.lake.ledger.published_tests(asked, self._table_of) if asked else {}
        return {key: rule_of(row) for key, row in before.items()}

    def error_if(self, test_id: str, severity: str) -> str | None:
        """Return the condition on which a test fails; None if no failures of it are accepted.

        For accepted rows, dbt only warns, and builds the nodes that read them.
        """
        accepted = self.accepted(test_id, severity)
        return accepting(severity, accepted.failures) if accepted else None

    def accepted(self, test_id: str, severity: str) -> Acceptance | None:
        """Return the acceptance of a test; None if there is none for its present rule."""
        row = self._acceptances.get(test_id)
        # An acceptance holds only for the rule that it was given for.
        if row is None or row["severity"] != severity:
            return None
        until = f" until {row['until'] - DAY:%Y-%m-%d}" if row["until"] else ""
        return Acceptance(row["failures"], f"by {row['accepted_by']}{until}: {row['reason']}")

    @cached_property
    def _acceptances(self) -> Mapping[str, Mapping[str, Any]]:
        lake = self.candidates.lake
        # Where nothing was accepted there is no table, and the tests need not wait until the ledger
        # has loaded PyArrow.
        if not lake.locations({(LEDGER_SCHEMA, "acceptances")}):
            return {}
        return lake.ledger.acceptances(self.candidates.branch, self._table_of)


def failed_before(
    history: Iterable[Mapping[str, Any]],
    tests: Iterable[TestFact],
    present: Mapping[str, str],
) -> list[AuditTest]:
    """Return the tests of earlier runs that failed on a present candidate and do not read it now.

    The rows still fail if such a test was deleted, was disabled or belongs to another project. It
    does not count for a new build of the table, which has rows that it has not read.

    Args:
        history: The rows of tests of earlier runs on the branch.
        tests: The present tests.
        present: The candidates of earlier runs on the branch: node to token.
    """
    reads = {test.test_id: test.reads for test in tests}
    found = []
    for row in history:
        audited = dict(row["audited"] or {}).items()
        nodes = {node_id for node_id, token in audited if present.get(node_id) == token}
        nodes -= reads.get(row["test_id"], frozenset())
        if nodes and rejects(row["status"]):
            found.append(AuditTest(row["test_id"], row["test_name"], frozenset(nodes), known=False))
    return found


def rule_of(row: Mapping[str, Any]) -> TestRule:
    """Return the rule in a row of ``tests``; rows of older versions have no inputs."""
    inputs = row.get("inputs")
    return TestRule(
        row["severity"],
        None if inputs is None else dict(inputs),
        row.get("code"),
        row.get("sql"),
        dict(row.get("given") or {}),
    )
