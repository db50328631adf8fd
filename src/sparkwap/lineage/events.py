"""Makes OpenLineage events from the results of a run. Pure.

Readers of main see only what is published, and so do readers of a catalog: a table is an output
only of the event of its publish. The job of a held table ends with ABORT, that of a rejected one
with FAIL, and neither has an output.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from uuid import UUID, uuid5

import attr
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    BaseFacet,
    DatasetFacet,
    JobFacet,
    RunFacet,
    data_quality_assertions_dataset,
    dataset_version_dataset,
    datasource_dataset,
    documentation_dataset,
    error_message_run,
    job_type_job,
    lifecycle_state_change_dataset,
    parent_run,
    processing_engine_run,
    schema_dataset,
    symlinks_dataset,
)

from sparkwap import __version__
from sparkwap.core.personal import CITING
from sparkwap.core.redaction import redact
from sparkwap.gate.facts import LOAD
from sparkwap.lineage import naming
from sparkwap.lineage.model import Command, Facts, Node, Version
from sparkwap.runs.results import RunResults, TableResult, TestOutcome

PRODUCER = f"urn:sparkwap:{__version__}"

_KINDS = ("model", "seed", "snapshot", LOAD)
_PASSED = ("pass", "warn")
_RAN = (*_PASSED, "fail", "error")
_ENDS = {"published": RunState.COMPLETE, "held": RunState.ABORT, "rejected": RunState.FAIL}
# What follows is a finding, which may quote a value of a row.
_DETAIL = re.compile(r"\b(test .*? (?:passed|warned|failed)) \((?![\d,]+ rows?\)).*\)", re.DOTALL)
_Change = lifecycle_state_change_dataset.LifecycleStateChange
_REBUILT = frozenset({"table", "seed"})


@attr.define
class GateTest:
    """A test of a table: its name, and its status as in `TestOutcome`."""

    name: str
    status: str


@attr.define
class SparkwapGateRunFacet(RunFacet):
    """The gate's verdict about a table, or about all tables of a run.

    The facet has the schema of its base class: sparkwap has no public address for an own one.

    Attributes:
        outcome: ``published``, ``held`` or ``rejected``; of a run also ``done``: it had no tables.
        reasons: Why it is not published; without error texts of Spark, which may quote values.
        tests_expected: Number of tests that had to pass.
        publish_id: The publish, for a rollback; None if it is not published.
        candidate: The snapshot on the branch; None if there is none, as for new tables and views.
    """

    outcome: str
    branch: str
    reasons: list[str] = attr.field(factory=list)
    tests_expected: int = 0
    tests_passed: int = 0
    publish_id: str | None = None
    candidate: str | None = None
    tests: list[GateTest] = attr.field(factory=list)


def events(results: RunResults, command: Command, facts: Facts) -> list[RunEvent]:
    """Return the events of a run, in the order in which to send them.

    The same results give the same ids of runs, so a catalog takes a repeat for the same run.
    """
    made = _Maker(results, command, facts)
    tables = [table for table in results.tables if table.kind in _KINDS]
    inside = [event for table in tables for event in made.of_table(table)]
    start, end = made.of_run()
    return [start, *inside, end]


def public_reason(reason: str) -> str:
    """Return a reason without secrets, and without texts that may quote a value of a row."""
    cited = CITING.search(reason)
    return redact(_DETAIL.sub(r"\1", reason[: cited.end(1)] if cited else reason))


class _Maker:
    def __init__(self, results: RunResults, command: Command, facts: Facts) -> None:
        self._results = results
        self._command = command
        self._facts = facts
        self._run_id = UUID(results.run_id)
        self._outcomes = {table.table: table.outcome for table in results.tables}

    # -- the command -----------------------------------------------------------------------------

    def of_run(self) -> tuple[RunEvent, RunEvent]:
        """Return the first and the last event, of the dbt command."""
        results, command = self._results, self._command
        outcome = results.outcome
        reasons = [public_reason(results.refused)] if results.refused else []
        gate = SparkwapGateRunFacet(
            outcome=outcome,
            branch=results.branch,
            reasons=reasons,
            tests_expected=len(results.tests),
            tests_passed=sum(test.status in _PASSED for test in results.tests),
            publish_id=results.publish_id,
        )
        failed = outcome == "rejected" or command.failed
        if failed and not reasons:
            reasons = ["dbt has failed"] if outcome != "rejected" else ["a table was rejected"]
        up = command.parent
        return self._pair(
            str(self._run_id),
            Job(command.namespace, command.job, _job_type("JOB")),
            RunState.FAIL if failed else RunState.COMPLETE,
            gate,
            results.started_at,
            error=reasons if failed else (),
            parent=_parent(up.run_id, up.namespace, up.job) if up else None,
        )

    # -- a table ---------------------------------------------------------------------------------

    def of_table(self, table: TableResult) -> list[RunEvent]:
        """Return the events of the job that builds a table, and of that which tests it."""
        node = self._facts.nodes.get(table.node_id, Node())
        tests = [test for test in self._results.tests if table.table in test.tables]
        published = table.outcome == "published"
        reasons = [public_reason(reason) for reason in table.reasons]
        candidate = table.candidate or ""
        gate = SparkwapGateRunFacet(
            outcome=table.outcome,
            branch=self._results.branch,
            reasons=reasons,
            tests_expected=table.tests_expected,
            tests_passed=table.tests_passed,
            publish_id=self._results.publish_id if published else None,
            candidate=candidate if candidate.isdecimal() else None,
            tests=[GateTest(test.name, test.status) for test in tests],
        )
        made = self._pair(
            str(uuid5(self._run_id, table.node_id)),
            self._job(table.node_id, table.kind.upper()),
            _ENDS[table.outcome],
            gate,
            node.started_at or self._results.started_at,
            inputs=[self._input(one) for one in node.inputs],
            outputs=[self._output(table, node)] if published else (),
            error=reasons if table.outcome == "rejected" else (),
            parent=self._own_parent(),
        )
        return [*made, *(self._of_tests(table, tests) if published else ())]

    def _of_tests(self, table: TableResult, tests: Sequence[TestOutcome]) -> Sequence[RunEvent]:
        """Return the events of a published table's tests, which now hold for main.

        Those of other tables say nothing about main, so only their gate facet has them.
        """
        assertions = [
            data_quality_assertions_dataset.Assertion(
                assertion=test.name,
                success=test.status == "pass",
                column=self._facts.test_columns.get(test.test_id),
            )
            for test in tests
            if test.status in _RAN and not test.test_id.startswith("unit_test.")
        ]
        if not assertions:
            return ()
        facet = data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(assertions)
        tested = self._input(table.table)
        tested.inputFacets = {"dataQualityAssertions": facet}
        return self._pair(
            str(uuid5(self._run_id, f"tests of {table.node_id}")),
            self._job(naming.tests_job(table.node_id), "TEST"),
            RunState.COMPLETE,
            None,
            self._results.started_at,
            inputs=[tested],
            parent=self._own_parent(),
        )

    # -- datasets --------------------------------------------------------------------------------

    def _input(self, table: str) -> InputDataset:
        return InputDataset(self._command.datasets, table, facets=self._identity(table))

    def _output(self, table: TableResult, node: Node) -> OutputDataset:
        facets = self._identity(table.table)
        if node.description:
            facets["documentation"] = documentation_dataset.DocumentationDatasetFacet(
                redact(node.description)
            )
        if node.columns:
            facets["schema"] = schema_dataset.SchemaDatasetFacet(
                [
                    schema_dataset.SchemaDatasetFacetFields(
                        column.name, column.type, redact(column.description or "") or None
                    )
                    for column in node.columns
                ]
            )
        change = _change(self._facts.versions.get(table.table), node)
        if change is not None:
            facets["lifecycleStateChange"] = (
                lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet(change)
            )
        return OutputDataset(self._command.datasets, table.table, facets=facets)

    def _identity(self, table: str) -> dict[str, DatasetFacet]:
        """Return the facets that say which table it is, and the version that the run published."""
        namespace = self._command.datasets
        facets: dict[str, DatasetFacet] = {
            "dataSource": datasource_dataset.DatasourceDatasetFacet(namespace, namespace),
            # DataHub names tables by this facet, and others by their path.
            "symlinks": symlinks_dataset.SymlinksDatasetFacet(
                [symlinks_dataset.Identifier(namespace, table, "TABLE")]
            ),
        }
        version = self._facts.versions.get(table)
        published = self._outcomes.get(table) == "published"
        if published and version is not None and version.snapshot is not None:
            facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(
                str(version.snapshot)
            )
        return facets

    # -- jobs and runs ---------------------------------------------------------------------------

    def _job(self, name: str, kind: str) -> Job:
        return Job(self._command.namespace, name, _job_type(kind))

    def _own_parent(self) -> parent_run.ParentRunFacet:
        return _parent(str(self._run_id), self._command.namespace, self._command.job)

    def _pair(
        self,
        run_id: str,
        job: Job,
        state: RunState,
        gate: SparkwapGateRunFacet | None,
        started_at: datetime,
        *,
        inputs: Sequence[InputDataset] = (),
        outputs: Sequence[OutputDataset] = (),
        error: Iterable[str] = (),
        parent: parent_run.ParentRunFacet | None = None,
    ) -> tuple[RunEvent, RunEvent]:
        first: dict[str, RunFacet] = {
            "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
                version=self._command.dbt_version, name="dbt", openlineageAdapterVersion=__version__
            )
        }
        if parent is not None:
            first["parent"] = parent
        last = dict(first)
        if gate is not None:
            last["sparkwap_gate"] = gate
        message = "; ".join(error)
        if message:
            last["errorMessage"] = error_message_run.ErrorMessageRunFacet(message, "SQL")

        def event(state: RunState, at: datetime, facets: dict[str, RunFacet]) -> RunEvent:
            made = RunEvent(
                eventTime=at.isoformat(),
                producer=PRODUCER,
                run=Run(run_id, facets),
                job=job,
                eventType=state,
                inputs=list(inputs),
                outputs=[] if state == RunState.START else list(outputs),
            )
            # Here, because `set_producer` would set it for all users of the client in the process.
            for facet in _facets(made):
                facet._producer = PRODUCER
            return made

        return event(RunState.START, started_at, first), event(state, self._results.ended_at, last)


def _change(
    version: Version | None, node: Node
) -> lifecycle_state_change_dataset.LifecycleStateChange | None:
    """Return what a publish did to a table as a whole; None if it added to its rows."""
    if version is None:
        return None
    if version.is_new:
        return _Change.CREATE
    if version.how == "clone":
        return _Change.ALTER
    added = version.how == "branch" and node.materialized not in _REBUILT
    return None if added else _Change.OVERWRITE


def _facets(event: RunEvent) -> Iterator[BaseFacet]:
    inputs, outputs = event.inputs or (), event.outputs or ()
    yield from (event.run.facets or {}).values()
    yield from (event.job.facets or {}).values()
    for dataset in (*inputs, *outputs):
        yield from (dataset.facets or {}).values()
    for one in inputs:
        yield from (one.inputFacets or {}).values()


def _job_type(kind: str) -> dict[str, JobFacet]:
    return {"jobType": job_type_job.JobTypeJobFacet("BATCH", "DBT", kind)}


def _parent(run_id: str, namespace: str, job: str) -> parent_run.ParentRunFacet:
    return parent_run.ParentRunFacet(parent_run.Run(run_id), parent_run.Job(namespace, job))
