"""The tables of a sequential rollback: reads their positions and moves them one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from sparkwap.catalog import metadata as md
from sparkwap.catalog import publish_journal as jn
from sparkwap.catalog.backend import sequential
from sparkwap.catalog.former import is_former
from sparkwap.catalog.model import Identifier, Mismatch, PublishedEntry
from sparkwap.catalog.planning import Differs, MovePlan
from sparkwap.catalog.pointers import CannotShare, Conflict, Pointer, PointerUpdate, Unanswered
from sparkwap.core.checkpoints import SEQUENTIAL_CHANGED, SEQUENTIAL_FREED, SEQUENTIAL_MOVED
from sparkwap.core.errors import MetadataFileMissing
from sparkwap.publish.rollback import Undoer
from sparkwap.publish.sequential_moves import in_place_change, reached_table, settled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkwap.catalog.store import Store


class RollbackPort:
    """The tables of a rollback: their positions, and their moves back."""

    def __init__(self, store: Store, journal: jn.PublishJournal) -> None:
        self._store = store
        self._backend = sequential(store.backend)
        self._journal = journal
        self._force = journal.action == "forced rollback"
        self.reasons: dict[Identifier, Mismatch] = {}
        self._refused: set[Identifier] = set()

    def position(self, move: jn.Move) -> jn.Position:
        """Return the position of a table or view; ``after`` is its state before the publish."""
        return settled(lambda: self._find(move.entry), lambda rows: self._look(move, rows))

    def _look(self, move: jn.Move, rows: Mapping[Identifier, Pointer]) -> jn.Position:
        live = rows.get(move.identifier)
        if self._is_undone(move.entry, live):
            return "after"
        if move.identifier in self._refused:
            return "moved"
        named = None if live else self._backend.refusal_of_name(move.identifier)
        if named is not None:
            self.reasons[move.identifier] = Mismatch(move.identifier, "name", "a free one", named)
            return "moved"
        if live is None and move.entry.how == "replace":
            return "before"
        try:
            self._plan(move.entry, rows)
        except Differs as differs:
            self.reasons[move.identifier] = differs.mismatch
            return "moved"
        return "before"

    def forward(self, moves: Sequence[jn.Move]) -> None:
        """Undo the publish of these tables and views."""
        try:
            in_place = [move for move in moves if self._changes_in_place(move.entry)]
            changed = partial(reached_table, SEQUENTIAL_CHANGED, self._journal)
            steps = [
                in_place_change(self._plan(move.entry, self._find(move.entry))) for move in in_place
            ]
            self._backend.evolve(steps, changed)
            for move in moves:
                if move not in in_place:
                    self._former(move.entry)
                    reached_table(SEQUENTIAL_MOVED, self._journal, move.identifier)
        except (Differs, Conflict, Unanswered) as problem:
            if isinstance(problem, Differs):
                self.reasons[problem.mismatch.identifier] = problem.mismatch
            raise jn.Moved(str(problem)) from problem

    def back(self, move: jn.Move) -> None:
        """Never called, because a rollback is always completed."""
        raise AssertionError(move)

    def _is_undone(self, entry: PublishedEntry, live: Pointer | None) -> bool:
        if live is None:
            return entry.base_metadata_location is None
        if entry.base_metadata_location is None:
            return False
        document = self._store.load(live.location)
        try:
            base = self._store.load(entry.base_metadata_location)
        except MetadataFileMissing:
            if entry.how != "branch":
                return False
            if self._force:
                return self._is_left_as_it_is(entry, live)
            return md.main_of(document) == entry.base
        if entry.how == "view" and live.kind == "view":
            texts = [md.current_version(one)["representations"] for one in (document, base)]
            return bool(texts[0] == texts[1])
        if md.identity(document) != md.identity(base):
            # It may be back as a copy with an identity of its own.
            back = is_former(document, base, entry.base_metadata_location, self._store.load)
            return back and (not self._force or md.main_of(document) == md.main_of(base))
        if entry.how == "replace":
            return not self._force or md.main_of(document) == md.main_of(base)
        if self._force:
            return self._is_left_as_it_is(entry, live)
        same = md.main_of(document) == entry.base
        return same and (entry.how == "branch" or md.definition(document) == md.definition(base))

    def _is_left_as_it_is(self, entry: PublishedEntry, live: Pointer) -> bool:
        """Return whether a forced rollback has nothing left to change in a table."""
        try:
            change = in_place_change(self._plan(entry, {entry.identifier: live}))[1]
        except Differs:
            return False
        return change.refusal is None and not change.posted

    def _changes_in_place(self, entry: PublishedEntry) -> bool:
        """Return whether the live table stays the same table; a forced rollback may replace it."""
        if entry.how not in ("branch", "clone"):
            return False
        live = self._backend.get(entry.identifier)
        if not self._force:
            return True
        if live is None or live.kind != "table":
            return False
        try:
            base = self._store.load(str(entry.base_metadata_location))
        except MetadataFileMissing:
            return True
        return md.identity(self._store.load(live.location)) == md.identity(base)

    def _former(self, entry: PublishedEntry) -> None:
        rows = self._find(entry)
        if entry.identifier not in rows and entry.how == "replace":
            base = Pointer(entry.identifier, "table", str(entry.base_metadata_location))
            # An attempt that died may have staged it.
            staged = self._stage(base)
            if staged is None:
                self._backend.register(base)
            else:
                self._backend.unstage(staged, entry.identifier)
            return
        plan = self._plan(entry, rows)
        for swap in plan.swaps:
            before, after = swap.before, swap.after
            if before is not None and after is None:
                self._drop_aside(self._backend.set_aside(before, self._journal.run_id))
            elif before is not None and after is not None and not self._fits(before, after):
                self._replace(before, after, plan.writes)
            else:
                self._backend.apply([PointerUpdate(before, after)], documents=plan.writes)

    def _stage(self, former: Pointer) -> Identifier | None:
        try:
            return self._backend.stage(former)
        except CannotShare as refusal:
            self._refused.add(former.identifier)
            raise Differs(
                former.identifier, "former table", "a catalog that takes it", refusal.reason
            ) from refusal

    def _fits(self, before: Pointer, after: Pointer) -> bool:
        """Return whether the catalog can put one object in the place of another in one step."""
        return before.kind == after.kind and (after.kind == "view" or self._backend.takes_files)

    def _replace(self, before: Pointer, after: Pointer, writes: Mapping[str, md.Document]) -> None:
        """Drop a table or view and put a former one in its place."""
        staged = None
        if after.kind == "table" and not self._backend.takes_files:
            # The server may not take the former table: then nothing is dropped.
            if after.location in writes:
                self._store.files.write(after.location, md.dump(writes[after.location]))
            staged = self._stage(after)
        aside = self._backend.set_aside(before, self._journal.run_id)
        reached_table(SEQUENTIAL_FREED, self._journal, after.identifier)
        if staged is not None:
            self._backend.unstage(staged, after.identifier)
        else:
            self._backend.apply([PointerUpdate(None, after)], documents=writes)
        self._drop_aside(aside)

    def forget_aside(self, entry: PublishedEntry) -> None:
        """Drop what a process that died has set aside of a published table."""
        aside = self._backend.aside(entry.identifier, self._journal.run_id)
        if aside is None or entry.candidate is None:
            return
        if md.snapshot(self._store.load(aside.location), entry.candidate) is not None:
            self._drop_aside(aside)

    def _drop_aside(self, aside: Pointer | None) -> None:
        if aside is not None:
            self._backend.apply([PointerUpdate(aside, None)], documents={})

    def _find(self, entry: PublishedEntry) -> Mapping[Identifier, Pointer]:
        return self._backend.find({entry.identifier})

    def _plan(self, entry: PublishedEntry, rows: Mapping[Identifier, Pointer]) -> MovePlan:
        return Undoer(self._store, rows, self._force).plan(entry)
