"""The types of a run: its invocation, its targets and facts, and its end."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Literal

from sparkwap.audits.metrics import Measured
from sparkwap.catalog import Difference, Identifier, LedgerRows
from sparkwap.core import checkpoints, names
from sparkwap.core.checkpoints import checkpoint
from sparkwap.gate.facts import AuditTest, BuiltNode, TestResult
from sparkwap.gate.settings import GateSettings
from sparkwap.gate.verdicts import Decision, nearest_upstream
from sparkwap.runs.batches import Range
from sparkwap.runs.rebase import Rebase
from sparkwap.runs.time_travel import Replay
from sparkwap.runs.watched import GateBypass

DAY = timedelta(days=1)
DAY_MS = DAY // timedelta(milliseconds=1)


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """A command of dbt that writes to an audit branch, or publishes one.

    Attributes:
        branch: The audit branch, which may have candidates of earlier runs.
        rebuild_of: The run that this rebase belongs to; None otherwise.
        repeats: Whether this invocation has the vars and flags of the runs that filled the branch.
        part: ``empty`` or ``sample`` if dbt reads no rows or only some. Such builds are never
            published, and such tests never count for a publish.
        session: A token of the profile's settings of Spark, and of dbt's ``dispatch``.
    """

    run_id: str
    branch: str
    settings: GateSettings
    command: str
    project: str
    target_name: str
    rebuild_of: str | None = None
    repeats: bool = False
    part: Literal["empty", "sample"] | None = None
    session: str | None = None
    replay: Replay | None = None
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @cached_property
    def is_own(self) -> bool:
        """Whether the branch belongs to this run alone, so that no run has written to it before."""
        return self.branch == names.audit_branch(self.run_id, None)

    def reached(self, step: checkpoints.Checkpoint, identifier: Identifier, **facts: Any) -> None:
        """Call a checkpoint for the build of a table."""
        name = ".".join(identifier)
        checkpoint(step, run_id=self.run_id, branch=self.branch, table=name, **facts)


@dataclass(frozen=True, slots=True)
class NodeFact:
    """A model, seed or snapshot after its build.

    Attributes:
        identifier: ``(schema, name)`` under which it is published.
        status: dbt's status: success, error, skipped, partial success.
        parents: The upstream nodes; an ephemeral model is replaced by its own parents.
        batches: The time ranges that a microbatch model had to build.
        code: A digest of its text.
    """

    node_id: str
    identifier: Identifier
    resource_type: str
    status: str
    message: str | None
    parents: frozenset[str]
    seconds: float | None = None
    batches: tuple[Range, ...] = ()
    code: str | None = None


@dataclass(frozen=True, slots=True)
class TestFact:
    """A test of the manifest.

    Attributes:
        reads: The nodes whose rows the test reads, directly or through views.
        severity: dbt's severity, with the thresholds that are not dbt's defaults.
        views: The views among `reads` that the test names itself.
        behind: The nodes among `reads` that, as dbt knows it, only these views name.
        varies: Whether the same code may give another query in each run.
        inputs, code, given: See `TestRule`.
    """

    __test__ = False

    test_id: str
    name: str
    kind: str
    reads: frozenset[str]
    severity: str
    disabled: bool = False
    views: frozenset[str] = frozenset()
    behind: frozenset[str] = frozenset()
    inputs: Mapping[str, str] = field(default_factory=dict)
    code: str | None = None
    varies: bool = False
    given: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TestSeen:
    """A test result of this invocation; ``status`` is dbt's, or one of `NOT_RUN` of the verdicts.

    ``seconds`` is the duration of the test, and ``sql`` its compiled query, if known.
    """

    __test__ = False

    test_id: str
    status: str
    failures: int | None
    message: str | None
    seconds: float | None = None
    sql: str | None = None


class RunNotes:
    """Notes of the builds and audits of a run, besides their results.

    Safe for use by dbt's threads.
    """

    def __init__(self) -> None:
        self.notices: dict[str, list[str]] = {}
        self.measures: dict[str, Measured] = {}
        self.findings: dict[str, str] = {}
        self.rows: list[LedgerRows] = []
        self.write_modes: dict[str, str] = {}
        self._lock = threading.Lock()

    def record(self, rows: LedgerRows) -> None:
        """Add rows that are written to the ledger with those of this run, when it closes."""
        with self._lock:
            self.rows.append(rows)

    def add_notice(self, node_id: str, notice: str) -> None:
        """Add a notice of a node's build, one line, for the summary."""
        with self._lock:
            self.notices.setdefault(node_id, []).append(notice)

    def measured(self, test_id: str, measured: Measured) -> None:
        """Add the figures of an anomaly audit, for the ledger and the summary."""
        with self._lock:
            self.measures[test_id] = measured
        self.found(test_id, measured.finding)

    def found(self, test_id: str, finding: str | None) -> None:
        """Set the finding of an audit, in words, for its message; None removes it."""
        with self._lock:
            self.findings.pop(test_id, None)
            if finding is not None:
                self.findings[test_id] = finding


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The end of a run.

    Attributes:
        nodes: All nodes of the branch that were decided on.
        refused: The catalog's message, if it refused the publish.
        refusals: The kinds of differences for which the publish of a node was refused, by node id.
        rebase: The nodes that have to be built again on the present main; None if there are none
            or a rebase does not help.
        gave_up: The reason for no rebase, if the user needs it.
        waited: The seconds that the run has waited before rebases.
        rebuilt_by: The id of the run that built them last.
        watched: Whether `main` was watched during the whole run.
        caught: The changes of `main` by which the run has bypassed the gate.
        continued: Ids of the nodes that have added batches to those of earlier runs.
        results: The results of tests, those of this run before those of earlier runs.
    """

    decision: Decision
    nodes: tuple[BuiltNode, ...]
    published: int
    refused: str | None
    seconds: float
    earlier: frozenset[str] = frozenset()
    notices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    refusals: Mapping[str, tuple[Difference, ...]] = field(default_factory=dict)
    rebase: Rebase | None = None
    gave_up: str = ""
    tries: int = 0
    waited: float = 0.0
    rebuilt: tuple[str, ...] = ()
    rebuilt_by: str | None = None
    sequential: bool = False
    watched: bool = False
    caught: tuple[GateBypass, ...] = ()
    continued: frozenset[str] = frozenset()
    code_hash: str | None = None
    publish_id: str | None = None
    tests: tuple[AuditTest, ...] = ()
    results: tuple[TestResult, ...] = ()

    @property
    def left(self) -> Literal["closed", "held", "rejected"]:
        """What stays on the branch: nothing (``closed``), held nodes, or rejected nodes."""
        if self.failed:
            return "rejected"
        return "held" if self.published < len(self.nodes) else "closed"

    def rejected(self) -> dict[str, str]:
        """Return the nodes that have to be built again -> the reason in words."""
        verdicts = self.decision.verdicts
        bad = {n: "; ".join(v.reasons) for n, v in verdicts.items() if v.outcome == "rejected"}
        # Nodes that were built on their rows have to be built again, too.
        nodes = {node.node_id: node for node in self.nodes if node.kind != "failures"}
        for node_id, cause in nearest_upstream(nodes, bad).items():
            if nodes[node_id].candidate is not None and node_id not in bad:
                bad[node_id] = f"it was built on {nodes[cause].name}, which was rejected"
        if self.refused is not None:
            bad |= dict.fromkeys(self.decision.publish, "the catalog refused the publish")
        return bad

    @property
    def failed(self) -> bool:
        """Whether the gate has refused something."""
        return self.refused is not None or self.decision.failed
