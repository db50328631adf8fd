"""The result of a comparison of two states, also as JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal

from sparkwap.catalog.model import Identifier, Kind

Change = Literal["unchanged", "changed", "new", "dropped", "failed"]
"""The change of a table. ``failed``: it could not be compared, for the reason in its notes."""

RowChange = Literal["added", "removed", "changed"]

How = Literal["metadata", "rows", "files", "whole"]
"""The data that a comparison has compared: only metadata, rows whose row ids or sequence numbers
differ, the files that differ, or both states."""

JSON_VERSION = 1

Values = Mapping[str, str | None]
"""A row as texts by column, without hidden columns; None is NULL."""


@dataclass(frozen=True, slots=True)
class AddedColumn:
    """A column that only the new state has, with the numbers of NULLs and of other values."""

    name: str
    type: str
    nulls: int | None = None
    values: int | None = None


@dataclass(frozen=True, slots=True)
class RemovedColumn:
    """A column that only the old state has."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class RetypedColumn:
    """A column whose type changed.

    Attributes:
        before: Spark's type in the old state.
        after: Spark's type in the new state.
        compared: Whether its values are compared: as the wider number type, or as text.
    """

    name: str
    before: str
    after: str
    compared: bool


@dataclass(frozen=True, slots=True)
class RenamedColumn:
    """A column with the same Iceberg field id and another name; its values are compared."""

    before: str
    after: str


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """The differences of the columns."""

    added: tuple[AddedColumn, ...] = ()
    removed: tuple[RemovedColumn, ...] = ()
    retyped: tuple[RetypedColumn, ...] = ()
    renamed: tuple[RenamedColumn, ...] = ()

    def __bool__(self) -> bool:
        """Return whether any column differs."""
        return bool(self.added or self.removed or self.retyped or self.renamed)


@dataclass(frozen=True, slots=True)
class RowSample:
    """A row that differs.

    Attributes:
        count: Number of equal rows; 1 for a changed row.
        before: The old row; None for an added row.
        after: The new row; None for a removed row.
    """

    change: RowChange
    count: int
    before: Values | None = None
    after: Values | None = None


@dataclass(frozen=True, slots=True)
class TableDiff:
    """The differences of one table or view.

    Attributes:
        identifier: The name that readers use.
        kind: ``table`` or ``view`` in the new state; in the old state if it was dropped.
        schema: The differences of its columns; empty for a new or dropped table.
        added: Number of rows that only the new state has, duplicates counted.
        removed: Number of rows that only the old state has.
        changed: Number of rows with the same key and other values; 0 without a key.
        columns: Column -> number of changed rows in which it differs, if any.
        key: The key columns by which rows were paired; empty for none.
        samples: Some of the rows that differ.
        rows_before: Number of rows of the old state; None if metadata does not have it.
        rows_after: Number of rows of the new state; None if metadata does not have it.
    """

    identifier: Identifier
    kind: Kind
    change: Change
    schema: SchemaChange = field(default_factory=SchemaChange)
    added: int = 0
    removed: int = 0
    changed: int = 0
    columns: Mapping[str, int] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    samples: tuple[RowSample, ...] = ()
    rows_before: int | None = None
    rows_after: int | None = None
    how: How = "metadata"
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """Schema and name with a dot."""
        return ".".join(self.identifier)

    @property
    def rows(self) -> int:
        """The number of rows that differ."""
        return self.added + self.removed + self.changed

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "schema": self.identifier[0],
            "name": self.identifier[1],
            "kind": self.kind,
            "change": self.change,
            "columns": {
                **{kind: list(columns) for kind, columns in asdict(self.schema).items()},
                "changed": dict(self.columns),
                "hidden": list(self.hidden),
            },
            "rows": {
                "added": self.added,
                "removed": self.removed,
                "changed": self.changed,
                "before": self.rows_before,
                "after": self.rows_after,
            },
            "key": list(self.key),
            "samples": [asdict(sample) for sample in self.samples],
            "how": self.how,
            "notes": list(self.notes),
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True, slots=True)
class RunDiff:
    """The differences of all tables of a branch.

    Attributes:
        branch: The new state: an audit branch, tag or ``main``.
        against: The old state.
        tables: All tables and views, by name.
    """

    branch: str
    against: str
    at: datetime
    tables: tuple[TableDiff, ...]

    @property
    def differing(self) -> tuple[TableDiff, ...]:
        """The tables that differ or could not be compared, those with most changes first."""
        found = [table for table in self.tables if table.change != "unchanged"]
        return tuple(sorted(found, key=_weight))

    @property
    def unchanged(self) -> tuple[TableDiff, ...]:
        """The tables without differences and notes."""
        return tuple(t for t in self.tables if t.change == "unchanged" and not t.notes)

    @property
    def noted(self) -> tuple[TableDiff, ...]:
        """The tables without differences whose notes qualify this, as by columns not compared."""
        return tuple(t for t in self.tables if t.change == "unchanged" and t.notes)

    @property
    def failed(self) -> tuple[TableDiff, ...]:
        """The tables that could not be compared."""
        return tuple(table for table in self.tables if table.change == "failed")

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON; ``version`` grows when a field changes its meaning."""
        return {
            "version": JSON_VERSION,
            "branch": self.branch,
            "against": self.against,
            "at": self.at.isoformat(),
            "tables": [table.as_dict() for table in self.tables],
        }


def _weight(table: TableDiff) -> tuple[bool, int, bool, Identifier]:
    return table.change != "failed", -table.rows, not table.schema, table.identifier
