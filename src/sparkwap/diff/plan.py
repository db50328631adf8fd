"""How to compare two states of a table: which columns, and which files need to be read. Pure.

The comparison adds up signs: each row of the new state counts +1, each row of the old one -1, and
what does not add up to 0 differs. A row that both states hold cancels out, so reading more than
what differs is never wrong, and what both have in common need not be read at all: data files that
both states hold with the same deletes. That is where the time is saved.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sparkwap.catalog.sparksql import type_text
from sparkwap.diff.model import (
    AddedColumn,
    RemovedColumn,
    RenamedColumn,
    RetypedColumn,
    SchemaChange,
)

IcebergType = str | Mapping[str, Any]

_WHOLE = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_MOST_DIGITS = 38
# Spark cannot hash, cast or compare them.
_OPAQUE = ("variant", "geometry", "geography", "void")


@dataclass(frozen=True, slots=True)
class Column:
    """A column as Iceberg has it: the id stays when its name changes."""

    id: int
    name: str
    type: IcebergType
    required: bool = False

    @property
    def spark_type(self) -> str:
        """Its type in Spark."""
        return type_text(self.type)


@dataclass(frozen=True, slots=True)
class ComparedColumn:
    """A column that both states have.

    Attributes:
        name: Its name in the new state.
        before: Its name in the old one.
        type: The type in which values are compared.
        cast: That type's text, where one of the two states has another type; else None.
        nullable: Whether a value may be NULL in either state.
    """

    name: str
    before: str
    type: IcebergType
    cast: str | None = None
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Columns:
    """What becomes of the columns.

    Attributes:
        compared: Those that both states have and whose values can be compared.
        change: How the columns differ.
        same_files: Whether a data file that both states hold has the same rows in both, as far as
            the compared columns go: each of them has the same field id in both.
        notes: What the reader has to know.
    """

    compared: tuple[ComparedColumn, ...]
    change: SchemaChange
    same_files: bool
    notes: tuple[str, ...] = ()


def columns_of(schema: Mapping[str, Any]) -> tuple[Column, ...]:
    """The columns of a schema in Iceberg's metadata."""
    return tuple(
        Column(int(f["id"]), f["name"], f["type"], bool(f.get("required")))
        for f in schema.get("fields") or ()
    )


def match_columns(
    before: Sequence[Column], after: Sequence[Column], *, same_table: bool
) -> Columns:
    """Pair the columns of two states: by name without regard to case, as Spark does; a column
    that is gone with one that is new, if both have one field id of one table.

    Args:
        before: Columns of the old state.
        after: Columns of the new one.
        same_table: Whether both are states of one table, so that field ids mean the same.
    """
    old = {column.name.lower(): column for column in before}
    pairs = {c.name: old[c.name.lower()] for c in after if c.name.lower() in old}
    kept = {column.id for column in pairs.values()}
    gone = {c.id: c for c in before if c.id not in kept} if same_table else {}
    renamed = {c.name: gone[c.id] for c in after if c.name not in pairs and c.id in gone}
    pairs |= renamed
    compared: list[ComparedColumn] = []
    retyped: list[RetypedColumn] = []
    notes: list[str] = []
    for column in after:
        former = pairs.get(column.name)
        if former is None:
            continue
        one = _compare(former, column)
        if former.spark_type != column.spark_type:
            retyped.append(
                RetypedColumn(column.name, former.spark_type, column.spark_type, one is not None)
            )
        if one is None:
            notes.append(f"values of {column.name} ({column.spark_type}) are not compared")
        else:
            compared.append(one)
    used = {column.id for column in pairs.values()}
    change = SchemaChange(
        tuple(AddedColumn(c.name, c.spark_type) for c in after if c.name not in pairs),
        tuple(RemovedColumn(c.name, c.spark_type) for c in before if c.id not in used),
        tuple(retyped),
        tuple(RenamedColumn(c.name, name) for name, c in renamed.items()),
    )
    ids = {column.name: column.id for column in after}
    same = same_table and all(ids[name] == column.id for name, column in pairs.items())
    return Columns(tuple(compared), change, same, tuple(notes))


def _compare(before: Column, after: Column) -> ComparedColumn | None:
    old, new = before.spark_type, after.spark_type
    nullable = not (before.required and after.required)
    if any(word in kind for kind in (old, new) for word in _OPAQUE):
        return None
    if old == new:
        return ComparedColumn(after.name, before.name, after.type, None, nullable)
    if not (isinstance(before.type, str) and isinstance(after.type, str)):
        return None
    if "binary" in (old, new):
        return None
    common = _wider(old, new) or "string"
    return ComparedColumn(after.name, before.name, common, common, nullable)


def _wider(old: str, new: str) -> str | None:
    """The number type that holds the values of both, exactly; None if there is none."""
    if {old, new} == {"float", "double"}:
        return "double"
    if old in _WHOLE and new in _WHOLE:
        return max(old, new, key=lambda kind: _WHOLE[kind])
    digits = [_digits(kind) for kind in (old, new)]
    if None in digits:
        return None
    (left, scale), (other, fraction) = (one for one in digits if one is not None)
    scale, whole = max(scale, fraction), max(left - scale, other - fraction)
    return f"decimal({whole + scale},{scale})" if whole + scale <= _MOST_DIGITS else None


def _digits(kind: str) -> tuple[int, int] | None:
    """Precision and scale of an exact number type."""
    if kind in _WHOLE:
        return _WHOLE[kind], 0
    found = _DECIMAL.fullmatch(kind)
    return (int(found[1]), int(found[2])) if found else None


# ---------------------------------------------------------------- files


@dataclass(frozen=True, slots=True)
class DataFile:
    """A live data file of a state.

    Attributes:
        path: Where it is.
        sequence: Its data sequence number: only later deletes concern it.
    """

    path: str
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A live delete file, or one deletion vector in a file of several.

    Attributes:
        path: Where it is.
        offset: Where in the file a deletion vector begins; None for a file of its own.
        target: The one data file whose rows it deletes; None if there may be several.
        equality: Whether it names rows by their values, not by their positions.
        sequence: Its data sequence number.
    """

    path: str
    offset: int | None = None
    target: str | None = None
    equality: bool = False
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class StateFiles:
    """Files of a state; those of manifests that both states have may be left out."""

    data: tuple[DataFile, ...] = ()
    deletes: tuple[DeleteFile, ...] = ()


@dataclass(frozen=True, slots=True)
class FilePlan:
    """Which files to read.

    Attributes:
        read: ``nothing``: all rows are the same. ``parts``: what is named below. ``whole``: both
            states, as deletes differ that may concern any file.
        removed: Data files that only the old state holds.
        added: Data files that only the new one holds.
        touched: Data files of both, with deletes that differ: rows deleted in the new state are
            gone, rows deleted in the old one are not to be counted as gone.
    """

    read: Literal["nothing", "parts", "whole"]
    removed: frozenset[str] = frozenset()
    added: frozenset[str] = frozenset()
    touched: frozenset[str] = frozenset()


NOTHING = FilePlan("nothing")
WHOLE = FilePlan("whole")


def plan_files(before: StateFiles, after: StateFiles) -> FilePlan:
    """Which files need to be read to know how the rows of two states differ.

    A data file is never changed, so the same path means the same rows but for its deletes. Whose
    rows a delete file deletes is known if it names the one data file; if one that differs may
    concern several, everything is read.
    """
    old, new = set(before.data), set(after.data)
    differing = set(before.deletes) ^ set(after.deletes)
    loose = [one for one in differing if one.equality or one.target is None]
    if loose:
        return WHOLE
    removed, added = _paths(old - new), _paths(new - old)
    targets = {one.target for one in differing if one.target is not None}
    # A delete of a file that only one state holds is read along with that file.
    touched = frozenset(targets - removed - added)
    if not (removed or added or touched):
        return NOTHING
    return FilePlan("parts", removed, added, touched)


def _paths(files: Iterable[DataFile]) -> frozenset[str]:
    return frozenset(file.path for file in files)


# ---------------------------------------------------------------- keys and hidden columns


def key_in(key: Collection[str], columns: Columns) -> tuple[str, ...]:
    """The key as the new state names it; empty unless it is compared in whole, as it is."""
    names = {one.name.lower(): one for one in columns.compared}
    found = [names.get(name.lower()) for name in key]
    plain = [one.name for one in found if one is not None and isinstance(one.type, str)]
    return tuple(plain) if key and len(plain) == len(key) else ()
