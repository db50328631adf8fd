"""Publish, rollback and reopening: in one catalog transaction, or as a sequential publish."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkwap.catalog import metadata as md
from sparkwap.catalog import publish_journal as jn
from sparkwap.catalog.model import (
    Candidate,
    Identifier,
    LedgerRows,
    PublishedEntry,
    PublishReceipt,
    Read,
    UndonePublish,
)
from sparkwap.catalog.planning import Differs
from sparkwap.catalog.refusals import PublishRefused, PublishUnverified, RollbackRefused
from sparkwap.catalog.store import Staged
from sparkwap.core import names, next_command
from sparkwap.core.checkpoints import PUBLISH_VERIFIED, checkpoint
from sparkwap.core.errors import CatalogError
from sparkwap.publish.planner import Publisher
from sparkwap.publish.rollback import Reopener, Undoer, as_before_publish
from sparkwap.publish.staging import (
    Staging,
    names_of,
    publish_rows,
    rollback_rows,
    side_views,
    with_publish_id,
)

if TYPE_CHECKING:
    from sparkwap.publish.sequential_publish import SequentialPublish


class Publishing:
    """Moves `main` of many tables forward and back."""

    def __init__(self, at: Staging) -> None:
        self._at = at
        self._store = at.store

    @property
    def _sequential(self) -> SequentialPublish:
        # Imported here, because few catalogs need it, and the import is slow.
        from sparkwap.publish.sequential_publish import SequentialPublish

        return SequentialPublish(self._at)

    def publish(
        self,
        candidates: Sequence[Candidate],
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
        """Publish all tables and views in one catalog transaction, or none.

        On a catalog without multi-table transactions this is a sequential publish, which this call
        or the next command completes or undoes (see `publish_journal`).

        Each candidate is checked in the transaction: ``main`` is its base, the head of the branch
        is its snapshot, and the side object and the live object are those that were audited. After
        any other change of a table (another branch, a tag) the publish is staged again. Rows for
        the ledger's ``publishes`` are part of the transaction.

        Args:
            candidates: The tables and views to publish; each name once.
            tag: The receipt that each published snapshot gets.
            tag_max_age_ms: How long the tag keeps the snapshot; None for ever.
            appends: Rows for other tables of the ledger, in the same transaction; rows of
                ``runs`` get the id of the publish.
            publish_id: The id of the publish; a new id if None.
            read: The tables and views that their builds and audits read, as they were then. The
                receipt lists those that have changed.
            strict_reads: Refuse the publish if one of them has changed, and lock their rows in the
                transaction. A sequential publish checks them before its first move only.
            manifest_hash: The code that is published, for the rows of ``publishes``.

        Raises:
            PublishRefused: The catalog differs from what was audited; nothing has changed.
            PublishTorn: A sequential publish was undone except for tables that others had changed.
            PublishUnverified: The publish was committed, but the catalog shows something else.
            CommitUnknown: It is unknown whether the database has committed.
            CatalogError: Other writers were faster, or the database failed; nothing has
                changed.
        """
        _require_own([one.identifier for one in candidates])
        publish_id = publish_id or str(uuid.uuid4())
        now = datetime.now(UTC)
        self._at.prepare_ledger(appends, bool(candidates))
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
            return self._sequential.publish(journal, candidates, appends, read, strict_reads)
        folders: set[str] = set()
        schemas: dict[str, str] = {}

        def stage() -> Staged[PublishReceipt]:
            schemas.update(self._at.side_schemas(branch, candidates))
            rows = self._store.backend.find(names_of(candidates) | {one.identifier for one in read})
            differ = self._at.moved(read, rows)
            folders.update(self._at.own_folders(side_views(rows.values(), schemas)))
            publisher = Publisher(self._store.load, rows, branch, tag, tag_max_age_ms, schemas)
            refused = differ if strict_reads else []
            plans = self._at.plan(publisher.plan, candidates, PublishRefused, refused)
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
                guard=lambda _connection: self._require_distinct(candidates),
            )

        receipt = self._store.commit(
            stage, "publish", run_id=run_id, branch=branch, publish_id=publish_id
        )
        self._look_again(receipt)
        checkpoint(PUBLISH_VERIFIED, run_id=run_id, branch=branch, publish_id=publish_id)
        self._at.purge("publish", folders, schemas, of_views=True, run_id=run_id, branch=branch)
        return receipt

    def rollback(
        self,
        entries: Sequence[PublishedEntry],
        *,
        run_id: str,
        publish_id: str,
        branch: str = "",
        force: bool = False,
        undone: Sequence[UndonePublish] = (),
    ) -> None:
        """Undo a whole publish in one catalog transaction, or nothing.

        On a catalog without multi-table transactions, tables move one after the other; the next
        command completes the rollback if this one dies.

        ``main`` returns to the base, the former definition or view is restored, and new names are
        dropped (their files stay). Tags stay.

        Args:
            entries: The entries of the publish; with force, the earliest entry of each table among
                all publishes that are undone.
            force: Restore the state before the publish, even if tables have changed since.
            undone: All publishes that are undone, for the ledger; by default, the given publish.

        Raises:
            RollbackRefused: A table has changed since the publish (without force), or its former
                state no longer exists; nothing has changed.
            RollbackTorn: The same for some tables of a sequential rollback; the others are undone.
        """
        _require_own([entry.identifier for entry in entries])
        now = datetime.now(UTC)
        self._at.prepare_ledger((), bool(entries))
        undone = undone or [UndonePublish(publish_id, branch, tuple(entries))]
        if not self._store.backend.atomic:
            action: jn.Action = "forced rollback" if force else "rollback"
            journal = jn.PublishJournal(
                publish_id, run_id, branch, action, "", None, now, moves=(), undone=tuple(undone)
            )
            self._sequential.roll_back(journal, entries)
            return

        def stage() -> Staged[None]:
            rows = self._store.backend.find({entry.identifier for entry in entries})
            undoer = Undoer(self._store, rows, force)
            plans = self._at.plan(undoer.plan, entries, RollbackRefused)
            return self._at.staged(
                None, plans, rollback_rows(undone, publish_id, run_id, now, rows)
            )

        self._store.commit(stage, "rollback", run_id=run_id, branch=branch, publish_id=publish_id)

    def reopen(
        self,
        entries: Sequence[PublishedEntry],
        *,
        branch: str,
        record: Callable[[Mapping[Identifier, Candidate]], Sequence[LedgerRows]],
    ) -> dict[Identifier, Candidate]:
        """Put the candidates of a rolled-back publish on their audit branch again.

        All in one database transaction, or nothing; readers of ``main`` see no change. The tables
        must be as they were before the publish. Branches have the candidate and the base that they
        had. New or changed tables are in the side schemas again, and so are views, which refer to
        these tables.

        Args:
            record: Returns rows for the ledger, by candidate, for the same transaction.

        Raises:
            RollbackRefused: Tables have changed, candidates have expired, or the branch is in use
                again; nothing has changed.
        """
        beside = [entry.identifier[0] for entry in entries if entry.how != "branch"]
        if beside and not self._store.backend.atomic:
            raise CatalogError(
                "New or changed tables and views cannot be put into side schemas again, because "
                "this catalog commits one table at a time. Nothing was changed. "
                f"Build them again: {next_command.dbt('build', branch=branch)}"
            )
        schemas = {names.side_schema(schema, branch) for schema in beside}
        for schema in schemas:
            self._store.backend.ensure_schema(schema, branch)
        self._at.ledger().ensure({"runs", "nodes"})
        warehouse = self._at.warehouse()

        attempts: list[int] = []

        def stage() -> Staged[dict[Identifier, Candidate]]:
            attempts.append(1)
            live = {entry.identifier for entry in entries}
            beside = {(names.side_schema(schema, branch), name) for schema, name in live}
            rows = self._store.backend.find(live | beside)
            unchanged = partial(as_before_publish, load=self._store.load, rows=rows)
            plans = self._at.plan(unchanged, entries, RollbackRefused)
            standing = {name: row for name, row in rows.items() if name in beside}
            reopener = Reopener(self._store.load, branch, warehouse, standing)
            try:
                extended, found = reopener.reopen(plans)
            except Differs as differs:
                raise RollbackRefused([differs.mismatch]) from differs
            return self._at.staged(found, extended, record(found))

        try:
            return self._store.commit(stage, "reopen", branch=branch)
        except RollbackRefused as error:
            self._store.backend.apply([], documents={}, drop_if_empty=schemas)
            if len(attempts) > 1 and not self._store.backend.atomic:
                raise CatalogError(
                    f"Another writer changed a table while {branch} was opened again, so that a "
                    f"part of its tables may have the branch: {error} `main` is as the rollback "
                    "left it. Discard the branch, and build again: "
                    f"{next_command.operation('wap_discard', branch=branch)}"
                ) from error
            raise

    def recover(self) -> list[str]:
        """Complete or undo the publishes and rollbacks that died half-way.

        Catalogs that publish in one transaction have none.

        Raises:
            CatalogError: Other writers changed it at each attempt; the next command tries again.
        """
        if self._store.backend.atomic:
            return []
        sequential = self._sequential
        found = [sequential.recover(row) for row in self._at.ledger().open_journals()]
        return [line for line in found if line is not None]

    def on_their_way(self) -> list[dict[str, Any]]:
        """Return the ledger's rows of the publishes and rollbacks that `recover` would end."""
        return [] if self._store.backend.atomic else self._at.ledger().open_journals()

    def _require_distinct(self, candidates: Sequence[Candidate]) -> None:
        """Refuse new names that differ from existing names in case only.

        Called in the transaction, after the ledger's row was read. If another publish creates such
        a name meanwhile, it changes that row, so that this publish is staged and checked again.
        """
        taken = self._at.taken(candidates)
        if taken:
            raise PublishRefused(taken)

    def _look_again(self, receipt: PublishReceipt) -> None:
        try:
            self._verify(receipt)
        except PublishUnverified:
            raise
        except Exception as error:
            # Not the error itself, which may say "nothing was changed".
            raise PublishUnverified(
                f"The publish {receipt.publish_id} was committed, but could not be read again: "
                f"{error} Once the catalog answers, `dbt run-operation wap_status` shows the open "
                "audit branches."
            ) from error

    def _verify(self, receipt: PublishReceipt) -> None:
        """Read all refs again, to notice a catalog that reports a commit without making it."""
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
                f"{names}. Another writer replaced them at once, or the catalog did not make the "
                "commit that it reported. Look at these tables in Spark. To undo the publish: "
                f"{next_command.operation('wap_rollback', run=receipt.publish_id)}"
            )


def _require_own(identifiers: Sequence[Identifier]) -> None:
    twice = {".".join(name) for name in identifiers if identifiers.count(name) > 1}
    if twice:
        raise ValueError(f"named twice in one publish or rollback: {', '.join(sorted(twice))}")
