"""Where the tables of a run are built, and what stands on its audit branch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparkwap.catalog import Identifier, Kind, TableState
from sparkwap.catalog.pointers import require_side_schema
from sparkwap.core import checkpoints, names
from sparkwap.core.errors import SparkwapError
from sparkwap.core.retry import Fate, fate
from sparkwap.gate.placement import Desired, decide_build
from sparkwap.publish.lake import Lake
from sparkwap.runs import relation_overlay
from sparkwap.runs.types import BuildTarget, Invocation

VIEW = "view "
"""With what the mark of a view begins."""


def overlay_of(lake: Lake, branch: str) -> relation_overlay.Overlay:
    """The names that stand in the side schemas of an audit branch now."""
    found = relation_overlay.Overlay()
    for side, owner in lake.side_schemas().items():
        schema = names.split_side_schema(side, branch) if owner == branch else None
        if schema is not None:
            for name in lake.relations(side):
                found.add((schema, name), side)
    return found


def target_of(row: Mapping[str, Any]) -> BuildTarget:
    """The target that an earlier run on the branch wrote into the ledger."""
    schema, branch = row["schema"], row["branch"]
    side = row["how"] == "side"
    snapshot = row["candidate_snapshot"]
    return BuildTarget(
        (schema, row["name"]),
        "side" if side else "branch",
        side_schema=names.side_schema(schema, branch) if side else None,
        base=row["base_snapshot"],
        base_metadata=row["base_metadata"],
        candidate=row["candidate_metadata"] if side else (str(snapshot) if snapshot else None),
        problem=row["problem"],
    )


class Candidates:
    """The tables and views that a run builds, and those that earlier ones left on its branch.

    Safe for use by dbt's threads.

    Attributes:
        overlay: the names that stand in side schemas.
        targets: what is built or was taken over, by name.
        built: the name under which a node was built, by node.
        gone: names of those that a hook of this run has dropped, by node.
        found: the candidates that stood there when the run was opened, by node.
    """

    def __init__(self, lake: Lake, invocation: Invocation) -> None:
        self.lake = lake
        self.branch = invocation.branch
        self._invocation = invocation
        self.overlay = relation_overlay.Overlay()
        self.targets: dict[Identifier, BuildTarget] = {}
        self.built: dict[str, Identifier] = {}
        self.gone: dict[str, str] = {}
        self.found: dict[str, str] = {}
        self._earlier: dict[str, BuildTarget] = {}
        self._added: set[str] = set()
        self._dropped: set[Identifier] = set()
        self._marks: dict[str, str] = {}
        self._lock = threading.Lock()
        self._places: dict[Identifier, threading.Lock] = {}

    # -- what earlier runs have left -------------------------------------------------------------

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
        if not self._invocation.is_own:
            rows = self.lake.ledger.branch_history(self.branch).nodes
            targets = {row["node_id"]: target_of(row) for row in rows}
            self.found = {n: t.candidate for n, t in targets.items() if t.candidate is not None}
            self._earlier = targets
            self._added = {
                row["node_id"]
                for row in rows
                if row["verdict"] != "published" and row["node_id"] in dict(row["built_on"] or ())
            }

    def has_added(self, node_id: str) -> bool:
        """Whether an earlier run has added to what another had built of a node on the branch.

        To build it anew from `main` would keep what the last one adds, and no more.
        """
        return node_id in self._added

    def standing(self) -> dict[str, str]:
        """The candidates that are on the branch now, by node."""
        built = {n: self.targets[key] for n, key in list(self.built.items())}
        targets = (self._earlier | built).items()
        return {n: self.mark(t) for n, t in targets if t.candidate is not None}

    def mark(self, target: BuildTarget) -> str:
        """What tells a candidate from others; of a view its text, as its rows are not its own."""
        token = str(target.candidate)
        if target.how != "side":
            return token
        if token not in self._marks:
            beside = (str(target.side_schema), target.identifier[1])
            text = self.lake.view_content(beside)
            self._marks[token] = token if text is None else f"{VIEW}{text}"
        return self._marks[token]

    def earlier_stands(self, node_id: str, identifier: Identifier) -> bool:
        """Whether what an earlier run has built of a node is there, as is what it was made of."""
        rows = self.lake.ledger.branch_history(self.branch).nodes
        targets = [target_of(row) for row in rows if row["node_id"] == node_id]
        if not targets or targets[0].candidate is None or targets[0].identifier != identifier:
            return False
        # What has been added was made of rows that are to be there still.
        on = next(dict(row["built_on"] or ()) for row in rows if row["node_id"] == node_id)
        now = self.standing()
        if any(now.get(key, token) != token for key, token in on.items() if key != node_id):
            return False
        target = targets[0]
        if target.how == "branch":
            return self.lake.branches.stands(identifier, self.branch, int(str(target.candidate)))
        beside = (str(target.side_schema), identifier[1])
        live, grown = self.lake.state(identifier), self.lake.descends(beside, str(target.candidate))
        # The base of a clone has to be what `main` is now; what was new has to be new still.
        return (
            grown
            and (live.main if live else None) == target.base
            and (live is None) == (target.base_metadata is None)
        )

    # -- placing ---------------------------------------------------------------------------------

    def place_table(
        self,
        identifier: Identifier,
        desired: Desired,
        in_place: Mapping[str, str] | None = None,
    ) -> BuildTarget:
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

    def place_clone(self, identifier: Identifier, changes: Sequence[str]) -> BuildTarget:
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

    def place_beside(self, identifier: Identifier, kind: Kind = "table") -> BuildTarget:
        """Build ``identifier`` from nothing in the side schema: a view, or a replacement.

        :param kind: what it will be.
        :raises SparkwapError: something else stands there, and the catalog cannot put one in the
            place of the other.
        """
        with self._place(identifier):
            known = self.target(identifier)
            return known or self._beside(identifier, self.lake.state(identifier), kind)

    def place_copy(self, identifier: Identifier, source: Identifier) -> BuildTarget:
        """Build ``identifier`` as a zero-copy copy of another published table.

        :raises SparkwapError: ``source`` is not a table.
        """
        target = self.place_beside(identifier)
        beside = (str(target.side_schema), identifier[1])
        copied = self.lake.branches.copy(source, beside, self.location(identifier))
        return self.keep(replace(target, since=copied.main))

    def target(self, identifier: Identifier) -> BuildTarget | None:
        """Where ``identifier`` is built in this run; None if it is not."""
        return self.targets.get(identifier)

    def of(self, node_id: str) -> BuildTarget | None:
        """Where a node was built; None if it was not."""
        key = self.built.get(node_id)
        return self.targets.get(key) if key else None

    def forget(self, identifier: Identifier, node_id: str) -> bool:
        """Forget what is on the branch under a name; returns whether there was something."""
        with self._place(identifier):
            self._invocation.reached(checkpoints.NODE_BEGINS, identifier, node_id=node_id)
            found = self.lake.branches.forget(identifier, self.branch)
            self.overlay.remove(identifier)
            self._invocation.reached(checkpoints.NODE_BEGUN, identifier, node_id=node_id)
            return found

    def take(self, node_id: str, target: BuildTarget) -> None:
        """Take over what an earlier run has built of a node."""
        self.targets.setdefault(target.identifier, target)
        self.built[node_id] = target.identifier

    def fault(self, identifier: Identifier, problem: str) -> None:
        """Keep a candidate from ever being published: by this run, or by a later command.

        :param problem: what is wrong with it, in words.
        """
        target = self.target(identifier)
        if target is not None:
            self.keep(replace(target, problem=problem))

    def location(self, identifier: Identifier) -> str:
        """A path of its own for a new table, so that a discard can delete all of it."""
        schema, name = identifier
        return (
            f"{self.lake.warehouse}/{schema}/{name}-{names.short_run_id(self._invocation.run_id)}"
        )

    def _place(self, identifier: Identifier) -> threading.Lock:
        with self._lock:
            return self._places.setdefault(identifier, threading.Lock())

    def keep(self, target: BuildTarget) -> BuildTarget:
        """Keep what is known of a target, in the place of what was."""
        self.targets[target.identifier] = target
        return target

    def _branch(
        self,
        identifier: Identifier,
        current: TableState,
        in_place: Mapping[str, str] | None,
    ) -> BuildTarget:
        self._invocation.reached(checkpoints.NODE_PLACING, identifier)
        opened = self.lake.branches.open(identifier, self.branch, in_place)
        self._invocation.reached(checkpoints.NODE_PLACED, identifier)
        return self.keep(
            BuildTarget(
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
    ) -> BuildTarget:
        side = names.side_schema(identifier[0], self.branch)
        standing = self.lake.state((side, identifier[1]))
        if standing is not None and standing.uuid != current.uuid:
            # Left by an earlier run from before the live table was made; the build replaces it.
            return self._beside(identifier, current)
        self._invocation.reached(checkpoints.NODE_PLACING, identifier)
        clone = self.lake.branches.clone(identifier, side, in_place)
        self.overlay.add(identifier, side)
        self._invocation.reached(checkpoints.NODE_PLACED, identifier)
        return self.keep(
            BuildTarget(
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
    ) -> BuildTarget:
        if current is not None and current.kind != kind:
            self.lake.require_change_of_kind(identifier, current.kind, kind)
        side = names.side_schema(identifier[0], self.branch)
        self._invocation.reached(checkpoints.NODE_PLACING, identifier)
        self.lake.ensure_schema(side, self.branch)
        self.overlay.add(identifier, side)
        standing = self.lake.state((side, identifier[1]))
        self._invocation.reached(checkpoints.NODE_PLACED, identifier)
        return self.keep(
            BuildTarget(
                identifier,
                "side",
                side_schema=side,
                base=current.main if current else None,
                base_metadata=current.metadata_location if current else None,
                since=standing.main if standing else None,
            )
        )

    # -- writes and drops ------------------------------------------------------------------------

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
                self._invocation.run_id,
            )

        return look

    def dropped(self, identifier: Identifier) -> None:
        """Record that a statement of this run drops a table or view, as the statement names it."""
        with self._lock:
            self._dropped.add(identifier)

    def has_dropped(self, target: BuildTarget) -> bool:
        """Whether nothing is left of what was built, and by a statement of this run itself."""
        beside = (str(target.side_schema), target.identifier[1])
        return beside in self._dropped and self.lake.state(beside) is None
