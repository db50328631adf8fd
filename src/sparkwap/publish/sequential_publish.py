"""Sequential publish and rollback: one table after the other; see `publish_journal`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sparkwap.catalog import metadata as md
from sparkwap.catalog import publish_journal as jn
from sparkwap.catalog.backend import sequential
from sparkwap.catalog.model import (
    Candidate,
    Identifier,
    LedgerRows,
    Mismatch,
    PublishedEntry,
    PublishReceipt,
    Read,
    UndonePublish,
)
from sparkwap.catalog.pointers import Conflict, Pointer, PointerUpdate, Unanswered
from sparkwap.catalog.refusals import (
    CommitUnknown,
    PublishRefused,
    PublishUnverified,
    RollbackRefused,
)
from sparkwap.catalog.store import Staged
from sparkwap.core import checkpoints, next_command
from sparkwap.core.checkpoints import PUBLISH_VERIFIED, checkpoint
from sparkwap.core.errors import CatalogError
from sparkwap.publish import sequential_journal, sequential_moves
from sparkwap.publish.planner import Publisher
from sparkwap.publish.publish_port import PublishPort
from sparkwap.publish.rollback import Undoer
from sparkwap.publish.rollback_port import RollbackPort
from sparkwap.publish.staging import (
    Staging,
    names_of,
    publish_rows,
    rollback_rows,
    side_views,
    with_publish_id,
)


class SequentialPublish:
    """Publishes and rolls back one table after the other, by a journal."""

    def __init__(self, at: Staging) -> None:
        self._at = at
        self._store = at.store

    def recover(self, row: Mapping[str, Any]) -> str | None:
        """End a journal and return a message; None if another process has ended it since."""
        if jn.is_closed(self._at.ledger().journal_states(row)):
            return None
        journal = sequential_journal.journal_of(row)
        what = sequential_journal.format_action(journal)
        if journal.action != "publish":
            rolling = RollbackPort(self._store, journal)
            outcome, reasons = self._carry(journal, rolling)
            self._finish_rollback(journal, outcome, rolling)
            return sequential_journal.format_rollback(journal, outcome, reasons)
        candidates = [move.candidate for move in journal.moves if move.candidate]
        schemas = self._at.side_schemas(journal.branch, candidates)
        port = PublishPort(self._store, journal, schemas, self._at.taken(candidates))
        outcome, _ = self._carry(journal, port)
        if outcome.state == "completed":
            run = {
                "run_id": journal.run_id,
                "branch": journal.branch,
                "started_at": journal.at,
                "ended_at": datetime.now(UTC),
                "outcome": "published",
                "message": "completed by a later command",
                "publish_id": journal.publish_id,
                # Not those of the command that writes the row.
                **dict.fromkeys(("actor", "catalog_user", "command", "host", "project")),
            }
            entries = self._finish_publish(journal, schemas, [LedgerRows("runs", [run])])
            gone = self._gone(journal, entries)
            but = f", but these were dropped since: {gone}" if gone else ""
            return f"Completed {what}, which had not ended: all its tables are published{but}."
        self._give_up(journal, outcome)
        blocked = ", ".join(".".join(name) for name in outcome.blocked)
        stayed = ", ".join(".".join(name) for name in outcome.stayed)
        rest = f" {stayed} stays published, because other runs have built on it." if stayed else ""
        return (
            f"Undid {what}, which had not ended: another writer moved main of {blocked}, or made a "
            f"table whose name differs in case only.{rest}"
        )

    def publish(
        self,
        journal: jn.PublishJournal,
        candidates: Sequence[Candidate],
        appends: Sequence[LedgerRows],
        read: Collection[Read],
        strict_reads: bool,
    ) -> PublishReceipt:
        """Publish by a journal; see `Publishing.publish`."""
        schemas = self._at.side_schemas(journal.branch, candidates)
        rows = self._store.backend.find(names_of(candidates) | {one.identifier for one in read})
        differ = self._at.moved(read, rows)
        publisher = Publisher(
            self._store.load, rows, journal.branch, journal.tag, journal.tag_max_age_ms, schemas
        )
        more = [*(differ if strict_reads else ()), *self._at.taken(candidates)]
        plans = self._at.plan(publisher.plan, candidates, PublishRefused, more)
        wrong = sequential_moves.inexpressible(plans, self._store)
        if wrong:
            raise PublishRefused(wrong)
        journal = replace(
            journal, moves=sequential_moves.moves_of(plans, candidates, self._store.load)
        )
        # The results of the audits are written with the journal: a later command lacks them.
        intended = LedgerRows("journal", [sequential_journal.row_of(journal, "intended")])
        about, ledger = sequential_journal.about(journal), self._at.ledger()
        checkpoint(checkpoints.JOURNAL_WRITING, **about)
        ledger.append([*(one for one in appends if one.table != "runs"), intended])
        checkpoint(checkpoints.JOURNAL_WRITTEN, **about)
        port = PublishPort(self._store, journal, schemas)
        outcome, reasons = self._carry(journal, port)
        if outcome.state != "completed":
            self._give_up(journal, outcome)
        sequential_journal.require_completed(journal, outcome, reasons)
        runs = [with_publish_id(one, journal.publish_id) for one in appends if one.table == "runs"]
        entries = self._finish_publish(journal, schemas, runs)
        gone = self._gone(journal, entries)
        if gone:
            raise PublishUnverified(
                f"The publish {journal.publish_id} was completed, but these are gone: {gone}. "
                "Another process dropped or renamed them at once. Look at these names in Spark. To "
                "undo the publish: "
                f"{next_command.operation('wap_rollback', run=journal.publish_id)}"
            )
        checkpoint(PUBLISH_VERIFIED, **about)
        known = (journal.publish_id, journal.run_id, journal.branch, journal.tag, journal.at)
        return PublishReceipt(*known, entries, tuple(differ))

    def roll_back(self, journal: jn.PublishJournal, entries: Sequence[PublishedEntry]) -> None:
        """Undo a publish by a journal; see `Publishing.rollback`."""
        rows = self._store.backend.find({entry.identifier for entry in entries})
        undoer = Undoer(self._store, rows, journal.action == "forced rollback")
        plans = self._at.plan(undoer.plan, entries, RollbackRefused)
        wrong = sequential_moves.inexpressible(plans, self._store)
        if wrong:
            raise RollbackRefused(wrong)
        journal = replace(journal, moves=tuple(jn.Move(entry, None, "") for entry in entries))
        checkpoint(checkpoints.JOURNAL_WRITING, **sequential_journal.about(journal))
        self._at.ledger().append(
            LedgerRows("journal", [sequential_journal.row_of(journal, "intended")])
        )
        checkpoint(checkpoints.JOURNAL_WRITTEN, **sequential_journal.about(journal))
        port = RollbackPort(self._store, journal)
        outcome, reasons = self._carry(journal, port)
        self._finish_rollback(journal, outcome, port)
        sequential_journal.require_rolled_back(journal, outcome, reasons)

    def _carry(
        self, journal: jn.PublishJournal, port: PublishPort | RollbackPort
    ) -> tuple[jn.JournalOutcome, Mapping[Identifier, Mismatch]]:
        try:
            return jn.carry(
                journal, port, self._decider(journal), sequential_moves.pause
            ), port.reasons
        except (jn.Stuck, CatalogError) as error:
            stuck = isinstance(error, jn.Stuck)
            reason = f"each attempt met a change by others; last: {error}" if stuck else str(error)
            raise CommitUnknown(
                f"The {journal.action} {journal.publish_id} was interrupted: some of its tables "
                "may be live in their new state and others not. The next `dbt build`, wap_publish, "
                f"wap_discard or wap_rollback on this lake completes or undoes it. Reason: {reason}"
            ) from error

    def _decider(self, journal: jn.PublishJournal) -> jn.Decide:
        def decide(wanted: jn.Direction | None) -> jn.Direction | None:
            if journal.action != "publish":
                return wanted
            state: jn.State = "completing" if wanted == "forward" else "undoing"
            row = sequential_journal.row_of(journal, state)
            if wanted is None:
                return jn.decided(self._at.ledger().journal_states(row))
            found = jn.decided(self._at.ledger().settle(row))
            checkpoint(checkpoints.JOURNAL_DECIDED, **sequential_journal.about(journal))
            return found

        return decide

    def _finish_publish(
        self, journal: jn.PublishJournal, schemas: Mapping[str, str], runs: Sequence[LedgerRows]
    ) -> tuple[PublishedEntry, ...]:
        """Clean up and write the receipt after the last move; may be repeated."""
        entries = sequential_moves.with_locations(journal, self._store)
        done = sequential_journal.row_of(journal, "completed")
        if jn.is_closed(self._at.ledger().journal_states(done)):
            # Another process has ended it; the side objects may belong to a later run.
            return entries
        folders: set[str] = set()

        def drop_leftovers() -> Staged[None]:
            left = sequential_moves.leftovers(journal, self._store)
            folders.update(self._at.own_folders(side_views(left, schemas)))
            swaps = [PointerUpdate(row, None) for row in left]
            return Staged(None, swaps, drop_if_empty=schemas)

        about = sequential_journal.about(journal)
        checkpoint(checkpoints.JOURNAL_MOVED, **about)
        self._store.commit(drop_leftovers, "leftovers", **about)
        rows = publish_rows(
            "publish",
            journal.publish_id,
            journal.run_id,
            journal.branch,
            journal.at,
            entries,
            journal.manifest_hash,
        )
        known = any(p.publish_id == journal.publish_id for p in self._at.ledger().publishes())
        checkpoint(checkpoints.JOURNAL_CLOSING, **about)
        self._at.ledger().append([] if known else rows)
        # Each table of the ledger is a commit of its own, so a process may have died between them.
        told = self._at.ledger().of_run("runs", journal.run_id)
        if not any(row["publish_id"] == journal.publish_id for row in told):
            self._at.ledger().append(runs)
        for entry in entries:
            if entry.how == "replace":
                self._forget_former(entry)
        self._at.ledger().settle(done)
        checkpoint(checkpoints.JOURNAL_CLOSED, **about)
        self._at.purge("leftovers", folders, schemas, of_views=True, **about)
        return entries

    def _gone(self, journal: jn.PublishJournal, entries: Sequence[PublishedEntry]) -> str:
        """Return the published names that have no table or view any more, in words.

        A late request of a second process may have set a published table aside; that table gets its
        name back.
        """
        backend = sequential(self._store.backend)
        unseen = {e.identifier for e in entries if not e.published_metadata_location}
        lost = unseen - backend.find(unseen).keys()
        for move in journal.moves:
            base = move.entry.base_metadata_location
            if move.identifier not in lost or base is None:
                continue
            aside = backend.aside(move.identifier, base)
            if aside is not None and md.identity(self._store.load(aside.location)) == move.uuid:
                with suppress(Conflict, Unanswered):
                    backend.rename(aside.identifier, move.identifier, "table")
                    lost.remove(move.identifier)
        return ", ".join(map(".".join, sorted(lost)))

    def _forget_former(self, entry: PublishedEntry) -> None:
        if entry.base_metadata_location is not None and entry.how != "view":
            former = Pointer(entry.identifier, "table", entry.base_metadata_location)
            # Such a table does no harm; the journal has to end.
            with suppress(CatalogError, Conflict, Unanswered):
                sequential(self._store.backend).forget_staged(former)

    def _finish_rollback(
        self, journal: jn.PublishJournal, outcome: jn.JournalOutcome, port: RollbackPort
    ) -> None:
        """Write the receipt after the last move; may be repeated."""
        closed, ledger = sequential_journal.row_of(journal, outcome.state), self._at.ledger()
        if jn.is_closed(ledger.journal_states(closed)):
            return  # Another process has ended it.
        undone = [
            replace(
                one, entries=tuple(e for e in one.entries if e.identifier not in outcome.blocked)
            )
            for one in journal.undone
            or [
                UndonePublish(
                    journal.publish_id, journal.branch, tuple(m.entry for m in journal.moves)
                )
            ]
        ]
        rows = rollback_rows(undone, journal.publish_id, journal.run_id, journal.at, {})
        for entry in (move.entry for move in journal.moves):
            if entry.identifier in outcome.blocked or entry.how == "replace":
                self._forget_former(entry)
            if entry.how in ("new", "replace"):
                with suppress(CatalogError, Conflict, Unanswered):
                    port.forget_aside(entry)
        checkpoint(checkpoints.JOURNAL_CLOSING, **sequential_journal.about(journal))
        # A process may have died after the receipt, and more tables may have moved since.
        told = ledger.of_run("publishes", journal.run_id)
        known = {_undone(row) for row in told if row["undone_by"] == journal.publish_id}
        rest = [row for one in rows for row in one.rows if _undone(row) not in known]
        ledger.append([LedgerRows("publishes", rest)] if rest else [])
        ledger.settle(closed)
        checkpoint(checkpoints.JOURNAL_CLOSED, **sequential_journal.about(journal))

    def _give_up(self, journal: jn.PublishJournal, outcome: jn.JournalOutcome) -> None:
        """Record that a publish was undone, in its journal and for its nodes."""
        closed = sequential_journal.row_of(journal, outcome.state)
        if jn.is_closed(self._at.ledger().journal_states(closed)):
            return
        checkpoint(checkpoints.JOURNAL_GIVING_UP, **sequential_journal.about(journal))
        now = self._at.ledger().time_on(journal.branch)
        moved = {move.identifier for move in journal.moves}
        nodes = [
            {**row, "verdict": "rejected", "reason": "the publish was undone", "built_at": now}
            for row in self._at.ledger().branch_history(journal.branch).nodes
            if (row["schema"], row["name"]) in moved and row["verdict"] == "published"
        ]
        self._at.ledger().append([LedgerRows("nodes", nodes)] if nodes else [])
        self._at.ledger().settle(closed)
        checkpoint(checkpoints.JOURNAL_GIVEN_UP, **sequential_journal.about(journal))


def _undone(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["publish_id"], row["schema"], row["name"]
