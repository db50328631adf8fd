"""Which columns' values are not shown. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase

from sparkwap.catalog.model import Identifier

MARKS = ("subject", "personal", "sensitive")
"""A column with one of these in its ``meta``, and not false, is hidden."""

RAW = frozenset({"_raw", "raw_text"})
"""Columns that have a whole row of a landing file as text, and so whatever is in it."""


@dataclass(frozen=True)
class Hidden:
    """The columns whose values are not shown.

    Attributes:
        marked: Names of marked columns, in lower case. A column of this name is hidden in every
            table: what is copied downstream is as personal as where it came from.
        patterns: Those of the setting ``wap_diff_hide``: ``column``, ``table.column`` or
            ``schema.table.column``, in which ``*`` stands for anything.
    """

    marked: frozenset[str] = RAW
    patterns: tuple[str, ...] = ()

    def hides(self, identifier: Identifier, column: str) -> bool:
        """Whether the values of a column of a table are hidden."""
        name = column.lower()
        if name in self.marked:
            return True
        schema, table = (part.lower() for part in identifier)
        names = (name, f"{table}.{name}", f"{schema}.{table}.{name}")
        return any(fnmatchcase(one, p.lower()) for p in self.patterns for one in names)

    def of(self, identifier: Identifier, columns: Collection[str]) -> tuple[str, ...]:
        """Those of the columns that are hidden."""
        return tuple(name for name in columns if self.hides(identifier, name))
