"""What differs between two states of a lake's tables, and its form as JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from sparkwap.catalog.model import Identifier, Kind

Change = Literal["unchanged", "changed", "new", "dropped", "failed"]
"""What became of a table. ``failed``: it could not be compared; its notes say why."""

RowChange = Literal["added", "removed", "changed"]

How = Literal["metadata", "files", "whole"]
"""What a comparison has read: metadata only; the files that differ; both states as a whole."""

JSON_VERSION = 1

Values = Mapping[str, str | None]
"""A row as texts by column; None is NULL. Hidden columns are not in it."""


@dataclass(frozen=True, slots=True)
class AddedColumn:
    """A column that only the new state has; how many of its values are NULL, and how many not."""

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
        name: Its name.
        before: Spark's type in the old state.
        after: That in the new one.
        compared: Whether its values are compared: as the wider number, or as text.
    """

    name: str
    before: str
    after: str
    compared: bool


@dataclass(frozen=True, slots=True)
class RenamedColumn:
    """A column that Iceberg knows under another name now; its values are compared."""

    before: str
    after: str


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """How the columns differ."""

    added: tuple[AddedColumn, ...] = ()
    removed: tuple[RemovedColumn, ...] = ()
    retyped: tuple[RetypedColumn, ...] = ()
    renamed: tuple[RenamedColumn, ...] = ()

    def __bool__(self) -> bool:
        """Whether they differ at all."""
        return bool(self.added or self.removed or self.retyped or self.renamed)


@dataclass(frozen=True, slots=True)
class RowSample:
    """One row that differs.

    Attributes:
        change: What became of it.
        count: How many rows like it; 1 for a changed one.
        before: The old row; None for an added one.
        after: The new row; None for a removed one.
    """

    change: RowChange
    count: int
    before: Values | None = None
    after: Values | None = None


@dataclass(frozen=True, slots=True)
class TableDiff:
    """How one table or view differs.

    Attributes:
        identifier: The name that readers use.
        kind: What it is now; what it was, for a dropped one.
        change: What became of it.
        schema: How its columns differ; empty for a new or dropped one.
        added: Rows that only the new state has, duplicates counted.
        removed: Rows that only the old state has.
        changed: Rows of one key that differ in other columns; 0 where there is no key.
        columns: In how many of the changed rows a column differs, for those where some do.
        key: By which columns rows were paired; empty for none.
        hidden: Columns whose values are not shown.
        samples: Some of the rows that differ.
        rows_before: Rows of the old state; None where metadata does not tell.
        rows_after: Those of the new one.
        how: What was read.
        notes: What its reader has to know, in words.
        seconds: How long the comparison took.
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
        """How many rows differ."""
        return self.added + self.removed + self.changed

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "schema": self.identifier[0],
            "name": self.identifier[1],
            "kind": self.kind,
            "change": self.change,
            "columns": {
                "added": [_plain(one) for one in self.schema.added],
                "removed": [_plain(one) for one in self.schema.removed],
                "retyped": [_plain(one) for one in self.schema.retyped],
                "renamed": [_plain(one) for one in self.schema.renamed],
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
            "samples": [
                {
                    "change": one.change,
                    "count": one.count,
                    "before": None if one.before is None else dict(one.before),
                    "after": None if one.after is None else dict(one.after),
                }
                for one in self.samples
            ],
            "how": self.how,
            "notes": list(self.notes),
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True, slots=True)
class RunDiff:
    """How all tables of a branch differ from what they are compared with.

    Attributes:
        branch: The new state: an audit branch, tag or ``main``.
        against: The old state.
        at: When they were compared.
        tables: Each table and view, by name.
    """

    branch: str
    against: str
    at: datetime
    tables: tuple[TableDiff, ...]

    @property
    def differing(self) -> tuple[TableDiff, ...]:
        """Those that differ or could not be compared, the ones with most changes first."""
        found = [one for one in self.tables if one.change != "unchanged"]
        return tuple(sorted(found, key=_weight))

    @property
    def unchanged(self) -> tuple[TableDiff, ...]:
        """Those that are the same."""
        return tuple(one for one in self.tables if one.change == "unchanged")

    @property
    def failed(self) -> tuple[TableDiff, ...]:
        """Those that could not be compared."""
        return tuple(one for one in self.tables if one.change == "failed")

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; ``version`` grows when a field changes its meaning."""
        return {
            "version": JSON_VERSION,
            "branch": self.branch,
            "against": self.against,
            "at": self.at.isoformat(),
            "tables": [one.as_dict() for one in self.tables],
        }

    def to_json(self) -> str:
        """As JSON."""
        return json.dumps(self.as_dict(), indent=2, ensure_ascii=False)


def _plain(one: Any) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__dataclass_fields__}


def _weight(one: TableDiff) -> tuple[bool, int, bool, Identifier]:
    return one.change != "failed", -one.rows, not one.schema, one.identifier
