"""A run: where each of its tables is built, what was built, and how it ends.

Free of dbt and Spark: the adapter translates dbt's nodes and results into the types of this
module, macros write the data, and the catalog is reached without a JVM.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from importlib import import_module
from typing import Any, Literal

from sparkwap.audits.metrics import Baselines, Measured, exact_rows
from sparkwap.catalog import (
    BranchItem,
    CommitUnknown,
    Difference,
    Identifier,
    Kind,
    LedgerRows,
    Mismatch,
    PublishRefused,
    PublishTorn,
    PublishUnverified,
    Read,
    SideItem,
    TableState,
)
from sparkwap.catalog.rows import require_side_schema
from sparkwap.core import names, steps
from sparkwap.core.errors import SparkwapError
from sparkwap.core.retry import Fate, fate
from sparkwap.core.sqllex import ANY_RELATION
from sparkwap.core.steps import reached
from sparkwap.gate.placement import Desired, decide_build
from sparkwap.gate.settings import GateSettings
from sparkwap.gate.summary import LEFTOVER, MOVED
from sparkwap.gate.thresholds import accepting
from sparkwap.gate.verdicts import (
    NOT_RUN,
    Acceptance,
    AuditTest,
    BuiltNode,
    Decision,
    Rule,
    TestResult,
    decide,
    nearest_upstream,
    rejects,
)
from sparkwap.ledger.ledger import LOADED, BranchHistory, Ledger, token_of
from sparkwap.ledger.manifests import Packed
from sparkwap.publish.lake import Lake
from sparkwap.runs import overlay, rebuild
from sparkwap.runs.replay import Outside, Replay
from sparkwap.runs.watched import Caught, MainWatch
from sparkwap.runs.watching import Watch

LEFT = (
    "left on the branch by an earlier run, and not audited as it is now; build it again, or drop "
    "the branch"
)
DAY = timedelta(days=1)
DAY_MS = DAY // timedelta(milliseconds=1)
REBUILDING = frozenset({"build", "run", "test", "seed", "snapshot"})
"""dbt's commands that may build again what main moved away under."""


_VIEW = "view "
_READ_TOO_EARLY = (
    "it read {} before this run had built that, as dbt does not know that it does; name it by "
    "ref(), which gives the order, or build this one again"
)
UNGATED = (
    "somebody took the property write.wap.enabled off the table, without which writes go straight "
    "to main; build it again, which puts the property back"
)


@dataclass(frozen=True, slots=True)
class Target:
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
    build took, as far as known.
    """

    node_id: str
    identifier: Identifier
    resource_type: str
    status: str
    message: str | None
    parents: frozenset[str]
    seconds: float | None = None


@dataclass(slots=True)
class _Named:
    """What the statements of a node or test have named, and when the first and last of them was."""

    first: int
    last: int = 0
    relations: set[Identifier] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class TestFact:
    """A test of the manifest.

    ``reads`` are the nodes whose rows it sees, views looked through; ``severity`` is dbt's, with
    the thresholds that are not dbt's defaults; ``disabled`` says that dbt will not run it.
    """

    __test__ = False

    test_id: str
    name: str
    kind: str
    reads: frozenset[str]
    severity: str
    disabled: bool = False
    inputs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TestSeen:
    """A result of this invocation; ``status`` is dbt's, or one of `NOT_RUN` of the verdicts.

    ``seconds`` is what the test took, as far as known.
    """

    __test__ = False

    test_id: str
    status: str
    failures: int | None
    message: str | None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Closing:
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
        rebuild: what has to be built again on main as it is now; None where nothing has, or where
            it would not help: ``gave_up`` then says why, if it has to be said.
        tries: how often this was done; ``waited`` is how long it waited for it, in seconds.
        rebuilt: names of the tables that were built again.
        rebuilt_by: id of the run that did so last.
        in_series: the catalog has no transaction over several tables, so that they were published
            one after the other, by a journal.
        watched: `main` was watched from the run's opening on; ``caught`` is what the run has moved
            of it past the gate.
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
    rebuild: rebuild.Rebuild | None = None
    gave_up: str = ""
    tries: int = 0
    waited: float = 0.0
    rebuilt: tuple[str, ...] = ()
    rebuilt_by: str | None = None
    in_series: bool = False
    watched: bool = False
    caught: tuple[Caught, ...] = ()
    continued: frozenset[str] = frozenset()

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


def overlay_of(lake: Lake, branch: str) -> overlay.Overlay:
    """The names that stand in the side schemas of an audit branch now."""
    found = overlay.Overlay()
    for side, owner in lake.side_schemas().items():
        schema = names.split_side_schema(side, branch) if owner == branch else None
        if schema is not None:
            for name in lake.relations(side):
                found.add((schema, name), side)
    return found


class Run:
    """One dbt invocation that writes to an audit branch.

    Safe for use by dbt's threads.

    :param lake: the catalog.
    :param run_id: dbt's invocation id.
    :param branch: the audit branch; may hold what an earlier run left there.
    :param command: dbt's command, ``build``, ``test``, ...
    :param rebuild_of: the run that this one builds again for; None for a run of its own.
    :param repeats: this invocation has the vars and flags of those that filled the branch.
    :param manifest: tells the project's code, for the ledger; asked once, when the run is closed.
    :param stands: tells schema and name of the table that a node of the project is; None for none.
    :param replay: the moment that it reads as of; None for the present.
    :param part: ``empty`` or ``sample`` if dbt was told to read no rows, or a part of them; what is
        built or tested so is no reason to publish anything, and is not published itself.
    """

    def __init__(
        self,
        lake: Lake,
        *,
        run_id: str,
        branch: str,
        settings: GateSettings,
        command: str,
        project: str,
        target_name: str,
        rebuild_of: str | None = None,
        repeats: bool = False,
        part: Literal["empty", "sample"] | None = None,
        manifest: Callable[[], Packed] | None = None,
        replay: Replay | None = None,
        stands: Callable[[str], Identifier | None] = lambda node_id: None,
    ) -> None:
        self.lake = lake
        self.part = part
        self.replay = replay
        self.run_id = run_id
        self.branch = branch
        self.settings = settings
        self.command = command
        self.project = project
        self.target_name = target_name
        self.rebuild_of = rebuild_of
        self._manifest = manifest
        self._stands_by_code = stands
        self._code: Packed | None = None
        self.repeats = repeats
        self.started_at = datetime.now(UTC)
        self.overlay = overlay.Overlay()
        self._targets: dict[Identifier, Target] = {}
        self._dropped: set[Identifier] = set()
        self._gone: dict[str, str] = {}
        self._built: dict[str, Identifier] = {}
        self._steps = itertools.count(1)
        self._begun: dict[str, int] = {}
        self._done: dict[str, int] = {}
        self._named: dict[str, _Named] = {}
        self._continued: set[str] = set()
        self._stood: dict[str, dict[str, str]] = {}
        self._read_early: dict[str, set[str]] = {}
        self._read_first: dict[str, frozenset[str]] = {}
        self._earlier: dict[str, Target] = {}
        self._added: set[str] = set()
        self._marks: dict[str, str] = {}
        self._built_on: dict[str, dict[str, str]] = {}
        self._notices: dict[str, list[str]] = {}
        self._measured: dict[str, Measured] = {}
        self._findings: dict[str, str] = {}
        self._seconds: dict[str, float | None] = {}
        self.baselines = Baselines(lake)
        self._recorded: list[LedgerRows] = []
        self._found: dict[str, str] = {}
        self._reads: dict[str, dict[str, str]] = {}
        self._earlier_reads: dict[str, dict[str, str]] = {}
        self._lock = threading.Lock()
        self._places: dict[Identifier, threading.Lock] = {}
        self.main: MainWatch | None = None

    def watch_main(
        self,
        project: Collection[Identifier] = (),
        *,
        app_id: Callable[[], str | None] = lambda: None,
        same_clock: bool = True,
    ) -> None:
        """Watch `main` from now on, which this run may move by its publish only.

        :param project: tables and views of the project, which count whether they are gated or not.
        :param app_id: tells the Spark application that writes for this run.
        :param same_clock: Spark's clock is that of this process.
        """
        lake, run_id = self.lake, self.run_id
        watch = Watch(lake.store, lambda: lake.ledger, project, run_id=run_id, branch=self.branch)
        self.main = MainWatch(watch, run_id, app_id=app_id, same_clock=same_clock)

    def warm_up(self) -> None:
        """Get ready in the background what closing the run will need, while Spark works.

        PyIceberg's file access takes most of a second to import, and the ledger's tables a while
        to look up or create, which a run would wait for.
        """
        threading.Thread(target=self._warm_up, daemon=True).start()

    def _warm_up(self) -> None:
        for module in ("pyiceberg.io.pyarrow", "pyarrow.dataset"):
            import_module(module)
        # Closing the run does it again, and tells what is wrong with the catalog.
        with suppress(Exception):
            self.lake.ledger.ensure_all()

    def load_side_schemas(self) -> None:
        """Find what earlier runs on this branch have left in side schemas.

        :raises ConfigError: a schema of the user's has the name of a side schema of the branch.
        """
        marked = self.lake.side_schemas()
        for schema in sorted(self.lake.schemas()):
            if names.split_side_schema(schema, self.branch) is not None:
                require_side_schema(schema, self.branch, marked.get(schema))
        self.overlay = overlay_of(self.lake, self.branch)

    def find_candidates(self) -> None:
        """Find what earlier runs on this branch have left for this one to audit.

        Before the first test: another run on the branch, which no lease stops, may put others in
        their place, and what a test has read by then nobody knows.
        """
        if not self._is_own:
            rows = self.lake.ledger.branch_history(self.branch).nodes
            targets = {row["node_id"]: _target_of(row) for row in rows}
            self._found = {n: t.candidate for n, t in targets.items() if t.candidate is not None}
            self._earlier = targets
            self._added = {
                row["node_id"]
                for row in rows
                if row["verdict"] != "published" and row["node_id"] in dict(row["built_on"] or ())
            }

    def _standing(self) -> dict[str, str]:
        """The candidates that are on the branch now, by node."""
        built = {n: self._targets[key] for n, key in list(self._built.items())}
        targets = (self._earlier | built).items()
        return {n: self._mark(t) for n, t in targets if t.candidate is not None}

    def _mark(self, target: Target) -> str:
        """What tells a candidate from others; of a view its text, as its rows are not its own."""
        token = str(target.candidate)
        if target.how != "side":
            return token
        if token not in self._marks:
            beside = (str(target.side_schema), target.identifier[1])
            text = self.lake.view_content(beside)
            self._marks[token] = token if text is None else f"{_VIEW}{text}"
        return self._marks[token]

    def has_earlier(self, node_id: str) -> bool:
        """Whether an earlier run has left rows of a node on the branch."""
        return node_id in self._found

    def has_added(self, node_id: str) -> bool:
        """Whether an earlier run has added to what another had built of a node on the branch.

        To build it anew from `main` would keep what the last one adds, and no more.
        """
        return node_id in self._added

    @property
    def _is_own(self) -> bool:
        """Whether the branch is the run's own, to which nobody has written before."""
        return self.branch == names.audit_branch(self.run_id, None)

    def begin(self, node_id: str, identifier: Identifier) -> bool:
        """Begin to build a node: from ``main``, whatever earlier runs have left on the branch.

        A rejected candidate must not be what a retry of an incremental model adds to, and the
        same input has to give the same table however often a run is tried.

        :return: whether there was something to forget; the caller's caches then have it still.
        """
        with self._lock:
            first = node_id not in self._begun
            self._begun.setdefault(node_id, next(self._steps))
        if not first:
            return False
        with self._place(identifier):
            self._reached(steps.NODE_BEGINS, identifier, node_id=node_id)
            found = self.lake.forget(identifier, self.branch)
            self.overlay.remove(identifier)
            self._reached(steps.NODE_BEGUN, identifier, node_id=node_id)
            return found

    def has_begun(self, node_id: str) -> bool:
        """Whether this run has begun to build a node."""
        return node_id in self._begun

    def goes_on(self, node_id: str, identifier: Identifier) -> bool:
        """Whether a node may add to what an earlier run has built of it on the branch.

        Batches that a run has built stand there as long as nothing has opened the branch anew:
        `main` that moved, a discard, a sweep. Once they do not, none of them may be left out.

        :return: the same for the whole run; with True, this run takes them for begun.
        """
        with self._lock:
            if node_id not in self._begun and self._earlier_stands(node_id, identifier):
                self._begun[node_id] = next(self._steps)
                self._continued.add(node_id)
            return node_id in self._continued

    def _earlier_stands(self, node_id: str, identifier: Identifier) -> bool:
        rows = self.lake.ledger.branch_history(self.branch).nodes
        targets = [_target_of(row) for row in rows if row["node_id"] == node_id]
        if not targets or targets[0].candidate is None or targets[0].identifier != identifier:
            return False
        # What has been added was made of rows that are to be there still.
        on = next(dict(row["built_on"] or ()) for row in rows if row["node_id"] == node_id)
        now = self._standing()
        if any(now.get(key, token) != token for key, token in on.items() if key != node_id):
            return False
        target = targets[0]
        if target.how == "branch":
            return self.lake.is_on_branch(identifier, self.branch, int(str(target.candidate)))
        beside = (str(target.side_schema), identifier[1])
        live, grown = self.lake.state(identifier), self.lake.descends(beside, str(target.candidate))
        # The base of a clone has to be what `main` is now; what was new has to be new still.
        return (
            grown
            and (live.main if live else None) == target.base
            and (live is None) == (target.base_metadata is None)
        )

    def read(self, reader: str, identifiers: Iterable[Identifier]) -> None:
        """Record what a node or test is about to read from ``main``, as it is now.

        What this run builds is left out: that is compared with its own base and candidate. So is
        what a replay reads: that is what it was, whatever becomes of ``main``.

        :param reader: the node's or test's id.
        :param identifiers: tables and views that it reads, directly or through views.
        """
        if self.settings.reads == "ignore":
            return
        outside = [
            one
            for one in identifiers
            if self.target(one) is None
            and self.overlay.side_schema(one) is None
            and self.overlay.pinned(one) is None
        ]
        if outside:
            tokens = {".".join(one.identifier): one.token for one in self.lake.read(outside)}
            with self._lock:
                self._reads[reader] = tokens

    def named(self, reader: str, relations: AbstractSet[Identifier]) -> None:
        """Record what a statement of a node or test names, whether dbt knows of it or not.

        :param reader: the node's or test's id.
        :param relations: see :func:`sparkwap.core.sqllex.relation_names`.
        """
        with self._lock:
            step = next(self._steps)
            named = self._named.setdefault(reader, _Named(first=step))
            named.last = step
            named.relations |= relations

    def pin(self, outside: Iterable[Outside]) -> None:
        """Read what this run does not build as of its replay's moment, from now on.

        What stands on the audit branch already is read there: a retry does not build all anew.

        :raises ReplayRefused: something of it cannot be read as of then; nothing is pinned.
        """
        if self.replay is None:
            return
        self.overlay.pin(self.replay.pin([one for one in outside if not self._on_branch(one)]))

    def _on_branch(self, one: Outside) -> bool:
        if self.overlay.side_schema(one.identifier) is not None:
            return True
        state = self.lake.state(one.identifier)
        return state is not None and self.branch in state.refs

    def record(self, rows: LedgerRows) -> None:
        """Have rows written to the ledger together with those of this run, when it closes."""
        with self._lock:
            self._recorded.append(rows)

    def fault(self, identifier: Identifier, problem: str) -> None:
        """Keep a candidate from ever being published: by this run, or by a later command.

        :param problem: what is wrong with it, in words.
        """
        target = self.target(identifier)
        if target is not None:
            self._keep(replace(target, problem=problem))

    def tell(self, node_id: str, notice: str) -> None:
        """Keep what a node's build has to tell, one line, for the summary."""
        with self._lock:
            self._notices.setdefault(node_id, []).append(notice)

    def measured(self, test_id: str, measured: Measured) -> None:
        """Keep what an anomaly audit has measured, for the ledger and the summary."""
        with self._lock:
            self._measured[test_id] = measured
        self.found(test_id, measured.finding)

    def found(self, test_id: str, finding: str | None) -> None:
        """Keep what an audit has found, in words, for its message; None for nothing."""
        with self._lock:
            self._findings.pop(test_id, None)
            if finding is not None:
                self._findings[test_id] = finding

    def row_count(self, identifier: Identifier) -> int | None:
        """How many rows a reader in this run sees in a table, by its metadata alone.

        None where that does not tell: of views, and of tables with delete files.
        """
        if self.part is not None:
            return None
        side = self.overlay.side_schema(identifier)
        state = self.lake.state((side, identifier[1]) if side else identifier)
        if state is None or state.kind != "table":
            return None
        # In a side schema the rows are on main.
        ref = None if side else state.refs.get(self.branch)
        snapshot = ref.snapshot_id if ref else state.main
        if snapshot is None:
            return 0
        return exact_rows(self.lake.snapshot_summary(state.identifier, snapshot))

    # -- placing ---------------------------------------------------------------------------------

    def place_table(
        self,
        identifier: Identifier,
        desired: Desired,
        in_place: Mapping[str, str] | None = None,
    ) -> Target:
        """Decide where a table is built, and make the branch, the clone or the side schema.

        :param desired: what the table shall look like; see `sparkwap.gate.placement.Desired`.
        :param in_place: properties to set at once; see :func:`sparkwap.gate.placement.in_place`.
        """
        with self._place(identifier):
            known = self.target(identifier)
            if known is not None:
                return known
            current = self.lake.state(identifier)
            if current is None or current.kind != "table":
                return self._beside(identifier, current)
            plan = decide_build(current, desired)
            # A table that has never been written has no snapshot that a branch could start from,
            # and what an earlier run has in the side schema would hide a branch.
            beside = self.overlay.side_schema(identifier) is not None
            if plan.where == "branch" and current.main is not None and not beside:
                return self._branch(identifier, current, in_place)
            return self._clone(identifier, current, plan.changes, in_place)

    def place_clone(self, identifier: Identifier, changes: Sequence[str]) -> Target:
        """Build ``identifier`` on a clone, as its schema will change.

        :param changes: what will change, in words.
        """
        with self._place(identifier):
            known = self.target(identifier)
            if known is not None and known.how == "branch":
                raise SparkwapError(
                    f"{known.name} was already written on its branch by this run when its schema "
                    f"turned out to change ({', '.join(changes)}). Nothing of it is published. "
                    "Build it again with `dbt retry`: all batches then see the new schema."
                )
            current = self.lake.state(identifier)
            if known is not None or current is None or current.kind != "table":
                return known or self._beside(identifier, current)
            return self._clone(identifier, current, tuple(changes))

    def place_beside(self, identifier: Identifier, kind: Kind = "table") -> Target:
        """Build ``identifier`` from nothing in the side schema: a view, or a replacement.

        :param kind: what it will be.
        :raises SparkwapError: something else stands there, and the catalog cannot put one in the
            place of the other.
        """
        with self._place(identifier):
            known = self.target(identifier)
            return known or self._beside(identifier, self.lake.state(identifier), kind)

    def place_copy(self, identifier: Identifier, source: Identifier) -> Target:
        """Build ``identifier`` as a zero-copy copy of another published table.

        :raises SparkwapError: ``source`` is not a table.
        """
        target = self.place_beside(identifier)
        beside = (str(target.side_schema), identifier[1])
        copied = self.lake.copy(source, beside, self.location(identifier))
        return self._keep(replace(target, since=copied.main))

    def target(self, identifier: Identifier) -> Target | None:
        """Where ``identifier`` is built in this run; None if it is not."""
        return self._targets.get(identifier)

    def location(self, identifier: Identifier) -> str:
        """A path of its own for a new table, so that a discard can delete all of it."""
        schema, name = identifier
        return f"{self.lake.warehouse}/{schema}/{name}-{names.short_run_id(self.run_id)}"

    def _place(self, identifier: Identifier) -> threading.Lock:
        with self._lock:
            return self._places.setdefault(identifier, threading.Lock())

    def _keep(self, target: Target) -> Target:
        self._targets[target.identifier] = target
        return target

    def _reached(self, step: steps.Step, identifier: Identifier, **facts: Any) -> None:
        name = ".".join(identifier)
        reached(step, run_id=self.run_id, branch=self.branch, table=name, **facts)

    def _branch(
        self,
        identifier: Identifier,
        current: TableState,
        in_place: Mapping[str, str] | None,
    ) -> Target:
        self._reached(steps.NODE_PLACING, identifier)
        opened = self.lake.open_branch(identifier, self.branch, in_place)
        self._reached(steps.NODE_PLACED, identifier)
        return self._keep(
            Target(
                identifier,
                "branch",
                base=opened.base,
                base_metadata=current.metadata_location,
                candidate=None if opened.head is None else str(opened.head),
                since=opened.head,
            )
        )

    def _clone(
        self,
        identifier: Identifier,
        current: TableState,
        changes: tuple[str, ...],
        in_place: Mapping[str, str] | None = None,
    ) -> Target:
        side = names.side_schema(identifier[0], self.branch)
        standing = self.lake.state((side, identifier[1]))
        if standing is not None and standing.uuid != current.uuid:
            # Left by an earlier run from before the live table was made; the build replaces it.
            return self._beside(identifier, current)
        self._reached(steps.NODE_PLACING, identifier)
        clone = self.lake.clone(identifier, side, in_place)
        self.overlay.add(identifier, side)
        self._reached(steps.NODE_PLACED, identifier)
        return self._keep(
            Target(
                identifier,
                "side",
                side_schema=side,
                base=clone.main,
                base_metadata=current.metadata_location,
                changes=changes,
                since=clone.main,
            )
        )

    def _beside(
        self, identifier: Identifier, current: TableState | None, kind: Kind = "table"
    ) -> Target:
        if current is not None and current.kind != kind:
            self.lake.require_change_of_kind(identifier, current.kind, kind)
        side = names.side_schema(identifier[0], self.branch)
        self._reached(steps.NODE_PLACING, identifier)
        self.lake.ensure_schema(side, self.branch)
        self.overlay.add(identifier, side)
        standing = self.lake.state((side, identifier[1]))
        self._reached(steps.NODE_PLACED, identifier)
        return self._keep(
            Target(
                identifier,
                "side",
                side_schema=side,
                base=current.main if current else None,
                base_metadata=current.metadata_location if current else None,
                since=standing.main if standing else None,
            )
        )

    def watch(self, identifier: Identifier) -> Callable[[], Fate]:
        """Look at a table before a write is sent to it.

        :param identifier: the table as the statement names it; a side object in its side schema.
        :return: tells, after an error, what became of the write.
        """
        beside = names.split_side_schema(identifier[0], self.branch) is not None
        ref = "main" if beside else self.branch
        if self.lake.state(identifier) is None:
            # What cannot be looked at must not be sent again.
            return lambda: "unknown"
        before = self.lake.head(identifier, ref)

        def look() -> Fate:
            now = self.lake.head(identifier, ref)
            return fate(
                before.snapshot_id if before else None,
                now.snapshot_id if now else None,
                now.parent if now else None,
                now.run_id if now else None,
                self.run_id,
            )

        return look

    # -- checking what a build left --------------------------------------------------------------

    def built(self, node_id: str, identifier: Identifier, *, must_write: bool) -> Target:
        """Record what a node's build left as its candidate.

        :param must_write: the build replaces the table, so a branch head that did not move means
            that the rows went elsewhere.
        :raises SparkwapError: an invariant does not hold; nothing of this node will be published.
        """
        target = self.target(identifier)
        if target is None:
            raise SparkwapError(
                f"{'.'.join(identifier)} was built outside the gate, so nothing of this run is "
                "published. A custom materialization has to call wap_place_table before it "
                "writes and wap_built after it."
            )
        self._reached(steps.NODE_CHECKING, identifier, node_id=node_id)
        if self._has_dropped(target):
            with self._lock:
                self._gone[node_id] = target.name
            return target
        done = self._checked(target, must_write=must_write)
        # Now, as what is read by its name may be built beside this node; read too early it shows.
        stood = self._standing()
        with self._lock:
            if node_id not in self._continued:
                stood.pop(node_id, None)
            self._stood.setdefault(node_id, stood)
            self._built[node_id] = identifier
            self._done[node_id] = next(self._steps)
        self._keep(done)
        self._reached(steps.NODE_RECORDED, identifier, node_id=node_id)
        if done.problem is not None:
            raise SparkwapError(f"{target.name}: {done.problem}")
        return done

    def dropped(self, identifier: Identifier) -> None:
        """Record that a statement of this run drops a table or view, as the statement names it."""
        with self._lock:
            self._dropped.add(identifier)

    def _has_dropped(self, target: Target) -> bool:
        """Whether nothing is left of what was built, and by a statement of this run itself."""
        beside = (str(target.side_schema), target.identifier[1])
        return beside in self._dropped and self.lake.state(beside) is None

    def left_nothing(self) -> str | None:
        """A line on what hooks of this run have dropped when it was built; None for nothing."""
        if not self._gone:
            return None
        told = ", ".join(sorted(self._gone.values()))
        return f"notice     {told}: dropped by a hook of this run; readers of main see no change"

    def _checked(self, target: Target, *, must_write: bool) -> Target:
        if target.how == "side":
            beside = (str(target.side_schema), target.identifier[1])
            state = self.lake.state(beside)
            if state is None:
                return replace(target, problem="its build left nothing in the side schema")
            strangers = self._strangers(beside, state.main, target.since) if state.main else None
            problem = strangers or _view_problem(self.lake.view_problem(beside, self.branch))
            return replace(target, candidate=state.metadata_location, problem=problem)
        state = self.lake.state(target.identifier)
        if state is None:
            return replace(target, problem="the table was dropped while the run was on")
        if state.main != target.base and not self._moved_by_others(target, state):
            return replace(
                target,
                problem=f"main moved from {target.base} to {state.main} during the build. If no "
                "other job writes to the table, this catalog does not keep Iceberg branches "
                "apart, and sparkwap cannot protect it",
            )
        if not _is_gated(state):
            return replace(target, problem=UNGATED)
        head = state.refs.get(self.branch)
        if head is None:
            return replace(target, problem=f"its audit branch {self.branch} is gone")
        candidate = str(head.snapshot_id)
        if must_write and candidate == target.candidate:
            return replace(
                target, problem="the build wrote nothing to the audit branch; where did it write?"
            )
        strangers = self._strangers(target.identifier, head.snapshot_id, target.since)
        return replace(target, candidate=candidate, problem=strangers)

    def _strangers(self, identifier: Identifier, head: int, since: int | None) -> str | None:
        """A problem if a statement of another run wrote to what this one has begun anew.

        A server goes on with a statement for a while when its client was killed, and may commit it
        to the branch that a retry is writing to.
        """
        others = self.lake.writers(identifier, head, since) - {self.run_id}
        if not others:
            return None
        ids = ", ".join(names.short_run_id(one) for one in sorted(others))
        return (
            f"a statement of run {ids}, which was still on at the server, wrote to its audit "
            "branch during the build"
        )

    def _moved_by_others(self, target: Target, state: TableState) -> bool:
        """Whether ``main`` was moved by another writer, which the publish will find out again."""
        head = state.refs.get(self.branch)
        wrote = False
        if head is not None and head.snapshot_id != target.base:
            written = self.lake.snapshot_summary(target.identifier, head.snapshot_id)
            wrote = written.get("wap_run") == self.run_id
        summaries = self.lake.summaries(target.identifier, target.base, state.main)
        return rebuild.moved_by_others(summaries, self.run_id, wrote_to_branch=wrote)

    # -- closing ---------------------------------------------------------------------------------

    def close_copies(
        self, tests: Sequence[TestFact] = (), known: Collection[str] = frozenset()
    ) -> Closing:
        """Close a run that has copied tables: those that have no test are published.

        The tests of others have to look at the copies: they may be of another target, or older than
        the tests.
        """
        nodes = [
            NodeFact(node_id, self._targets[key].identifier, "model", "success", None, frozenset())
            for node_id, key in self._built.items()
        ]
        return self.close(nodes, tests, [], known)

    def close(
        self,
        nodes: Sequence[NodeFact],
        tests: Sequence[TestFact],
        seen: Sequence[TestSeen],
        known: Collection[str] = frozenset(),
        varied: bool = False,
    ) -> Closing:
        """Let the gate decide, publish what it lets through, and write the ledger.

        :param nodes: what this run was to build.
        :param tests: all tests that read these or the ``known`` ones.
        :param seen: the results of this run.
        :param known: ids of the nodes whose tests are all among ``tests``; besides ``nodes``. What
            earlier runs have left of others on the branch holds it up.
        :param varied: whether vars of the command line may have made another project of it: a test
            that is gone then is none that its authors have taken away.
        :raises CommitUnknown: nobody can say whether the publish was made; the ledger will, as its
            rows are part of it. It says nothing of this run if it was not.
        :raises PublishUnverified: it was made, and what stands there now is something else.
        """
        facts = {"run_id": self.run_id, "branch": self.branch}
        reached(steps.CLOSING, **facts)
        ledger = self.lake.ledger
        self._seconds = {n.node_id: n.seconds for n in nodes} | {t.test_id: t.seconds for t in seen}
        own = self._is_own
        earlier = BranchHistory((), ()) if own else ledger.branch_history(self.branch)
        mine = frozenset(self._built)
        built = self._all_nodes(nodes, earlier.nodes, known)
        built, tests = self._by_name(built, tests)
        settings = self.settings
        caught = tuple(self.caught_on_main())
        built, moved = _with_caught(built, caught)
        leftovers = moved + ([] if own else self._leftovers(built))
        strange = leftovers or not all(node.known for node in built)
        if strange and settings.publish == "lineage":
            # Which nodes have read them is not known.
            settings = replace(settings, publish="run")
        present = {n.node_id: n.candidate for n in built if n.candidate is not None}
        self._built_on = self._all_built_on(built, earlier.nodes)
        built = self._with_stale(built, earlier.nodes, present)
        # What another run has put there since this one was opened, no test of this one has audited.
        saw = self._found | {n: token for n, token in present.items() if n in mine}
        tokens = {n: saw[n] for n in present.keys() & saw.keys()}
        # Failures that an earlier run on the branch has stored are among its nodes already.
        there = {node.node_id for node in built}
        failures = [node for node in self._failures_nodes(tests) if node.node_id not in there]
        ids = {t.test_id for t in tests}
        accepted = self.settings.disabled_tests == "publish"
        tests = [t for t in tests if not (t.disabled and accepted)]
        read = [t for t in tests if t.reads & {n.node_id for n in built}]
        # dbt runs none that is off; those of tables that are off say nothing of what was built.
        disabled = [TestSeen(t.test_id, "disabled", None, None) for t in read if t.disabled]
        fresh = self._results(tests, [*seen, *disabled], tokens)
        results = [*fresh, *map(_result_of, earlier.tests)]
        former = self._former_rules(results)
        expected = [
            AuditTest(
                t.test_id,
                t.name,
                t.reads,
                t.kind,
                former.get(t.test_id),
                accepted=self._accepted(t.test_id, t.severity),
            )
            for t in read
        ]
        if varied and settings.warnings != "publish":
            lost = self._gone_tests(built, ids)
            expected += lost
            results += [TestResult(one.test_id, "gone") for one in lost]
        if settings.warnings != "publish":
            theirs = self._tests_of_others([n for n in built if n.node_id in self._built])
            expected += theirs
            results += [TestResult(one.test_id, "elsewhere") for one in theirs]
        # A build that adds nothing leaves the candidate that was there, and is a new one even so.
        standing = {n: token for n, token in present.items() if n not in mine}
        expected += _failed_before(earlier.tests, tests, standing)
        decision = decide([*built, *failures, *leftovers], expected, results, settings)
        now = {fact.node_id for fact in nodes}
        self._earlier_reads = {
            row["node_id"]: dict(row.get("reads") or {})
            for row in earlier.nodes
            if row["node_id"] not in now
        }
        reads = self._all_reads(decision, tests, earlier.tests)
        reached(steps.DECIDED, **facts)
        decided = [*built, *failures, *leftovers]
        closing = self._settle(ledger, decision, decided, tests, fresh, reads, frozenset(now))
        reached(steps.CLOSED, **facts)
        return replace(
            closing,
            earlier=frozenset(n.node_id for n in [*built, *leftovers]) - now,
            watched=self.main is not None,
            caught=caught,
            continued=frozenset(self._continued),
            notices={node_id: tuple(told) for node_id, told in self._notices.items()},
        )

    def _stands(self, node_id: str) -> Identifier | None:
        """The table that a node is, by what was built or by the code; None where neither knows."""
        return self._built.get(node_id) or self._stands_by_code(node_id)

    def _gone_tests(self, built: Sequence[BuiltNode], there: set[str]) -> list[AuditTest]:
        """The tests that saw what was last published of these nodes, and are not there now."""
        nodes = {n.node_id: key for n in built if (key := self._stands(n.node_id)) is not None}
        return [
            AuditTest(
                row["test_id"],
                row["test_name"],
                frozenset(dict(row["audited"]).keys() & nodes.keys()),
                "data",
            )
            for row in self.lake.ledger.tests_of(nodes)
            if row["test_id"] not in there
        ]

    def _tests_of_others(self, nodes: Sequence[BuiltNode]) -> list[AuditTest]:
        """The tests that another project has of tables which it has published, and we build."""
        identifiers = {self._built[node.node_id]: node.node_id for node in nodes}
        standing = {
            key: node_id
            for key, node_id in identifiers.items()
            if self._targets[key].base_metadata is not None
        }
        found = self.lake.ledger.tests_of_others(standing)
        return [
            AuditTest(row["test_id"], row["test_name"], frozenset({standing[key]}), "data")
            for key, rows in found.items()
            for row in rows
        ]

    def _former_rules(self, results: Sequence[TestResult]) -> dict[str, Rule]:
        """The rule at the last publish of those tests that may let rows through by another now."""
        asked = {
            one.test_id
            for one in results
            if one.rule is not None
            and (one.status == "warn" or "_if " in one.rule.severity or one.rule.inputs)
        }
        # Most runs have none, and read nothing here.
        before = self.lake.ledger.published_tests(asked, self._stands) if asked else {}
        return {key: _rule(row) for key, row in before.items()}

    def error_if(self, test_id: str, severity: str) -> str | None:
        """The condition on which a test fails, where that is not its own: some is accepted.

        dbt then warns of the rows, and builds what reads them.

        :param severity: the test's, with its thresholds.
        """
        accepted = self._accepted(test_id, severity)
        return accepting(severity, accepted.failures) if accepted else None

    def _accepted(self, test_id: str, severity: str) -> Acceptance | None:
        row = self._acceptances.get(test_id)
        # Of a test that fails by another rule now nobody has said anything.
        if row is None or row["severity"] != severity:
            return None
        until = f" until {row['until'] - DAY:%Y-%m-%d}" if row["until"] else ""
        return Acceptance(row["failures"], f"by {row['accepted_by']}{until}: {row['reason']}")

    @cached_property
    def _acceptances(self) -> Mapping[str, Mapping[str, Any]]:
        return self.lake.ledger.acceptances(self.branch, self._stands)

    def _by_name(
        self, nodes: Sequence[BuiltNode], tests: Sequence[TestFact]
    ) -> tuple[list[BuiltNode], list[TestFact]]:
        """Nodes and tests with what their statements have read and dbt knows nothing of.

        By a source that names a model of the same run, by a name in the text, through a view: what
        such a statement has read was the candidate if that was begun before it.
        """
        of_name = {node.name.lower(): node.node_id for node in nodes}
        name_of = {node.node_id: node.name for node in nodes}
        schemas = {schema.lower(): schema for schema in self.lake.schemas()} if self._named else {}

        @cache
        def views(schema: str) -> dict[str, str]:
            kinds = self.lake.relations(schemas[schema]) if schema in schemas else {}
            return {name.lower(): name for name, kind in kinds.items() if kind == "view"}

        @cache
        def behind(one: Identifier) -> frozenset[Identifier]:
            for schema in (names.side_schema(one[0], self.branch), one[0]):
                name = views(schema).get(one[1])
                if name is not None:
                    return self.lake.view_reads((schemas[schema], name))
            return frozenset()

        def read_by(reader: str) -> set[str]:
            seen: set[Identifier] = set()
            todo = set(self._named[reader].relations)
            while todo:
                schema, name = todo.pop()
                one = (names.split_side_schema(schema, self.branch) or schema, name)
                if one not in seen and (one == ANY_RELATION or one[0] in schemas):
                    seen.add(one)
                    todo |= behind(one)
            found = {of_name[".".join(one)] for one in seen if ".".join(one) in of_name}
            return (set(of_name.values()) if ANY_RELATION in seen else found) - {reader}

        def with_parents(node: BuiltNode) -> BuiltNode:
            told = self._named.get(node.node_id)
            if told is None:
                return node
            found = read_by(node.node_id)
            # One that was begun later, and had left nothing here before, was read from main.
            found = {
                one for one in found if one in self._found or self._begun.get(one, 0) < told.last
            }
            # What only Spark knows may be any of them, and is most likely none.
            named = found if ANY_RELATION not in told.relations else set()
            early = sorted(one for one in named if self._finished(one) > told.first)
            # What only Spark knows may be one that was built later: nothing of it was read.
            before = {one for one in found if self._finished(one) <= told.first}
            self._read_first[node.node_id] = node.parents | before
            problem = node.problem
            if early and problem is None and node.status == "built":
                problem = _READ_TOO_EARLY.format(", ".join(name_of[one] for one in early))
            return replace(node, parents=node.parents | found, problem=problem)

        def with_reads(test: TestFact) -> TestFact:
            told = self._named.get(test.test_id)
            if told is None:
                return test
            named = read_by(test.test_id)
            found = {one for one in named if self._finished(one) < told.first}
            if ANY_RELATION not in told.relations:
                # It has read what was there before, and nothing of what is to be published.
                early = {one for one in named - found if one in self._begun}
                self._read_early[test.test_id] = early
                found |= early
            return replace(test, reads=test.reads | found)

        return [with_parents(node) for node in nodes], [with_reads(test) for test in tests]

    def _finished(self, node_id: str) -> float:
        """When this run had built a node: never if it only began, before all if not even that."""
        return self._done.get(node_id, math.inf if node_id in self._begun else 0)

    def caught_on_main(self) -> list[Caught]:
        """What this run has moved past the gate, up to now; readers have it back if that goes.

        :raises CatalogError: the catalog cannot be read.
        """
        if self.main is None:
            return []
        self.main.check(always=True)
        return self.main.caught

    def _leftovers(self, built: Sequence[BuiltNode]) -> list[BuiltNode]:
        """What earlier runs have left on the branch, and no run that ended has told the ledger of.

        Reads of the branch have seen it, so nothing may be published beside it.
        """
        known = {node.name.lower() for node in built} | {
            ".".join(key) for key in (*self._targets, *self._built.values())
        }
        left: set[str] = set()
        for one in self.lake.open_branches():
            if one.branch == self.branch:
                left |= {".".join(t.identifier) for t in one.tables if t.head != t.base}
                left |= {
                    f"{names.split_side_schema(s.identifier[0], self.branch)}.{s.identifier[1]}"
                    for s in one.side
                }
        return [
            BuiltNode(f"{LEFTOVER}.{name}", name, LEFTOVER, "failed", None, LEFT)
            for name in sorted(left)
            if name.lower() not in known
        ]

    def _all_reads(
        self,
        decision: Decision,
        tests: Sequence[TestFact],
        history: Iterable[Mapping[str, Any]],
    ) -> dict[Read, set[str]]:
        """What was read from ``main`` for what is published -> the nodes that it was read for."""
        by_reader = {row["test_id"]: dict(row.get("reads") or {}) for row in history}
        by_reader |= self._earlier_reads
        by_reader |= self._reads
        publish = set(decision.publish)
        read_for = {node_id: {node_id} for node_id in publish}
        read_for |= {test.test_id: set(test.reads) & publish for test in tests}
        found: dict[Read, set[str]] = {}
        for reader, tokens in by_reader.items():
            for name, token in tokens.items():
                schema, _, table = name.partition(".")
                nodes = read_for.get(reader)
                if nodes and (schema, table) not in self._targets:
                    found.setdefault(Read((schema, table), token), set()).update(nodes)
        return found

    def _all_nodes(
        self,
        facts: Sequence[NodeFact],
        history: Iterable[Mapping[str, Any]],
        known: Collection[str],
    ) -> list[BuiltNode]:
        now = {fact.node_id: self._node(fact) for fact in facts if fact.node_id not in self._gone}
        for row in history:
            node_id = row["node_id"]
            if (
                node_id in now
                or node_id in self._gone
                or node_id in self._built
                or row["verdict"] == "published"
            ):
                continue
            built = _target_of(row)
            target = self._still_there(built)
            if target is not None:
                self._targets.setdefault(target.identifier, target)
                self._built[node_id] = target.identifier
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
            return self.lake.ledger.builder((row["schema"], row["name"])) is None
        return row["resource_type"] == "failures" or node_id in known

    def _all_built_on(
        self, nodes: Sequence[BuiltNode], history: Iterable[Mapping[str, Any]]
    ) -> dict[str, dict[str, str]]:
        """The candidates of the branch that each node was built on; its own one if it has added."""
        parents = {node.node_id: node.parents for node in nodes} | self._read_first
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
            stood = self._stood.get(node_id)
            if stood is None:
                # One that failed while it added to its rows of before has them no more.
                lost = {node_id: self._found[node_id]} if node_id in self._continued else {}
                return before.get(node_id, {}) | lost
            wanted = upstream(node_id) | {node_id}
            on = {key: token for key, token in stood.items() if key in wanted}
            return before.get(node_id, {}) | on if node_id in self._continued else on

        return {node.node_id: of(node.node_id) for node in nodes}

    def _with_stale(
        self,
        nodes: Sequence[BuiltNode],
        history: Iterable[Mapping[str, Any]],
        present: Collection[str],
    ) -> list[BuiltNode]:
        """The nodes, with the upstream tables that were built anew after them."""
        # What was published since is not on the branch any more.
        now = {row["node_id"]: token_of(row) for row in history}
        now |= {key: self._mark(self._targets[self._built[key]]) for key in present}
        name_of = {row["node_id"]: f"{row['schema']}.{row['name']}" for row in history}
        name_of |= {node.node_id: node.name for node in nodes}
        return [
            replace(
                node,
                stale=tuple(
                    sorted(
                        name_of[key]
                        for key, token in self._built_on[node.node_id].items()
                        if key != node.node_id
                        and now.get(key, token) != token
                        and (key in present or not token.startswith(_VIEW))
                    )
                ),
            )
            for node in nodes
        ]

    def _still_there(self, target: Target) -> Target | None:
        """A target of an earlier run as it is now; None if it was discarded meanwhile."""
        if target.candidate is None:
            return None
        if target.how == "side":
            return target if self.overlay.side_schema(target.identifier) else None
        state = self.lake.state(target.identifier)
        head = state.refs.get(self.branch) if state else None
        if head is None:
            return None
        if str(head.snapshot_id) != target.candidate:
            return replace(
                target,
                problem=f"the head of {self.branch} is {head.snapshot_id}, not the candidate "
                f"{target.candidate} that the run left there: somebody else wrote to it",
            )
        return target if state and _is_gated(state) else replace(target, problem=UNGATED)

    def _node(self, fact: NodeFact) -> BuiltNode:
        key = self._built.get(fact.node_id)
        target = self._targets.get(key) if key else None
        # A view has the rows of what it reads; it was built empty if that was.
        status = {"success": self.part or "built", "skipped": "skipped"}.get(fact.status, "failed")
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
            key = self._built.get(test.test_id)
            if key is not None:
                target = self._targets[key]
                nodes.append(
                    BuiltNode(
                        test.test_id,
                        target.name,
                        "failures",
                        self.part or "built",
                        target.candidate,
                        target.problem,
                        test.reads,
                    )
                )
        return nodes

    def _results(
        self, tests: Sequence[TestFact], seen: Sequence[TestSeen], tokens: Mapping[str, str]
    ) -> list[TestResult]:
        by_id = {test.test_id: test for test in tests}
        return [
            TestResult(
                one.test_id,
                self._status_of(one, by_id.get(one.test_id)),
                one.failures,
                one.message,
                {
                    n: tokens[n]
                    for n in _reads(by_id.get(one.test_id))
                    if n in tokens and n not in self._read_early.get(one.test_id, ())
                },
                self._findings.get(one.test_id),
                _rule_of(by_id.get(one.test_id)),
            )
            for one in seen
        ]

    def _status_of(self, seen: TestSeen, test: TestFact | None) -> str:
        """The status of a result; one that saw none or a part of the rows has passed nothing."""
        # A unit test reads rows of its own, whatever dbt was told of the tables.
        partly = self.part is not None and not (test and test.kind == "unit")
        return str(self.part) if partly and seen.status in ("pass", "warn") else seen.status

    def _settle(
        self,
        ledger: Ledger,
        decision: Decision,
        nodes: Sequence[BuiltNode],
        tests: Sequence[TestFact],
        results: Sequence[TestResult],
        reads: Mapping[Read, Collection[str]],
        now: frozenset[str],
    ) -> Closing:
        started = datetime.now(UTC)
        own = self.branch == names.audit_branch(self.run_id, None)
        if self._manifest is not None and nodes and (decision.publish or not own):
            # What others may publish later has its code on record; of all else nobody asks.
            self._code = self._manifest()
        items = [self._item(self._targets[self._built[n]]) for n in decision.publish]
        rows = self._rows(decision, nodes, tests, results)
        refused: str | None = None
        refusals: dict[str, tuple[Difference, ...]] = {}
        plan: rebuild.Rebuild | rebuild.GiveUp = rebuild.GiveUp()
        if items:
            days = self.settings.tag_retention_days
            try:
                receipt = self.lake.publish(
                    items,
                    run_id=self.run_id,
                    tag=names.publish_tag(self.run_id),
                    tag_max_age_ms=None if days is None else days * DAY_MS,
                    branch=self.branch,
                    appends=rows,
                    read=list(reads),
                    strict_reads=self.settings.reads == "strict",
                    manifest_hash=self._code_hash,
                )
                self._tell_moved(receipt.moved_reads, reads)
            except (CommitUnknown, PublishTorn, PublishUnverified):
                raise
            except SparkwapError as error:
                refused = str(error)
                if isinstance(error, PublishRefused):
                    refusals = self._stopped(error.mismatches, reads)
                    plan = self._plan_rebuild(refusals, nodes, now)
                # The run goes on with a rebuild, and its own row waits for the end of that.
                goes_on = isinstance(plan, rebuild.Rebuild)
                told = _refused(rows, refused, refusals, goes_on=goes_on)
                refused = self._record_refusal(ledger, told, refused)
        elif nodes:
            ledger.append(rows)
        seconds = (datetime.now(UTC) - started).total_seconds()
        published = 0 if refused else len(items)
        return Closing(
            decision,
            tuple(nodes),
            published,
            refused,
            seconds,
            refusals=refusals,
            rebuild=plan if isinstance(plan, rebuild.Rebuild) else None,
            gave_up=plan.reason if isinstance(plan, rebuild.GiveUp) else "",
            in_series=not self.lake.store.rows.atomic,
        )

    def _plan_rebuild(
        self,
        refusals: Mapping[str, Collection[Difference]],
        nodes: Sequence[BuiltNode],
        now: frozenset[str],
    ) -> rebuild.Rebuild | rebuild.GiveUp:
        if self.rebuild_of is not None or self.command not in REBUILDING:
            # A rebuild is tried again by the run that it is of; an operation builds nothing.
            return rebuild.GiveUp()
        buildable = {node.node_id for node in nodes} if self.repeats else now
        # Built in several runs: another build of it would build a part.
        buildable = buildable - self._continued
        tries = self.settings.rebuilds
        return rebuild.decide(refusals, nodes, buildable, tried=0, tries=tries)

    def _stopped(
        self, mismatches: Sequence[Mismatch], reads: Mapping[Read, Collection[str]]
    ) -> dict[str, tuple[Difference, ...]]:
        """Node id -> what the catalog found different that concerns it."""
        of_table = {key: node_id for node_id, key in self._built.items()}
        found: dict[str, set[Difference]] = {}
        for mismatch in mismatches:
            if mismatch.kind == "read":
                readers = (
                    ns for read, ns in reads.items() if read.identifier == mismatch.identifier
                )
                stopped = {node_id for nodes in readers for node_id in nodes}
            else:
                stopped = {of_table.get(mismatch.identifier, ".".join(mismatch.identifier))}
            for node_id in stopped:
                found.setdefault(node_id, set()).add(mismatch.kind)
        return {node_id: tuple(sorted(kinds)) for node_id, kinds in found.items()}

    def _tell_moved(self, moved: Sequence[Mismatch], reads: Mapping[Read, Collection[str]]) -> None:
        for one in moved:
            nodes = {
                n for read, ns in reads.items() if read.identifier == one.identifier for n in ns
            }
            self.tell(
                min(nodes),
                f"{'.'.join(one.identifier)} was read at {one.expected}, and is at {one.found} now "
                "(wap_reads: strict would have built on that)",
            )

    @staticmethod
    def _record_refusal(ledger: Ledger, rows: Sequence[LedgerRows], refused: str) -> str:
        try:
            ledger.append(rows)
        except SparkwapError as error:
            # What stopped the publish, a full disk say, may stop the ledger as well.
            return f"{refused}\nThe ledger does not know of it: {error}"
        return refused

    def _item(self, target: Target) -> BranchItem | SideItem:
        if target.how == "branch":
            return BranchItem(
                target.identifier, self.branch, target.base, int(str(target.candidate))
            )
        return SideItem(
            target.identifier,
            str(target.side_schema),
            str(target.candidate),
            target.base_metadata,
        )

    def _rows(
        self,
        decision: Decision,
        nodes: Sequence[BuiltNode],
        tests: Sequence[TestFact],
        results: Sequence[TestResult],
    ) -> list[LedgerRows]:
        now = datetime.now(UTC)
        by_id = {test.test_id: test for test in tests}
        return [
            LedgerRows("manifests", self._manifest_rows(now)),
            LedgerRows("runs", [self.run_row(decision.outcome)]),
            LedgerRows(
                "nodes",
                [
                    self._node_row(decision, node, now)
                    for node in nodes
                    # What its own project has said of a node is not for another one to change.
                    if node.kind not in (LEFTOVER, MOVED)
                    and (node.known or node.node_id in self._begun)
                ],
            ),
            LedgerRows(
                "tests",
                [
                    {
                        "run_id": self.run_id,
                        "branch": self.branch,
                        "test_id": one.test_id,
                        "test_name": by_id[one.test_id].name if one.test_id in by_id else "",
                        "status": one.status,
                        "failures": one.failures,
                        "severity": by_id[one.test_id].severity if one.test_id in by_id else "",
                        "message": one.message,
                        "audited": dict(one.audited),
                        "executed_at": now,
                        "reads": self._reads.get(one.test_id, {}),
                        "finding": one.finding,
                        "seconds": self._seconds.get(one.test_id),
                        "inputs": one.rule.inputs if one.rule else None,
                    }
                    for one in results
                ],
            ),
            LedgerRows("metrics", [row for one in results for row in self._metric_rows(one)]),
            *self._recorded,
        ]

    @property
    def _code_hash(self) -> str | None:
        return self._code.hash if self._code is not None else None

    def _manifest_rows(self, now: datetime) -> list[dict[str, Any]]:
        if self._code is None:
            return []
        return [
            {
                "hash": self._code.hash,
                "project": self.project,
                "run_id": self.run_id,
                "stored_at": now,
                "content": self._code.content,
            }
        ]

    def _metric_rows(self, result: TestResult) -> list[dict[str, Any]]:
        """The metrics behind a test's result; none where it did not see the candidate, or all."""
        measured = self._measured.get(result.test_id)
        candidate = result.audited.get(measured.node_id) if measured else None
        key = self._built.get(measured.node_id) if measured else None
        if measured is None or candidate is None or key is None or result.status in NOT_RUN:
            return []
        if candidate != self._targets[key].candidate:
            # Another run has put its own there, and which of the two was measured nobody knows.
            return []
        schema, name = self._targets[key].identifier
        common = {
            "run_id": self.run_id,
            "branch": self.branch,
            "test_id": result.test_id,
            "schema": schema,
            "name": name,
        }
        return measured.rows(common, candidate)

    def run_row(self, outcome: str, **more: Any) -> dict[str, Any]:
        """The row of this run in the ledger's ``runs``, which ends it."""
        return {
            "run_id": self.run_id,
            "branch": self.branch,
            "command": self.command,
            "project": self.project,
            "target": self.target_name,
            "started_at": self.started_at,
            "ended_at": datetime.now(UTC),
            "outcome": outcome,
            "message": None,
            "tries": 0,
            "waited_seconds": 0.0,
            "rebuild_of": self.rebuild_of,
            "manifest_hash": self._code_hash,
            "as_of": str(self.replay.moment) if self.replay else None,
            "pins": self.replay.told() if self.replay else {},
            **more,
        }

    def _node_row(self, decision: Decision, node: BuiltNode, now: datetime) -> dict[str, Any]:
        key = self._built.get(node.node_id)
        target = self._targets.get(key) if key else None
        verdict = decision.verdicts[node.node_id]
        schema, _, name = node.name.partition(".")
        branch = target is not None and target.how == "branch"
        return {
            "run_id": self.run_id,
            "branch": self.branch,
            "node_id": node.node_id,
            "resource_type": node.kind,
            "schema": schema,
            "name": name,
            "how": target.how if target else None,
            "base_snapshot": target.base if target else None,
            "base_metadata": target.base_metadata if target else None,
            "candidate_snapshot": int(node.candidate) if branch and node.candidate else None,
            "candidate_metadata": None if branch else node.candidate,
            "status": node.status,
            "problem": node.problem,
            "parents": sorted(node.parents),
            "built_on": self._built_on.get(node.node_id, {}),
            "verdict": verdict.outcome,
            "reason": "; ".join(verdict.reasons) or None,
            "built_at": now,
            "reads": self._reads.get(node.node_id) or self._earlier_reads.get(node.node_id, {}),
            "seconds": self._seconds.get(node.node_id),
        }


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


def _failed_before(
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


def _view_problem(found: str | None) -> str | None:
    if found is None:
        return None
    return (
        f"the view's text {found}, so its readers would see what no test has passed, or nothing. "
        "Name what it reads by ref(), source() or schema.table, in no other way, and build it again"
    )


def _is_gated(state: TableState) -> bool:
    return state.properties.get("write.wap.enabled") == "true"


def _reads(test: TestFact | None) -> frozenset[str]:
    return test.reads if test is not None else frozenset()


def _target_of(row: Mapping[str, Any]) -> Target:
    """The target that an earlier run on the branch wrote into the ledger."""
    schema, branch = row["schema"], row["branch"]
    side = row["how"] == "side"
    snapshot = row["candidate_snapshot"]
    return Target(
        (schema, row["name"]),
        "side" if side else "branch",
        side_schema=names.side_schema(schema, branch) if side else None,
        base=row["base_snapshot"],
        base_metadata=row["base_metadata"],
        candidate=row["candidate_metadata"] if side else (str(snapshot) if snapshot else None),
        problem=row["problem"],
    )


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
        _rule(row),
    )


def _rule(row: Mapping[str, Any]) -> Rule:
    """The rule of a row of the ledger's ``tests``; one of an older version knows no inputs."""
    inputs = row.get("inputs")
    return Rule(row["severity"], None if inputs is None else dict(inputs))


def _rule_of(test: TestFact | None) -> Rule | None:
    return Rule(test.severity, test.inputs) if test is not None else None


def _refused(
    rows: Sequence[LedgerRows],
    message: str,
    refusals: Mapping[str, Sequence[Difference]],
    *,
    goes_on: bool,
) -> list[LedgerRows]:
    """The ledger's rows of a run whose publish the catalog refused."""
    changed = []
    for one in rows:
        if one.table == "runs" and goes_on:
            continue
        if one.table == "runs":
            one = LedgerRows(
                "runs", [{**row, "outcome": "rejected", "message": message} for row in one.rows]
            )
        if one.table == "nodes":
            one = LedgerRows(
                "nodes",
                [
                    # Later than the rows that a journalled publish has written before it began.
                    {
                        **row,
                        "verdict": "rejected",
                        "reason": message,
                        "refusal": ",".join(refusals.get(row["node_id"], ())) or None,
                        "built_at": datetime.now(UTC),
                    }
                    if row["verdict"] == "published"
                    else row
                    for row in one.rows
                ],
            )
        changed.append(one)
    return changed
