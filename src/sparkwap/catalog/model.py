"""What the catalog tells and takes: identifiers, states, publish items, receipts, refusals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

Identifier = tuple[str, str]
"""``(schema, name)`` of a table or view, without the catalog's name."""

Kind = Literal["table", "view"]
How = Literal["branch", "clone", "new", "view", "replace"]

Difference = Literal[
    "main",
    "table",
    "definition",
    "standing",
    "read",
    "alike",
    "branch",
    "side",
    "history",
    "tag",
    "other",
]
"""What is not as it was. Of readers' side: ``main`` is elsewhere, the ``table`` is another one or
none, its ``definition`` changed, something else is ``standing`` under the name, a table that was
only ``read`` moved, a name that differs in case only stands in the lake (``alike``). Of the audit's
side: the ``branch`` head, the ``side`` object, the ``history`` of the branch, the ``tag`` of the
receipt."""


@dataclass(frozen=True, slots=True)
class ColumnState:
    """A column as ``describe`` shows it.

    Attributes:
        name: The column's name.
        type: Spark SQL type text: ``bigint``, ``decimal(10,2)``, ``array<struct<a:int>>``.
        required: True where the column is declared ``not null``.
        doc: The column's comment, or None.
    """

    name: str
    type: str
    required: bool
    doc: str | None


@dataclass(frozen=True, slots=True)
class RefState:
    """A branch or tag: the snapshot it names, and which of the two it is."""

    snapshot_id: int
    type: Literal["branch", "tag"]


@dataclass(frozen=True, slots=True)
class TableState:
    """A table or view as one metadata file describes it.

    Attributes:
        identifier: Schema and name.
        kind: ``table`` or ``view``; a view has no snapshots, refs or layout.
        uuid: Identity that survives a rename, and that a clone shares with its table.
        metadata_location: The metadata file the catalog points to.
        location: The folder of the table's files.
        main: Snapshot id of ``main``; None while the table has none.
        refs: Branches and tags by name, ``main`` included.
        columns: In order.
        partitioning: Spark DDL terms: ``days(ts)``, ``region``, ``bucket(16, id)``.
        sort_order: Spark DDL terms: ``a asc nulls first``.
        properties: Table properties, ``comment`` included.
        format_version: Iceberg's format version.
        comment: The table's comment, or None.
    """

    identifier: Identifier
    kind: Kind
    uuid: str
    metadata_location: str
    location: str
    main: int | None
    refs: Mapping[str, RefState]
    columns: tuple[ColumnState, ...]
    partitioning: tuple[str, ...]
    sort_order: tuple[str, ...]
    properties: Mapping[str, str]
    format_version: int
    comment: str | None


class Head(NamedTuple):
    """The snapshot that a branch is at, its parent, and the run that wrote it, as far as known."""

    snapshot_id: int
    parent: int | None
    run_id: str | None


@dataclass(frozen=True, slots=True)
class OpenedBranch:
    """An audit branch ready to be written.

    Attributes:
        base: Snapshot of ``main`` that the branch started from; None for a table that had none.
        head: Snapshot the branch is at; None while it does not exist, which is so only for a
            table without snapshots: Spark creates the branch with the first write.
        created: True when this call opened it.
    """

    base: int | None
    head: int | None
    created: bool


class OpenTable(NamedTuple):
    """A table with an open audit branch.

    ``created_ms`` is when the first snapshot of the branch was written, or, while there is none,
    when the table's metadata was last changed; milliseconds since the epoch.
    """

    identifier: Identifier
    base: int | None
    head: int | None
    main_now: int | None
    created_ms: int


class SideObject(NamedTuple):
    """A table or view in a side schema; ``identifier`` names it there."""

    identifier: Identifier
    kind: Kind


@dataclass(frozen=True, slots=True)
class OpenBranch:
    """An audit branch and all that exists on it."""

    branch: str
    tables: tuple[OpenTable, ...]
    side: tuple[SideObject, ...]


@dataclass(frozen=True, slots=True)
class Discarded:
    """What a discard dropped.

    Attributes:
        branch: The audit branch.
        tables: Tables that had it.
        side: Members of its side schemas.
        schemas: Its side schemas.
        kept: Schemas whose names end like side schemas of the branch but which were not made as
            such, and so were left alone.
    """

    branch: str
    tables: tuple[Identifier, ...]
    side: tuple[SideObject, ...]
    schemas: tuple[str, ...]
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LedgerRows:
    """Rows for one of the ledger's tables, as ``{column: value}``; absent columns are null."""

    table: str
    rows: Sequence[Mapping[str, Any]]


def merge_rows(appends: Iterable[LedgerRows]) -> list[LedgerRows]:
    """One append for each table, as a transaction moves each table's pointer once."""
    merged: dict[str, list[Mapping[str, Any]]] = {}
    for append in appends:
        merged.setdefault(append.table, []).extend(append.rows)
    return [LedgerRows(table, rows) for table, rows in merged.items() if rows]


@dataclass(frozen=True, slots=True)
class BranchItem:
    """Publish the audit branch of a table.

    Attributes:
        identifier: The live table.
        branch: The audit branch.
        base: What ``main`` must be; None for a table that had no snapshot.
        candidate: What the branch's head must be; it becomes ``main``.
    """

    identifier: Identifier
    branch: str
    base: int | None
    candidate: int


@dataclass(frozen=True, slots=True)
class SideItem:
    """Publish an object of a side schema.

    Attributes:
        identifier: The name that readers use.
        side_schema: Where the object stands, under the same name.
        candidate: The metadata file that the object must be at.
        expected: Metadata file that must stand at ``identifier``, None for nothing. Clones ignore
            it: they compare ``main`` and the definition with what they grew out of, so that
            another run's branch or tag on the live table does not stop them.
    """

    identifier: Identifier
    side_schema: str
    candidate: str
    expected: str | None = None


Item = BranchItem | SideItem


@dataclass(frozen=True, slots=True)
class PublishedEntry:
    """One table or view of a publish; what a rollback needs.

    Attributes:
        identifier: The live table or view.
        how: ``branch``: ``main`` moved. ``clone``: the table's metadata was replaced by that of
            its clone. ``new``: nothing stood there. ``view``: a view, over a view or nothing.
            ``replace``: another table or view stood there.
        base: Snapshot of ``main`` before, None where there was none.
        base_metadata_location: Metadata file before, None where nothing stood there.
        candidate: Snapshot of ``main`` after, None for views and empty tables.
        published_metadata_location: Metadata file after.
    """

    identifier: Identifier
    how: How
    base: int | None
    base_metadata_location: str | None
    candidate: int | None
    published_metadata_location: str


@dataclass(frozen=True, slots=True)
class Read:
    """A table or view that was read, not built, and what it was then.

    Attributes:
        identifier: The name that it was read by.
        token: What stood there, see `sparkwap.catalog.read_dependencies.token`.
    """

    identifier: Identifier
    token: str


@dataclass(frozen=True, slots=True)
class PublishReceipt:
    """What a publish did, for people, the ledger and a rollback.

    ``moved_reads`` are those of the tables read that are no longer what they were, where the
    publish was not told to be strict about them.
    """

    publish_id: str
    run_id: str
    branch: str
    tag: str
    published_at: datetime
    entries: tuple[PublishedEntry, ...]
    moved_reads: tuple[Mismatch, ...] = ()


@dataclass(frozen=True, slots=True)
class UndonePublish:
    """A publish that a rollback undoes, as the ledger will have it.

    Attributes:
        publish_id: The publish.
        branch: Its audit branch.
        entries: All tables and views of it.
    """

    publish_id: str
    branch: str
    entries: tuple[PublishedEntry, ...]


@dataclass(frozen=True, slots=True)
class RollbackReceipt:
    """What a rollback moved back: the entries of the publish that it undid."""

    publish_id: str
    run_id: str
    rolled_back_at: datetime
    entries: tuple[PublishedEntry, ...]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One thing that is not as it was when it was audited.

    Attributes:
        identifier: The live table or view.
        what: ``main``, ``audit branch 'x'``, ``side object``, ``definition``, ... in words.
        expected: What it had to be, in words.
        found: What it is, in words.
        kind: What differs, for decisions.
    """

    identifier: Identifier
    what: str
    expected: str
    found: str
    kind: Difference = "other"

    def __str__(self) -> str:
        name = ".".join(self.identifier)
        return f"{name}: {self.what}: expected {self.expected}, found {self.found}"
