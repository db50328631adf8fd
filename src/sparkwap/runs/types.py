"""What a run is told, what it builds, and how it ends."""

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
from sparkwap.gate.facts import BuiltNode
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
    """A command of dbt that writes to an audit branch, or publishes what is on one.

    Attributes:
        run_id: dbt's invocation id.
        branch: the audit branch; may hold what an earlier run left there.
        command: dbt's command, ``build``, ``test``, ...
        rebuild_of: the run that this one builds again for; None for a run of its own.
        repeats: this invocation has the vars and flags of those that filled the branch.
        part: ``empty`` or ``sample`` if dbt was told to read no rows, or a part of them; what is
            built or tested so is no reason to publish anything, and is not published itself.
        replay: the moment that it reads as of; None for the present.
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
    replay: Replay | None = None
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @cached_property
    def is_own(self) -> bool:
        """Whether the branch is the run's own, to which nobody has written before."""
        return self.branch == names.audit_branch(self.run_id, None)

    def reached(self, step: checkpoints.Checkpoint, identifier: Identifier, **facts: Any) -> None:
        """Tell that the build of a table has come to a step."""
        name = ".".join(identifier)
        checkpoint(step, run_id=self.run_id, branch=self.branch, table=name, **facts)


@dataclass(frozen=True, slots=True)
class BuildTarget:
    """Where a node of this run is built.

    Attributes:
        identifier: ``(schema, name)`` under which it is published.
        how: ``branch`` of the live table, or ``side`` (new, clone, view, replacement).
        side_schema: the side schema; None for a branch.
        base: snapshot of ``main`` that the branch or clone started from; None where there is none.
        base_metadata: metadata file of what stood under the name at first; None for nothing.
        changes: what differs from the live table, in words; empty for a branch.
        candidate: token of what the build left (a snapshot id, or the metadata file of a side
            object); None until the build is done.
        problem: an invariant that did not hold; None if all did.
        since: snapshot that stood there before this run wrote; None where there was none.
    """

    identifier: Identifier
    how: Literal["branch", "side"]
    side_schema: str | None = None
    base: int | None = None
    base_metadata: str | None = None
    changes: tuple[str, ...] = ()
    candidate: str | None = None
    problem: str | None = None
    since: int | None = None

    @property
    def name(self) -> str:
        return ".".join(self.identifier)


@dataclass(frozen=True, slots=True)
class NodeFact:
    """A model, seed or snapshot as dbt left it.

    ``status`` is dbt's: success, error, skipped, partial success; ``message`` is one line;
    ``parents`` are the upstream nodes, ephemeral models replaced by theirs; ``seconds`` is what its
    build took, as far as known; ``batches`` are the ranges of time that a microbatch model was to
    build.
    """

    node_id: str
    identifier: Identifier
    resource_type: str
    status: str
    message: str | None
    parents: frozenset[str]
    seconds: float | None = None
    batches: tuple[Range, ...] = ()


@dataclass(frozen=True, slots=True)
class TestFact:
    """A test of the manifest.

    ``reads`` are the nodes whose rows it sees, views looked through; ``severity`` is dbt's, with
    the thresholds that are not dbt's defaults; ``disabled`` says that dbt will not run it;
    ``inputs``, ``code`` and ``given`` are those of its `Rule`; ``varies`` says that each run may
    make another query of the same code.
    """

    __test__ = False

    test_id: str
    name: str
    kind: str
    reads: frozenset[str]
    severity: str
    disabled: bool = False
    inputs: Mapping[str, str] = field(default_factory=dict)
    code: str | None = None
    varies: bool = False
    given: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TestSeen:
    """A result of this invocation; ``status`` is dbt's, or one of `NOT_RUN` of the verdicts.

    ``seconds`` is what the test took, and ``sql`` its compiled query, as far as known.
    """

    __test__ = False

    test_id: str
    status: str
    failures: int | None
    message: str | None
    seconds: float | None = None
    sql: str | None = None


class RunNotes:
    """What the builds and audits of a run have to tell besides their results.

    Safe for use by dbt's threads.
    """

    def __init__(self) -> None:
        self.notices: dict[str, list[str]] = {}
        self.measures: dict[str, Measured] = {}
        self.findings: dict[str, str] = {}
        self.rows: list[LedgerRows] = []
        self._lock = threading.Lock()

    def record(self, rows: LedgerRows) -> None:
        """Have rows written to the ledger together with those of this run, when it closes."""
        with self._lock:
            self.rows.append(rows)

    def tell(self, node_id: str, notice: str) -> None:
        """Keep what a node's build has to tell, one line, for the summary."""
        with self._lock:
            self.notices.setdefault(node_id, []).append(notice)

    def measured(self, test_id: str, measured: Measured) -> None:
        """Keep what an anomaly audit has measured, for the ledger and the summary."""
        with self._lock:
            self.measures[test_id] = measured
        self.found(test_id, measured.finding)

    def found(self, test_id: str, finding: str | None) -> None:
        """Keep what an audit has found, in words, for its message; None for nothing."""
        with self._lock:
            self.findings.pop(test_id, None)
            if finding is not None:
                self.findings[test_id] = finding


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended.

    Attributes:
        decision: the gate's verdicts.
        nodes: all nodes of the branch that were decided on.
        published: number of tables and views that are live now.
        refused: message of the catalog when it refused the publish that the gate had decided.
        seconds: time the publish took.
        earlier: ids of those nodes that earlier runs on the branch have built, not this one.
        notices: what the builds of nodes had to tell, by node id.
        refusals: what the catalog found different, by the id of the node that it stopped.
        rebase: what has to be built again on main as it is now; None where nothing has, or where
            it would not help: ``gave_up`` then says why, if it has to be said.
        tries: how often this was done; ``waited`` is how long it waited for it, in seconds.
        rebuilt: names of the tables that were built again.
        rebuilt_by: id of the run that did so last.
        in_series: the catalog has no transaction over several tables, so that they were published
            one after the other, by a journal.
        watched: `main` was watched from the run's opening on; ``caught`` is what the run has moved
            of it past the gate.
        code_hash: hash of the project's code in the ledger; None where that has none.
        continued: ids of the nodes to whose batches of earlier runs this one has added.
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
    in_series: bool = False
    watched: bool = False
    caught: tuple[GateBypass, ...] = ()
    continued: frozenset[str] = frozenset()
    code_hash: str | None = None

    @property
    def left(self) -> Literal["closed", "held", "rejected"]:
        """What stays on the branch: nothing, what only waits, or something that is rejected."""
        if self.refused is not None or self.decision.failed:
            return "rejected"
        return "held" if self.published < len(self.nodes) else "closed"

    def rejected(self) -> dict[str, str]:
        """The nodes that have to be built again, with the reason in words."""
        verdicts = self.decision.verdicts
        bad = {n: "; ".join(v.reasons) for n, v in verdicts.items() if v.outcome == "rejected"}
        # What was built on their rows would stay as it is when they are built again.
        nodes = {node.node_id: node for node in self.nodes if node.kind != "failures"}
        for node_id, cause in nearest_upstream(nodes, bad).items():
            if nodes[node_id].candidate is not None and node_id not in bad:
                bad[node_id] = f"it was built on {nodes[cause].name}, which was rejected"
        if self.refused is not None:
            bad |= dict.fromkeys(self.decision.publish, "the catalog refused the publish")
        return bad
