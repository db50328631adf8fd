"""The types of the catalog: identifiers, states, candidates, receipts, mismatches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from sparkwap.core.names import side_schema

Identifier = tuple[str, str]
"""``(schema, name)`` of a table or view, without the catalog's name."""

Kind = Literal["table", "view"]
How = Literal["branch", "clone", "new", "view", "replace"]

Difference = Literal[
    "main", "table", "definition", "standing", "read", "alike",
    "branch", "side", "history", "tag", "other",
]  # fmt: skip
"""The kind of a difference between the audited state and the present state.

On the readers' side: ``main`` has moved; the ``table`` is another table or missing; its
``definition`` has changed; another object is ``standing`` under the name; a table that was only
``read`` has changed; the lake has a name that differs in case only (``alike``). On the audit's
side: the head of the ``branch``, the ``side`` object, the ``history`` of the branch, or the ``tag``
of the receipt differs."""


@dataclass(frozen=True, slots=True)
class ColumnState:
    """A column as ``describe`` shows it.

    Attributes:
        type: Spark SQL type text: ``bigint``, ``decimal(10,2)``, ``array<struct<a:int>>``.
        required: True if the column is declared ``not null``.
        doc: The column's comment, or None.
    """

    name: str
    type: str
    required: bool
    doc: str | None


@dataclass(frozen=True, slots=True)
class RefState:
    """A branch or tag, and its snapshot."""

    snapshot_id: int
    type: Literal["branch", "tag"]


@dataclass(frozen=True, slots=True)
class TableState:
    """A table or view as one metadata file describes it.

    Attributes:
        kind: ``table`` or ``view``; a view has no snapshots, refs or layout.
        uuid: The identity, which a rename does not change, and which a clone shares.
        location: The folder of the table's files.
        main: The snapshot id of ``main``; None if the table has no snapshot.
        refs: Branches and tags by name, with ``main``.
        partitioning: Spark DDL terms: ``days(ts)``, ``region``, ``bucket(16, id)``.
        sort_order: Spark DDL terms: ``a asc nulls first``.
        properties: Table properties, with ``comment``.
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
    """The head snapshot of a branch, its parent, and the run that wrote it, as far as known."""

    snapshot_id: int
    parent: int | None
    run_id: str | None


@dataclass(frozen=True, slots=True)
class OpenedBranch:
    """An audit branch that a run can write to.

    Attributes:
        base: The snapshot of ``main`` that the branch started from; None if the table had none.
        head: The head snapshot of the branch; None for a table without snapshots, where Spark
            creates the branch with the first write.
        created: True if this call opened the branch.
    """

    base: int | None
    head: int | None
    created: bool


class OpenTable(NamedTuple):
    """A table with an open audit branch.

    ``created_ms`` is the time of the first snapshot of the branch, or, without a snapshot, of the
    last change of the table's metadata; in milliseconds since the epoch.
    """

    identifier: Identifier
    base: int | None
    head: int | None
    main_now: int | None
    created_ms: int


class SideObject(NamedTuple):
    """A table or view in a side schema; ``identifier`` is its name there."""

    identifier: Identifier
    kind: Kind


@dataclass(frozen=True, slots=True)
class OpenBranch:
    """An audit branch, with its tables and side objects."""

    branch: str
    tables: tuple[OpenTable, ...]
    side: tuple[SideObject, ...]


@dataclass(frozen=True, slots=True)
class Discarded:
    """The result of a discard.

    Attributes:
        tables: The tables that had the branch.
        side: The members of its side schemas.
        kept: Schemas of users with names like side schemas of the branch, which were not dropped.
    """

    branch: str
    tables: tuple[Identifier, ...]
    side: tuple[SideObject, ...]
    schemas: tuple[str, ...]
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LedgerRows:
    """Rows for one of the ledger's tables, as ``{column: value}``; missing columns are null."""

    table: str
    rows: Sequence[Mapping[str, Any]]


def merge_rows(appends: Iterable[LedgerRows]) -> list[LedgerRows]:
    """Return one append for each table, because a transaction moves each pointer only once."""
    merged: dict[str, list[Mapping[str, Any]]] = {}
    for append in appends:
        merged.setdefault(append.table, []).extend(append.rows)
    return [LedgerRows(table, rows) for table, rows in merged.items() if rows]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A table or view on an audit branch: where it is built, and what is published of it.

    Made when a node is placed. Its build adds the token, or the problem that stops a publish.

    Attributes:
        identifier: ``(schema, name)`` under which it is published.
        how: ``branch`` of the live table, or ``side`` for an object in the side schema: a new
            table, a clone, a view, a replacement.
        base: The snapshot of ``main`` that the branch or clone started from; None without one.
        base_metadata: The metadata file of the live object at the start; None without one. The
            publish requires it of side objects, except for a clone, which has ``main`` and the
            definition of its base to compare with.
        token: The state to publish: the snapshot id of a branch, or the metadata file of a side
            object; None until the build has ended.
        problem: An invariant that did not hold, in words; None if all held.
        since: The snapshot before the present run wrote; None without one.
        changes: The differences from the live table, in words; empty for a branch.
    """

    identifier: Identifier
    branch: str
    how: Literal["branch", "side"]
    base: int | None = None
    base_metadata: str | None = None
    token: str | None = None
    problem: str | None = None
    since: int | None = None
    changes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The live name, for messages."""
        return ".".join(self.identifier)

    @property
    def place(self) -> Identifier:
        """The name of the object that has the rows: the live table, or the side object."""
        schema, name = self.identifier
        return self.identifier if self.how == "branch" else (side_schema(schema, self.branch), name)

    @property
    def head(self) -> int:
        """The snapshot of a candidate on a branch."""
        if self.how != "branch":
            raise ValueError(f"{self.name} is not on a branch")
        return int(str(self.token))


@dataclass(frozen=True, slots=True)
class PublishedEntry:
    """One table or view of a publish, with all facts that a rollback needs.

    Attributes:
        how: ``branch``: ``main`` moved. ``clone``: the table got the metadata of its clone.
            ``new``: a new table. ``view``: a new view, or one that replaced a view. ``replace``:
            the object replaced another table or view.
        base: The snapshot of ``main`` before; None if there was none.
        base_metadata_location: The metadata file before; None if there was no object.
        candidate: The snapshot of ``main`` after; None for views and empty tables.
        published_metadata_location: The metadata file after.
    """

    identifier: Identifier
    how: How
    base: int | None
    base_metadata_location: str | None
    candidate: int | None
    published_metadata_location: str


@dataclass(frozen=True, slots=True)
class Read:
    """A table or view that a run has read but not built, and its `read_dependencies.token` then."""

    identifier: Identifier
    token: str


@dataclass(frozen=True, slots=True)
class PublishReceipt:
    """The result of a publish, for people, the ledger and a rollback.

    ``moved_reads`` are the tables that changed after the run had read them (without
    ``strict_reads``).
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
    """A publish that a rollback undoes, for the ledger, with all its tables and views."""

    publish_id: str
    branch: str
    entries: tuple[PublishedEntry, ...]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A difference between the expected state and the present state.

    Attributes:
        what: The part that differs, in words: ``main``, ``audit branch 'x'``, ``definition``, ...
        expected: The expected state, in words.
        found: The present state, in words.
        kind: The kind of the difference, for decisions.
    """

    identifier: Identifier
    what: str
    expected: str
    found: str
    kind: Difference = "other"

    def __str__(self) -> str:
        name = ".".join(self.identifier)
        return f"{name}: {self.what}: expected {self.expected}, found {self.found}"
