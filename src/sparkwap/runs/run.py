"""A run: where each of its tables is built, what was built, and how it ends.

Free of dbt and Spark: the adapter translates dbt's nodes and results into the types of
`sparkwap.runs.types`, macros write the data, and the catalog is reached without a JVM.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from importlib import import_module

from sparkwap.audits.metrics import Baselines, exact_rows
from sparkwap.catalog import Identifier
from sparkwap.core import checkpoints
from sparkwap.core.checkpoints import checkpoint
from sparkwap.core.errors import SparkwapError
from sparkwap.ledger.manifests import Packed
from sparkwap.publish.lake import Lake
from sparkwap.runs.candidates import Candidates
from sparkwap.runs.checks import Checks
from sparkwap.runs.closing import Closer
from sparkwap.runs.gathering import Gathering
from sparkwap.runs.rules import Rules
from sparkwap.runs.time_travel import Outside
from sparkwap.runs.trail import Trail
from sparkwap.runs.types import (
    BuildTarget,
    Invocation,
    NodeFact,
    RunEnd,
    RunNotes,
    TestFact,
    TestSeen,
)
from sparkwap.runs.watched import GateBypass, MainWatch
from sparkwap.runs.watching import Watch


class Run:
    """One dbt invocation that writes to an audit branch.

    Safe for use by dbt's threads.

    Attributes:
        candidates: what it builds and where, and what earlier runs have left.
        trail: the order in which nodes are built, and what they read.
        told: what builds and audits have to tell.
        rules: what the ledger tells of its tests.

    :param lake: the catalog.
    :param manifest: tells the project's code, for the ledger; asked once, when the run is closed.
    :param stands: tells schema and name of the table that a node of the project is; None for none.
    """

    def __init__(
        self,
        lake: Lake,
        invocation: Invocation,
        *,
        manifest: Callable[[], Packed] | None = None,
        stands: Callable[[str], Identifier | None] = lambda node_id: None,
    ) -> None:
        self.lake = lake
        self.invocation = invocation
        self.run_id = invocation.run_id
        self.branch = invocation.branch
        self.settings = invocation.settings
        self.replay = invocation.replay
        self.candidates = Candidates(lake, invocation)
        self.trail = Trail()
        self.told = RunNotes()
        self.rules = Rules(self.candidates, stands)
        self.baselines = Baselines(lake)
        self.main: MainWatch | None = None
        self._manifest = manifest

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

    # -- building --------------------------------------------------------------------------------

    def begin(self, node_id: str, identifier: Identifier) -> bool:
        """Begin to build a node: from ``main``, whatever earlier runs have left on the branch.

        A rejected candidate must not be what a retry of an incremental model adds to, and the
        same input has to give the same table however often a run is tried.

        :return: whether there was something to forget; the caller's caches then have it still.
        """
        return self.trail.begin(node_id) and self.candidates.forget(identifier, node_id)

    def goes_on(self, node_id: str, identifier: Identifier) -> bool:
        """Whether a node may add to what an earlier run has built of it on the branch.

        Batches that a run has built stand there as long as nothing has opened the branch anew:
        `main` that moved, a discard, a sweep. Once they do not, none of them may be left out.

        :return: the same for the whole run; with True, this run takes them for begun.
        """
        return self.trail.go_on(
            node_id, lambda: self.candidates.earlier_stands(node_id, identifier)
        )

    def built(self, node_id: str, identifier: Identifier, *, must_write: bool) -> BuildTarget:
        """Record what a node's build left as its candidate.

        :param must_write: the build replaces the table, so a branch head that did not move means
            that the rows went elsewhere.
        :raises SparkwapError: an invariant does not hold; nothing of this node will be published.
        """
        target = self.candidates.target(identifier)
        if target is None:
            raise SparkwapError(
                f"{'.'.join(identifier)} was built outside the gate, so nothing of this run is "
                "published. A custom materialization has to call wap_place_table before it "
                "writes and wap_built after it."
            )
        self.invocation.reached(checkpoints.NODE_CHECKING, identifier, node_id=node_id)
        if self.candidates.has_dropped(target):
            self.candidates.gone[node_id] = target.name
            return target
        checks = Checks(self.lake, self.run_id, self.branch)
        done = checks.left(target, must_write=must_write)
        # Now, as what is read by its name may be built beside this node; read too early it shows.
        stood = self.candidates.standing()
        self.candidates.built[node_id] = identifier
        self.trail.end(node_id, stood)
        self.candidates.keep(done)
        self.invocation.reached(checkpoints.NODE_RECORDED, identifier, node_id=node_id)
        if done.problem is not None:
            raise SparkwapError(f"{target.name}: {done.problem}")
        return done

    def left_nothing(self) -> str | None:
        """A line on what hooks of this run have dropped when it was built; None for nothing."""
        if not self.candidates.gone:
            return None
        told = ", ".join(sorted(self.candidates.gone.values()))
        return f"notice     {told}: dropped by a hook of this run; readers of main see no change"

    # -- reading ---------------------------------------------------------------------------------

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
            if self.candidates.target(one) is None
            and self.candidates.overlay.side_schema(one) is None
            and self.candidates.overlay.pinned(one) is None
        ]
        if outside:
            tokens = {".".join(one.identifier): one.token for one in self.lake.read(outside)}
            self.trail.read(reader, tokens)

    def looked_at(self, reader: str, identifier: Identifier) -> None:
        """Record that a node or test has read a table or view by its metadata, where it stands.

        :param reader: the node's or test's id.
        """
        schema, name = identifier
        place = self.candidates.overlay.schema_of(schema, name)
        self.trail.named(reader, {(place.lower(), name.lower())})

    def pin(self, outside: Iterable[Outside]) -> None:
        """Read what this run does not build as of its replay's moment, from now on.

        What stands on the audit branch already is read there: a retry does not build all anew.

        :raises ReplayRefused: something of it cannot be read as of then; nothing is pinned.
        """
        if self.replay is None:
            return
        self.candidates.overlay.pin(
            self.replay.pin([one for one in outside if not self._on_branch(one)])
        )

    def _on_branch(self, one: Outside) -> bool:
        if self.candidates.overlay.side_schema(one.identifier) is not None:
            return True
        state = self.lake.state(one.identifier)
        return state is not None and self.branch in state.refs

    def row_count(self, identifier: Identifier) -> int | None:
        """How many rows a reader in this run sees in a table, by its metadata alone.

        None where that does not tell: of views, and of tables with delete files.
        """
        if self.invocation.part is not None:
            return None
        side = self.candidates.overlay.side_schema(identifier)
        state = self.lake.state((side, identifier[1]) if side else identifier)
        if state is None or state.kind != "table":
            return None
        # In a side schema the rows are on main.
        ref = None if side else state.refs.get(self.branch)
        snapshot = ref.snapshot_id if ref else state.main
        if snapshot is None:
            return 0
        return exact_rows(self.lake.snapshot_summary(state.identifier, snapshot))

    def caught_on_main(self) -> list[GateBypass]:
        """What this run has moved past the gate, up to now; readers have it back if that goes.

        :raises CatalogError: the catalog cannot be read.
        """
        if self.main is None:
            return []
        self.main.check(always=True)
        return self.main.caught

    # -- closing ---------------------------------------------------------------------------------

    def close_copies(
        self, tests: Sequence[TestFact] = (), known: Collection[str] = frozenset()
    ) -> RunEnd:
        """Close a run that has copied tables: those that have no test are published.

        The tests of others have to look at the copies: they may be of another target, or older than
        the tests.
        """
        nodes = [
            NodeFact(
                node_id,
                self.candidates.targets[key].identifier,
                "model",
                "success",
                None,
                frozenset(),
            )
            for node_id, key in self.candidates.built.items()
        ]
        return self.close(nodes, tests, [], known)

    def close(
        self,
        nodes: Sequence[NodeFact],
        tests: Sequence[TestFact],
        seen: Sequence[TestSeen],
        known: Collection[str] = frozenset(),
        varied: bool = False,
    ) -> RunEnd:
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
        about = {"run_id": self.run_id, "branch": self.branch}
        checkpoint(checkpoints.CLOSING, **about)
        gathering = Gathering(
            self.invocation,
            self.candidates,
            self.trail,
            self.told,
            self.rules,
            self.caught_on_main,
        )
        facts = gathering.facts(nodes, tests, seen, known, varied)
        closer = Closer(self.invocation, self.candidates, self.trail, self.told, self._manifest)
        closing = closer.close(facts, watched=self.main is not None)
        checkpoint(checkpoints.CLOSED, **about)
        return closing
