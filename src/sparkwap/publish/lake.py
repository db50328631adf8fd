"""`Lake`: the operations of the gate on a catalog."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from sparkwap.catalog import branches, content_equality, read_dependencies, sparksql, views
from sparkwap.catalog import metadata as md
from sparkwap.catalog.backends import backend_of
from sparkwap.catalog.history import TableHistory, history_of, schema_at
from sparkwap.catalog.leases import CatalogLeases, Leases, MetastoreLeases, SqlLeases
from sparkwap.catalog.metastore_backend import MetastoreBackend
from sparkwap.catalog.model import ColumnState, Head, Identifier, Kind, Read, TableState
from sparkwap.catalog.pointers import Pointer, PointerUpdate
from sparkwap.catalog.sql_backend import SqlBackend
from sparkwap.catalog.store import Staged, Store
from sparkwap.core.caller import Caller, this_caller
from sparkwap.core.errors import CatalogError, ConfigError
from sparkwap.publish.audit_branches import AuditBranches
from sparkwap.publish.publishing import Publishing
from sparkwap.publish.staging import Staging

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from sparkwap.ledger.ledger import Ledger

_RUN_BRANCH_PREFIX = "wap_"

WAREHOUSE_LOCATION = "wap.warehouse-location"
"""The catalog property with the folder for new tables, where ``warehouse`` is only a name."""


class Lake:
    """An Iceberg catalog: its tables, views and schemas, `branches` and `publishing`.

    Safe for use by several threads. Other processes, such as Spark, may write at any time.

    Args:
        name: The catalog's name, which Spark and PyIceberg must share.
        properties: PyIceberg's catalog properties: ``type`` (``sql``, the default, ``rest``,
            ``hive`` or ``glue``), ``uri`` of the database or server, ``warehouse``, and the
            properties of the file access.
        caller: Who changes the lake, for the ledger; by default, the caller of this process.

    Raises:
        ConfigError: A property is missing or not supported.
        CatalogError: The database or server cannot be used.
    """

    def __init__(
        self, name: str, properties: Mapping[str, str], caller: Caller | None = None
    ) -> None:
        self.name = name
        self.store = Store(backend_of(name, properties))
        self.properties = dict(self.store.backend.properties)
        self._caller = caller

    @cached_property
    def caller(self) -> Caller:
        """Who changes this lake."""
        rows, caller = self.store.backend, self._caller or this_caller()
        user = rows.user if isinstance(rows, SqlBackend) and caller.actor else None
        return replace(caller, catalog_user=user)

    @property
    def catalog(self) -> Catalog:
        """The same catalog in PyIceberg, for the calling thread."""
        return self.store.backend.pyiceberg()

    @cached_property
    def warehouse(self) -> str:
        """The parent folder of new tables, without a slash at its end."""
        folder = self.properties.get(WAREHOUSE_LOCATION) or self.properties.get("warehouse", "")
        if "/" not in folder:
            raise ConfigError(
                f"The catalog's warehouse {folder!r} is a name and not a location, so new tables "
                f"have no folder. Nothing was done. Set {WAREHOUSE_LOCATION!r} to a folder, such "
                "as s3://bucket/lake, in `catalog` of the profile."
            )
        return folder.rstrip("/")

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger of this lake."""
        # Imported here, because it imports PyArrow: half a second that not every command needs.
        from sparkwap.ledger.ledger import Ledger

        return Ledger(self)

    @cached_property
    def leases(self) -> Leases:
        """The leases of runs, which tell which runs are alive."""
        rows = self.store.backend
        if isinstance(rows, SqlBackend):
            return SqlLeases(rows)
        if isinstance(rows, MetastoreBackend):
            return MetastoreLeases(rows.metastore, rows.ensure_schema)
        return CatalogLeases(lambda: self.catalog)

    def close(self) -> None:
        """Close database connections and threads; later calls open them again."""
        self.store.close()

    @property
    def _staging(self) -> Staging:
        return Staging(self.store, lambda: self.ledger, lambda: self.warehouse)

    @property
    def branches(self) -> AuditBranches:
        """The audit branches of this lake."""
        return AuditBranches(self._staging)

    @property
    def publishing(self) -> Publishing:
        """Publish and rollback."""
        return Publishing(self._staging)

    # Reading. What needs a table raises `CatalogError` if there is none.

    def relations(self, schema: str) -> dict[str, str]:
        """Return name -> ``table`` or ``view`` of a schema's members; empty without a schema."""
        return dict(self.store.backend.kinds(schema))

    def alike(self, names: Collection[Identifier]) -> set[Identifier]:
        """Return the tables and views whose names differ from one of these in case only.

        Empty on a catalog that folds case, where both names are one table.
        """
        return self._staging.alike(names)

    def schemas(self) -> set[str]:
        """Return all schemas, including side schemas."""
        return self.store.backend.schemas()

    def side_schemas(self) -> dict[str, str]:
        """Return side schema -> audit branch."""
        return self.store.backend.side_schemas()

    def state(self, identifier: Identifier) -> TableState | None:
        """Return the present state of a table or view; None if it does not exist."""
        row = self.store.backend.get(identifier)
        return None if row is None else self._staging.state(row)

    def states(self, identifiers: Iterable[Identifier]) -> dict[Identifier, TableState]:
        """Return the states of the tables and views that exist, by one statement for their rows."""
        rows = self.store.backend.find(set(identifiers))
        states = self.store.map(self._staging.state, rows.values())
        return {state.identifier: state for state in states}

    def locations(self, identifiers: Iterable[Identifier]) -> dict[Identifier, tuple[str, str]]:
        """Return kind and metadata file of the existing tables and views; reads no file."""
        found = self.store.backend.find(set(identifiers))
        return {key: (row.kind, row.location) for key, row in found.items()}

    def most_rows(self, location: str) -> float:
        """Return the rows of a table's largest branch or tag; infinite if they are not known."""
        document = self.store.load(location)
        heads = [md.snapshot(document, ref.snapshot_id) for ref in md.refs_of(document).values()]
        counts = [md.count(head, "total-records") for head in heads]
        return max((math.inf if one is None else one for one in counts), default=0)

    def unreadable(self) -> dict[Identifier, str]:
        """Return the tables and views whose metadata cannot be read -> the error."""
        rows = self.store.backend.all()
        found = zip(rows, self.store.map(self._staging.fault, rows), strict=True)
        return {row.identifier: fault for row, fault in found if fault is not None}

    def snapshot_summary(self, identifier: Identifier, snapshot_id: int) -> Mapping[str, str]:
        """Return the summary of a snapshot, with ``operation`` and ``wap_run``."""
        document = branches.table_document(self.store, identifier)
        snapshot = md.snapshot(document, snapshot_id)
        if snapshot is None:
            raise CatalogError(
                f"{'.'.join(identifier)} has no snapshot {snapshot_id}: it has expired, or "
                "belongs to another table. Nothing was changed."
            )
        return dict(snapshot.get("summary") or {})

    def summaries(
        self, identifier: Identifier, old: int | None, new: int | None
    ) -> list[Mapping[str, str]]:
        """Return the summaries of snapshots from ``new`` back to, but without, ``old``."""
        document = branches.table_document(self.store, identifier)
        return content_equality.between(document, old, new)

    def partitionings(self, identifier: Identifier) -> list[tuple[str, ...]]:
        """Return the partition terms of each spec of a table."""
        return sparksql.partitionings(branches.table_document(self.store, identifier))

    def histories(self, identifiers: Iterable[Identifier]) -> dict[Identifier, TableHistory]:
        """Return the histories of the tables and views that exist.

        Their rows are read in one statement.
        """
        rows = self.store.backend.find(set(identifiers))
        return {name: history_of(row, self.store.load(row.location)) for name, row in rows.items()}

    def columns_at(self, identifier: Identifier, snapshot_id: int) -> tuple[ColumnState, ...]:
        """Return the columns that a table had when a snapshot was written."""
        document = branches.table_document(self.store, identifier)
        return sparksql.columns(schema_at(document, snapshot_id))

    def last_change(self, identifier: Identifier) -> datetime | None:
        """Return when the rows of ``main`` last changed; None for a table without snapshots.

        Compactions do not count, because they change no rows.
        """
        document = branches.table_document(self.store, identifier)
        changed = content_equality.rows_since(document, md.main_of(document))
        return None if changed is None else datetime.fromtimestamp(changed / 1000, UTC)

    def read(self, identifiers: Iterable[Identifier]) -> list[Read]:
        """Return the present state of tables and views for a reader of ``main``, in one statement.

        `publish` later compares it with the state at that time. Names without a table are
        included, because a table may be created under them meanwhile.
        """
        wanted = sorted(set(identifiers))
        rows = self.store.backend.find(wanted)
        return [
            Read(name, read_dependencies.token(rows.get(name), self.store.load)) for name in wanted
        ]

    def head(self, identifier: Identifier, branch: str) -> Head | None:
        """Return the head of a table's branch; None if there is no such branch."""
        document = branches.table_document(self.store, identifier)
        ref = md.refs_of(document).get(branch)
        found = md.snapshot(document, ref.snapshot_id) if ref else None
        if found is None:
            return None
        parent = found.get("parent-snapshot-id")
        return Head(int(found["snapshot-id"]), parent, (found.get("summary") or {}).get("wap_run"))

    def descends(self, identifier: Identifier, metadata_location: str) -> bool:
        """Return whether the metadata of a table or view is, or follows from, a metadata file."""
        row = self.store.backend.get(identifier)
        if row is None or row.location == metadata_location:
            return row is not None
        log = self.store.load(row.location).get("metadata-log") or ()
        return any(step["metadata-file"] == metadata_location for step in log)

    def view_reads(self, identifier: Identifier, *, present: bool) -> frozenset[Identifier]:
        """Return the names that a view may read (see `views.reads`); empty if it is no view."""
        document = self._view(identifier)
        return frozenset() if document is None else views.reads(document, present=present)

    def view_content(self, identifier: Identifier) -> str | None:
        """Return the hash of a view's text (see `views.content`); None if it is no view."""
        document = self._view(identifier)
        return None if document is None else views.content(document)

    def _view(self, identifier: Identifier) -> md.Document | None:
        row = self.store.backend.get(identifier)
        return self.store.load(row.location) if row and row.kind == "view" else None

    def view_problem(self, identifier: Identifier, branch: str) -> str | None:
        """Return how a view, once published, would let readers see unaudited rows.

        Args:
            identifier: The view in its side schema.

        Returns:
            The problem in words; None if the text provably names only published tables, or if
            there is no view.
        """
        document = self._view(identifier)
        if document is None:
            return None
        published = views.publishable(document, None, self._staging.side_schemas(branch, ()))
        sides = self.store.backend.side_schemas()
        open_ones = {branch, *sides.values(), *self._audit_branches(views.reads(published))}
        return views.reads_unaudited(published, sides, open_ones)

    def _audit_branches(self, names: Collection[Identifier]) -> set[str]:
        """Return the audit branches of tables; ``names`` are in lower case."""
        schemas = {schema.lower(): schema for schema in self.schemas()}
        known = frozenset(self.store.backend.side_schemas().values())
        found: set[str] = set()
        for schema in {schema for schema, _ in names} & schemas.keys():
            members = self.relations(schemas[schema]).items()
            tables = {name for name, kind in members if kind == "table"}
            wanted = {(schemas[schema], one) for one in tables if (schema, one.lower()) in names}
            for row in self.store.backend.find(wanted).values():
                found |= branches.branches_of(self.store.load(row.location), known)
        return found

    # Schemas

    def ensure_schema(self, schema: str, branch: str | None = None) -> None:
        """Create a schema if it does not exist.

        Args:
            branch: The audit branch of a side schema. The schema is marked with it. A discard
                drops only marked schemas, because a user's schema may have such a name, too.
                ``<schema>__wap_<...>`` is always marked.
        """
        suffix = schema.rpartition("__")[2]
        if branch is None and suffix != schema and suffix.startswith(_RUN_BRANCH_PREFIX):
            branch = suffix
        self.store.backend.ensure_schema(schema, branch)

    def drop_schema(self, schema: str, purge: bool) -> None:
        """Drop a schema with its members, if it exists.

        Args:
            purge: Delete the files of tables and views that have a folder of their own. A clone
                shares the folder of the live table, which stays.
        """

        def stage() -> Staged[list[Pointer]]:
            members = self.store.backend.members(schema)
            swaps = [PointerUpdate(row, None) for row in members]
            return Staged(members, swaps, drop_schemas=[schema])

        folders = self._staging.own_folders(self.store.backend.members(schema)) if purge else set()
        self.store.commit(stage, "drop_schema", schema=schema)
        self._staging.purge("drop_schema", folders, [schema])

    def require_possible(self, identifier: Identifier, present: Kind | None, wanted: Kind) -> None:
        """Check that the catalog can have a new table or view, in place of ``present``.

        Raises:
            ConfigError: The catalog cannot have it.
            CatalogError: The catalog cannot replace a view by a table, or a table by a view.
        """
        rows, name = self.store.backend, ".".join(identifier)
        refusal = None if present else rows.refusal_of_name(identifier)
        if refusal is not None:
            raise ConfigError(
                f"{name} cannot be built: {refusal}. Nothing was built. Give the model another "
                "name (alias, schema)."
            )
        if wanted == "view" and not rows.keeps_views:
            raise ConfigError(
                f"{name} would be a view, and this catalog has no views. Nothing was built. Make "
                "it a table (materialized: table or incremental) or part of its readers "
                "(ephemeral)."
            )
        if present in (None, wanted) or rows.atomic:
            return
        raise CatalogError(
            f"{name} is a {present} and would become a {wanted}. This catalog has to drop the "
            f"{present} first, so that readers would find neither for a moment. Nothing was "
            "built. Give the model another name (alias), or tell its readers and drop it: "
            f"drop {present} {name}."
        )
