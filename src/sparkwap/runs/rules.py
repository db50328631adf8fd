"""What the ledger tells of tests: by which rule they let rows through, and what is accepted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sparkwap.catalog import Identifier
from sparkwap.gate.audit_outcomes import rejects
from sparkwap.gate.facts import Acceptance, AuditTest, TestResult, TestRule
from sparkwap.gate.thresholds import accepting
from sparkwap.runs.candidates import Candidates
from sparkwap.runs.types import DAY, TestFact


@dataclass(frozen=True)
class Rules:
    """What the ledger tells of the tests of what a run has built.

    Attributes:
        table_of_node: Returns schema and name of the table of a node; None if there is none.
    """

    candidates: Candidates
    table_of_node: Callable[[str], Identifier | None]

    def _table_of(self, node_id: str) -> Identifier | None:
        """The table that a node is, by what was built or by the code; None where neither knows."""
        return self.candidates.built.get(node_id) or self.table_of_node(node_id)

    def gone(self, built: Iterable[str], there: set[str]) -> list[AuditTest]:
        """The tests that saw what was last published of these nodes, and are not there now."""
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

    def of_others(self, nodes: Iterable[str]) -> list[AuditTest]:
        """The tests that another project has of tables which it has published, and we build."""
        built, targets = self.candidates.built, self.candidates.targets
        nodes_by_table = {
            built[node_id]: node_id
            for node_id in nodes
            if node_id in built and targets[built[node_id]].base_metadata is not None
        }
        found = self.candidates.lake.ledger.tests_of_others(nodes_by_table)
        return [
            AuditTest(row["test_id"], row["test_name"], frozenset({nodes_by_table[key]}), "data")
            for key, rows in found.items()
            for row in rows
        ]

    def former(self, results: Sequence[TestResult]) -> dict[str, TestRule]:
        """The rule at the last publish of those tests that may let rows through by another now."""
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
        """The condition on which a test fails, where that is not its own: some is accepted.

        dbt then warns of the rows, and builds what reads them.

        :param severity: the test's, with its thresholds.
        """
        accepted = self.accepted(test_id, severity)
        return accepting(severity, accepted.failures) if accepted else None

    def accepted(self, test_id: str, severity: str) -> Acceptance | None:
        """What is accepted of a test by the rule that it has."""
        row = self._acceptances.get(test_id)
        # Of a test that fails by another rule now nobody has said anything.
        if row is None or row["severity"] != severity:
            return None
        until = f" until {row['until'] - DAY:%Y-%m-%d}" if row["until"] else ""
        return Acceptance(row["failures"], f"by {row['accepted_by']}{until}: {row['reason']}")

    @cached_property
    def _acceptances(self) -> Mapping[str, Mapping[str, Any]]:
        return self.candidates.lake.ledger.acceptances(self.candidates.branch, self._table_of)


def failed_before(
    history: Iterable[Mapping[str, Any]],
    tests: Iterable[TestFact],
    present: Mapping[str, str],
) -> list[AuditTest]:
    """The tests of earlier runs that failed on a present candidate and are not expected of it now.

    A test that was deleted, is switched off or belongs to another project has made no row better
    by that; a new build of the table has rows of which it has said nothing.
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
    """The rule of a row of the ledger's ``tests``; one of an older version knows no inputs."""
    inputs = row.get("inputs")
    return TestRule(
        row["severity"],
        None if inputs is None else dict(inputs),
        row.get("code"),
        row.get("sql"),
        dict(row.get("given") or {}),
    )
