"""`Lake`: the catalog as the gate sees it."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from sparkwap.catalog import branches, reads, sameness, sparksql, views
from sparkwap.catalog import journal as jn
from sparkwap.catalog import metadata as md
from sparkwap.catalog.files import plain_location
from sparkwap.catalog.history import TableHistory, history_of, schema_at
from sparkwap.catalog.leases import CatalogLeases, Leases, SqlLeases
from sparkwap.catalog.model import (
    ColumnState,
    CommitUnknown,
    Discarded,
    Head,
    Identifier,
    Item,
    Kind,
    LedgerRows,
    Mismatch,
    OpenBranch,
    OpenedBranch,
    OpenTable,
    PublishedEntry,
    PublishReceipt,
    PublishRefused,
    PublishUnverified,
    Read,
    RollbackReceipt,
    RollbackRefused,
    SideItem,
    TableState,
    UndonePublish,
    merge_rows,
)
from sparkwap.catalog.planning import Differs, Plan
from sparkwap.catalog.rows import Row, Rows, Swap, side_objects
from sparkwap.catalog.store import Staged, Store
from sparkwap.core import names, next_command, steps
from sparkwap.core.errors import CatalogError, ConfigError
from sparkwap.core.names import split_side_schema
from sparkwap.core.steps import COMMIT_STEPS, PUBLISH_VERIFIED, Operation, reached
from sparkwap.publish.planner import Publisher
from sparkwap.publish.rollback import Candidate, Reopener, StandsBefore, Undoer

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.catalog import Catalog

    from sparkwap.catalog.pointers import Pointers
    from sparkwap.ledger.ledger import Ledger
    from sparkwap.publish.sequential import PublishPort, RollbackPort

T = TypeVar("T")
R = TypeVar("R")

_PUBLISH_TRIES = 10
_RUN_BRANCH_PREFIX = "wap_"

WAREHOUSE_LOCATION = "wap.warehouse-location"
"""The catalog property with the folder for new tables, where ``warehouse`` is but a name."""


class Lake:
    """An Iceberg catalog: states, audit branches, clones, publish, rollback, discard.

    Safe for use by several threads. Other processes, Spark among them, may write at any time.

    Args:
        name: The catalog's name, which Spark and PyIceberg must share.
        properties: PyIceberg's catalog properties: ``type`` (``sql``, the default, or ``rest``),
            ``uri`` of the SQLite or PostgreSQL database or of the REST catalog, ``warehouse``, and
            those of the file access.

    Raises:
        ConfigError: A property lacks or is not supported.
        CatalogError: The database or server cannot be used.
    """

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        self.name = name
        self._store = Store(_pointers(name, properties))
        self.properties = dict(self._store.rows.properties)

    @cached_property
    def catalog(self) -> Catalog:
        """PyIceberg's view of the same catalog, on the same connections."""
        return self._store.rows.pyiceberg()

    @cached_property
    def warehouse(self) -> str:
        """The folder under which new tables get theirs, without a slash at its end.

        Raises:
            ConfigError: The catalog's ``warehouse`` is a name, and no folder is given.
        """
        folder = self.properties.get(WAREHOUSE_LOCATION) or self.properties.get("warehouse", "")
        if "/" not in folder:
            raise ConfigError(
                f"The catalog's warehouse {folder!r} is no location, so there is no place for new "
                f"tables; nothing was done. Give the folder as {WAREHOUSE_LOCATION!r}, such as "
                "s3://bucket/lake, in `catalog` of the profile."
            )
        return folder.rstrip("/")

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger of this lake."""
        # Here, as it brings PyArrow along: half a second that not every command needs.
        from sparkwap.ledger.ledger import Ledger

        return Ledger(self)

    @cached_property
    def leases(self) -> Leases:
        """Which runs live."""
        rows = self._store.rows
        return SqlLeases(rows) if isinstance(rows, Rows) else CatalogLeases(lambda: self.catalog)

    @property
    def store(self) -> Store:
        """Rows and files; for the ledger."""
        return self._store

    def close(self) -> None:
        """Let go of database connections and threads; what is called later opens them again."""
        self._store.close()

    # Reading

    def relations(self, schema: str) -> dict[str, str]:
        """Name -> ``table`` or ``view`` of a schema's members; empty for a missing schema."""
        return dict(self._store.rows.kinds(schema))

    def alike(self, names: Collection[Identifier]) -> set[Identifier]:
        """Tables and views that differ from some of these names in case only.

        None on a catalog that folds case, where the one is the other.
        """
        wanted = {_folded(one): one for one in names}
        schemas = {schema for schema, _ in wanted}
        members = {
            (schema, name)
            for schema in self.schemas()
            if schema.lower() in schemas
            for name in self.relations(schema)
        }
        others = {one for one in members if _folded(one) in wanted} - set(names)
        return {one for one in others if not self._is_same(one, wanted[_folded(one)])}

    def _is_same(self, one: Identifier, other: Identifier) -> bool:
        there, here = self._store.rows.get(one), self._store.rows.get(other)
        return there is not None and here is not None and there.location == here.location

    def schemas(self) -> set[str]:
        """All schemas, side schemas included."""
        return self._store.rows.schemas()

    def side_schemas(self) -> dict[str, str]:
        """Name of each side schema -> its audit branch."""
        return dict(self._store.rows.side_schemas())

    def state(self, identifier: Identifier) -> TableState | None:
        """What a table or view is now; None if there is none."""
        row = self._store.rows.get(identifier)
        return None if row is None else self._state(row)

    def states(self, identifiers: Iterable[Identifier]) -> dict[Identifier, TableState]:
        """The states of those that exist, their rows read in one statement."""
        rows = self._store.rows.find(set(identifiers))
        states = self._store.map(self._state, rows.values())
        return {state.identifier: state for state in states}

    def snapshot_summary(self, identifier: Identifier, snapshot_id: int) -> Mapping[str, str]:
        """The summary of a snapshot, with its ``operation`` and ``wap_run``.

        Raises:
            CatalogError: There is no such table, or no such snapshot in it.
        """
        row = branches.table_row(self._store, identifier)
        snapshot = md.snapshot(self._store.load(row.location), snapshot_id)
        if snapshot is None:
            raise CatalogError(
                f"{'.'.join(identifier)} has no snapshot {snapshot_id}: it has expired, or "
                "belongs to another table. Nothing was changed."
            )
        return dict(snapshot.get("summary") or {})

    def histories(self, identifiers: Iterable[Identifier]) -> dict[Identifier, TableHistory]:
        """The pasts of those tables and views that exist, their rows read in one statement."""
        wanted = set(identifiers)
        rows = self._store.rows.find(wanted) if wanted else {}
        return {name: history_of(row, self._store.load(row.location)) for name, row in rows.items()}

    def columns_at(self, identifier: Identifier, snapshot_id: int) -> tuple[ColumnState, ...]:
        """The columns that a table had when a snapshot was written.

        Raises:
            CatalogError: There is no such table.
        """
        row = branches.table_row(self._store, identifier)
        return sparksql.columns(schema_at(self._store.load(row.location), snapshot_id))

    def last_change(self, identifier: Identifier) -> datetime | None:
        """When the rows of ``main`` were last written; None for a table without snapshots.

        Compaction does not count, as it brings no rows.

        Raises:
            CatalogError: There is no such table.
        """
        row = branches.table_row(self._store, identifier)
        document = self._store.load(row.location)
        snapshot = md.snapshot(document, md.main_of(document) or -1)
        while snapshot is not None:
            before = md.snapshot(document, snapshot.get("parent-snapshot-id") or -1)
            if before is None or (snapshot.get("summary") or {}).get("operation") != "replace":
                return datetime.fromtimestamp(snapshot["timestamp-ms"] / 1000, UTC)
            snapshot = before
        return None

    def read(self, identifiers: Iterable[Identifier]) -> list[Read]:
        """What these tables and views are to a reader of ``main`` now, in one statement.

        For `publish`, which can tell later whether they still are. Names that mean nothing are
        among them: something may come to stand there.
        """
        wanted = sorted(set(identifiers))
        rows = self._store.rows.find(wanted) if wanted else {}
        return [Read(name, reads.token(rows.get(name), self._store.load)) for name in wanted]

    def head(self, identifier: Identifier, branch: str) -> Head | None:
        """The head of a table's branch, from the catalog; None where there is none.

        Raises:
            CatalogError: There is no such table.
        """
        row = branches.table_row(self._store, identifier)
        document = self._store.load(row.location)
        ref = md.refs_of(document).get(branch)
        found = md.snapshot(document, ref.snapshot_id) if ref else None
        if found is None:
            return None
        parent = found.get("parent-snapshot-id")
        return Head(int(found["snapshot-id"]), parent, (found.get("summary") or {}).get("wap_run"))

    def require_own(self, identifiers: Iterable[Identifier], branch: str) -> None:
        """Check that no table has a branch or tag of an audit branch's name that no run has made.

        Raises:
            CatalogError: One has; a run would read it for its own, and a discard drop it.
        """
        rows = self._store.rows.find(set(identifiers))
        for row in sorted(rows.values(), key=lambda one: one.identifier):
            if row.kind == "view":
                continue
            ref = branches.strange_ref(self._store.load(row.location), branch)
            if ref is not None:
                raise branches.refusal(row.identifier, branch, ref)

    def is_on_branch(self, identifier: Identifier, branch: str, snapshot_id: int) -> bool:
        """Whether an audit branch still stands on `main` as it is, and has grown from a snapshot.

        False says that the next `open_branch` opens it anew, or that it was opened anew before.
        """
        row = self._store.rows.get(identifier)
        if row is None or row.kind != "table":
            return False
        return branches.stands(self._store.load(row.location), branch, snapshot_id)

    def descends(self, identifier: Identifier, metadata_location: str) -> bool:
        """Whether the metadata of a table or view has grown from a metadata file, or is that."""
        row = self._store.rows.get(identifier)
        if row is None or row.location == metadata_location:
            return row is not None
        log = self._store.load(row.location).get("metadata-log") or ()
        return any(step["metadata-file"] == metadata_location for step in log)

    def summaries(
        self, identifier: Identifier, old: int | None, new: int | None
    ) -> list[Mapping[str, str]]:
        """The summaries of the snapshots of a table from ``new`` back to ``old``, without that.

        Raises:
            CatalogError: There is no such table.
        """
        row = branches.table_row(self._store, identifier)
        return sameness.between(self._store.load(row.location), old, new)

    # Schemas

    def view_reads(self, identifier: Identifier) -> frozenset[Identifier]:
        """What a view's text may read, in lower case; nothing if no view stands there."""
        row = self._store.rows.get(identifier)
        if row is None or row.kind != "view":
            return frozenset()
        return views.reads(self._store.load(row.location))

    def view_content(self, identifier: Identifier) -> str | None:
        """What the text of a view is, see `views.content`; None if no view stands there."""
        row = self._store.rows.get(identifier)
        if row is None or row.kind != "view":
            return None
        return views.content(self._store.load(row.location))

    def view_problem(self, identifier: Identifier, branch: str) -> str | None:
        """How a view in a side schema would lead readers past the gate once it is published.

        Args:
            identifier: The view in its side schema.
            branch: The audit branch that this belongs to.

        Returns:
            In words; None if its text is proven to name published tables alone, or if there is no
            view.
        """
        row = self._store.rows.get(identifier)
        if row is None or row.kind != "view":
            return None
        document = self._store.load(row.location)
        published = views.publishable(document, None, self._side_schemas(branch, ()))
        return views.reads_unaudited(published, self._store.rows.side_schemas(), branch)

    def ensure_schema(self, schema: str, branch: str | None = None) -> None:
        """Create a schema if it is not there.

        Args:
            schema: Its name.
            branch: For a side schema the audit branch that it belongs to. It is marked as such,
                and only marked schemas are dropped by a discard: a schema of the user's may be
                named like one. ``<schema>__wap_<...>`` is taken for a side schema anyhow.
        """
        suffix = schema.rpartition("__")[2]
        if branch is None and suffix != schema and suffix.startswith(_RUN_BRANCH_PREFIX):
            branch = suffix
        self._store.rows.ensure_schema(schema, branch)

    def drop_schema(self, schema: str, purge: bool) -> None:
        """Drop a schema with its members; nothing happens if there is none.

        Args:
            schema: Its name.
            purge: Delete the files of tables and views that have a folder of their own. A clone's
                folder is the live table's, and stays.
        """

        def stage() -> Staged[list[Row]]:
            members = self._store.rows.members(schema)
            swaps = [Swap(row, None) for row in members]
            return Staged(members, swaps, drop_schemas=[schema])

        folders = self._own_folders(self._store.rows.members(schema)) if purge else set()
        self._store.commit(stage, "drop_schema", schema=schema)
        self._purge("drop_schema", folders, [schema])

    def require_change_of_kind(self, identifier: Identifier, present: Kind, wanted: Kind) -> None:
        """Check that a table can be published over a view, or the other way round.

        Raises:
            CatalogError: The catalog cannot put the one in the place of the other.
        """
        if self._store.rows.takes_files:
            return
        name = ".".join(identifier)
        raise CatalogError(
            f"{name} is a {present} and would become a {wanted}, which a REST catalog cannot do "
            "without a moment in which there is neither. Nothing was built. Give the model "
            f"another name (alias), or let its readers know and drop it: drop {present} {name}."
        )

    # Writing on an audit branch

    def open_branch(
        self, identifier: Identifier, branch: str, properties: Mapping[str, str] | None = None
    ) -> OpenedBranch:
        """Make sure that a table is gated and has the audit branch, started at ``main``.

        One metadata commit: property ``write.wap.enabled``, the branch, and the tag
        ``wap_base_<branch>`` that remembers the base and keeps it from expiring. A table without
        snapshots cannot have a branch yet: Spark creates it with the first write. A branch whose
        base ``main`` has moved away from starts anew at ``main``: what was built on the old base
        can never be published.

        Args:
            identifier: The live table.
            branch: The audit branch.
            properties: Table properties to set in the same commit. They are the table's, so they
                are there for all writers and at once.

        Raises:
            CatalogError: There is no such table, or other writers were faster each time.
        """
        return self._store.commit(
            lambda: branches.open_branch(self._store, identifier, branch, properties or {}),
            "open_branch",
            **_facts(identifier, branch),
        )

    def clone(
        self, identifier: Identifier, side_schema: str, properties: Mapping[str, str] | None = None
    ) -> TableState:
        """Make a zero-copy clone of a table in a side schema, under the same name.

        Its metadata grows out of the table's, so history and time travel are those of the table.
        Writes and schema changes on it leave the table alone. A clone that stands there already
        is kept while its base is still the table's present state, else replaced.

        Args:
            identifier: The live table.
            side_schema: ``<schema>__<audit branch>``; created if it is not there.
            properties: Table properties to set on the clone.

        Raises:
            CatalogError: There is no such table, or something else stands in its place there.
        """
        branch = side_schema.removeprefix(f"{identifier[0]}__")
        self._store.rows.ensure_schema(side_schema, branch)
        return self._state(
            self._store.commit(
                lambda: branches.clone(self._store, identifier, side_schema, properties or {}),
                "clone",
                **_facts(identifier, branch),
            )
        )

    def copy(self, source: Identifier, target: Identifier, location: str) -> TableState:
        """Make a table of its own that begins with the rows of another one, without copying them.

        It shares the data files that ``main`` of the source has now, and nothing else: identity,
        folder and later writes are its own. It has ``gc.enabled=false``, as the files are not its
        own to delete; the other way round, it is whole only as long as the source keeps that
        snapshot (or until it is built anew).

        Args:
            source: The table to begin with.
            target: Where the new one stands; what stands there is replaced. The schema must exist.
            location: Its folder.

        Raises:
            CatalogError: There is no such table, or other writers were faster each time.
        """
        return self._state(
            self._store.commit(
                lambda: branches.copy(self._store, source, target, location),
                "copy",
                table=".".join(target),
            )
        )

    # Publish and rollback

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

        A catalog without such transactions is published to by a journalled series: completed or
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
            PublishTorn: A journalled series was undone as far as others have left it to us.
            PublishUnverified: It was committed, and is not what the catalog holds now.
            CommitUnknown: The database did not say whether it has committed.
            CatalogError: Other writers were faster each time, or the database failed; nothing has
                changed.
        """
        _require_own([item.identifier for item in items])
        publish_id = publish_id or str(uuid.uuid4())
        now = datetime.now(UTC)
        self._prepare_ledger(appends, bool(items))
        appends = [_with_publish_id(append, publish_id) for append in appends]
        if not self._store.rows.atomic:
            journal = jn.Journal(
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
            return self._publish_in_series(journal, items, appends, read, strict_reads)
        folders: set[str] = set()
        schemas: dict[str, str] = {}

        def stage() -> Staged[PublishReceipt]:
            schemas.update(self._side_schemas(branch, items))
            rows = self._store.rows.find(_names(items) | {one.identifier for one in read})
            differ = self._moved(read, rows)
            folders.update(self._own_folders(_side_views(rows.values(), schemas)))
            publisher = Publisher(self._store.load, rows, branch, tag, tag_max_age_ms, schemas)
            refused = differ if strict_reads else []
            plans = self._plan(publisher.plan, items, PublishRefused, refused)
            entries = tuple(plan.entry for plan in plans)
            receipt = PublishReceipt(publish_id, run_id, branch, tag, now, entries, tuple(differ))
            recorded = _publish_rows(
                "publish", publish_id, run_id, branch, now, entries, manifest_hash
            )
            staged = self._staged(receipt, plans, [*appends, *recorded], drop_if_empty=schemas)
            if not strict_reads:
                return staged
            return replace(
                staged, requires={one.identifier: rows.get(one.identifier) for one in read}
            )

        receipt = self._store.commit(
            stage, "publish", _PUBLISH_TRIES, run_id=run_id, branch=branch, publish_id=publish_id
        )
        self._look_again(receipt)
        reached(PUBLISH_VERIFIED, run_id=run_id, branch=branch, publish_id=publish_id)
        self._purge("publish", folders, schemas, run_id=run_id, branch=branch)
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

        On catalogs without such transactions it is a journalled series, which the next command
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
            RollbackTorn: The same of a journalled series, after others were moved back.
            CatalogError: Other writers were faster each time, or the database failed.
        """
        _require_own([entry.identifier for entry in entries])
        now = datetime.now(UTC)
        self._prepare_ledger(appends, bool(entries))
        undone = undone or [UndonePublish(publish_id, branch, tuple(entries))]
        if not self._store.rows.atomic:
            action: jn.Action = "forced rollback" if force else "rollback"
            journal = jn.Journal(
                publish_id, run_id, branch, action, "", None, now, moves=(), undone=tuple(undone)
            )
            return self._rollback_in_series(journal, entries, appends)

        def stage() -> Staged[RollbackReceipt]:
            rows = self._store.rows.find({entry.identifier for entry in entries})
            undoer = Undoer(self._store.load, rows, force)
            plans = self._plan(undoer.plan, entries, RollbackRefused)
            receipt = RollbackReceipt(publish_id, run_id, now, tuple(entries))
            recorded = _rollback_rows(undone, publish_id, run_id, now, rows)
            return self._staged(receipt, plans, [*appends, *recorded])

        return self._store.commit(
            stage, "rollback", _PUBLISH_TRIES, run_id=run_id, branch=branch, publish_id=publish_id
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
            CatalogError: Other writers were faster each time, or the database failed.
        """
        beside = [entry.identifier[0] for entry in entries if entry.how != "branch"]
        if beside and not self._store.rows.takes_files:
            raise CatalogError(
                "Tables and views that were new or changed cannot be put beside the live ones "
                "again on this catalog, which writes its metadata itself. Nothing was changed. "
                f"Build them again: {next_command.dbt('build', branch=branch)}"
            )
        schemas = {names.side_schema(schema, branch) for schema in beside}
        for schema in schemas:
            self.ensure_schema(schema, branch)
        self.ledger.ensure({"runs", "nodes"})
        warehouse = self.warehouse

        def stage() -> Staged[dict[Identifier, Candidate]]:
            live = {entry.identifier for entry in entries}
            beside = {(names.side_schema(schema, branch), name) for schema, name in live}
            rows = self._store.rows.find(live | beside)
            plans = self._plan(StandsBefore(self._store.load, rows).plan, entries, RollbackRefused)
            standing = {name: row for name, row in rows.items() if name in beside}
            reopener = Reopener(self._store.load, branch, warehouse, standing)
            try:
                extended, found = reopener.reopen(plans)
            except Differs as differs:
                raise RollbackRefused([differs.mismatch]) from differs
            return self._staged(found, extended, record(found))

        try:
            return self._store.commit(stage, "reopen", _PUBLISH_TRIES, branch=branch)
        except RollbackRefused:
            self._store.rows.apply([], documents={}, drop_if_empty=schemas)
            raise

    # Catalogs without transactions: see `journal`

    def recover(self) -> list[str]:
        """Complete or undo the publishes and rollbacks that a process has not brought to an end.

        Does nothing on catalogs that publish in one transaction, where there are none.

        Returns:
            What was found and what became of it, a line each.

        Raises:
            CatalogError: Other writers were faster each time; the next command tries again.
        """
        if self._store.rows.atomic:
            return []
        found = [self._recover_one(row) for row in self.ledger.open_journals()]
        return [told for told in found if told is not None]

    def on_their_way(self) -> list[dict[str, Any]]:
        """The ledger's rows of the publishes and rollbacks that `recover` would bring to an end."""
        return [] if self._store.rows.atomic else self.ledger.open_journals()

    def _recover_one(self, row: Mapping[str, Any]) -> str | None:
        """Bring a journal to its end, and tell of it; None where another has done so meanwhile."""
        from sparkwap.publish import sequential

        if jn.is_closed(self.ledger.journal_states(row)):
            return None
        journal = sequential.journal_of(row)
        what = sequential.words(journal)
        if journal.action != "publish":
            port = sequential.RollbackPort(self._store, journal)
            outcome, reasons = self._carry(journal, port)
            self._finish_rollback(journal, outcome, ())
            return sequential.rollback_told(journal, outcome, reasons)
        schemas = self._side_schemas(journal.branch, [m.item for m in journal.moves if m.item])
        outcome, _ = self._carry(journal, sequential.PublishPort(self._store, journal, schemas))
        if outcome.state == "completed":
            run = {
                "run_id": journal.run_id,
                "branch": journal.branch,
                "started_at": journal.at,
                "ended_at": datetime.now(UTC),
                "outcome": "published",
                "message": "completed by a later command",
            }
            self._finish_publish(journal, schemas, [LedgerRows("runs", [run])])
            return f"Completed {what}, which had not come to its end: all its tables are published."
        self._give_up(journal, outcome)
        blocked = ", ".join(".".join(name) for name in outcome.blocked)
        stayed = ", ".join(".".join(name) for name in outcome.stayed)
        rest = f" Others have built on {stayed}, which stays." if stayed else ""
        return (
            f"Undid {what}, which had not come to its end: main of {blocked} moved meanwhile.{rest}"
        )

    def _publish_in_series(
        self,
        journal: jn.Journal,
        items: Sequence[Item],
        appends: Sequence[LedgerRows],
        read: Collection[Read],
        strict_reads: bool,
    ) -> PublishReceipt:
        from sparkwap.publish import sequential

        schemas = self._side_schemas(journal.branch, items)
        rows = self._store.rows.find(sequential.names_of(items) | {one.identifier for one in read})
        differ = self._moved(read, rows)
        publisher = Publisher(
            self._store.load, rows, journal.branch, journal.tag, journal.tag_max_age_ms, schemas
        )
        plans = self._plan(publisher.plan, items, PublishRefused, differ if strict_reads else [])
        sequential.require_expressible(plans, self._store.load)
        journal = replace(journal, moves=sequential.moves_of(plans, items, self._store.load))
        # With the journal goes what the audits said: a later command could not know it.
        intended = LedgerRows("journal", [sequential.row_of(journal, "intended")])
        about = sequential.about(journal)
        reached(steps.JOURNAL_WRITING, **about)
        self.ledger.append([*(one for one in appends if one.table != "runs"), intended])
        reached(steps.JOURNAL_WRITTEN, **about)
        port = sequential.PublishPort(self._store, journal, schemas)
        outcome, reasons = self._carry(journal, port)
        if outcome.state != "completed":
            self._give_up(journal, outcome)
        sequential.outcome_or_raise(journal, outcome, reasons)
        runs = [_with_publish_id(one, journal.publish_id) for one in appends if one.table == "runs"]
        entries = self._finish_publish(journal, schemas, runs)
        reached(PUBLISH_VERIFIED, **about)
        return sequential.receipt_of(journal, entries, differ)

    def _rollback_in_series(
        self,
        journal: jn.Journal,
        entries: Sequence[PublishedEntry],
        appends: Sequence[LedgerRows],
    ) -> RollbackReceipt:
        from sparkwap.publish import sequential

        rows = self._store.rows.find({entry.identifier for entry in entries})
        undoer = Undoer(self._store.load, rows, journal.action == "forced rollback")
        plans = self._plan(undoer.plan, entries, RollbackRefused)
        wrong = sequential.inexpressible(plans, self._store.load)
        if wrong:
            raise RollbackRefused(wrong)
        journal = replace(journal, moves=tuple(jn.Move(entry, None, "") for entry in entries))
        reached(steps.JOURNAL_WRITING, **sequential.about(journal))
        self.ledger.append(LedgerRows("journal", [sequential.row_of(journal, "intended")]))
        reached(steps.JOURNAL_WRITTEN, **sequential.about(journal))
        port = sequential.RollbackPort(self._store, journal)
        outcome, reasons = self._carry(journal, port)
        self._finish_rollback(journal, outcome, appends)
        sequential.rollback_or_raise(journal, outcome, reasons)
        return sequential.rolled_back(journal)

    def _carry(
        self, journal: jn.Journal, port: PublishPort | RollbackPort
    ) -> tuple[jn.Outcome, Mapping[Identifier, Mismatch]]:
        from sparkwap.publish import sequential

        try:
            return jn.carry(journal, port, self._decider(journal), sequential.pause), port.reasons
        except (jn.Stuck, CatalogError) as error:
            stuck = isinstance(error, jn.Stuck)
            reason = "Other writers were faster each time" if stuck else str(error)
            raise CommitUnknown(
                f"The {journal.action} {journal.publish_id} is on its way: some of its tables may "
                "be moved and others not. The next `dbt build`, wap_publish, wap_discard or "
                f"wap_rollback on this lake completes or undoes it. What stopped it: {reason}"
            ) from error

    def _decider(self, journal: jn.Journal) -> jn.Decide:
        from sparkwap.publish import sequential

        def decide(wanted: jn.Direction | None) -> jn.Direction | None:
            if journal.action != "publish":
                return wanted
            state: jn.State = "completing" if wanted == "forward" else "undoing"
            row = sequential.row_of(journal, state)
            if wanted is None:
                return jn.decided(self.ledger.journal_states(row))
            found = jn.decided(self.ledger.settle(row))
            reached(steps.JOURNAL_DECIDED, **sequential.about(journal))
            return found

        return decide

    def _finish_publish(
        self, journal: jn.Journal, schemas: Mapping[str, str], runs: Sequence[LedgerRows]
    ) -> tuple[PublishedEntry, ...]:
        """What comes after the last move; again and again does no harm."""
        from sparkwap.publish import sequential

        entries = sequential.with_locations(journal, self._store)
        done = sequential.row_of(journal, "completed")
        if jn.is_closed(self.ledger.journal_states(done)):
            # By another carrier: side objects of its branch are a later run's by now.
            return entries
        left = sequential.leftovers(journal, self._store)
        folders = self._own_folders(_side_views(left, schemas))
        swaps = [Swap(row, None) for row in left]
        about = sequential.about(journal)
        reached(steps.JOURNAL_MOVED, **about)
        self._store.commit(lambda: Staged(None, swaps, drop_if_empty=schemas), "leftovers", **about)
        rows = _publish_rows(
            "publish",
            journal.publish_id,
            journal.run_id,
            journal.branch,
            journal.at,
            entries,
            journal.manifest_hash,
        )
        known = any(p.publish_id == journal.publish_id for p in self.ledger.publishes())
        reached(steps.JOURNAL_CLOSING, **about)
        self.ledger.append([] if known else [*rows, *runs])
        self.ledger.settle(done)
        reached(steps.JOURNAL_CLOSED, **about)
        self._purge("leftovers", folders, schemas, **about)
        return entries

    def _finish_rollback(
        self, journal: jn.Journal, outcome: jn.Outcome, appends: Sequence[LedgerRows]
    ) -> None:
        from sparkwap.publish import sequential

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
        rows = _rollback_rows(
            undone,
            journal.publish_id,
            journal.run_id,
            journal.at,
            {},
        )
        reached(steps.JOURNAL_CLOSING, **sequential.about(journal))
        self.ledger.append([*appends, *rows])
        self.ledger.settle(sequential.row_of(journal, outcome.state))
        reached(steps.JOURNAL_CLOSED, **sequential.about(journal))

    def _give_up(self, journal: jn.Journal, outcome: jn.Outcome) -> None:
        """Write down that a publish was undone, for it and for its nodes."""
        from sparkwap.publish import sequential

        closed = sequential.row_of(journal, outcome.state)
        if jn.is_closed(self.ledger.journal_states(closed)):
            return
        reached(steps.JOURNAL_GIVING_UP, **sequential.about(journal))
        now = datetime.now(UTC)
        moved = {move.identifier for move in journal.moves}
        nodes = [
            {**row, "verdict": "rejected", "reason": "the publish was undone", "built_at": now}
            for row in self.ledger.branch_history(journal.branch).nodes
            if (row["schema"], row["name"]) in moved and row["verdict"] == "published"
        ]
        self.ledger.append([LedgerRows("nodes", nodes)] if nodes else [])
        self.ledger.settle(closed)
        reached(steps.JOURNAL_GIVEN_UP, **sequential.about(journal))

    # Audit branches as a whole

    def discard(self, branch: str, run_id: str | None = None) -> Discarded:
        """Drop an audit branch and all that exists only on it, in one transaction.

        Tables lose the branch and its base tag. The side schemas go, with the files of tables
        that were new in them. The ledger gets a row in ``runs``, from which on the branch's
        history starts anew. Calling it again does nothing.

        Args:
            branch: The audit branch.
            run_id: The run that discards, for the ledger; one is made up where there is none.

        Raises:
            CatalogError: Other writers were faster each time, or the database failed.
        """
        folders: set[str] = set()

        def stage() -> Staged[Discarded]:
            rows, marked = self._store.rows.all(), self._store.rows.side_schemas()
            schemas = {schema for schema, owner in marked.items() if owner == branch}
            side = [row for row in rows if row.identifier[0] in schemas]
            live = self._readable(rows, marked)
            folders.clear()
            folders.update(self._own_folders(side))
            found = self._store.map(lambda row: self._without_branch(row, branch), live)
            dropped = [(row, *new) for row, new in zip(live, found, strict=True) if new]
            files = self._store.write({location: document for _, location, document in dropped})
            swaps = [
                Swap(row, Row(row.identifier, "table", location)) for row, location, _ in dropped
            ]
            named = {name for name in self.schemas() if split_side_schema(name, branch)}
            discarded = Discarded(
                branch,
                tuple(sorted(row.identifier for row, _, _ in dropped)),
                side_objects(side),
                tuple(sorted(schemas)),
                tuple(sorted(named - schemas)),
            )
            if not dropped and not schemas:
                return Staged(discarded)
            swaps += [Swap(row, None) for row in side]
            return self._recorded(discarded, swaps, files, schemas, run_id)

        discarded = self._store.commit(stage, "discard", run_id=run_id, branch=branch)
        self._purge("discard", folders, discarded.schemas, run_id=run_id, branch=branch)
        return discarded

    def forget(self, identifier: Identifier, branch: str) -> bool:
        """Drop what an audit branch holds of one table or view, so that it is built from ``main``.

        Args:
            identifier: The name that readers use; nothing needs to stand there yet.
            branch: The audit branch.

        Returns:
            Whether there was anything.

        Raises:
            CatalogError: Other writers were faster each time, or the database failed.
        """
        folders: set[str] = set()
        beside = (names.side_schema(identifier[0], branch), identifier[1])

        def stage() -> Staged[bool]:
            rows = self._store.rows.find({identifier, beside})
            folders.clear()
            swaps: list[Swap] = []
            files: list[str] = []
            side, live = rows.get(beside), rows.get(identifier)
            if side is not None:
                folders.update(self._own_folders([side]))
                swaps.append(Swap(side, None))
            changed = self._without_branch(live, branch) if live and live.kind == "table" else None
            if live is not None and changed is not None:
                location, document = changed
                files = self._store.write({location: document})
                swaps.append(Swap(live, Row(identifier, "table", location)))
            return Staged(bool(swaps), swaps, files)

        facts = _facts(identifier, branch)
        found = self._store.commit(stage, "forget", **facts)
        self._purge("forget", folders, **facts)
        return found

    def writers(self, identifier: Identifier, head: int | None, since: int | None) -> set[str]:
        """The runs that wrote a line of snapshots, as far as the snapshots say it (``wap_run``).

        Args:
            identifier: The table, of a side schema or not.
            head: The last snapshot of the line.
            since: The snapshot after which the line is looked at; None for all of it.
        """
        row = branches.table_row(self._store, identifier)
        document = self._store.load(row.location)
        found = set()
        while head is not None and head != since:
            snapshot = md.snapshot(document, head)
            if snapshot is None:
                break
            found.add(str((snapshot.get("summary") or {}).get("wap_run") or ""))
            head = snapshot.get("parent-snapshot-id")
        return found - {""}

    def open_branches(self) -> list[OpenBranch]:
        """All audit branches that were neither published nor discarded, by name.

        One that has nothing but an empty side schema is among them, so that it can be discarded.
        What a table that cannot be read has of them is not: see `unreadable`.
        """
        marked = self._store.rows.side_schemas()
        rows = self._store.rows.all()
        known = frozenset(marked.values())
        live = self._readable(rows, marked)
        tables: dict[str, list[OpenTable]] = {branch: [] for branch in known}
        for found in self._store.map(lambda row: self._open_tables(row, known), live):
            for branch, table in found:
                tables.setdefault(branch, []).append(table)
        side: dict[str, list[Row]] = {}
        for row in rows:
            if row.identifier[0] in marked:
                side.setdefault(marked[row.identifier[0]], []).append(row)
        return [
            OpenBranch(branch, tuple(sorted(tables[branch])), side_objects(side.get(branch, [])))
            for branch in sorted(tables)
        ]

    def unreadable(self) -> dict[Identifier, str]:
        """The tables and views whose metadata cannot be read, and what is wrong with each."""
        rows = self._store.rows.all()
        found = zip(rows, self._store.map(self._fault, rows), strict=True)
        return {row.identifier: fault for row, fault in found if fault is not None}

    # Inner parts

    def _fault(self, row: Row) -> str | None:
        try:
            self._store.load(row.location)
        except CatalogError as error:
            return str(error)
        return None

    def _readable(self, rows: Sequence[Row], marked: Collection[str]) -> list[Row]:
        """The live tables, without those whose metadata is damaged: they must not stop the rest."""
        live = [row for row in rows if row.kind == "table" and row.identifier[0] not in marked]
        faults = self._store.map(self._fault, live)
        return [row for row, fault in zip(live, faults, strict=True) if fault is None]

    def _state(self, row: Row) -> TableState:
        document = self._store.load(row.location)
        view = md.is_view(document)
        properties = md.properties_of(document)
        return TableState(
            identifier=row.identifier,
            kind=row.kind,
            uuid=md.identity(document),
            metadata_location=row.location,
            location=document["location"],
            main=md.main_of(document),
            refs=md.refs_of(document),
            columns=sparksql.columns(sparksql.current_schema(document)),
            partitioning=() if view else sparksql.partitioning(document),
            sort_order=() if view else sparksql.sort_order(document),
            properties=properties,
            format_version=int(document["format-version"]),
            comment=properties.get("comment"),
        )

    def _plan(
        self,
        planner: Callable[[T], Plan],
        things: Sequence[T],
        refusal: Callable[[Sequence[Mismatch]], Exception],
        more: Sequence[Mismatch] = (),
    ) -> list[Plan]:
        """The plans of all; if any differs, a refusal that names every one that does, and more."""

        def one(thing: T) -> Plan | Mismatch:
            try:
                return planner(thing)
            except Differs as differs:
                return differs.mismatch

        planned = self._store.map(one, things)
        mismatches = [plan for plan in planned if isinstance(plan, Mismatch)] + list(more)
        if mismatches:
            raise refusal(mismatches)
        return [plan for plan in planned if isinstance(plan, Plan)]

    def _moved(self, read: Collection[Read], rows: Mapping[Identifier, Row]) -> list[Mismatch]:
        found = [reads.moved(one, rows.get(one.identifier), self._store.load) for one in read]
        return list(dict.fromkeys(one for one in found if one is not None))

    def _staged(
        self,
        result: R,
        plans: Sequence[Plan],
        appends: Sequence[LedgerRows],
        drop_if_empty: Collection[str] = (),
    ) -> Staged[R]:
        writes = {path: document for plan in plans for path, document in plan.writes.items()}
        files = self._store.write(writes)
        swaps = [swap for plan in plans for swap in plan.swaps]
        # Last, as the ledger is what runs beside each other write to most.
        return self.ledger.beside(Staged(result, swaps, files, drop_if_empty), merge_rows(appends))

    def _recorded(
        self,
        discarded: Discarded,
        swaps: Sequence[Swap],
        files: Sequence[str],
        schemas: Collection[str],
        run_id: str | None,
    ) -> Staged[Discarded]:
        now = datetime.now(UTC)
        row = {
            "run_id": run_id or str(uuid.uuid4()),
            "branch": discarded.branch,
            "command": "wap_discard",
            "started_at": now,
            "ended_at": now,
            "outcome": "discarded",
        }
        try:
            self.ledger.ensure({"runs"})
        except BaseException:
            self._store.delete(files)
            raise
        return self.ledger.beside(
            Staged(discarded, swaps, files, drop_schemas=schemas), [LedgerRows("runs", [row])]
        )

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
        rows = self._store.rows.find({entry.identifier for entry in receipt.entries})

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

    def _side_schemas(self, branch: str, items: Sequence[Item]) -> dict[str, str]:
        """Side schema -> schema, of the audit branch."""
        marked = self._store.rows.side_schemas()
        found = {
            side: split_side_schema(side, branch) or side
            for side, owner in marked.items()
            if owner == branch
        }
        used = {
            item.side_schema: item.identifier[0] for item in items if isinstance(item, SideItem)
        }
        return found | used

    def _without_branch(self, row: Row, branch: str) -> tuple[str, md.Document] | None:
        document = branches.discard_branch(self._store.load(row.location), row.location, branch)
        return (md.next_location(document, row.location), document) if document else None

    def _open_tables(self, row: Row, known: frozenset[str]) -> list[tuple[str, OpenTable]]:
        document = self._store.load(row.location)
        return [
            (branch, branches.open_table(row.identifier, document, branch))
            for branch in branches.branches_of(document, known)
        ]

    def _own_folders(self, rows: Sequence[Row]) -> set[str]:
        """The folders of tables and views that were made new, which no other object uses."""
        folders: set[str] = set()
        for row in rows:
            if self._fault(row) is not None:
                continue  # whose folder it is nobody knows; a sweep finds files without a use
            document = self._store.load(row.location)
            if not branches.is_clone(document):
                folders.add(str(document["location"]).rstrip("/"))
        return folders

    def _purge(
        self,
        operation: Operation,
        folders: Collection[str],
        schemas: Collection[str] = (),
        **facts: Any,
    ) -> None:
        """Delete folders that nothing in the catalog uses any more, and emptied schema folders."""
        if not folders:
            return
        reached(COMMIT_STEPS[operation]["purging"], **facts)
        warehouse = self.warehouse
        try:
            used = [plain_location(row.location) for row in self._store.rows.all()]
        except CatalogError:
            # What it follows is committed, so this must not look like its failure; the folders
            # are orphans now.
            return
        used.append(f"{plain_location(warehouse)}/")
        for folder in folders:
            inside = f"{plain_location(folder)}/"
            if not any(location.startswith(inside) for location in used):
                self._store.files.delete_tree(folder)
        for schema in schemas:
            self._store.files.delete_empty(f"{warehouse}/{schema}")
        reached(COMMIT_STEPS[operation]["purged"], **facts)

    def _prepare_ledger(self, appends: Sequence[LedgerRows], publishes: bool) -> None:
        tables = {append.table for append in appends}
        if "publishes" in tables:
            raise ValueError("rows of 'publishes' are written by publish and rollback themselves")
        self.ledger.ensure(tables | ({"publishes"} if publishes else set()))


def _facts(identifier: Identifier, branch: str) -> dict[str, Any]:
    """What the steps of a commit on one table are about."""
    return {"table": ".".join(identifier), "branch": branch}


def _pointers(name: str, properties: Mapping[str, str]) -> Pointers:
    kind = properties.get("type", "sql")
    if kind not in ("sql", "rest"):
        raise ConfigError(
            f"The catalog type {kind!r} is not supported; nothing was done. Use type 'sql' with a "
            "'uri' of a SQLite or PostgreSQL database, or type 'rest' with the 'uri' of an Iceberg "
            "REST catalog."
        )
    for key in ("uri", "warehouse") if kind == "sql" else ("uri",):
        if not properties.get(key):
            raise ConfigError(f"The catalog needs the property {key!r}; nothing was done.")
    if kind == "sql":
        return Rows(name, properties)
    from sparkwap.catalog.rest import RestTables

    return RestTables(name, properties)


def _names(items: Sequence[Item]) -> set[Identifier]:
    live = {item.identifier for item in items}
    sides = [item for item in items if isinstance(item, SideItem)]
    return live | {(item.side_schema, item.identifier[1]) for item in sides}


def _with_publish_id(append: LedgerRows, publish_id: str) -> LedgerRows:
    if append.table != "runs":
        return append
    return LedgerRows("runs", [{"publish_id": publish_id, **row} for row in append.rows])


def _side_views(rows: Iterable[Row], schemas: Collection[str]) -> list[Row]:
    """Views get a new file at the live name's place, so that their side folder is left over."""
    return [row for row in rows if row.kind == "view" and row.identifier[0] in schemas]


def _folded(identifier: Identifier) -> Identifier:
    return identifier[0].lower(), identifier[1].lower()


def _require_own(identifiers: Sequence[Identifier]) -> None:
    twice = {".".join(name) for name in identifiers if identifiers.count(name) > 1}
    if twice:
        raise ValueError(f"named twice in one publish or rollback: {', '.join(sorted(twice))}")


def _publish_rows(
    action: str,
    publish_id: str,
    run_id: str,
    branch: str,
    at: datetime,
    entries: Sequence[PublishedEntry],
    manifest_hash: str | None = None,
) -> list[LedgerRows]:
    rows = [
        {
            "publish_id": publish_id,
            "run_id": run_id,
            "branch": branch,
            "schema": entry.identifier[0],
            "name": entry.identifier[1],
            "how": entry.how,
            "base_snapshot": entry.base,
            "base_metadata": entry.base_metadata_location,
            "candidate_snapshot": entry.candidate,
            "published_metadata": entry.published_metadata_location,
            "published_at": at,
            "action": action,
            "manifest_hash": manifest_hash,
        }
        for entry in entries
    ]
    return [LedgerRows("publishes", rows)] if rows else []


def _rollback_rows(
    undone: Sequence[UndonePublish],
    asked: str,
    run_id: str,
    at: datetime,
    rows: Mapping[Identifier, Row],
) -> list[LedgerRows]:
    """The ledger's rows of a rollback; ``asked`` is the publish that was to be undone."""
    found = [
        {
            **row,
            "undone_by": asked,
            "undone_metadata": rows[name].location if (name := _name_of(row)) in rows else None,
        }
        for one in undone
        for append in _publish_rows("rollback", one.publish_id, run_id, one.branch, at, one.entries)
        for row in append.rows
    ]
    return [LedgerRows("publishes", found)] if found else []


def _name_of(row: Mapping[str, Any]) -> Identifier:
    return row["schema"], row["name"]
