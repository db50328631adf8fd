"""`Lake`: the catalog as the gate sees it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from sparkwap.catalog import branches, content_equality, read_dependencies, sparksql, views
from sparkwap.catalog import metadata as md
from sparkwap.catalog.history import TableHistory, history_of, schema_at
from sparkwap.catalog.leases import CatalogLeases, Leases, SqlLeases
from sparkwap.catalog.model import ColumnState, Head, Identifier, Kind, Read, TableState
from sparkwap.catalog.pointers import Pointer, PointerUpdate
from sparkwap.catalog.sql_backend import SqlBackend
from sparkwap.catalog.store import Staged, Store
from sparkwap.core.errors import CatalogError, ConfigError
from sparkwap.publish.audit_branches import AuditBranches
from sparkwap.publish.publishing import Publishing
from sparkwap.publish.staging import Staging

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from sparkwap.catalog.backend import CatalogBackend
    from sparkwap.ledger.ledger import Ledger

_RUN_BRANCH_PREFIX = "wap_"

WAREHOUSE_LOCATION = "wap.warehouse-location"
"""The catalog property with the folder for new tables, where ``warehouse`` is but a name."""


class Lake:
    """An Iceberg catalog: what stands in it, its schemas, `branches` and `publishing`.

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
        self.properties = dict(self._store.backend.properties)

    @cached_property
    def catalog(self) -> Catalog:
        """PyIceberg's view of the same catalog, on the same connections."""
        return self._store.backend.pyiceberg()

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
        rows = self._store.backend
        return (
            SqlLeases(rows) if isinstance(rows, SqlBackend) else CatalogLeases(lambda: self.catalog)
        )

    @property
    def store(self) -> Store:
        """SqlBackend and files; for the ledger."""
        return self._store

    def close(self) -> None:
        """Let go of database connections and threads; what is called later opens them again."""
        self._store.close()

    @property
    def _staging(self) -> Staging:
        return Staging(self._store, lambda: self.ledger, lambda: self.warehouse)

    @property
    def branches(self) -> AuditBranches:
        """Its audit branches."""
        return AuditBranches(self._staging)

    @property
    def publishing(self) -> Publishing:
        """Publish and rollback."""
        return Publishing(self._staging)

    # Reading

    def relations(self, schema: str) -> dict[str, str]:
        """Name -> ``table`` or ``view`` of a schema's members; empty for a missing schema."""
        return dict(self._store.backend.kinds(schema))

    def alike(self, names: Collection[Identifier]) -> set[Identifier]:
        """Tables and views that differ from some of these names in case only.

        None on a catalog that folds case, where the one is the other.
        """
        return self._staging.alike(names)

    def schemas(self) -> set[str]:
        """All schemas, side schemas included."""
        return self._store.backend.schemas()

    def side_schemas(self) -> dict[str, str]:
        """Name of each side schema -> its audit branch."""
        return dict(self._store.backend.side_schemas())

    def state(self, identifier: Identifier) -> TableState | None:
        """What a table or view is now; None if there is none."""
        row = self._store.backend.get(identifier)
        return None if row is None else self._staging.state(row)

    def states(self, identifiers: Iterable[Identifier]) -> dict[Identifier, TableState]:
        """The states of those that exist, their rows read in one statement."""
        rows = self._store.backend.find(set(identifiers))
        states = self._store.map(self._staging.state, rows.values())
        return {state.identifier: state for state in states}

    def locations(self, identifiers: Iterable[Identifier]) -> dict[Identifier, str]:
        """The metadata files of those that exist, none of which is read."""
        return {
            key: row.location for key, row in self._store.backend.find(set(identifiers)).items()
        }

    def unreadable(self) -> dict[Identifier, str]:
        """The tables and views whose metadata cannot be read, and what is wrong with each."""
        rows = self._store.backend.all()
        found = zip(rows, self._store.map(self._staging.fault, rows), strict=True)
        return {row.identifier: fault for row, fault in found if fault is not None}

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

    def summaries(
        self, identifier: Identifier, old: int | None, new: int | None
    ) -> list[Mapping[str, str]]:
        """The summaries of the snapshots of a table from ``new`` back to ``old``, without that.

        Raises:
            CatalogError: There is no such table.
        """
        row = branches.table_row(self._store, identifier)
        return content_equality.between(self._store.load(row.location), old, new)

    def histories(self, identifiers: Iterable[Identifier]) -> dict[Identifier, TableHistory]:
        """The pasts of those tables and views that exist, their rows read in one statement."""
        wanted = set(identifiers)
        rows = self._store.backend.find(wanted) if wanted else {}
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
        rows = self._store.backend.find(wanted) if wanted else {}
        return [
            Read(name, read_dependencies.token(rows.get(name), self._store.load)) for name in wanted
        ]

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

    def descends(self, identifier: Identifier, metadata_location: str) -> bool:
        """Whether the metadata of a table or view has grown from a metadata file, or is that."""
        row = self._store.backend.get(identifier)
        if row is None or row.location == metadata_location:
            return row is not None
        log = self._store.load(row.location).get("metadata-log") or ()
        return any(step["metadata-file"] == metadata_location for step in log)

    def view_reads(self, identifier: Identifier, *, present: bool) -> frozenset[Identifier]:
        """What a view's text may read, see `views.reads`; nothing if no view stands there."""
        row = self._store.backend.get(identifier)
        if row is None or row.kind != "view":
            return frozenset()
        return views.reads(self._store.load(row.location), present=present)

    def view_content(self, identifier: Identifier) -> str | None:
        """What the text of a view is, see `views.content`; None if no view stands there."""
        row = self._store.backend.get(identifier)
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
        row = self._store.backend.get(identifier)
        if row is None or row.kind != "view":
            return None
        document = self._store.load(row.location)
        published = views.publishable(document, None, self._staging.side_schemas(branch, ()))
        sides = self._store.backend.side_schemas()
        open_ones = {branch, *sides.values(), *self._audit_branches(views.reads(published))}
        return views.reads_unaudited(published, sides, open_ones)

    def _audit_branches(self, names: Collection[Identifier]) -> set[str]:
        """The audit branches of tables that are named in lower case."""
        schemas = {schema.lower(): schema for schema in self.schemas()}
        known = frozenset(self._store.backend.side_schemas().values())
        found: set[str] = set()
        for schema in {schema for schema, _ in names} & schemas.keys():
            members = self.relations(schemas[schema]).items()
            tables = {name for name, kind in members if kind == "table"}
            wanted = {(schemas[schema], one) for one in tables if (schema, one.lower()) in names}
            for row in self._store.backend.find(wanted).values():
                found |= branches.branches_of(self._store.load(row.location), known)
        return found

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
        self._store.backend.ensure_schema(schema, branch)

    def drop_schema(self, schema: str, purge: bool) -> None:
        """Drop a schema with its members; nothing happens if there is none.

        Args:
            schema: Its name.
            purge: Delete the files of tables and views that have a folder of their own. A clone's
                folder is the live table's, and stays.
        """

        def stage() -> Staged[list[Pointer]]:
            members = self._store.backend.members(schema)
            swaps = [PointerUpdate(row, None) for row in members]
            return Staged(members, swaps, drop_schemas=[schema])

        folders = self._staging.own_folders(self._store.backend.members(schema)) if purge else set()
        self._store.commit(stage, "drop_schema", schema=schema)
        self._staging.purge("drop_schema", folders, [schema])

    def require_change_of_kind(self, identifier: Identifier, present: Kind, wanted: Kind) -> None:
        """Check that a table can be published over a view, or the other way round.

        Raises:
            CatalogError: The catalog cannot put the one in the place of the other.
        """
        if self._store.backend.takes_files:
            return
        name = ".".join(identifier)
        raise CatalogError(
            f"{name} is a {present} and would become a {wanted}, which a REST catalog cannot do "
            "without a moment in which there is neither. Nothing was built. Give the model "
            f"another name (alias), or let its readers know and drop it: drop {present} {name}."
        )


def _pointers(name: str, properties: Mapping[str, str]) -> CatalogBackend:
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
        return SqlBackend(name, properties)
    from sparkwap.catalog.rest_backend import RestBackend

    return RestBackend(name, properties)
