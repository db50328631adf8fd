"""The candidates on an audit branch: where a run builds them, and what earlier runs have left."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from sparkwap.catalog import Candidate, Identifier, Kind, TableState, lease
from sparkwap.catalog.branches import clone_base, cloned_identity, rows_lost
from sparkwap.catalog.pointers import require_side_schema
from sparkwap.core import checkpoints, names
from sparkwap.core.errors import SparkwapError
from sparkwap.core.retry import Fate, batch_fate, fate
from sparkwap.gate.facts import PARTIAL
from sparkwap.gate.placement import Desired, decide_build
from sparkwap.ledger.records import candidate_of
from sparkwap.publish.lake import Lake
from sparkwap.runs import relation_overlay
from sparkwap.runs.types import Invocation

VIEW = "view "
"""Prefix of the mark of a view."""


def overlay_of(lake: Lake, branch: str) -> relation_overlay.Overlay:
    """Return the names that are in the side schemas of an audit branch now."""
    found = relation_overlay.Overlay()
    for side, owner in lake.side_schemas().items():
        schema = names.split_side_schema(side, branch) if owner == branch else None
        if schema is not None:
            for name in lake.relations(side):
                found.add((schema, name), side)
    return found


class Candidates:
    """The tables and views that a run builds, and those of earlier runs on its branch.

    Safe for use by dbt's threads.

    Attributes:
        placed: The candidates that this run builds, by name.
        built: The name under which a node was built, by node.
        whole: The names of the tables that this run has built anew.
        gone: The names of candidates that a hook of this run has dropped, by node.
        found: The candidates on the branch when the run was opened, by node.
    """

    def __init__(self, lake: Lake, invocation: Invocation) -> None:
        self.lake = lake
        self.branch = invocation.branch
        self._invocation = invocation
        self.overlay = relation_overlay.Overlay()
        self.placed: dict[Identifier, Candidate] = {}
        self.built: dict[str, Identifier] = {}
        self.whole: set[Identifier] = set()
        self.gone: dict[str, str] = {}
        self.found: dict[str, str] = {}
        self._earlier: dict[str, Candidate] = {}
        self._unpublished: set[str] = set()
        self._added: set[str] = set()
        self._outdated: set[str] = set()
        self._continued: dict[Identifier, int | None] = {}
        self._dropped: set[Identifier] = set()
        self._marks: dict[str, str] = {}
        self._lock = threading.Lock()
        self._places: dict[Identifier, threading.Lock] = {}

    # -- candidates of earlier runs --------------------------------------------------------------

    def load(self) -> None:
        """Find the side schemas and the candidates of earlier runs on this branch.

        Called before the first test: another run on the branch, which the lease does not stop, may
        replace candidates later, and then it is unknown which of them a test has read.

        Raises:
            ConfigError: A user's schema has the name of a side schema of the branch.
        """
        marked = self.lake.side_schemas()
        for schema in sorted(self.lake.schemas()):
            if names.split_side_schema(schema, self.branch) is not None:
                require_side_schema(schema, self.branch, marked.get(schema))
                self._sweep(schema)
        self.overlay = overlay_of(self.lake, self.branch)
        if not self._invocation.is_own:
            rows = self.lake.ledger.branch_history(self.branch).nodes
            self._earlier = {row["node_id"]: candidate_of(row) for row in rows}
            self.found = {n: c.token for n, c in self._earlier.items() if c.token is not None}
            waiting = [row for row in rows if row["verdict"] != "published"]
            self._unpublished = {row["node_id"] for row in waiting}
            self._added = {
                row["node_id"] for row in waiting if row["node_id"] in dict(row["built_on"] or ())
            }

    def _sweep(self, schema: str) -> None:
        """Drop a throw-away table of a run that has died."""
        run = names.run_of_throw_away(schema, self.branch)
        if run is not None and run not in self._living:
            self.lake.drop_schema(schema, purge=True)

    @cached_property
    def _living(self) -> set[str]:
        return {names.short_run_id(one.run_id) for one in lease.living(self.lake.leases)}

    def has_added(self, node_id: str) -> bool:
        """Return whether several earlier runs have added rows to a node's candidate.

        A new build from `main` would contain the rows of the last run only.
        """
        return node_id in self._added

    def present(self) -> dict[str, str]:
        """Return the candidates that are on the branch now, by node."""
        candidates = (self._earlier | self.by_node()).items()
        return {n: self.mark(one) for n, one in candidates if one.token is not None}

    def mark(self, candidate: Candidate) -> str:
        """Return the mark that identifies a candidate; a view has the hash of its text."""
        token = str(candidate.token)
        if candidate.how != "side":
            return token
        if token not in self._marks:
            text = self.lake.view_content(candidate.place)
            self._marks[token] = token if text is None else f"{VIEW}{text}"
        return self._marks[token]

    def is_current(self, node_id: str, identifier: Identifier) -> bool:
        """Return whether an earlier run's candidate of a node, and its inputs, are unchanged.

        If so, this run builds the table only on the present ``main``.
        """
        found = self._same_inputs(node_id, identifier)
        if found is None:
            return False
        state = self.lake.state(found.place)
        # On a branch, the place is the live name: a view there is the work of another run.
        if found.how == "side" and state is not None and state.kind == "view":
            return False
        if not self._is_publishable(found):
            if node_id in self._unpublished:
                self._outdated.add(node_id)
            return False
        head = state.refs.get("main" if found.how == "side" else self.branch) if state else None
        self._continued[identifier] = head.snapshot_id if head else None
        return True

    def require_publishable(self, node_id: str, identifier: Identifier) -> None:
        """Check that a node that does not add to its candidate may be built from `main` instead.

        Raises:
            CatalogError: The inputs of the candidate are unchanged, but `main` or the definition of
                the table is not. The command need not have all input of its rows again.
        """
        if node_id in self._outdated:
            raise rows_lost(identifier, self.branch)

    def _same_inputs(self, node_id: str, identifier: Identifier) -> Candidate | None:
        rows = self.lake.ledger.branch_history(self.branch).nodes
        row = next((row for row in rows if row["node_id"] == node_id), None)
        # A build on a part of the rows is nothing to add to: its table lacks the others.
        if row is None or row["status"] in PARTIAL:
            return None
        found = candidate_of(row)
        if found.token is None or found.identifier != identifier:
            return None
        # The rows in the candidate were built from these inputs.
        on = dict(row["built_on"] or ())
        now = self.present()
        same = all(now.get(key, token) == token for key, token in on.items() if key != node_id)
        return found if same else None

    def _is_publishable(self, found: Candidate) -> bool:
        identifier = found.identifier
        if found.how == "branch":
            return self.lake.branches.is_on_present_main(identifier, self.branch, found.head)
        live = self.lake.state(identifier)
        # The base of a clone must be the present `main`; a new table must still be new.
        return (
            self.lake.descends(found.place, str(found.token))
            and (live.main if live else None) == found.base
            and (live is None) == (found.base_metadata is None)
            and not self.lake.branches.replaces_clone(identifier, found.place)
        )

    # -- placing ---------------------------------------------------------------------------------

    def place_table(
        self,
        identifier: Identifier,
        desired: Desired,
        in_place: Mapping[str, str] | None = None,
        on_clone: Mapping[str, str] | None = None,
    ) -> Candidate:
        """Decide where a table is built, and create the branch, the clone or the side schema.

        Args:
            in_place: Properties to set at once; see `sparkwap.gate.placement.in_place`.
            on_clone: Properties of ``desired`` that a clone has from the start, because no
                statement of its build sets them.
        """
        with self.turn(identifier):
            known = self.target(identifier)
            if known is not None:
                return known
            current = self.lake.state(identifier)
            if current is None or current.kind != "table":
                return self._beside(identifier, current)
            plan = decide_build(current, desired)
            # A branch needs a snapshot to start from. An earlier run's side object would hide the
            # branch.
            beside = self.overlay.side_schema(identifier) is not None
            if plan.where == "branch" and current.main is not None and not beside:
                return self._branch(identifier, current, in_place)
            properties = {**(in_place or {}), **(on_clone or {})}
            return self._clone(identifier, current, plan.changes, properties)

    def place_clone(self, identifier: Identifier, changes: Sequence[str]) -> Candidate:
        """Build a table on a clone, because its schema will change.

        Raises:
            SparkwapError: This run has already written to the branch of the table.
        """
        with self.turn(identifier):
            known = self.target(identifier)
            if known is not None and known.how == "branch":
                raise SparkwapError(
                    f"{known.name} was already written on its branch by this run, but now its "
                    f"schema changes ({', '.join(changes)}). It is not published. Run `dbt retry`: "
                    "it builds the failed batches with the new schema. The batches that are "
                    "written stay, with NULL in new columns."
                )
            current = self.lake.state(identifier)
            if known is not None or current is None or current.kind != "table":
                return known or self._beside(identifier, current)
            return self._clone(identifier, current, tuple(changes))

    def place_beside(self, identifier: Identifier, kind: Kind = "table") -> Candidate:
        """Build a new table or view in the side schema.

        Args:
            identifier: The name that readers use.

        Raises:
            SparkwapError: The live object is of the other kind, and the catalog cannot replace it.
        """
        with self.turn(identifier):
            known = self.target(identifier)
            return known or self._beside(identifier, self.lake.state(identifier), kind)

    def place_copy(self, identifier: Identifier, source: Identifier) -> Candidate:
        """Build ``identifier`` as a zero-copy copy of another published table.

        Raises:
            SparkwapError: ``source`` is not a table.
        """
        placed = self.place_beside(identifier)
        copied = self.lake.branches.copy(source, placed.place, self.location(identifier))
        return self.keep(replace(placed, since=copied.main))

    def target(self, identifier: Identifier) -> Candidate | None:
        """Return where ``identifier`` is built in this run; None if it is not built."""
        return self.placed.get(identifier)

    def of(self, node_id: str) -> Candidate | None:
        """Return where a node was built; None if it was not built."""
        key = self.built.get(node_id)
        return self.placed.get(key) if key else None

    def by_node(self) -> dict[str, Candidate]:
        """Return the candidates of the nodes that this run has built, by node."""
        return {node_id: self.placed[key] for node_id, key in list(self.built.items())}

    def table_of(self, node_id: str) -> Identifier | None:
        """Return the table that this or an earlier run has built for a node; None if none has."""
        earlier = self._earlier.get(node_id)
        return self.built.get(node_id) or (earlier.identifier if earlier else None)

    def forget(self, identifier: Identifier, node_id: str) -> bool:
        """Drop the candidate under a name; returns whether there was one."""
        with self.turn(identifier):
            self._invocation.reached(checkpoints.NODE_BEGINS, identifier, node_id=node_id)
            found = self.lake.branches.forget(identifier, self.branch)
            self.overlay.remove(identifier)
            self._invocation.reached(checkpoints.NODE_BEGUN, identifier, node_id=node_id)
            return found

    def fault(self, identifier: Identifier, problem: str) -> None:
        """Mark a candidate so that neither this run nor a later command publishes it.

        A load without dbt calls it (`examples/load`).
        """
        found = self.target(identifier)
        if found is not None:
            self.keep(replace(found, problem=problem))

    def location(self, identifier: Identifier) -> str:
        """Return a new folder for a table, so that a discard can delete the whole folder."""
        folder = self.lake.branches.folder(identifier[0], self.branch)
        return f"{folder}/{identifier[1]}-{names.short_run_id(self._invocation.run_id)}"

    def turn(self, identifier: Identifier) -> threading.Lock:
        """Return the lock of a name, for what reads a candidate and then changes it."""
        with self._lock:
            return self._places.setdefault(identifier, threading.Lock())

    def keep(self, candidate: Candidate) -> Candidate:
        """Store a candidate, replacing its earlier state; returns it."""
        self.placed[candidate.identifier] = candidate
        return candidate

    def _branch(
        self,
        identifier: Identifier,
        current: TableState,
        in_place: Mapping[str, str] | None,
    ) -> Candidate:
        self._invocation.reached(checkpoints.NODE_PLACING, identifier)
        kept = self._continued.get(identifier)
        opened = self.lake.branches.open(identifier, self.branch, in_place, kept)
        self._invocation.reached(checkpoints.NODE_PLACED, identifier)
        return self.keep(
            Candidate(
                identifier,
                self.branch,
                "branch",
                base=opened.base,
                base_metadata=current.metadata_location,
                token=None if opened.head is None else str(opened.head),
                since=opened.head,
            )
        )

    def _clone(
        self,
        identifier: Identifier,
        current: TableState,
        changes: tuple[str, ...],
        in_place: Mapping[str, str] | None = None,
    ) -> Candidate:
        side = names.side_schema(identifier[0], self.branch)
        beside = self.lake.state((side, identifier[1]))
        if beside is not None and cloned_identity(beside.properties, beside.uuid) != current.uuid:
            # An earlier run left it before the live table was created; the build replaces it.
            return self._beside(identifier, current)
        self._invocation.reached(checkpoints.NODE_PLACING, identifier)
        kept = self._continued.get(identifier)
        clone = self.lake.branches.clone(identifier, side, in_place, kept)
        base = clone_base({"properties": clone.properties})[1]
        self.overlay.add(identifier, side)
        self._invocation.reached(checkpoints.NODE_PLACED, identifier)
        return self.keep(
            Candidate(
                identifier,
                self.branch,
                "side",
                base=base,
                base_metadata=current.metadata_location,
                changes=changes,
                since=clone.main,
            )
        )

    def _beside(
        self, identifier: Identifier, current: TableState | None, kind: Kind = "table"
    ) -> Candidate:
        self.lake.require_possible(identifier, current.kind if current else None, kind)
        side = names.side_schema(identifier[0], self.branch)
        self._invocation.reached(checkpoints.NODE_PLACING, identifier)
        self.lake.ensure_schema(side, self.branch)
        self.overlay.add(identifier, side)
        beside = self.lake.state((side, identifier[1]))
        self._invocation.reached(checkpoints.NODE_PLACED, identifier)
        return self.keep(
            Candidate(
                identifier,
                self.branch,
                "side",
                base=current.main if current else None,
                base_metadata=current.metadata_location if current else None,
                since=beside.main if beside else None,
            )
        )

    # -- writes and drops ------------------------------------------------------------------------

    def watch(self, identifier: Identifier, batch: str | None = None) -> Callable[[], Fate]:
        """Read the head of a table before a statement writes to it.

        Args:
            identifier: The table as the statement names it; a side object in its side schema.
            batch: The batch that writes, if other batches of the run may write at the same time.

        Returns:
            A function that returns, after an error, whether the write was made.
        """
        beside = names.split_side_schema(identifier[0], self.branch) is not None
        ref = "main" if beside else self.branch
        if self.lake.state(identifier) is None:
            # Without a table to compare with, the statement must not be sent again.
            return lambda: "unknown"
        before = self.lake.head(identifier, ref)

        def look() -> Fate:
            now = self.lake.head(identifier, ref)
            if batch is not None:
                old, new = (head.snapshot_id if head else None for head in (before, now))
                found = self.lake.summaries(identifier, old, new)
                writers = ((one.get("wap_run"), one.get("wap_batch")) for one in found)
                return batch_fate(writers, self._invocation.run_id, batch)
            return fate(
                before.snapshot_id if before else None,
                now.snapshot_id if now else None,
                now.parent if now else None,
                now.run_id if now else None,
                self._invocation.run_id,
            )

        return look

    def dropped(self, identifier: Identifier) -> None:
        """Record that a statement of this run drops a table or view, as the statement names it."""
        with self._lock:
            self._dropped.add(identifier)

    def has_dropped(self, candidate: Candidate) -> bool:
        """Return whether a statement of this run has dropped a candidate after its build."""
        place = candidate.place
        return place in self._dropped and self.lake.state(place) is None
