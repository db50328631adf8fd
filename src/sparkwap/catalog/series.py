"""Publish and rollback on catalogs that cannot do all in one transaction: the journal at work.

`journal` has the rule; this module looks at tables and moves them, on a REST catalog.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkwap import names
from sparkwap.catalog import journal as jn
from sparkwap.catalog import metadata as md
from sparkwap.catalog import updates, views
from sparkwap.catalog.branches import empty_base
from sparkwap.catalog.model import (
    Identifier,
    Item,
    Mismatch,
    PublishedEntry,
    PublishReceipt,
    PublishRefused,
    PublishTorn,
    RollbackReceipt,
    SideItem,
)
from sparkwap.catalog.planning import Differs, Load, Plan
from sparkwap.catalog.publish import Publisher
from sparkwap.catalog.rest import RestTables
from sparkwap.catalog.rollback import Undoer, restore
from sparkwap.catalog.rows import Conflict, Row, Swap, Unanswered
from sparkwap.errors import CatalogError
from sparkwap.steps import (
    SERIES_CHANGED,
    SERIES_FREED,
    SERIES_MOVED,
    SERIES_MOVED_BACK,
    SERIES_RENAMED,
    Step,
    reached,
)
from sparkwap.transient import wait_seconds

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
        self._rows = rest_of(store)
        self._journal = journal
        self._schemas = schemas
        self.reasons: dict[Identifier, Mismatch] = {}

    def position(self, move: jn.Move) -> jn.Position:
        """Where a table or view is."""
        live = self._rows.get(move.identifier)
        if move.entry.how in ("branch", "clone"):
            return self._position_in_place(move, live)
        if move.entry.how == "view":
            return "after" if self._is_published_view(move, live) else self._before(move)
        return self._position_moved(move, live)

    def forward(self, moves: Sequence[jn.Move]) -> None:
        """Move tables; those that change in their place together where the server offers it."""
        try:
            in_place = [move for move in moves if move.entry.how in ("branch", "clone")]
            changed = partial(_reached, SERIES_CHANGED, self._journal)
            self._rows.evolve([self._step(move) for move in in_place], changed)
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
            live = self._rows.get(move.identifier)
            if move.entry.how in ("branch", "clone"):
                self._back_in_place(move, live)
            elif move.entry.how == "view":
                self._back_view(move, live)
            else:
                self._move_out(move, live)
            _reached(SERIES_MOVED_BACK, self._journal, move.identifier)
        except (Conflict, Unanswered) as problem:
            raise jn.Moved(str(problem)) from problem

    # Where it is

    def _position_in_place(self, move: jn.Move, live: Row | None) -> jn.Position:
        if live is None or live.kind != "table":
            return self._before(move)
        document = self._store.load(live.location)
        if md.identity(document) == move.uuid and self._has_tag(move, document):
            return "after" if md.main_of(document) == move.entry.candidate else "passed"
        return self._before(move)

    def _position_moved(self, move: jn.Move, live: Row | None) -> jn.Position:
        if live is not None and live.kind == "table":
            document = self._store.load(live.location)
            if md.identity(document) == move.uuid:
                if not self._is_sealed(move, document):
                    return "before"
                return "after" if md.main_of(document) == move.entry.candidate else "passed"
        if live is None and move.entry.how == "replace" and self._side(move) is not None:
            return "before"
        return self._before(move)

    def _before(self, move: jn.Move) -> jn.Position:
        """Whether it can be moved still."""
        try:
            self._plan(move)
        except Differs as differs:
            self.reasons[move.identifier] = differs.mismatch
            return "moved"
        if move.entry.how in ("branch", "clone"):
            try:
                updates.change(*self._step(move)[1:])
            except updates.NotExpressible as problem:
                self.reasons[move.identifier] = _not_expressible(move.identifier, problem)
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

    def _is_published_view(self, move: jn.Move, live: Row | None) -> bool:
        if live is None or live.kind != "view":
            return False
        side = self._side(move)
        if side is None:
            return True
        here = updates.current_version(self._store.load(live.location))
        published = views.publishable(self._store.load(side.location), None, self._schemas)
        return bool(
            here["representations"] == updates.current_version(published)["representations"]
        )

    def _side(self, move: jn.Move) -> Row | None:
        item = move.item
        assert isinstance(item, SideItem)
        return self._rows.get((item.side_schema, item.identifier[1]))

    def _plan(self, move: jn.Move) -> Plan:
        assert move.item is not None
        found = self._rows.find(names_of([move.item]))
        journal = self._journal
        publisher = Publisher(
            self._store.load,
            found,
            journal.branch,
            journal.tag,
            journal.tag_max_age_ms,
            self._schemas,
        )
        return publisher.plan(move.item)

    def _step(self, move: jn.Move) -> tuple[Row, md.Document, md.Document]:
        plan = self._plan(move)
        row = plan.swaps[0].before
        assert row is not None
        return row, self._store.load(row.location), plan.writes[_location(plan.swaps[0])]

    # Forward

    def _move_in(self, move: jn.Move) -> None:
        live = self._rows.get(move.identifier)
        here = live is not None and md.identity(self._store.load(live.location)) == move.uuid
        if not here:
            if live is not None:
                self._plan(move)
                self._rows.apply([Swap(live, None)], documents={})
                _reached(SERIES_FREED, self._journal, move.identifier)
            item = move.item
            assert isinstance(item, SideItem)
            beside = (item.side_schema, item.identifier[1])
            self._rows.rename(beside, move.identifier, "table")
            _reached(SERIES_RENAMED, self._journal, move.identifier)
        self._seal(move)

    def _seal(self, move: jn.Move) -> None:
        """What a published table has: the tag, and the gate switched on."""
        live = self._rows.get(move.identifier)
        if live is None:
            raise Conflict(None, f"{'.'.join(move.identifier)} is gone")
        document = self._store.load(live.location)
        edit = md.Edit(document, live.location).properties({md.WAP_ENABLED: "true"})
        if move.entry.candidate is not None:
            edit.tag(self._journal.tag, move.entry.candidate, self._journal.tag_max_age_ms)
        self._rows.evolve([(live, document, edit.build())])

    def _publish_view(self, move: jn.Move) -> None:
        plan = self._plan(move)
        live = self._rows.get(move.identifier)
        location, document = next(iter(plan.writes.items()))
        after = Row(move.identifier, "view", location)
        self._rows.apply([Swap(live, after)], documents={location: document})

    # Back

    def _back_in_place(self, move: jn.Move, live: Row | None) -> None:
        if live is None or live.kind != "table":
            return
        document = self._store.load(live.location)
        if md.identity(document) != move.uuid or not self._has_tag(move, document):
            return
        if md.main_of(document) != move.entry.candidate:
            raise Conflict(None, f"{'.'.join(move.identifier)} moved on meanwhile")
        grown = document
        if move.entry.how == "clone":
            base = self._store.load(str(move.entry.base_metadata_location))
            grown = restore(document, base, document)
        edit = md.Edit(grown, live.location).remove_ref(self._journal.tag)
        self._main_back(move.entry, edit)
        self._rows.evolve([(live, document, edit.build())])

    def _main_back(self, entry: PublishedEntry, edit: md.Edit) -> None:
        branch = self._journal.branch
        if entry.how == "branch" and entry.candidate is not None:
            edit.branch(branch, entry.candidate)
        if entry.base is None:
            edit.remove_ref(md.MAIN)
            if entry.how == "branch":
                edit.properties({empty_base(branch): "none"})
            return
        edit.branch(md.MAIN, entry.base)
        if entry.how == "branch":
            edit.tag(names.base_tag(branch), entry.base)

    def _back_view(self, move: jn.Move, live: Row | None) -> None:
        if live is None or not self._is_published_view(move, live):
            return
        base = move.entry.base_metadata_location
        after = None if base is None else Row(move.identifier, "view", base)
        self._rows.apply([Swap(live, after)], documents={})

    def _move_out(self, move: jn.Move, live: Row | None) -> None:
        item = move.item
        assert isinstance(item, SideItem)
        if live is not None:
            if md.identity(self._store.load(live.location)) != move.uuid:
                return
            beside = (item.side_schema, item.identifier[1])
            self._rows.ensure_schema(item.side_schema, self._journal.branch)
            self._rows.rename(move.identifier, beside, "table")
            _reached(SERIES_FREED, self._journal, move.identifier)
        base = move.entry.base_metadata_location
        if base is not None:
            self._rows.register(Row(move.identifier, "table", base))


class RollbackPort:
    """The tables of a rollback: where they are, and back to what they were before the publish."""

    def __init__(self, store: Store, journal: jn.Journal) -> None:
        self._store = store
        self._rows = rest_of(store)
        self._journal = journal
        self._force = journal.action == "forced rollback"
        self.reasons: dict[Identifier, Mismatch] = {}

    def position(self, move: jn.Move) -> jn.Position:
        """Where a table or view is: ``after`` is what it was before the publish."""
        live = self._rows.get(move.identifier)
        if self._is_undone(move.entry, live):
            return "after"
        if live is None and move.entry.how == "replace":
            return "before"
        try:
            self._plan(move.entry)
        except Differs as differs:
            self.reasons[move.identifier] = differs.mismatch
            return "moved"
        return "before"

    def forward(self, moves: Sequence[jn.Move]) -> None:
        """Undo what was published of these."""
        try:
            in_place = [move for move in moves if self._changes_in_place(move.entry)]
            changed = partial(_reached, SERIES_CHANGED, self._journal)
            self._rows.evolve([self._step(move.entry) for move in in_place], changed)
            for move in moves:
                if move not in in_place:
                    self._former(move.entry)
                    _reached(SERIES_MOVED, self._journal, move.identifier)
        except (Differs, Conflict, Unanswered) as problem:
            raise jn.Moved(str(problem)) from problem

    def back(self, move: jn.Move) -> None:
        """Never called: a rollback is completed."""
        raise AssertionError(move)

    def _is_undone(self, entry: PublishedEntry, live: Row | None) -> bool:
        if live is None:
            return entry.base_metadata_location is None
        if entry.base_metadata_location is None:
            return False
        document = self._store.load(live.location)
        base = self._store.load(entry.base_metadata_location)
        if entry.how == "view" and live.kind == "view":
            texts = [updates.current_version(one)["representations"] for one in (document, base)]
            return bool(texts[0] == texts[1])
        if md.identity(document) != md.identity(base):
            return False
        if entry.how == "replace":
            return not self._force or md.main_of(document) == md.main_of(base)
        if self._force:
            return self._is_left_as_it_is(entry)
        same = md.main_of(document) == entry.base
        return same and (entry.how == "branch" or md.definition(document) == md.definition(base))

    def _is_left_as_it_is(self, entry: PublishedEntry) -> bool:
        """Whether force would change nothing of a table in its place any more."""
        try:
            return not updates.change(*self._step(entry)[1:]).updates
        except (Differs, updates.NotExpressible):
            return False

    def _changes_in_place(self, entry: PublishedEntry) -> bool:
        """Whether it is the same table still; with force another one may be in its place."""
        if entry.how not in ("branch", "clone"):
            return False
        live = self._rows.get(entry.identifier)
        if not self._force:
            return True
        if live is None or live.kind != "table":
            return False
        base = self._store.load(str(entry.base_metadata_location))
        return md.identity(self._store.load(live.location)) == md.identity(base)

    def _former(self, entry: PublishedEntry) -> None:
        live = self._rows.get(entry.identifier)
        if live is None and entry.how == "replace":
            base = Row(entry.identifier, "table", str(entry.base_metadata_location))
            self._rows.register(base)
            return
        plan = self._plan(entry)
        for swap in plan.swaps:
            before, after = swap.before, swap.after
            if before is not None and after is not None and not before.kind == after.kind == "view":
                self._rows.apply([Swap(before, None)], documents={})
                _reached(SERIES_FREED, self._journal, entry.identifier)
                before = None
            self._rows.apply([Swap(before, after)], documents=plan.writes)

    def _plan(self, entry: PublishedEntry) -> Plan:
        found = self._rows.find({entry.identifier})
        return Undoer(self._store.load, found, self._force).plan(entry)

    def _step(self, entry: PublishedEntry) -> tuple[Row, md.Document, md.Document]:
        plan = self._plan(entry)
        row = plan.swaps[0].before
        assert row is not None
        return row, self._store.load(row.location), plan.writes[_location(plan.swaps[0])]


def moves_of(plans: Sequence[Plan], items: Sequence[Item], load: Load) -> tuple[jn.Move, ...]:
    """The moves of a publish, one for each plan."""
    return tuple(
        jn.Move(plan.entry, item, md.identity(load(_source(plan).location)))
        for plan, item in zip(plans, items, strict=True)
    )


def require_expressible(plans: Sequence[Plan], load: Load) -> None:
    """Refuse a publish of which a table's change cannot be said in updates.

    Raises:
        PublishRefused: Nothing was published.
    """
    wrong = inexpressible(plans, load)
    if wrong:
        raise PublishRefused(wrong)


def inexpressible(plans: Sequence[Plan], load: Load) -> list[Mismatch]:
    """The tables that would change in their place in a way that cannot be said in updates."""
    wrong = []
    for plan in plans:
        row = plan.swaps[0].before if plan.swaps else None
        if plan.entry.how not in ("branch", "clone") or row is None or plan.swaps[0].replaces:
            continue
        try:
            updates.change(load(row.location), plan.writes[_location(plan.swaps[0])])
        except updates.NotExpressible as problem:
            wrong.append(_not_expressible(plan.entry.identifier, problem))
    return wrong


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


def with_locations(journal: jn.Journal, store: Store) -> tuple[PublishedEntry, ...]:
    """The entries with the metadata files that the catalog has written for them."""
    rows = store.rows.find({move.identifier for move in journal.moves})
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


def leftovers(journal: jn.Journal, store: Store) -> list[Row]:
    """The clones and views in side schemas that a completed publish needs no more."""
    beside = {
        (move.item.side_schema, move.item.identifier[1])
        for move in journal.moves
        if isinstance(move.item, SideItem)
    }
    return list(store.rows.find(beside).values())


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


def rest_of(store: Store) -> RestTables:
    """The REST catalog of a store."""
    rows = store.rows
    if not isinstance(rows, RestTables):
        raise CatalogError(f"The catalog {rows.name} needs no journal.")
    return rows


def about(journal: jn.Journal) -> dict[str, Any]:
    """What the steps of a journal are about."""
    return {
        "run_id": journal.run_id,
        "branch": journal.branch,
        "publish_id": journal.publish_id,
    }


def _reached(step: Step, journal: jn.Journal, identifier: Identifier) -> None:
    reached(step, table=".".join(identifier), **about(journal))


def names_of(items: Sequence[Item]) -> set[Identifier]:
    """The live and the side names of items."""
    live = {item.identifier for item in items}
    sides = [item for item in items if isinstance(item, SideItem)]
    return live | {(item.side_schema, item.identifier[1]) for item in sides}


def _not_expressible(identifier: Identifier, problem: Exception) -> Mismatch:
    # To be built again on what the table is now, as if `main` had moved.
    expected = "what it was when its clone was made"
    return Mismatch(identifier, "metadata", expected, str(problem), "main")


def _location(swap: Swap) -> str:
    assert swap.after is not None
    return swap.after.location


def _source(plan: Plan) -> Row:
    """What becomes the live table: the table itself, or what stands in the side schema."""
    entry = plan.entry
    own = [swap.before for swap in plan.swaps if swap.before and swap.after]
    if entry.how in ("branch", "clone"):
        own = [row for row in own if row.identifier == entry.identifier]
    assert own[0] is not None
    return own[0]
