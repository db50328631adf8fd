"""Pairs the columns of two states of a table. Pure.

The comparison adds signs: each row of the new state counts +1, each row of the old state -1. Rows
whose sum is not 0 differ. A row of both states has the sum 0, so it is never wrong to read too many
files. Data files that both states have, with the same deletes, need not be read; this saves time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkwap.catalog.sparksql import inner_fields, type_text
from sparkwap.core.spark_types import exact_digits
from sparkwap.diff.model import (
    AddedColumn,
    RemovedColumn,
    RenamedColumn,
    RetypedColumn,
    SchemaChange,
)

IcebergType = str | Mapping[str, Any]

_WHOLE = ("tinyint", "smallint", "int", "bigint")  # from narrow to wide
_MOST_DIGITS = 38
# A double holds each number of so many digits.
_DIGITS_OF_DOUBLE = 15
# Spark cannot hash, cast or compare these types.
_OPAQUE = frozenset({"variant", "geometry", "geography", "unknown"})


@dataclass(frozen=True, slots=True)
class Column:
    """A column of Iceberg; its id stays when its name changes."""

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
        before: Its name in the old state.
        type: The type in which values are compared.
        cast: This type as text, if one of the two states has another type; else None.
        nullable: Whether a value may be NULL in either state.
        whole: Whether the text of a whole number is that of an integer, in both states.
    """

    name: str
    before: str
    type: IcebergType
    cast: str | None = None
    nullable: bool = True
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of two states.

    Attributes:
        compared: The columns of both states whose values can be compared.
        same_files: Whether a data file of both states has the same values in both: each compared
            column, and each field in it, has the same field id in both states.
    """

    compared: tuple[ComparedColumn, ...]
    change: SchemaChange
    same_files: bool
    notes: tuple[str, ...] = ()


def columns_of(schema: Mapping[str, Any]) -> tuple[Column, ...]:
    """Return the columns of a schema in Iceberg's metadata."""
    return tuple(
        Column(int(f["id"]), f["name"], f["type"], bool(f.get("required")))
        for f in schema.get("fields") or ()
    )


def match_columns(
    before: Sequence[Column], after: Sequence[Column], *, same_table: bool
) -> Columns:
    """Pair the columns of two states.

    Columns are paired by name, ignoring case as Spark does. A removed and an added column are
    paired if they have the same field id of the same table.
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
        pair = _compare(former, column)
        if former.spark_type != column.spark_type:
            retyped.append(
                RetypedColumn(column.name, former.spark_type, column.spark_type, pair is not None)
            )
        if pair is None:
            notes.append(f"values of {column.name} ({column.spark_type}) are not compared")
        else:
            compared.append(pair)
            if pair.cast == "string" and not pair.whole:
                notes.append(f"values of {column.name} are compared as text, so 1 and 1.0 differ")
    used = {column.id for column in pairs.values()}
    change = SchemaChange(
        tuple(AddedColumn(c.name, c.spark_type) for c in after if c.name not in pairs),
        tuple(RemovedColumn(c.name, c.spark_type) for c in before if c.id not in used),
        tuple(retyped),
        tuple(RenamedColumn(c.name, name) for name, c in renamed.items()),
    )
    names = {column.name for column in compared}
    now = {column.name: column for column in after}
    same = same_table and all(
        now[name].id == column.id
        and (name not in names or _nested_ids(now[name].type) == _nested_ids(column.type))
        for name, column in pairs.items()
    )
    return Columns(tuple(compared), change, same, tuple(notes))


def _compare(before: Column, after: Column) -> ComparedColumn | None:
    old, new = before.spark_type, after.spark_type
    nullable = not (before.required and after.required)
    if _is_opaque(before.type) or _is_opaque(after.type):
        return None
    if old == new:
        return ComparedColumn(after.name, before.name, after.type, None, nullable)
    if not (isinstance(before.type, str) and isinstance(after.type, str)):
        return None
    if "binary" in (old, new):
        return None
    common = _wider(old, new)
    # No type holds all numbers of both, but equal ones are whole: compared as texts of integers.
    whole = common is None and "bigint" in (old, new) and bool({"float", "double"} & {old, new})
    if common is None and not whole and _is_number(old) and _is_number(new):
        return None
    common = common or "string"
    return ComparedColumn(after.name, before.name, common, common, nullable, whole)


def _is_number(kind: str) -> bool:
    return kind in ("float", "double") or exact_digits(kind) is not None


def _is_opaque(kind: IcebergType) -> bool:
    """Return whether a type is opaque, or contains such a type."""
    if isinstance(kind, str):
        return kind.partition("(")[0] in _OPAQUE
    return any(_is_opaque(inner) for _, _, inner, _ in inner_fields(kind))


def _nested_ids(kind: IcebergType) -> list[Any]:
    """Return the ids of the fields in a nested type."""
    fields = inner_fields(kind)
    return [part for number, _, inner, _ in fields for part in (number, *_nested_ids(inner))]


def _wider(old: str, new: str) -> str | None:
    """Return the type that holds the values of both types exactly; None if there is none."""
    for narrow, wide in ((old, new), (new, old)):
        digits = exact_digits(narrow)
        few = digits is not None and digits[0] <= _DIGITS_OF_DOUBLE
        if wide == "double" and (narrow == "float" or few):
            return "double"
        # A float holds no decimal fraction exactly.
        if wide == "float" and narrow in _WHOLE and few:
            return "double"
        if narrow == "date" and wide in ("timestamp", "timestamp_ntz"):
            return wide
    if old in _WHOLE and new in _WHOLE:
        return max(old, new, key=_WHOLE.index)
    pairs = [exact_digits(kind) for kind in (old, new)]
    if None in pairs:
        return None
    (left, scale), (other, fraction) = (pair for pair in pairs if pair is not None)
    scale, whole = max(scale, fraction), max(left - scale, other - fraction)
    return f"decimal({whole + scale},{scale})" if whole + scale <= _MOST_DIGITS else None


def key_in(key: Collection[str], columns: Columns) -> tuple[str, ...]:
    """Return the names of the key in the new state; empty unless all its columns are compared."""
    names = {column.name.lower(): column for column in columns.compared}
    found = [names.get(name.lower()) for name in key]
    plain = [column.name for column in found if column and isinstance(column.type, str)]
    return tuple(plain) if key and len(plain) == len(key) else ()
