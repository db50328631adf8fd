"""`Lake`: the catalog as the gate sees it."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from sparkwap import names
from sparkwap.catalog import branches, sparksql
from sparkwap.catalog import metadata as md
from sparkwap.catalog.files import plain_location
from sparkwap.catalog.model import (
    Discarded,
    Identifier,
    Item,
    LedgerRows,
    Mismatch,
    OpenBranch,
    OpenedBranch,
    OpenTable,
    PublishedEntry,
    PublishReceipt,
    PublishRefused,
    RollbackReceipt,
    RollbackRefused,
    SideItem,
    TableState,
    merge_rows,
)
from sparkwap.catalog.planning import Differs, Plan
from sparkwap.catalog.publish import Publisher
from sparkwap.catalog.rollback import Undoer
from sparkwap.catalog.rows import Row, Swap, side_objects
from sparkwap.catalog.store import Staged, Store
from sparkwap.errors import CatalogError, ConfigError
from sparkwap.names import split_side_schema
from sparkwap.redaction import remember

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.catalog.sql import SqlCatalog

    from sparkwap.ledger import Ledger

T = TypeVar("T")
R = TypeVar("R")

_PUBLISH_TRIES = 5
_RUN_BRANCH_PREFIX = "wap_"


class Lake:
    """An Iceberg SQL catalog: states, audit branches, clones, publish, rollback, discard.

    Safe for use by several threads. Other processes, Spark among them, may write at any time.

    Args:
        name: The catalog's name, which Spark and PyIceberg must share.
        properties: PyIceberg's catalog properties: ``type`` (``sql``, the default), ``uri`` of
            the SQLite or PostgreSQL database, ``warehouse``, and those of the file access.

    Raises:
        ConfigError: A property lacks or is not supported.
        CatalogError: The database cannot be used.
    """

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        kind = properties.get("type", "sql")
        if kind != "sql":
            raise ConfigError(
                f"The catalog type {kind!r} is not supported; nothing was done. Use type 'sql' "
                "with a 'uri' of a SQLite or PostgreSQL database."
            )
        for key in ("uri", "warehouse"):
            if not properties.get(key):
                raise ConfigError(f"The catalog needs the property {key!r}; nothing was done.")
        remember(properties)
        self.name = name
        self.properties = dict(properties)
        self._store = Store(name, properties)

    @cached_property
    def catalog(self) -> SqlCatalog:
        """PyIceberg's view of the same catalog, on the same database connections."""
        from sparkwap.catalog.pyiceberg_catalog import SharedSqlCatalog

        return SharedSqlCatalog(self.name, self._store.rows.engine, self.properties)

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger of this lake."""
        # Here, as it brings PyArrow along: half a second that not every command needs.
        from sparkwap.ledger import Ledger

        return Ledger(self)

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
        return {row.identifier[1]: row.kind for row in self._store.rows.members(schema)}

    def schemas(self) -> set[str]:
        """All schemas, side schemas included."""
        return self._store.rows.schemas()

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

    # Schemas

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
        self._store.commit(stage)
        self._purge(folders, [schema])

    # Writing on an audit branch

    def open_branch(self, identifier: Identifier, branch: str) -> OpenedBranch:
        """Make sure that a table is gated and has the audit branch, started at ``main``.

        One metadata commit: property ``write.wap.enabled``, the branch, and the tag
        ``wap_base_<branch>`` that remembers the base and keeps it from expiring. A table without
        snapshots cannot have a branch yet: Spark creates it with the first write. A branch whose
        base ``main`` has moved away from starts anew at ``main``: what was built on the old base
        can never be published.

        Raises:
            CatalogError: There is no such table, or other writers were faster each time.
        """
        return self._store.commit(lambda: branches.open_branch(self._store, identifier, branch))

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
                lambda: branches.clone(self._store, identifier, side_schema, properties or {})
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
            self._store.commit(lambda: branches.copy(self._store, source, target, location))
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
    ) -> PublishReceipt:
        """Publish tables and views, all in one database transaction or none.

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

        Raises:
            PublishRefused: Something is not what was audited; nothing has changed.
            CatalogError: Other writers were faster each time, or the database failed.
        """
        _require_distinct([item.identifier for item in items])
        publish_id = publish_id or str(uuid.uuid4())
        now = datetime.now(UTC)
        self._prepare_ledger(appends, bool(items))
        appends = [_with_publish_id(append, publish_id) for append in appends]
        folders: set[str] = set()
        schemas: dict[str, str] = {}

        def stage() -> Staged[PublishReceipt]:
            schemas.update(self._side_schemas(branch, items))
            rows = self._store.rows.find(_names(items))
            folders.update(self._own_folders(_side_views(rows.values(), schemas)))
            publisher = Publisher(self._store.load, rows, branch, tag, tag_max_age_ms, schemas)
            plans = self._plan(publisher.plan, items, PublishRefused)
            entries = tuple(plan.entry for plan in plans)
            receipt = PublishReceipt(publish_id, run_id, branch, tag, now, entries)
            recorded = _publish_rows("publish", publish_id, run_id, branch, now, entries)
            return self._staged(receipt, plans, [*appends, *recorded], drop_if_empty=schemas)

        receipt = self._store.commit(stage, _PUBLISH_TRIES)
        self._verify(receipt)
        self._purge(folders, schemas)
        return receipt

    def rollback(
        self,
        entries: Sequence[PublishedEntry],
        *,
        run_id: str,
        publish_id: str,
        branch: str = "",
        appends: Sequence[LedgerRows] = (),
    ) -> RollbackReceipt:
        """Undo a publish, all of it in one database transaction or nothing.

        ``main`` goes back to the base, the former definition or the former view comes back, and
        names that were new vanish (their files stay). Tags stay.

        Args:
            entries: The entries of the publish.
            run_id: The run that rolls back.
            publish_id: The publish that is undone.
            branch: Its audit branch, for the ledger.
            appends: More rows for the ledger, in the same transaction.

        Raises:
            RollbackRefused: Something moved on since the publish; nothing has changed.
            CatalogError: Other writers were faster each time, or the database failed.
        """
        _require_distinct([entry.identifier for entry in entries])
        now = datetime.now(UTC)
        self._prepare_ledger(appends, bool(entries))

        def stage() -> Staged[RollbackReceipt]:
            rows = self._store.rows.find({entry.identifier for entry in entries})
            plans = self._plan(Undoer(self._store.load, rows).plan, entries, RollbackRefused)
            receipt = RollbackReceipt(publish_id, run_id, now, tuple(entries))
            recorded = _publish_rows("rollback", publish_id, run_id, branch, now, entries)
            return self._staged(receipt, plans, [*appends, *recorded])

        return self._store.commit(stage, _PUBLISH_TRIES)

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
            live = [row for row in rows if row.kind == "table" and row.identifier[0] not in marked]
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

        discarded = self._store.commit(stage)
        self._purge(folders, discarded.schemas)
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

        found = self._store.commit(stage)
        self._purge(folders)
        return found

    def open_branches(self) -> list[OpenBranch]:
        """All audit branches that were neither published nor discarded, by name.

        One that has nothing but an empty side schema is among them, so that it can be discarded.
        """
        marked = self._store.rows.side_schemas()
        rows = self._store.rows.all()
        known = frozenset(marked.values())
        live = [row for row in rows if row.kind == "table" and row.identifier[0] not in marked]
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

    # Inner parts

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
    ) -> list[Plan]:
        """The plans of all; if any differs, a refusal that names every one that does."""

        def one(thing: T) -> Plan | Mismatch:
            try:
                return planner(thing)
            except Differs as differs:
                return differs.mismatch

        planned = self._store.map(one, things)
        mismatches = [plan for plan in planned if isinstance(plan, Mismatch)]
        if mismatches:
            raise refusal(mismatches)
        return [plan for plan in planned if isinstance(plan, Plan)]

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
        try:
            # Last, as the ledger is what runs beside each other write to most.
            ledger = self.ledger.stage(merge_rows(appends))
        except BaseException:
            self._store.delete(files)
            raise
        return Staged(
            result,
            [*swaps, *ledger.swaps],
            [*files, *ledger.files],
            drop_if_empty,
            obsolete=ledger.obsolete,
        )

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
            ledger = self.ledger.stage([LedgerRows("runs", [row])])
        except BaseException:
            self._store.delete(files)
            raise
        return Staged(
            discarded,
            [*swaps, *ledger.swaps],
            [*files, *ledger.files],
            drop_schemas=schemas,
            obsolete=ledger.obsolete,
        )

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
            raise CatalogError(
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
            document = self._store.load(row.location)
            if not branches.is_clone(document):
                folders.add(str(document["location"]).rstrip("/"))
        return folders

    def _purge(self, folders: Collection[str], schemas: Collection[str] = ()) -> None:
        """Delete folders that nothing in the catalog uses any more, and emptied schema folders."""
        if not folders:
            return
        warehouse = self.properties["warehouse"].rstrip("/")
        used = [plain_location(row.location) for row in self._store.rows.all()]
        used.append(f"{plain_location(warehouse)}/")
        for folder in folders:
            inside = f"{plain_location(folder)}/"
            if not any(location.startswith(inside) for location in used):
                self._store.files.delete_tree(folder)
        for schema in schemas:
            self._store.files.delete_empty(f"{warehouse}/{schema}")

    def _prepare_ledger(self, appends: Sequence[LedgerRows], publishes: bool) -> None:
        tables = {append.table for append in appends}
        if "publishes" in tables:
            raise ValueError("rows of 'publishes' are written by publish and rollback themselves")
        self.ledger.ensure(tables | ({"publishes"} if publishes else set()))


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


def _require_distinct(identifiers: Sequence[Identifier]) -> None:
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
        }
        for entry in entries
    ]
    return [LedgerRows("publishes", rows)] if rows else []
