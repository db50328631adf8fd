"""A run: where each table is built, the candidates, and the end of the run.

This package does not use dbt or Spark: the adapter translates dbt's nodes and results into the
types of `sparkwap.runs.types`, macros write the data, and the catalog needs no JVM.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from importlib import import_module

from sparkwap.audits.metrics import Baselines, exact_rows
from sparkwap.catalog import Candidate, Identifier
from sparkwap.core import checkpoints
from sparkwap.core.checkpoints import checkpoint
from sparkwap.core.errors import SparkwapError
from sparkwap.gate.net import Application
from sparkwap.ledger.manifests import Packed
from sparkwap.publish.lake import Lake
from sparkwap.runs.candidates import Candidates
from sparkwap.runs.checks import Checks
from sparkwap.runs.closing import Closer
from sparkwap.runs.gathering import Gathering
from sparkwap.runs.rules import Rules
from sparkwap.runs.time_travel import Outside
from sparkwap.runs.trail import Trail
from sparkwap.runs.types import Invocation, NodeFact, RunEnd, RunNotes, TestFact, TestSeen
from sparkwap.runs.watched import GateBypass, MainWatch
from sparkwap.runs.watching import Watch

_BEFORE_WARM_UP_SECONDS = 0.4
"""Until then, the first nodes have sent their statements, which need this process no more."""


class Run:
    """One dbt invocation that writes to an audit branch.

    Safe for use by dbt's threads.

    Args:
        manifest: Returns the project's code for the ledger; called once, when the run is closed.
        table_of_node: Returns schema and name of the table of a node; None if there is none.
        code_of_node: Returns a digest of the text of a node; None if there is no such node.
    """

    def __init__(
        self,
        lake: Lake,
        invocation: Invocation,
        *,
        manifest: Callable[[], Packed] | None = None,
        table_of_node: Callable[[str], Identifier | None] = lambda node_id: None,
        code_of_node: Callable[[str], str | None] = lambda node_id: None,
    ) -> None:
        self.lake = lake
        self.invocation = invocation
        self.run_id = invocation.run_id
        self.branch = invocation.branch
        self.settings = invocation.settings
        self.replay = invocation.replay
        self.candidates = Candidates(lake, invocation)
        self.trail = Trail()
        self.notes = RunNotes()
        self.rules = Rules(self.candidates, table_of_node)
        self.baselines = Baselines(lake)
        self.main: MainWatch | None = None
        self._manifest = manifest
        self._code_of = code_of_node
        self._warming: threading.Timer | None = None

    def watch_main(
        self,
        project: Collection[Identifier] = (),
        *,
        application: Callable[[], Application | None] = lambda: None,
        same_clock: bool = True,
    ) -> None:
        """Watch `main` from now on, which only the publish of this run may move.

        Args:
            project: The tables and views of the project, which are watched even if not gated.
            application: Returns the Spark application that writes for this run.
            same_clock: Whether Spark has the clock of this process.
        """
        lake, run_id = self.lake, self.run_id
        watch = Watch(lake.store, lambda: lake.ledger, project, run_id=run_id, branch=self.branch)
        self.main = MainWatch(watch, run_id, application=application, same_clock=same_clock)

    def warm_up(self) -> None:
        """Prepare in the background for the close of the run, while Spark works.

        To import PyIceberg's file access takes most of a second, and to look up or create the
        ledger's tables also takes time; the run would wait for both.
        """
        # Imports hold Python's lock, so the first statements would wait for them.
        self._warming = threading.Timer(_BEFORE_WARM_UP_SECONDS, self._warm_up)
        self._warming.daemon = True
        self._warming.start()

    def _warm_up(self) -> None:
        for module in ("pyiceberg.io.pyarrow", "pyarrow.dataset"):
            import_module(module)
        # The close of the run does this again, and reports errors of the catalog.
        with suppress(Exception):
            self.lake.ledger.ensure_all()

    # -- building --------------------------------------------------------------------------------

    def begin(self, node_id: str, identifier: Identifier) -> bool:
        """Begin to build a node from ``main``; drops an earlier run's candidate on the branch.

        A retry of an incremental model must not add rows to a rejected candidate: the same input
        must give the same table, however often the run is retried.

        Returns:
            Whether a candidate was dropped; the caller's caches may still have it.
        """
        return self.trail.begin(node_id) and self.candidates.forget(identifier, node_id)

    def may_add_to_candidate(self, node_id: str, identifier: Identifier) -> bool:
        """Return whether a node may add rows to an earlier run's candidate on the branch.

        The batches of the earlier run are on the branch unless it was opened again since: after
        a move of `main`, a discard or a sweep. In that case all batches have to be built.

        Returns:
            The same value for the whole run; after True, the node counts as begun.
        """
        return self.trail.may_add_to_candidate(
            node_id, lambda: self.candidates.is_current(node_id, identifier)
        )

    def built(self, node_id: str, identifier: Identifier, *, must_write: bool) -> Candidate:
        """Check and record the candidate of a node after its build.

        Args:
            identifier: The name under which it is published.
            must_write: Whether the build replaces the table. If the head of the branch has not
                moved then, the rows were written elsewhere.

        Raises:
            SparkwapError: An invariant does not hold; the node will not be published.
        """
        # Batches of one model may end at the same time, and a later one has the later head.
        with self.candidates.turn(identifier):
            return self._built(node_id, identifier, must_write=must_write)

    def _built(self, node_id: str, identifier: Identifier, *, must_write: bool) -> Candidate:
        placed = self.candidates.target(identifier)
        if placed is None:
            raise SparkwapError(
                f"{'.'.join(identifier)} was built outside the gate, so nothing of this run is "
                "published. A custom materialization has to call adapter.wap.place_table before it "
                "writes, and adapter.wap.built after it has written; see docs/own-project.md."
            )
        self.invocation.reached(checkpoints.NODE_CHECKING, identifier, node_id=node_id)
        if self.candidates.has_dropped(placed):
            self.candidates.gone[node_id] = placed.name
            return placed
        checks = Checks(self.lake, self.run_id, self.branch)
        done = checks.left(placed, must_write=must_write)
        # Read the candidates after the build: a node that this one reads by its name, without
        # ref(), may be built at the same time.
        present = self.candidates.present()
        self.candidates.built[node_id] = identifier
        if must_write:
            self.candidates.whole.add(identifier)
        self.trail.end(node_id, present)
        self.candidates.keep(done)
        self.invocation.reached(checkpoints.NODE_RECORDED, identifier, node_id=node_id)
        if done.problem is not None:
            raise SparkwapError(f"{placed.name}: {done.problem}")
        return done

    def left_nothing(self) -> str | None:
        """Return a line about tables that hooks of this run have dropped; None without any."""
        if not self.candidates.gone:
            return None
        names = ", ".join(sorted(self.candidates.gone.values()))
        return f"notice     {names}: dropped by a hook of this run; readers of main see no change"

    # -- reading ---------------------------------------------------------------------------------

    def read(self, reader: str, identifiers: Iterable[Identifier]) -> None:
        """Record the present state of tables that a node or test reads from ``main``.

        Tables that this run builds are left out: these have a base and a candidate to compare
        with. So are pinned tables of a replay, because their state does not change.

        Args:
            reader: The id of the node or test.
            identifiers: The tables and views that it reads, directly or through views.
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
        """Record that a node or test has read the metadata of a table or view.

        Args:
            identifier: The table or view, by the name that readers use.
        """
        schema, name = identifier
        place = self.candidates.overlay.schema_of(schema, name)
        self.trail.named(reader, {(place.lower(), name.lower())})

    def pin(self, outside: Iterable[Outside]) -> None:
        """Pin the tables that this run does not build to the moment of its replay.

        Tables on the audit branch are read there, because a retry does not build all of them.

        Raises:
            ReplayRefused: A table cannot be read as of the moment; no table is pinned.
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
        """Return the number of rows that a reader in this run sees in a table, from its metadata.

        None if the metadata does not say: for views, and for tables with delete files.
        """
        if self.invocation.part is not None:
            return None
        side = self.candidates.overlay.side_schema(identifier)
        state = self.lake.state((side, identifier[1]) if side else identifier)
        if state is None or state.kind != "table":
            return None
        # The rows of a side object are on its own main.
        ref = None if side else state.refs.get(self.branch)
        snapshot = ref.snapshot_id if ref else state.main
        if snapshot is None:
            return 0
        return exact_rows(self.lake.snapshot_summary(state.identifier, snapshot))

    def caught_on_main(self) -> list[GateBypass]:
        """Return the changes of `main` by which this run has bypassed the gate, so far.

        Where possible, the former state was restored for readers.
        """
        if self.main is None:
            return []
        self.main.check(always=True)
        return self.main.caught

    # -- closing ---------------------------------------------------------------------------------

    def close_copies(
        self, tests: Sequence[TestFact] = (), known: Collection[str] = frozenset()
    ) -> RunEnd:
        """Close a run that has copied tables; publishes the copies that have no test.

        The other copies have to be tested, because they may come from another target, or be older
        than the tests.
        """
        nodes = [
            NodeFact(node_id, identifier, "model", "success", None, frozenset())
            for node_id, identifier in self.candidates.built.items()
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
        """Decide, publish the passed nodes, and write the ledger.

        Args:
            nodes: The nodes that this run had to build.
            tests: All tests that read ``nodes`` or ``known`` nodes.
            known: Ids of other nodes whose tests are all among ``tests``. Other nodes of earlier
                runs hold up the branch.
            varied: Whether vars of the command line may have changed the project. A missing test
                is then not one that its authors have removed.

        Raises:
            CommitUnknown: It is unknown whether the publish was committed. If it was, the ledger
                has the rows of this run, because they are part of the same transaction.
            PublishUnverified: The publish was committed, but the catalog shows another state.
        """
        about = {"run_id": self.run_id, "branch": self.branch}
        checkpoint(checkpoints.CLOSING, **about)
        if self._warming is not None:
            self._warming.cancel()
        caught = self.caught_on_main()
        gathering = Gathering(
            self.invocation, self.candidates, self.trail, self.notes, self.rules, self._code_of
        )
        facts = gathering.facts(nodes, tests, seen, known, varied, caught)
        closer = Closer(self.invocation, self.lake, self.notes, self._manifest)
        closing = closer.close(facts, watched=self.main is not None)
        checkpoint(checkpoints.CLOSED, **about)
        return closing
