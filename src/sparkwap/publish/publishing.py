"""Publish, rollback and reopening: one transaction of the catalog, or a sequential publish."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sparkwap.catalog import metadata as md
from sparkwap.catalog import publish_journal as jn
from sparkwap.catalog.model import (
    Identifier,
    Item,
    LedgerRows,
    PublishedEntry,
    PublishReceipt,
    Read,
    RollbackReceipt,
    SideItem,
    UndonePublish,
)
from sparkwap.catalog.planning import Differs
from sparkwap.catalog.refusals import PublishRefused, PublishUnverified, RollbackRefused
from sparkwap.catalog.store import Staged
from sparkwap.core import names, next_command
from sparkwap.core.checkpoints import PUBLISH_VERIFIED, checkpoint
from sparkwap.core.errors import CatalogError
from sparkwap.publish.planner import Publisher
from sparkwap.publish.rollback import Candidate, Reopener, StandsBefore, Undoer
from sparkwap.publish.staging import (
    PUBLISH_TRIES,
    Staging,
    publish_rows,
    rollback_rows,
    side_views,
    with_publish_id,
)

if TYPE_CHECKING:
    from sparkwap.publish.sequential_publish import SequentialPublish


class Publishing:
    """Moves `main` of many tables at once, and back."""

    def __init__(self, at: Staging) -> None:
        self._at = at
        self._store = at.store

    @property
    def _series(self) -> SequentialPublish:
        # Here, as few catalogs need it, and it takes a while to import.
        from sparkwap.publish.sequential_publish import SequentialPublish

        return SequentialPublish(self._at)

    def publish(
        self,
        items: Sequence[Item],
        *,
        run_id: str,
        tag: str,
        tag_max_age_ms: int | None,
        branch: str,
        appends: Sequence[LedgerRows] = (),
        publish_id: str | None = None,
        read: Collection[Read] = (),
        strict_reads: bool = False,
        manifest_hash: str | None = None,
    ) -> PublishReceipt:
        """Publish tables and views, all in one transaction of the catalog or none.

        A catalog without such transactions is published to by a sequential publish: completed or
        undone, by this call or by the next command (see `journal`).

        Each item is checked against the catalog as it is in the transaction: ``main`` is the base,
        the branch's head is the candidate, the side object and what stands at the live name are
        those that were audited. Changes that do not touch these (another branch, a tag) are taken
        over by staging again. Rows for the ledger's ``publishes`` are written in the same
        transaction.

        Args:
            items: What to publish; each name once.
            run_id: The run that publishes.
            tag: The receipt that each published snapshot gets.
            tag_max_age_ms: How long it keeps the snapshot; None for ever.
            branch: The audit branch.
            appends: More rows for the ledger, of its other tables, in the same transaction; rows
                of ``runs`` get the id of the publish.
            publish_id: Id of the publish; one is made up if none is given.
            read: Tables and views that the items were built from or audited with, as they were
                then; those that are others now are told in the receipt.
            strict_reads: Refuse the publish instead, and hold their rows in its transaction. A
                series looks at them before its first move, and cannot hold them.
            manifest_hash: The code that is published, for the rows of ``publishes``.

        Raises:
            PublishRefused: Something is not what was audited; nothing has changed.
            PublishTorn: A sequential publish was undone as far as others have left it to us.
            PublishUnverified: It was committed, and is not what the catalog holds now.
            CommitUnknown: The database did not say whether it has committed.
            CatalogError: Other writers were faster, or the database failed; nothing has
                changed.
        """
        _require_own([item.identifier for item in items])
        publish_id = publish_id or str(uuid.uuid4())
        now = datetime.now(UTC)
        self._at.prepare_ledger(appends, bool(items))
        appends = [with_publish_id(append, publish_id) for append in appends]
        if not self._store.backend.atomic:
            journal = jn.PublishJournal(
                publish_id,
                run_id,
                branch,
                "publish",
                tag,
                tag_max_age_ms,
                now,
                moves=(),
                manifest_hash=manifest_hash,
            )
            return self._series.publish(journal, items, appends, read, strict_reads)
        folders: set[str] = set()
        schemas: dict[str, str] = {}

        def stage() -> Staged[PublishReceipt]:
            schemas.update(self._at.side_schemas(branch, items))
            rows = self._store.backend.find(_names(items) | {one.identifier for one in read})
            differ = self._at.moved(read, rows)
            folders.update(self._at.own_folders(side_views(rows.values(), schemas)))
            publisher = Publisher(self._store.load, rows, branch, tag, tag_max_age_ms, schemas)
            refused = differ if strict_reads else []
            plans = self._at.plan(publisher.plan, items, PublishRefused, refused)
            entries = tuple(plan.entry for plan in plans)
            receipt = PublishReceipt(publish_id, run_id, branch, tag, now, entries, tuple(differ))
            recorded = publish_rows(
                "publish", publish_id, run_id, branch, now, entries, manifest_hash
            )
            staged = self._at.staged(receipt, plans, [*appends, *recorded], drop_if_empty=schemas)
            held = read if strict_reads else ()
            return replace(
                staged,
                requires={one.identifier: rows.get(one.identifier) for one in held},
                guard=lambda _connection: self._require_distinct(items),
            )

        receipt = self._store.commit(
            stage, "publish", PUBLISH_TRIES, run_id=run_id, branch=branch, publish_id=publish_id
        )
        self._look_again(receipt)
        checkpoint(PUBLISH_VERIFIED, run_id=run_id, branch=branch, publish_id=publish_id)
        self._at.purge("publish", folders, schemas, run_id=run_id, branch=branch)
        return receipt

    def rollback(
        self,
        entries: Sequence[PublishedEntry],
        *,
        run_id: str,
        publish_id: str,
        branch: str = "",
        appends: Sequence[LedgerRows] = (),
        force: bool = False,
        undone: Sequence[UndonePublish] = (),
    ) -> RollbackReceipt:
        """Undo a publish, all of it in one transaction of the catalog or nothing.

        On catalogs without such transactions it is a sequential publish, which the next command
        completes if this one dies.

        ``main`` goes back to the base, the former definition or the former view comes back, and
        names that were new vanish (their files stay). Tags stay.

        Args:
            entries: The entries of the publish; with force, for each table of all publishes that
                are undone the entry of the earliest of them.
            run_id: The run that rolls back.
            publish_id: The publish that is undone.
            branch: Its audit branch, for the ledger.
            appends: More rows for the ledger, in the same transaction.
            force: Put everything back as it was before, whatever has come since.
            undone: All publishes that are undone, for the ledger; that of the entries if none is
                named.

        Raises:
            RollbackRefused: Something moved on since the publish, and it is not forced, or what
                was before is there no more; nothing has changed.
            RollbackTorn: The same of a sequential publish, after others were moved back.
            CatalogError: Other writers changed it at each attempt, or the database failed.
        """
        _require_own([entry.identifier for entry in entries])
        now = datetime.now(UTC)
        self._at.prepare_ledger(appends, bool(entries))
        undone = undone or [UndonePublish(publish_id, branch, tuple(entries))]
        if not self._store.backend.atomic:
            action: jn.Action = "forced rollback" if force else "rollback"
            journal = jn.PublishJournal(
                publish_id, run_id, branch, action, "", None, now, moves=(), undone=tuple(undone)
            )
            return self._series.roll_back(journal, entries, appends)

        def stage() -> Staged[RollbackReceipt]:
            rows = self._store.backend.find({entry.identifier for entry in entries})
            undoer = Undoer(self._store.load, rows, force)
            plans = self._at.plan(undoer.plan, entries, RollbackRefused)
            receipt = RollbackReceipt(publish_id, run_id, now, tuple(entries))
            recorded = rollback_rows(undone, publish_id, run_id, now, rows)
            return self._at.staged(receipt, plans, [*appends, *recorded])

        return self._store.commit(
            stage, "rollback", PUBLISH_TRIES, run_id=run_id, branch=branch, publish_id=publish_id
        )

    def reopen(
        self,
        entries: Sequence[PublishedEntry],
        *,
        branch: str,
        record: Callable[[Mapping[Identifier, Candidate]], Sequence[LedgerRows]],
    ) -> dict[Identifier, Candidate]:
        """Put the candidates of a publish that was rolled back on their audit branch again.

        All in one database transaction or nothing; readers of ``main`` see no change. The tables
        must be what they were before the publish. Branches start at the candidate, with the base
        they had; tables that were new or changed stand in the side schemas again, and views, with
        references to those.

        Args:
            entries: The entries of the publish.
            branch: Its audit branch.
            record: Rows for the ledger, by candidate, in the same transaction.

        Raises:
            RollbackRefused: Tables moved on, candidates have expired, or the branch is in use
                again; nothing has changed.
            CatalogError: Other writers changed it at each attempt, or the database failed.
        """
        beside = [entry.identifier[0] for entry in entries if entry.how != "branch"]
        if beside and not self._store.backend.takes_files:
            raise CatalogError(
                "Tables and views that were new or changed cannot be put beside the live ones "
                "again on this catalog, which writes its metadata itself. Nothing was changed. "
                f"Build them again: {next_command.dbt('build', branch=branch)}"
            )
        schemas = {names.side_schema(schema, branch) for schema in beside}
        for schema in schemas:
            self._store.backend.ensure_schema(schema, branch)
        self._at.ledger().ensure({"runs", "nodes"})
        warehouse = self._at.warehouse()

        def stage() -> Staged[dict[Identifier, Candidate]]:
            live = {entry.identifier for entry in entries}
            beside = {(names.side_schema(schema, branch), name) for schema, name in live}
            rows = self._store.backend.find(live | beside)
            plans = self._at.plan(
                StandsBefore(self._store.load, rows).plan, entries, RollbackRefused
            )
            standing = {name: row for name, row in rows.items() if name in beside}
            reopener = Reopener(self._store.load, branch, warehouse, standing)
            try:
                extended, found = reopener.reopen(plans)
            except Differs as differs:
                raise RollbackRefused([differs.mismatch]) from differs
            return self._at.staged(found, extended, record(found))

        try:
            return self._store.commit(stage, "reopen", PUBLISH_TRIES, branch=branch)
        except RollbackRefused:
            self._store.backend.apply([], documents={}, drop_if_empty=schemas)
            raise

    def recover(self) -> list[str]:
        """Complete or undo the publishes and rollbacks that a process has not brought to an end.

        Does nothing on catalogs that publish in one transaction, where there are none.

        Returns:
            What was found and what became of it, a line each.

        Raises:
            CatalogError: Other writers changed it at each attempt; the next command tries again.
        """
        if self._store.backend.atomic:
            return []
        series = self._series
        found = [series.recover(row) for row in self._at.ledger().open_journals()]
        return [told for told in found if told is not None]

    def on_their_way(self) -> list[dict[str, Any]]:
        """The ledger's rows of the publishes and rollbacks that `recover` would bring to an end."""
        return [] if self._store.backend.atomic else self._at.ledger().open_journals()

    def _require_distinct(self, items: Sequence[Item]) -> None:
        """Refuse new names that differ in case only from others.

        In the transaction, and thus after the ledger's row was read: a publish that brings such a
        name meanwhile has changed the row, so that this one is staged and checked again.
        """
        taken = self._at.taken(items)
        if taken:
            raise PublishRefused(taken)

    def _look_again(self, receipt: PublishReceipt) -> None:
        try:
            self._verify(receipt)
        except PublishUnverified:
            raise
        except Exception as error:
            # Never one of the errors that say "nothing was changed".
            raise PublishUnverified(
                f"The publish {receipt.publish_id} was committed, and could not be read again: "
                f"{error} Once the catalog answers, `dbt run-operation wap_status` shows what is "
                "still open."
            ) from error

    def _verify(self, receipt: PublishReceipt) -> None:
        """Read all refs again: a catalog that says yes and does no must not go unseen."""
        rows = self._store.backend.find({entry.identifier for entry in receipt.entries})

        def wrong(entry: PublishedEntry) -> Identifier | None:
            row = rows.get(entry.identifier)
            if row is None:
                return entry.identifier
            document = self._store.reload(row.location)
            if row.location == entry.published_metadata_location:
                tag = md.refs_of(document).get(receipt.tag)
                tagged = entry.candidate is None or (tag and tag.snapshot_id == entry.candidate)
                return (
                    None if md.main_of(document) == entry.candidate and tagged else row.identifier
                )
            log = [step["metadata-file"] for step in document.get("metadata-log") or ()]
            return None if entry.published_metadata_location in log else row.identifier

        found = [name for name in self._store.map(wrong, receipt.entries) if name]
        if found:
            names = ", ".join(".".join(name) for name in found)
            raise PublishUnverified(
                f"The publish {receipt.publish_id} was committed, but these are not as published: "
                f"{names}. Another writer replaced them at once, or the catalog does not keep its "
                "word. See them with `dbt run-operation wap_status`; undo the publish with "
                "`dbt run-operation wap_rollback`."
            )


def _names(items: Sequence[Item]) -> set[Identifier]:
    live = {item.identifier for item in items}
    sides = [item for item in items if isinstance(item, SideItem)]
    return live | {(item.side_schema, item.identifier[1]) for item in sides}


def _require_own(identifiers: Sequence[Identifier]) -> None:
    twice = {".".join(name) for name in identifiers if identifiers.count(name) > 1}
    if twice:
        raise ValueError(f"named twice in one publish or rollback: {', '.join(sorted(twice))}")
