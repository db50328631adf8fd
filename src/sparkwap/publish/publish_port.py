"""The tables of a sequential publish: reads their positions and moves them one after the other.

`publish_journal` has the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from sparkwap.catalog import metadata as md
from sparkwap.catalog import publish_journal as jn
from sparkwap.catalog import views
from sparkwap.catalog.backend import sequential
from sparkwap.catalog.branches import empty_base
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.difference import difference
from sparkwap.catalog.model import Identifier, Mismatch, PublishedEntry
from sparkwap.catalog.planning import Differs, MovePlan
from sparkwap.catalog.pointers import Conflict, Pointer, PointerUpdate, Unanswered
from sparkwap.core import names
from sparkwap.core.checkpoints import (
    SEQUENTIAL_CHANGED,
    SEQUENTIAL_FREED,
    SEQUENTIAL_MOVED,
    SEQUENTIAL_MOVED_BACK,
    SEQUENTIAL_RENAMED,
)
from sparkwap.publish.planner import Publisher
from sparkwap.publish.rollback import restore
from sparkwap.publish.sequential_moves import (
    in_place_change,
    not_expressible,
    reached_table,
    refusal,
    settled,
    side_identifier,
)
from sparkwap.publish.staging import names_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkwap.catalog.store import Store


class PublishPort:
    """The tables of a publish: their positions, and their moves forward and back.

    Args:
        schemas: Side schema -> schema, of the audit branch.
        taken: New names that now exist in the lake in another case; they are not published.
    """

    def __init__(
        self,
        store: Store,
        journal: jn.PublishJournal,
        schemas: Mapping[str, str],
        taken: Iterable[Mismatch] = (),
    ) -> None:
        self._store = store
        self._backend = sequential(store.backend)
        self._journal = journal
        self._schemas = schemas
        self._abort_tag = names.abort_tag(journal.publish_id)
        self._taken = {one.identifier: one for one in taken}
        self.reasons: dict[Identifier, Mismatch] = {}

    def position(self, move: jn.Move) -> jn.Position:
        """Return the position of a table or view."""
        return settled(lambda: self._find(move), lambda rows: self._look(move, rows))

    def forward(self, moves: Sequence[jn.Move]) -> None:
        """Move tables; metadata changes are one request if the server offers that."""
        try:
            in_place = [move for move in moves if move.entry.how in ("branch", "clone")]
            changed = partial(reached_table, SEQUENTIAL_CHANGED, self._journal)
            plans = [self._plan(move, self._find(move)) for move in in_place]
            steps = [self._require_not_aborted(*in_place_change(plan)) for plan in plans]
            self._backend.evolve(steps, changed)
            for move in moves:
                if move.entry.how in ("branch", "clone"):
                    continue
                if move.entry.how == "view":
                    self._publish_view(move)
                else:
                    self._move_in(move)
                reached_table(SEQUENTIAL_MOVED, self._journal, move.identifier)
        except (Differs, Conflict, Unanswered) as problem:
            raise jn.Moved(str(problem)) from problem

    def back(self, move: jn.Move) -> None:
        """Move a table back, with its audit branch or side object."""
        try:
            rows = self._find(move)
            live = rows.get(move.identifier)
            if move.entry.how in ("branch", "clone"):
                self._back_in_place(move, live)
            elif move.entry.how == "view":
                self._back_view(move, rows)
            else:
                self._move_out(move, rows)
            reached_table(SEQUENTIAL_MOVED_BACK, self._journal, move.identifier)
        except (Conflict, Unanswered) as problem:
            raise jn.Moved(str(problem)) from problem

    def _find(self, move: jn.Move) -> Mapping[Identifier, Pointer]:
        assert move.candidate is not None
        return self._backend.find(names_of([move.candidate]))

    def _look(self, move: jn.Move, rows: Mapping[Identifier, Pointer]) -> jn.Position:
        if move.entry.how in ("branch", "clone"):
            return self._position_in_place(move, rows)
        if move.entry.how == "view":
            published = self._is_published_view(move, rows)
            return "after" if published else self._before(move, rows)
        return self._position_moved(move, rows)

    def _position_in_place(self, move: jn.Move, rows: Mapping[Identifier, Pointer]) -> jn.Position:
        live = rows.get(move.identifier)
        if live is None or live.kind != "table":
            return self._before(move, rows)
        document = self._store.load(live.location)
        if md.identity(document) == move.uuid and self._has_tag(move, document):
            return "after" if md.main_of(document) == move.entry.candidate else "passed"
        return self._before(move, rows)

    def _position_moved(self, move: jn.Move, rows: Mapping[Identifier, Pointer]) -> jn.Position:
        live = rows.get(move.identifier)
        if live is not None and live.kind == "table":
            document = self._store.load(live.location)
            if md.identity(document) == move.uuid:
                if not self._is_sealed(move, document):
                    return "before"
                return "after" if md.main_of(document) == move.entry.candidate else "passed"
        if live is None and move.entry.how == "replace" and side_identifier(move) in rows:
            return "moved" if self._is_refused(move) else "before"
        return self._before(move, rows)

    def _before(self, move: jn.Move, rows: Mapping[Identifier, Pointer]) -> jn.Position:
        """Return ``before`` if the table can still be moved, else ``moved``."""
        if move.identifier in self._taken:
            self.reasons[move.identifier] = self._taken[move.identifier]
            return "moved"
        if move.identifier not in rows and self._is_refused(move):
            return "moved"
        try:
            self._plan(move, rows)
        except Differs as differs:
            self.reasons[move.identifier] = differs.mismatch
            return "moved"
        if move.entry.how in ("branch", "clone"):
            reason = refusal(in_place_change(self._plan(move, rows))[1], self._store)
            if reason is not None:
                self.reasons[move.identifier] = not_expressible(move.identifier, reason)
                return "moved"
        return "before"

    def _is_refused(self, move: jn.Move) -> bool:
        """Return whether the catalog does not take the name, as when another format has it."""
        named = self._backend.refusal_of_name(move.identifier)
        if named is not None:
            self.reasons[move.identifier] = Mismatch(move.identifier, "name", "a free one", named)
        return named is not None

    def _is_table(self, row: Pointer | None, move: jn.Move) -> bool:
        """Return whether a row is the table that the move publishes."""
        if row is None or row.kind != "table":
            return False
        return md.identity(self._store.load(row.location)) == move.uuid

    def _has_tag(self, move: jn.Move, document: md.Document) -> bool:
        if move.entry.candidate is None:
            base = self._store.load(str(move.entry.base_metadata_location))
            return md.definition(base) != md.definition(document)
        tag = md.refs_of(document).get(self._journal.tag)
        return tag is not None and tag.snapshot_id == move.entry.candidate

    def _is_sealed(self, move: jn.Move, document: md.Document) -> bool:
        on = md.is_gated(md.properties_of(document))
        return on and (move.entry.candidate is None or self._has_tag(move, document))

    def _is_published_view(self, move: jn.Move, rows: Mapping[Identifier, Pointer]) -> bool:
        live, side = rows.get(move.identifier), rows.get(side_identifier(move))
        if live is None or live.kind != "view":
            return False
        if side is None:
            return True
        here = md.current_version(self._store.load(live.location))
        published = views.publishable(self._store.load(side.location), None, self._schemas)
        return bool(here["representations"] == md.current_version(published)["representations"])

    def _plan(self, move: jn.Move, rows: Mapping[Identifier, Pointer]) -> MovePlan:
        assert move.candidate is not None
        journal = self._journal
        publisher = Publisher(
            self._store.load,
            rows,
            journal.branch,
            journal.tag,
            journal.tag_max_age_ms,
            self._schemas,
        )
        return publisher.plan(move.candidate)

    # Forward

    def _move_in(self, move: jn.Move) -> None:
        rows = self._find(move)
        live = rows.get(move.identifier)
        if self._is_table(live, move):
            twin = rows.get(side_identifier(move))
            # An interrupted rename, of a catalog that creates the new name before it drops the old.
            if twin is not None and self._is_table(twin, move):
                self._backend.apply([PointerUpdate(twin, None)], documents={})
        else:
            if live is not None:
                self._plan(move, rows)
                self._backend.set_aside(live, str(move.entry.base_metadata_location))
                reached_table(SEQUENTIAL_FREED, self._journal, move.identifier)
            self._backend.rename(side_identifier(move), move.identifier, "table")
            reached_table(SEQUENTIAL_RENAMED, self._journal, move.identifier)
        self._seal(move)

    def _seal(self, move: jn.Move) -> None:
        """Add the tag and the property that each published table has."""
        live = self._backend.get(move.identifier)
        if live is None:
            raise Conflict(None, f"{'.'.join(move.identifier)} is gone")
        document = self._store.load(live.location)
        change = MetadataChange(document).properties({md.WAP_ENABLED: "true"})
        if move.entry.candidate is not None:
            age = self._journal.tag_max_age_ms
            change = change.tag(self._journal.tag, move.entry.candidate, age)
        self._backend.evolve([(live, change)])

    def _publish_view(self, move: jn.Move) -> None:
        rows = self._find(move)
        plan = self._plan(move, rows)
        location, document = next(iter(plan.writes.items()))
        after = Pointer(move.identifier, "view", location)
        swap = PointerUpdate(rows.get(move.identifier), after)
        self._backend.apply([swap], documents={location: document})

    def _require_not_aborted(
        self, row: Pointer, change: MetadataChange
    ) -> tuple[Pointer, MetadataChange]:
        """Return the change, with the requirement that the publish is not being undone."""
        if self._abort_tag in md.refs_of(change.base):
            raise Conflict(None, f"{'.'.join(row.identifier)}: the publish is being undone")
        return row, change.holding(self._abort_tag)

    # Back

    def _back_in_place(self, move: jn.Move, live: Pointer | None) -> None:
        if live is None or live.kind != "table":
            return
        document = self._store.load(live.location)
        if md.identity(document) != move.uuid:
            return
        if not self._has_tag(move, document):
            self._put_abort_tag(move, live, document)
            return
        if md.main_of(document) != move.entry.candidate:
            raise Conflict(None, f"another writer has moved {'.'.join(move.identifier)} since")
        change = MetadataChange(document)
        if move.entry.how == "clone":
            base = self._store.load(str(move.entry.base_metadata_location))
            change = difference(document, restore(document, base, document))
        change = self._main_back(move.entry, change.remove_refs(self._journal.tag))
        self._backend.evolve([(live, self._with_abort_tag(move, change))])

    def _put_abort_tag(self, move: jn.Move, live: Pointer, document: md.Document) -> None:
        """Add the abort tag to a table that has not moved, so that no late request can move it.

        A server may execute a request long after the connection broke, and a stopped process may
        continue. All these requests require that the abort tag does not exist.
        """
        if self._abort_tag in md.refs_of(document):
            return
        # Also require that there is no receipt: a change of columns alone does not move `main`.
        change = self._with_abort_tag(move, MetadataChange(document)).holding(self._journal.tag)
        self._backend.evolve([(live, change)])

    def _with_abort_tag(self, move: jn.Move, change: MetadataChange) -> MetadataChange:
        """Add the abort tag; a table that has neither base nor candidate cannot have a tag."""
        for snapshot in (move.entry.base, move.entry.candidate):
            if snapshot is not None and md.snapshot(change.base, snapshot) is not None:
                return change.tag(self._abort_tag, snapshot)
        return change

    def _main_back(self, entry: PublishedEntry, change: MetadataChange) -> MetadataChange:
        branch, of_branch = self._journal.branch, entry.how == "branch"
        if of_branch and entry.candidate is not None:
            change = change.branch(branch, entry.candidate)
        if entry.base is None:
            change = change.remove_refs(md.MAIN)
            return change.properties({empty_base(branch): "none"}) if of_branch else change
        change = change.branch(md.MAIN, entry.base)
        return change.tag(names.base_tag(branch), entry.base) if of_branch else change

    def _back_view(self, move: jn.Move, rows: Mapping[Identifier, Pointer]) -> None:
        if not self._is_published_view(move, rows):
            return
        base = move.entry.base_metadata_location
        after = None if base is None else Pointer(move.identifier, "view", base)
        self._backend.apply([PointerUpdate(rows[move.identifier], after)], documents={})

    def _move_out(self, move: jn.Move, rows: Mapping[Identifier, Pointer]) -> None:
        live, side = rows.get(move.identifier), side_identifier(move)
        if live is not None:
            if not self._is_table(live, move):
                return
            twin = rows.get(side)
            if twin is not None and self._is_table(twin, move):
                # Both names exist, see `_move_in`. A process that is about to drop the twin must
                # not do so any more: it requires the state that it has read.
                change = self._with_abort_tag(move, MetadataChange(self._store.load(twin.location)))
                if not change.updates:
                    change = change.properties({f"wap.{self._abort_tag}": "true"})
                self._backend.evolve([(twin, change)])
                self._backend.apply([PointerUpdate(live, None)], documents={})
            else:
                self._backend.ensure_schema(side[0], self._journal.branch)
                self._backend.rename(move.identifier, side, "table")
            reached_table(SEQUENTIAL_FREED, self._journal, move.identifier)
        base = move.entry.base_metadata_location
        if base is not None and not self._is_refused(move):
            self._backend.register(Pointer(move.identifier, "table", base))
