"""Publish and rollback on catalogs that cannot do all in one transaction: the journal at work.

`journal` has the rule; this module looks at tables and moves them, on a REST catalog.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkwap.catalog import journal as jn
from sparkwap.catalog import metadata as md
from sparkwap.catalog import views
from sparkwap.catalog.branches import empty_base
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.difference import current_version, difference
from sparkwap.catalog.model import (
    Identifier,
    Item,
    Mismatch,
    PublishedEntry,
    PublishReceipt,
    PublishRefused,
    PublishTorn,
    RollbackReceipt,
    RollbackRefused,
    RollbackTorn,
    SideItem,
)
from sparkwap.catalog.planning import Differs, Load, Plan
from sparkwap.catalog.rest_backend import RestBackend
from sparkwap.catalog.sql_backend import Conflict, Pointer, PointerUpdate, Unanswered
from sparkwap.core import names
from sparkwap.core.errors import CatalogError
from sparkwap.core.retry import wait_seconds
from sparkwap.core.steps import (
    SERIES_CHANGED,
    SERIES_FREED,
    SERIES_MOVED,
    SERIES_MOVED_BACK,
    SERIES_RENAMED,
    Step,
    reached,
)
from sparkwap.publish.planner import Publisher
from sparkwap.publish.rollback import Undoer, restore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkwap.catalog.store import Store

_FIRST_WAIT_SECONDS = 0.05


def pause(attempt: int) -> None:
    """Wait before another try; with jitter, as writers that met once would meet again."""
    time.sleep(wait_seconds(attempt + 1, random.random(), _FIRST_WAIT_SECONDS))


class PublishPort:
    """The tables of a publish: where they are, forward, back.

    Args:
        store: The catalog.
        journal: The publish.
        schemas: Side schema -> schema, of the audit branch.
    """

    def __init__(self, store: Store, journal: jn.Journal, schemas: Mapping[str, str]) -> None:
        self._store = store
        self._backend = rest_of(store)
        self._journal = journal
        self._schemas = schemas
        self._abort_tag = names.abort_tag(journal.publish_id)
        self.reasons: dict[Identifier, Mismatch] = {}

    def position(self, move: jn.Move) -> jn.Position:
        """Where a table or view is."""
        return _settled(lambda: self._find(move), lambda rows: self._look(move, rows))

    def forward(self, moves: Sequence[jn.Move]) -> None:
        """Move tables; those that change in their place together where the server offers it."""
        try:
            in_place = [move for move in moves if move.entry.how in ("branch", "clone")]
            changed = partial(_reached, SERIES_CHANGED, self._journal)
            steps = [
                self._require_not_aborted(*self._step(move, self._find(move))) for move in in_place
            ]
            self._backend.evolve(steps, changed)
            for move in moves:
                if move.entry.how in ("branch", "clone"):
                    continue
                if move.entry.how == "view":
                    self._publish_view(move)
                else:
                    self._move_in(move)
                _reached(SERIES_MOVED, self._journal, move.identifier)
        except (Differs, Conflict, Unanswered) as problem:
            raise jn.Moved(str(problem)) from problem

    def back(self, move: jn.Move) -> None:
        """Move a table back to where it was, its audit branch or side object with it."""
        try:
            rows = self._find(move)
            live = rows.get(move.identifier)
            if move.entry.how in ("branch", "clone"):
                self._back_in_place(move, live)
            elif move.entry.how == "view":
                self._back_view(move, rows)
            else:
                self._move_out(move, live)
            _reached(SERIES_MOVED_BACK, self._journal, move.identifier)
        except (Conflict, Unanswered) as problem:
            raise jn.Moved(str(problem)) from problem

    # Where it is

    def _find(self, move: jn.Move) -> Mapping[Identifier, Pointer]:
        assert move.item is not None
        return self._backend.find(names_of([move.item]))

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
        if live is None and move.entry.how == "replace" and _side(move) in rows:
            return "before"
        return self._before(move, rows)

    def _before(self, move: jn.Move, rows: Mapping[Identifier, Pointer]) -> jn.Position:
        """Whether it can be moved still."""
        try:
            self._plan(move, rows)
        except Differs as differs:
            self.reasons[move.identifier] = differs.mismatch
            return "moved"
        if move.entry.how in ("branch", "clone"):
            refusal = self._step(move, rows)[1].refusal
            if refusal is not None:
                self.reasons[move.identifier] = _not_expressible(move.identifier, refusal)
                return "moved"
        return "before"

    def _has_tag(self, move: jn.Move, document: md.Document) -> bool:
        if move.entry.candidate is None:
            base = self._store.load(str(move.entry.base_metadata_location))
            return md.definition(base) != md.definition(document)
        tag = md.refs_of(document).get(self._journal.tag)
        return tag is not None and tag.snapshot_id == move.entry.candidate

    def _is_sealed(self, move: jn.Move, document: md.Document) -> bool:
        on = md.properties_of(document).get(md.WAP_ENABLED) == "true"
        return on and (move.entry.candidate is None or self._has_tag(move, document))

    def _is_published_view(self, move: jn.Move, rows: Mapping[Identifier, Pointer]) -> bool:
        live, side = rows.get(move.identifier), rows.get(_side(move))
        if live is None or live.kind != "view":
            return False
        if side is None:
            return True
        here = current_version(self._store.load(live.location))
        published = views.publishable(self._store.load(side.location), None, self._schemas)
        return bool(here["representations"] == current_version(published)["representations"])

    def _plan(self, move: jn.Move, rows: Mapping[Identifier, Pointer]) -> Plan:
        assert move.item is not None
        journal = self._journal
        publisher = Publisher(
            self._store.load,
            rows,
            journal.branch,
            journal.tag,
            journal.tag_max_age_ms,
            self._schemas,
        )
        return publisher.plan(move.item)

    def _step(
        self, move: jn.Move, rows: Mapping[Identifier, Pointer]
    ) -> tuple[Pointer, MetadataChange]:
        return _in_place(self._plan(move, rows))

    # Forward

    def _move_in(self, move: jn.Move) -> None:
        rows = self._find(move)
        live = rows.get(move.identifier)
        here = live is not None and md.identity(self._store.load(live.location)) == move.uuid
        if not here:
            if live is not None:
                self._plan(move, rows)
                self._backend.apply([PointerUpdate(live, None)], documents={})
                _reached(SERIES_FREED, self._journal, move.identifier)
            self._backend.rename(_side(move), move.identifier, "table")
            _reached(SERIES_RENAMED, self._journal, move.identifier)
        self._seal(move)

    def _seal(self, move: jn.Move) -> None:
        """What a published table has: the tag, and the gate switched on."""
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
        """The step, under the requirement that nobody undoes the publish meanwhile."""
        if self._abort_tag in md.refs_of(change.base):
            raise Conflict(None, f"{'.'.join(row.identifier)}: the publish is undone")
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
            raise Conflict(None, f"{'.'.join(move.identifier)} moved on meanwhile")
        change = MetadataChange(document)
        if move.entry.how == "clone":
            base = self._store.load(str(move.entry.base_metadata_location))
            change = difference(document, restore(document, base, document))
        change = self._main_back(move.entry, change.remove_refs(self._journal.tag))
        self._backend.evolve([(live, self._with_abort_tag(move, change))])

    def _put_abort_tag(self, move: jn.Move, live: Pointer, document: md.Document) -> None:
        """Keep a table that looks untouched from what may still be on its way to it.

        A server may be at work on a request of ours long after it has failed to answer, and a
        process that was stopped may go on. Both require that the abort tag is not there.
        """
        if self._abort_tag in md.refs_of(document):
            return
        # With the receipt, as a change of columns alone does not move `main`.
        change = self._with_abort_tag(move, MetadataChange(document)).holding(self._journal.tag)
        self._backend.evolve([(live, change)])

    def _with_abort_tag(self, move: jn.Move, change: MetadataChange) -> MetadataChange:
        """With the abort tag on a snapshot that the table has; without one there can be no tag."""
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

    def _move_out(self, move: jn.Move, live: Pointer | None) -> None:
        item = move.item
        assert isinstance(item, SideItem)
        if live is not None:
            if md.identity(self._store.load(live.location)) != move.uuid:
                return
            self._backend.ensure_schema(item.side_schema, self._journal.branch)
            self._backend.rename(move.identifier, _side(move), "table")
            _reached(SERIES_FREED, self._journal, move.identifier)
        base = move.entry.base_metadata_location
        if base is not None:
            self._backend.register(Pointer(move.identifier, "table", base))


class RollbackPort:
    """The tables of a rollback: where they are, and back to what they were before the publish."""

    def __init__(self, store: Store, journal: jn.Journal) -> None:
        self._store = store
        self._backend = rest_of(store)
        self._journal = journal
        self._force = journal.action == "forced rollback"
        self.reasons: dict[Identifier, Mismatch] = {}

    def position(self, move: jn.Move) -> jn.Position:
        """Where a table or view is: ``after`` is what it was before the publish."""
        return _settled(lambda: self._find(move.entry), lambda rows: self._look(move, rows))

    def _look(self, move: jn.Move, rows: Mapping[Identifier, Pointer]) -> jn.Position:
        live = rows.get(move.identifier)
        if self._is_undone(move.entry, live):
            return "after"
        if live is None and move.entry.how == "replace":
            return "before"
        try:
            self._plan(move.entry, rows)
        except Differs as differs:
            self.reasons[move.identifier] = differs.mismatch
            return "moved"
        return "before"

    def forward(self, moves: Sequence[jn.Move]) -> None:
        """Undo what was published of these."""
        try:
            in_place = [move for move in moves if self._changes_in_place(move.entry)]
            changed = partial(_reached, SERIES_CHANGED, self._journal)
            steps = [self._step(move.entry, self._find(move.entry)) for move in in_place]
            self._backend.evolve(steps, changed)
            for move in moves:
                if move not in in_place:
                    self._former(move.entry)
                    _reached(SERIES_MOVED, self._journal, move.identifier)
        except (Differs, Conflict, Unanswered) as problem:
            raise jn.Moved(str(problem)) from problem

    def back(self, move: jn.Move) -> None:
        """Never called: a rollback is completed."""
        raise AssertionError(move)

    def _is_undone(self, entry: PublishedEntry, live: Pointer | None) -> bool:
        if live is None:
            return entry.base_metadata_location is None
        if entry.base_metadata_location is None:
            return False
        document = self._store.load(live.location)
        base = self._store.load(entry.base_metadata_location)
        if entry.how == "view" and live.kind == "view":
            texts = [current_version(one)["representations"] for one in (document, base)]
            return bool(texts[0] == texts[1])
        if md.identity(document) != md.identity(base):
            return False
        if entry.how == "replace":
            return not self._force or md.main_of(document) == md.main_of(base)
        if self._force:
            return self._is_left_as_it_is(entry, live)
        same = md.main_of(document) == entry.base
        return same and (entry.how == "branch" or md.definition(document) == md.definition(base))

    def _is_left_as_it_is(self, entry: PublishedEntry, live: Pointer) -> bool:
        """Whether force would change nothing of a table in its place any more."""
        try:
            change = self._step(entry, {entry.identifier: live})[1]
        except Differs:
            return False
        return change.refusal is None and not change.posted

    def _changes_in_place(self, entry: PublishedEntry) -> bool:
        """Whether it is the same table still; with force another one may be in its place."""
        if entry.how not in ("branch", "clone"):
            return False
        live = self._backend.get(entry.identifier)
        if not self._force:
            return True
        if live is None or live.kind != "table":
            return False
        base = self._store.load(str(entry.base_metadata_location))
        return md.identity(self._store.load(live.location)) == md.identity(base)

    def _former(self, entry: PublishedEntry) -> None:
        rows = self._find(entry)
        if entry.identifier not in rows and entry.how == "replace":
            base = Pointer(entry.identifier, "table", str(entry.base_metadata_location))
            self._backend.register(base)
            return
        plan = self._plan(entry, rows)
        for swap in plan.swaps:
            before, after = swap.before, swap.after
            if before is not None and after is not None and not before.kind == after.kind == "view":
                self._backend.apply([PointerUpdate(before, None)], documents={})
                _reached(SERIES_FREED, self._journal, entry.identifier)
                before = None
            self._backend.apply([PointerUpdate(before, after)], documents=plan.writes)

    def _find(self, entry: PublishedEntry) -> Mapping[Identifier, Pointer]:
        return self._backend.find({entry.identifier})

    def _plan(self, entry: PublishedEntry, rows: Mapping[Identifier, Pointer]) -> Plan:
        return Undoer(self._store.load, rows, self._force).plan(entry)

    def _step(
        self, entry: PublishedEntry, rows: Mapping[Identifier, Pointer]
    ) -> tuple[Pointer, MetadataChange]:
        return _in_place(self._plan(entry, rows))


def moves_of(plans: Sequence[Plan], items: Sequence[Item], load: Load) -> tuple[jn.Move, ...]:
    """The moves of a publish, one for each plan."""
    return tuple(
        jn.Move(plan.entry, item, md.identity(load(_source(plan).location)))
        for plan, item in zip(plans, items, strict=True)
    )


def require_expressible(plans: Sequence[Plan]) -> None:
    """Refuse a publish of which a table's change cannot be said in updates.

    Raises:
        PublishRefused: Nothing was published.
    """
    wrong = inexpressible(plans)
    if wrong:
        raise PublishRefused(wrong)


def inexpressible(plans: Sequence[Plan]) -> list[Mismatch]:
    """The tables that would change in their place in a way that cannot be said in updates."""
    return [
        _not_expressible(plan.entry.identifier, swap.change.refusal)
        for plan in plans
        for swap in plan.swaps
        if swap.change is not None and swap.change.refusal is not None
    ]


def outcome_or_raise(
    journal: jn.Journal, outcome: jn.Outcome, reasons: Mapping[Identifier, Mismatch]
) -> None:
    """Nothing if a publish was completed.

    Raises:
        PublishRefused: It was undone.
        PublishTorn: It was undone as far as it could be.
    """
    if outcome.state == "completed":
        return
    mismatches = [reasons[name] for name in outcome.blocked if name in reasons]
    if outcome.state == "torn":
        raise PublishTorn(journal.publish_id, mismatches, outcome.stayed)
    raise PublishRefused(mismatches)


def rollback_or_raise(
    journal: jn.Journal, outcome: jn.Outcome, reasons: Mapping[Identifier, Mismatch]
) -> None:
    """Nothing if all tables of a rollback were moved back.

    Raises:
        RollbackRefused: None was.
        RollbackTorn: Some were.
    """
    if not outcome.blocked:
        return
    mismatches = [reasons[name] for name in outcome.blocked if name in reasons]
    back = [move.identifier for move in journal.moves if move.identifier not in outcome.blocked]
    if not back:
        raise RollbackRefused(mismatches)
    raise RollbackTorn(journal.publish_id, mismatches, back)


def words(journal: jn.Journal) -> str:
    """What is on its way, for messages."""
    return f"the {journal.action} of run {names.short_run_id(journal.run_id)}"


def rollback_told(
    journal: jn.Journal, outcome: jn.Outcome, reasons: Mapping[Identifier, Mismatch]
) -> str:
    """What a command says that has found a rollback on its way."""
    what = words(journal)
    try:
        rollback_or_raise(journal, outcome, reasons)
    except (RollbackRefused, RollbackTorn) as problem:
        return f"Went on with {what}, which had not come to its end. {problem}"
    return f"Completed {what}, which had not come to its end: all its tables are back."


def with_locations(journal: jn.Journal, store: Store) -> tuple[PublishedEntry, ...]:
    """The entries with the metadata files that the catalog has written for them."""
    rows = store.backend.find({move.identifier for move in journal.moves})
    found = []
    for move in journal.moves:
        row = rows.get(move.identifier)
        here = row is not None and (
            row.kind == "view" or md.main_of(store.load(row.location)) == move.entry.candidate
        )
        location = row.location if row is not None and here else ""
        found.append(replace(move.entry, published_metadata_location=location))
    return tuple(found)


def receipt_of(
    journal: jn.Journal, entries: Sequence[PublishedEntry], moved_reads: Sequence[Mismatch]
) -> PublishReceipt:
    """The receipt of a completed publish."""
    return PublishReceipt(
        journal.publish_id,
        journal.run_id,
        journal.branch,
        journal.tag,
        journal.at,
        tuple(entries),
        tuple(moved_reads),
    )


def rolled_back(journal: jn.Journal) -> RollbackReceipt:
    """The receipt of a completed rollback."""
    entries = tuple(move.entry for move in journal.moves)
    return RollbackReceipt(journal.publish_id, journal.run_id, journal.at, entries)


def leftovers(journal: jn.Journal, store: Store) -> list[Pointer]:
    """The clones and views in side schemas that a completed publish needs no more."""
    beside = {
        (move.item.side_schema, move.item.identifier[1])
        for move in journal.moves
        if isinstance(move.item, SideItem)
    }
    return list(store.backend.find(beside).values())


def row_of(journal: jn.Journal, state: jn.State) -> dict[str, Any]:
    """The journal's row in the ledger."""
    return {
        "publish_id": journal.publish_id,
        "run_id": journal.run_id,
        "branch": journal.branch,
        "action": journal.action,
        "state": state,
        "tag": journal.tag,
        "tag_max_age_ms": journal.tag_max_age_ms,
        "moves": jn.dump(journal) if state == "intended" else None,
        "intended_at": journal.at,
        "at": datetime.now(UTC),
    }


def journal_of(row: Mapping[str, Any]) -> jn.Journal:
    """The journal that a row of the ledger holds."""
    moves, undone, manifest_hash = jn.parse(row["moves"])
    return jn.Journal(
        row["publish_id"],
        row["run_id"],
        row["branch"],
        row["action"],
        row["tag"],
        row["tag_max_age_ms"],
        row["intended_at"],
        moves,
        undone,
        manifest_hash,
    )


def rest_of(store: Store) -> RestBackend:
    """The REST catalog of a store."""
    rows = store.backend
    if not isinstance(rows, RestBackend):
        raise CatalogError(f"The catalog {rows.name} needs no journal.")
    return rows


def about(journal: jn.Journal) -> dict[str, Any]:
    """What the steps of a journal are about."""
    return {
        "run_id": journal.run_id,
        "branch": journal.branch,
        "publish_id": journal.publish_id,
    }


def _settled(
    find: Callable[[], Mapping[Identifier, Pointer]],
    look: Callable[[Mapping[Identifier, Pointer]], jn.Position],
) -> jn.Position:
    """Where a table is, by rows that were there together.

    Another carrier of the same journal may move it while its names are read, one after the other:
    then it is neither where it was nor where it comes to, and looks moved by others.
    """
    while True:
        rows = find()
        found = look(rows)
        if found != "moved" or find() == rows:
            return found


def _side(move: jn.Move) -> Identifier:
    """Where what is published stood beside the live name."""
    item = move.item
    assert isinstance(item, SideItem)
    return item.side_schema, item.identifier[1]


def _reached(step: Step, journal: jn.Journal, identifier: Identifier) -> None:
    reached(step, table=".".join(identifier), **about(journal))


def names_of(items: Sequence[Item]) -> set[Identifier]:
    """The live and the side names of items."""
    live = {item.identifier for item in items}
    sides = [item for item in items if isinstance(item, SideItem)]
    return live | {(item.side_schema, item.identifier[1]) for item in sides}


def _not_expressible(identifier: Identifier, reason: str) -> Mismatch:
    # To be built again on what the table is now, as if `main` had moved.
    expected = "what it was when its clone was made"
    return Mismatch(identifier, "metadata", expected, reason, "main")


def _in_place(plan: Plan) -> tuple[Pointer, MetadataChange]:
    """The row of a table that changes in its place, and the change."""
    swap = plan.swaps[0]
    assert swap.before is not None and swap.change is not None
    return swap.before, swap.change


def _source(plan: Plan) -> Pointer:
    """What becomes the live table: the table itself, or what stands in the side schema."""
    entry = plan.entry
    own = [swap.before for swap in plan.swaps if swap.before and swap.after]
    if entry.how in ("branch", "clone"):
        own = [row for row in own if row.identifier == entry.identifier]
    assert own[0] is not None
    return own[0]
