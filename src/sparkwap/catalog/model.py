"""What the catalog tells and takes: identifiers, states, publish items, receipts, refusals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from sparkwap.core.errors import CatalogError, PublishError

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


def _listed(head: str, mismatches: Sequence[Mismatch], way_on: str) -> str:
    lines = "".join(f"\n  {mismatch}" for mismatch in mismatches)
    return f"{head}{lines}\n{way_on}"


class PublishRefused(PublishError):
    """The tables are not what was audited; nothing was published, nothing has changed.

    Attributes:
        mismatches: Each thing that differs, with what was expected and found.
    """

    def __init__(self, mismatches: Sequence[Mismatch]) -> None:
        self.mismatches = tuple(mismatches)
        way_on = "build and audit it again, on main as it is now."
        if any(mismatch.kind == "alike" for mismatch in mismatches):
            way_on = (
                "a reader could take one of these names for the other. Give one of them another "
                "`alias` or schema, and build the branch again; or drop in Spark what nobody reads "
                "any more, and publish the branch again: dbt run-operation wap_publish."
            )
        super().__init__(
            _listed(
                "Nothing was published: the catalog no longer holds what was audited.",
                self.mismatches,
                f"The audit branch is untouched: {way_on}",
            )
        )


class RollbackRefused(PublishError):
    """Tables moved on since the publish; nothing was rolled back, nothing has changed.

    Attributes:
        mismatches: Each thing that differs, with what was expected and found.
    """

    def __init__(self, mismatches: Sequence[Mismatch]) -> None:
        self.mismatches = tuple(mismatches)
        super().__init__(
            _listed(
                "Nothing was rolled back: the catalog no longer holds what was published.",
                self.mismatches,
                "All tables stand as they were. Roll back the later publish first with "
                "`dbt run-operation wap_rollback`, or repair the tables by a new run.",
            )
        )

    def told(self, text: str) -> RollbackRefused:
        """The same refusal in the words of somebody who knows more."""
        better = RollbackRefused(self.mismatches)
        better.args = (text,)
        return better


class PublishTorn(PublishError):
    """A publish on a catalog without transactions could neither be completed nor wholly undone.

    Attributes:
        mismatches: What could not be moved, with what was expected and found.
        stayed: The tables that are published, as others have moved them on already.
    """

    def __init__(
        self, publish_id: str, mismatches: Sequence[Mismatch], stayed: Sequence[Identifier]
    ) -> None:
        self.mismatches = tuple(mismatches)
        self.stayed = tuple(stayed)
        kept = ", ".join(".".join(name) for name in stayed)
        super().__init__(
            _listed(
                f"The publish {publish_id} was undone in part: others moved main of one table "
                f"while another was on its way, and wrote on what was published of: {kept}. All "
                "rows that readers see were audited, but not all of this run. Not published:",
                self.mismatches,
                "Build again with `dbt build`: it starts from main as it is now, and publishes "
                f"all tables together. In {kept} the rows of this run are there already: a model "
                "that appends without a unique key would add them once more, so leave it out by "
                "`--exclude`.",
            )
        )


class RollbackTorn(PublishError):
    """A rollback on a catalog without transactions left tables that others moved on meanwhile.

    Attributes:
        mismatches: What was not moved back, with what was expected and found.
        back: The tables and views that readers see as before the publish.
    """

    def __init__(
        self, publish_id: str, mismatches: Sequence[Mismatch], back: Sequence[Identifier]
    ) -> None:
        self.publish_id = publish_id
        self.mismatches = tuple(mismatches)
        self.back = tuple(back)
        moved = ", ".join(".".join(name) for name in back)
        super().__init__(
            _listed(
                f"The publish {publish_id} was rolled back in part: {moved} are as before it. "
                "Others moved these on meanwhile, and they still have what was published:",
                self.mismatches,
                "See what came since and the ways on with `dbt run-operation wap_rollback --args "
                f"'{{run: {publish_id}}}'`: it takes what is left, and changes nothing while "
                "others' rows are on it.",
            )
        )

    def told(self, text: str) -> RollbackTorn:
        """The same in the words of somebody who knows more."""
        better = RollbackTorn(self.publish_id, self.mismatches, self.back)
        better.args = (text,)
        return better


class CommitUnknown(CatalogError):
    """The database did not say whether the transaction was committed."""


class PublishUnverified(CatalogError):
    """A publish was committed, and what was read after it is not what was published."""
