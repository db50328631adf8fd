"""The custom facet of OpenLineage with the gate's verdict."""

from __future__ import annotations

import attr
from openlineage.client.facet_v2 import RunFacet


@attr.define
class GateTest:
    """A test of a table: its name, and its status as in `sparkwap.runs.results.TestOutcome`."""

    name: str
    status: str


@attr.define
class SparkwapGateRunFacet(RunFacet):
    """The gate's verdict about a table, or about all tables of a run.

    The facet has the schema of its base class: sparkwap has no public address for an own one.

    Attributes:
        outcome: ``published``, ``held`` or ``rejected``; of a run also ``done``: it had no tables.
        branch: The audit branch.
        reasons: Why it is not published; without error texts of Spark, which may quote values.
        tests_expected: Number of tests that had to pass.
        tests_passed: Number of those that passed.
        publish_id: The publish, for a rollback; None if it is not published.
        candidate: The snapshot on the branch; None if there is none, as for new tables and views.
        tests: The tests of the table.
    """

    outcome: str
    branch: str
    reasons: list[str] = attr.field(factory=list)
    tests_expected: int = 0
    tests_passed: int = 0
    publish_id: str | None = None
    candidate: str | None = None
    tests: list[GateTest] = attr.field(factory=list)
