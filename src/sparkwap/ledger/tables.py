"""The Iceberg tables of the ledger: create, read, append, delete.

They are in the schema ``wap_ledger`` of the same catalog, so that rows about a publish are
committed in the transaction of the publish, and Spark can query them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa
from pyiceberg import expressions
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from sqlalchemy.exc import DBAPIError

from sparkwap.catalog import metadata as md
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.difference import difference
from sparkwap.catalog.files import write_failed
from sparkwap.catalog.model import LedgerRows, merge_rows
from sparkwap.catalog.pointers import Pointer, PointerUpdate
from sparkwap.catalog.store import Staged
from sparkwap.core.caller import Caller
from sparkwap.core.checkpoints import LEDGER_CREATED, LEDGER_CREATING, checkpoint
from sparkwap.core.errors import CatalogError
from sparkwap.core.names import LEDGER_SCHEMA
from sparkwap.core.retry import retrying, rule_of
from sparkwap.ledger.append import append, old_snapshots
from sparkwap.ledger.schemas import SCHEMAS

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from sparkwap.catalog.store import Store

R = TypeVar("R")

_KEPT_ANSWERS, _KEPT_ROWS = 64, 10_000
"""The most reads whose rows stay in memory, and the most rows of such a read."""

_TABLE_PROPERTIES = {
    "format-version": "2",
    # Each append is a commit; without these, metadata and manifests grow with every run.
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    "write.metadata.previous-versions-max": "10",
}
# PyIceberg's expressions accept a column name and a value, but their types do not say so.
ex: Any = expressions


@dataclass(frozen=True, slots=True)
class TableChange:
    """A change of one table: an append of rows, or what ``make`` adds to a transaction.

    It is made if ``only_if`` returns True.
    """

    table: str
    make: Callable[[Transaction], None]
    rows: Sequence[Mapping[str, Any]] = ()
    only_if: Callable[[Table], bool] | None = None


class LedgerLake(Protocol):
    """The parts of a lake that its ledger uses."""

    @property
    def store(self) -> Store: ...
    @property
    def catalog(self) -> Catalog: ...
    @property
    def warehouse(self) -> str: ...
    @property
    def caller(self) -> Caller: ...
    def relations(self, schema: str) -> Mapping[str, str]: ...
    def ensure_schema(self, schema: str) -> Any: ...


class LedgerTables:
    """The tables of the ledger of a lake; safe for use by several threads."""

    def __init__(self, lake: LedgerLake) -> None:
        self.lake = lake
        self._checked: set[str] = set()
        self._answers: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def append(self, rows: LedgerRows | Sequence[LedgerRows]) -> None:
        """Append rows, in one transaction if the catalog has multi-table transactions.

        Raises:
            CatalogError: The catalog or the disk failed; nothing was appended.
        """
        appends = [rows] if isinstance(rows, LedgerRows) else list(rows)
        merged = merge_rows(appends)
        self.ensure({append.table for append in merged})
        commits = [merged] if self.lake.store.backend.atomic else [[one] for one in merged]
        for part in commits:
            # Each commit is retried on its own.
            self.lake.store.commit(partial(self.stage, part), "ledger")

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return all rows of a table; none if the table does not exist."""
        return self.read(table)

    def ensure_all(self) -> None:
        """Create the tables that each run needs; the journal only for sequential publishes."""
        unneeded = {"alerts", "acceptances", "maintenance"} | (
            {"journal"} if self.lake.store.backend.atomic else set()
        )
        self.ensure(set(SCHEMAS) - unneeded)

    def ensure(self, tables: Collection[str]) -> None:
        """Create the ledger's schema, these tables and their columns where they are missing."""
        unknown = sorted(set(tables) - set(SCHEMAS))
        if unknown:
            raise ValueError(f"unknown tables of the ledger: {unknown}; known: {sorted(SCHEMAS)}")
        if not tables:
            return
        existing = self.lake.relations(LEDGER_SCHEMA)
        for name in sorted(tables):
            if name in existing and name in self._checked:
                continue
            try:
                self._ensure(name, new=name not in existing)
            except OSError as error:
                raise write_failed(f"The ledger ({LEDGER_SCHEMA})", error) from error
            except DBAPIError as error:
                raise CatalogError(
                    f"The catalog's database failed: {error.orig}. The ledger could not be "
                    "created, and nothing was changed. Check the database (space, rights, "
                    "connection), then run the same command again."
                ) from error
            with self._lock:
                self._checked.add(name)

    def beside(
        self, staged: Staged[R], appends: Iterable[LedgerRows], *, first: bool = False
    ) -> Staged[R]:
        """Add appends to a staged commit; see `stage`.

        If this fails, the files of the staged commit are deleted. On a catalog that is not atomic,
        the appends are commits of their own: other runs write to the ledger most often, and a
        conflict there must not leave the commit half made.

        Args:
            first: On a catalog that is not atomic, append before the commit: for rows without
                which a commit that dies half-way could not be continued.
        """
        if not self.lake.store.backend.atomic:
            rows = list(appends)
            if first:
                return replace(staged, first=partial(self._append_new, rows))
            return replace(staged, then=partial(self.append, rows))
        try:
            own = self.stage(appends)
        except BaseException:
            self.lake.store.delete(staged.files)
            raise
        return replace(
            staged,
            swaps=[*staged.swaps, *own.swaps],
            files=[*staged.files, *own.files],
            obsolete=[*staged.obsolete, *own.obsolete],
        )

    def _append_new(self, appends: Iterable[LedgerRows], notes: set[str]) -> None:
        """Append the rows that no former attempt has appended, and add them to its notes."""
        found = []
        for one in appends:
            rows = []
            for row in one.rows:
                plain = {k: v for k, v in row.items() if not isinstance(v, datetime)}
                note = f"{one.table} {sorted(plain.items())}"
                if note not in notes:
                    notes.add(note)
                    rows.append(row)
            if rows:
                found.append(LedgerRows(one.table, rows))
        if found:
            self.append(found)

    def stage(self, appends: Iterable[LedgerRows]) -> Staged[None]:
        """Write the files of appends and return the pointer updates that commit them.

        The tables must exist (see `ensure`). The appends must have each table at most once (see
        `merge_rows`). A manifest that the ledger already has is left out.
        """
        return self.stage_changes(
            [append_change(self._by_caller(new)) for new in map(self._new, appends) if new.rows]
        )

    def stage_changes(self, changes: Sequence[TableChange]) -> Staged[None]:
        """Write the files of changes and return the pointer updates that commit them."""
        swaps: list[PointerUpdate] = []
        files: list[str] = []
        obsolete: list[str] = []
        try:
            for change in changes:
                self._stage_one(change, swaps, files, obsolete)
        except OSError as error:
            self.lake.store.delete(files)
            raise write_failed(f"The ledger ({LEDGER_SCHEMA})", error) from error
        except BaseException:
            self.lake.store.delete(files)
            raise
        return Staged(None, swaps, files, obsolete=obsolete)

    def _new(self, append: LedgerRows) -> LedgerRows:
        """Return an append without the manifests that the ledger already has."""
        if append.table != "manifests":
            return append
        hashes = {row["hash"] for row in append.rows}
        known = self.read("manifests", ex.In("hash", hashes), ("hash",))
        kept = {row["hash"] for row in known}
        return LedgerRows("manifests", [row for row in append.rows if row["hash"] not in kept])

    def _by_caller(self, append: LedgerRows) -> LedgerRows:
        """Return the rows with the caller of this command, in tables that have it."""
        columns = SCHEMAS[append.table].names
        if "actor" not in columns:
            return append
        caller = {key: value for key, value in asdict(self.lake.caller).items() if key in columns}
        named = {} if caller["actor"] else {"host": None}
        return LedgerRows(append.table, [{**caller, **row, **named} for row in append.rows])

    def _stage_one(
        self, change: TableChange, swaps: list[PointerUpdate], files: list[str], obsolete: list[str]
    ) -> None:
        store = self.lake.store
        table = self.lake.catalog.load_table((LEDGER_SCHEMA, change.table))
        if change.only_if is not None and not change.only_if(table):
            return
        row = Pointer((LEDGER_SCHEMA, change.table), "table", table.metadata_location)
        document = store.load(row.location)
        growth = append(table.io, document, change.rows, files, store.map) if change.rows else None
        growth = growth or _by_pyiceberg(table, change, files)
        grown_swaps, metadata_files = store.grow([(row, growth)])
        swaps.extend(grown_swaps)
        files.extend(metadata_files)
        after = growth.document(row.location)
        for listed, location in (("metadata-log", "metadata-file"), ("snapshots", "manifest-list")):
            kept = {one[location] for one in after.get(listed) or ()}
            former = (one[location] for one in document.get(listed) or ())
            obsolete.extend(one for one in former if one not in kept)

    def _ensure(self, name: str, *, new: bool) -> None:
        """Create or change a table; retry if another run does so at the same time."""
        for attempt in retrying(lambda error: rule_of(error) in ("retry", "refresh")):
            with attempt:
                if attempt.retry_state.attempt_number > 1:
                    new = name not in self.lake.relations(LEDGER_SCHEMA)
                self._ensure_one(name, new=new)

    def _ensure_one(self, name: str, *, new: bool) -> None:
        catalog, schema = self.lake.catalog, SCHEMAS[name]
        # PyIceberg writes a metadata file before it asks the catalog, so the rights come first.
        if new:
            self.lake.store.backend.require_writer()
            self.lake.ensure_schema(LEDGER_SCHEMA)
            checkpoint(LEDGER_CREATING, table=f"{LEDGER_SCHEMA}.{name}")
            table = catalog.create_table_if_not_exists(
                (LEDGER_SCHEMA, name),
                schema,
                location=f"{self.lake.warehouse}/{LEDGER_SCHEMA}/{name}",
                properties=dict(_TABLE_PROPERTIES),
            )
            checkpoint(LEDGER_CREATED, table=f"{LEDGER_SCHEMA}.{name}")
        else:
            table = catalog.load_table((LEDGER_SCHEMA, name))
        present = {field.name for field in table.schema().fields}
        if not set(schema.names) <= present:
            self.lake.store.backend.require_writer()
            with table.update_schema() as update:
                update.union_by_name(schema)

    def read(
        self,
        table: str,
        condition: expressions.BooleanExpression | None = None,
        columns: tuple[str, ...] = ("*",),
    ) -> list[dict[str, Any]]:
        """Return the rows of a table that meet a condition; none if the table does not exist.

        Columns that an older version of sparkwap has not created are None, and meet no condition.

        Raises:
            CatalogError: A file of the table is missing or damaged.
        """
        pointer = self.lake.store.backend.get((LEDGER_SCHEMA, table))
        if pointer is None:
            return []
        # A state of a table has one location, so what was read of it once is still right.
        question = (pointer.location, repr(condition), columns)
        found = self._answers.get(question)
        if found is None:
            loaded = self.lake.catalog.load_table((LEDGER_SCHEMA, table))
            present = {field.name for field in loaded.schema().fields}
            wanted = SCHEMAS[table].names if columns == ("*",) else columns
            missing = dict.fromkeys(name for name in wanted if name not in present)
            if condition is not None and not _columns_of(condition) <= present:
                return []
            kept = tuple(name for name in columns if name not in missing)
            scan = loaded.scan(condition or expressions.AlwaysTrue(), selected_fields=kept)
            try:
                rows = scan.to_arrow()
            except (OSError, EOFError, pa.ArrowException) as error:
                raise _unreadable(loaded, error) from error
            found = [{**row, **missing} for row in rows.to_pylist(maps_as_pydicts="strict")]
            if loaded.metadata_location == pointer.location and len(found) <= _KEPT_ROWS:
                self._keep(question, found)
        return [dict(row) for row in found]

    def _keep(self, question: tuple[Any, ...], answer: list[dict[str, Any]]) -> None:
        with self._lock:
            while len(self._answers) >= _KEPT_ANSWERS:
                del self._answers[next(iter(self._answers))]
            self._answers[question] = answer


class _Transaction(Transaction):
    """A transaction that computes its metadata once for each update.

    PyIceberg does so at each access: 18 times for one append, which is a third of its time.
    """

    _computed: tuple[Any, TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        if self._computed is None or self._computed[0] is not self._updates:
            self._computed = (self._updates, super().table_metadata)
        return self._computed[1]


def append_change(new: LedgerRows) -> TableChange:
    """Return the change that appends rows to their table."""
    schema = SCHEMAS[new.table]
    unknown = sorted({key for row in new.rows for key in row} - set(schema.names))
    if unknown:
        raise ValueError(f"unknown columns of {new.table}: {unknown}; known: {schema.names}")
    rows = [{key: _value(value) for key, value in row.items()} for row in new.rows]
    return TableChange(
        new.table,
        lambda transaction: transaction.append(pa.Table.from_pylist(rows, schema=schema)),
        rows,
    )


def _columns_of(condition: expressions.BooleanExpression) -> set[str]:
    if isinstance(condition, expressions.UnboundPredicate):
        assert isinstance(condition.term, expressions.Reference)
        return {condition.term.name}
    parts = [getattr(condition, part, None) for part in ("left", "right", "child")]
    return set[str]().union(*(_columns_of(part) for part in parts if part is not None))


def _unreadable(table: Table, error: Exception) -> CatalogError:
    name, reason = ".".join(table.name()[-2:]), str(error).splitlines()[0]
    with suppress(Exception):
        for task in table.scan().plan_files():
            size = len(table.io.new_input(task.file.file_path))
            if size != task.file.file_size_in_bytes:
                reason = f"{task.file.file_path} has {size} bytes: {reason}"
                break
    return CatalogError(
        f"The ledger's table {name} cannot be read: {reason}. Nothing was changed. If the store "
        "answers (`sparkwap doctor`), the file is damaged: restore it, or let the table go back to "
        f"a snapshot before it in Spark (`call <catalog>.system.rollback_to_snapshot('{name}', "
        f"<id>)`, ids in `{name}.snapshots`), without its later rows."
    )


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return list(value.items()) if isinstance(value, Mapping) else value


def _by_pyiceberg(table: Table, change: TableChange, files: list[str]) -> MetadataChange:
    transaction = _Transaction(table)
    change.make(transaction)
    grown = transaction.table_metadata
    former = {snapshot.snapshot_id for snapshot in table.snapshots()}
    for snapshot in grown.snapshots:
        if snapshot.snapshot_id not in former:
            files.extend(_new_files(table, snapshot))
    document = _document(grown)
    growth = difference(_document(table.metadata), document)
    return growth.remove_snapshots(old_snapshots(document))


def _new_files(table: Table, snapshot: Snapshot) -> list[str]:
    """Return the files that a snapshot added; they are deleted if the commit fails."""
    files = [snapshot.manifest_list]
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id == snapshot.snapshot_id:
            files.append(manifest.manifest_path)
            files.extend(
                entry.data_file.file_path
                for entry in manifest.fetch_manifest_entry(table.io)
                if entry.status == ManifestEntryStatus.ADDED
                and entry.snapshot_id == snapshot.snapshot_id
            )
    return files


def _document(metadata: TableMetadata) -> md.Document:
    return md.parse(metadata.model_dump_json(exclude_none=True).encode())
