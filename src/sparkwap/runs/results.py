"""The results of a run for machines: the verdict of each table, and the tests that it rests on.

People read the summary (`sparkwap.runs.summary`), which has the same content.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sparkwap.core.command_end import Outcome
from sparkwap.gate.verdicts import Outcome as TableOutcome
from sparkwap.runs import next_steps

if TYPE_CHECKING:
    from sparkwap.runs.types import Invocation, RunEnd

NOT_RUN = "not run"
"""The status of an expected test without a result."""


@dataclass(frozen=True, slots=True)
class TableResult:
    """The verdict of a table or view.

    Attributes:
        table: ``schema.table``.
        kind: ``model``, ``seed``, ``snapshot``, or ``failures`` for stored failures of a test.
        outcome: ``published``, ``held`` or ``rejected``.
        notices: Notices of its build, and about its publish.
        candidate: The snapshot id, or the metadata file of a new table or view; None if there is
            none.
    """

    table: str
    node_id: str
    kind: str
    outcome: TableOutcome
    reasons: tuple[str, ...]
    notices: tuple[str, ...]
    tests_expected: int
    tests_passed: int
    candidate: str | None


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """A test of the run's tables.

    Attributes:
        status: ``pass``, ``warn``, ``fail``, ``error``, or why it did not run.
        failures: Number of failing rows; None if not known.
        tables: The tables of the run that it reads.
    """

    __test__ = False

    test_id: str
    name: str
    status: str
    failures: int | None
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NextStep:
    """A command that continues, and its purpose."""

    purpose: str
    command: str


@dataclass(frozen=True, slots=True)
class RunResults:
    """The end of a run.

    Attributes:
        run_id: dbt's invocation id.
        publish_id: The publish, for a rollback; None if nothing was published.
        refused: The catalog's message, if it refused the publish.
        tries: How often the run was built again because main had moved.
    """

    run_id: str
    branch: str
    project: str
    target: str
    started_at: datetime
    ended_at: datetime
    publish_id: str | None = None
    refused: str | None = None
    tries: int = 0
    tables: tuple[TableResult, ...] = ()
    tests: tuple[TestOutcome, ...] = ()
    next: tuple[NextStep, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """The outcome of a closed run, which is that of its worst table."""
        outcomes = {table.outcome for table in self.tables}
        if self.refused is not None or "rejected" in outcomes:
            return "rejected"
        if not outcomes:
            return "done"
        return "held" if "held" in outcomes else "published"


def run_results(about: Invocation, end: RunEnd | None) -> RunResults:
    """Return the results of a run; without an end, those of a run that the gate has not closed."""
    common = (about.run_id, about.branch, about.project, about.target_name, about.started_at)
    if end is None:
        return RunResults(*common, datetime.now(UTC))
    return RunResults(
        *common,
        datetime.now(UTC),
        end.publish_id,
        end.refused,
        end.tries,
        tuple(_table(row, end) for row in next_steps.node_outcomes(end)),
        tuple(_tests(end)),
        tuple(NextStep(*step) for step in next_steps.next_steps(end, about.branch)),
    )


def _table(row: next_steps.NodeOutcome, end: RunEnd) -> TableResult:
    node, verdict = row.node, row.verdict
    return TableResult(
        node.name,
        node.node_id,
        node.kind,
        row.outcome,
        verdict.reasons,
        (*verdict.notices, *end.notices.get(node.node_id, ())),
        verdict.expected,
        verdict.passed,
        node.candidate,
    )


def _tests(end: RunEnd) -> list[TestOutcome]:
    names = {node.node_id: node.name for node in end.nodes}
    # Results of this run come before those of earlier runs on the branch.
    results = {result.test_id: result for result in reversed(end.results)}
    found = []
    for test in end.tests:
        result = results.get(test.test_id)
        found.append(
            TestOutcome(
                test.test_id,
                test.name,
                result.status if result else NOT_RUN,
                result.failures if result else None,
                tuple(sorted(names[node_id] for node_id in test.nodes & names.keys())),
            )
        )
    return sorted(found, key=lambda test: test.test_id)
