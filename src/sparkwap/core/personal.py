"""Which values are personal: one list of marks, for all that shows values or finds them.

A column is personal if its ``meta`` has one of `MARKS`; a table is as a whole if its own ``meta``
has one of `OF_TABLES`. Alerts, data diffs, comments on pull requests, the page and the report show
none of their values; an erasure (``docs/erasure.md``) goes by the first three, which name the
subject.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

SUBJECT, PERSONAL, SUBJECT_TEXT = "subject", "personal", "subject_text"
OF_TABLES = ("sensitive", "pii")
MARKS = (SUBJECT, PERSONAL, SUBJECT_TEXT, *OF_TABLES)
RAW_ROW, QUARANTINED_ROW = "_raw", "raw_text"
RAW_TEXT = frozenset({RAW_ROW, QUARANTINED_ROW})
"""Columns with whole rows of landing files as text: nobody knows what is in it."""

WHOLE = "*"
"""In the place of columns: all of the table."""

CITING = re.compile(
    r"(build failed|build ended with the unknown status '[^']*'"
    r"|ended in an error|ended with the unknown status '[^']*')(?:: | \()"
)
"""Where the gate's reasons go on with what Spark or dbt said."""

_ERROR_CLASS = re.compile(r"\[[A-Z][A-Z0-9_.]+\]")
# dbt's own tests, and the columns of their rows that come from the tested column or are counts.
_TELLING: Mapping[str, frozenset[str]] = {
    "not_null": frozenset(),
    "unique": frozenset({"unique_field", "n_records"}),
    "accepted_values": frozenset({"value_field", "n_records"}),
    "relationships": frozenset({"from_field"}),
}

Identifier = tuple[str, str]
Lookup = Callable[[str], Mapping[str, Any] | None]
"""A node, source or test of the manifest by its unique id, in the shape of ``manifest.json``."""


@dataclass(frozen=True)
class PersonalMarks:
    """The marks of a project.

    Attributes:
        lookup: Finds a node of the manifest.
    """

    lookup: Lookup

    @cached_property
    def _personal(self) -> dict[str, frozenset[str]]:
        return {}

    def personal(self, node_id: str) -> frozenset[str]:
        """The personal columns, lower case, of a node and of all that it is made from.

        Its own table may have them under the same name without a mark. `WHOLE` is a table that is
        personal as a whole.
        """
        known = self._personal.get(node_id)
        if known is None:
            self._personal[node_id] = frozenset()  # a circle ends here; dbt has none
            node = self.lookup(node_id) or {}
            above = (self.personal(parent) for parent in _parents(node))
            known = self._personal[node_id] = _marked(node).union(*above)
        return known

    def harmless(self, reason: str, node_id: str) -> str:
        """A reason without what may be a value of a personal column.

        Spark cites values in its errors: of a node with personal columns only the error's class
        stays, such as ``[CAST_INVALID_INPUT]``.
        """
        found = CITING.search(reason) if self.personal(node_id) else None
        if found is None:
            return reason
        return f"{reason[: found.end(1)]}: {self.error_class(reason[found.end() :], node_id)}"

    def error_class(self, error: str, node_id: str) -> str:
        """An error of a node or test, of which only the class stays where it may cite a value."""
        if not self.personal(node_id):
            return error
        found = _ERROR_CLASS.search(error)
        return f"{found[0] + ' ' if found else ''}(its text is withheld: personal columns)"

    def shown(self, test_id: str, columns: Sequence[str]) -> list[int]:
        """Which columns of the rows that failed a test may be shown, by their places."""
        test, personal = self.lookup(test_id) or {}, self.personal(test_id)
        if _tested_column(test) in RAW_TEXT:
            return []  # dbt's tests give its values under names of their own
        return [
            index
            for index, column in enumerate(columns)
            if column.lower() not in RAW_TEXT
            and (not personal or column.lower() in _telling(test, personal))
        ]


@dataclass(frozen=True)
class Hidden:
    """The columns whose values are not shown, of tables by their names.

    Attributes:
        marked: Names of marked columns, in lower case. A column of this name is hidden in every
            table: what is copied downstream is as personal as where it came from.
        tables: Tables that are hidden as a whole, in lower case.
        patterns: Those of the setting ``wap_diff_hide``: ``column``, ``table.column`` or
            ``schema.table.column``, in which ``*`` stands for anything.
    """

    marked: frozenset[str] = RAW_TEXT
    tables: frozenset[Identifier] = frozenset()
    patterns: tuple[str, ...] = ()

    @classmethod
    def of_project(
        cls, marks: PersonalMarks, tables: Mapping[str, Identifier], patterns: Iterable[str] = ()
    ) -> Hidden:
        """What a project hides.

        Args:
            marks: Its marks.
            tables: The tables of its nodes and sources, by unique id.
            patterns: See the attribute.
        """
        found = {node_id: marks.personal(node_id) for node_id in tables}
        return cls(
            marked=RAW_TEXT.union(*found.values()) - {WHOLE},
            tables=frozenset(
                (tables[node_id][0].lower(), tables[node_id][1].lower())
                for node_id, columns in found.items()
                if WHOLE in columns
            ),
            patterns=tuple(patterns),
        )

    def hides(self, identifier: Identifier, column: str) -> bool:
        """Whether the values of a column of a table are hidden."""
        name = column.lower()
        schema, table = (part.lower() for part in identifier)
        if name in self.marked or (schema, table) in self.tables:
            return True
        names = (name, f"{table}.{name}", f"{schema}.{table}.{name}")
        return any(fnmatchcase(one, p.lower()) for p in self.patterns for one in names)

    def of(self, identifier: Identifier, columns: Collection[str]) -> tuple[str, ...]:
        """Those of the columns that are hidden."""
        return tuple(name for name in columns if self.hides(identifier, name))


def is_marked(meta: Mapping[str, Any]) -> bool:
    """Whether the ``meta`` of a column says that it is personal."""
    return any(meta.get(mark) for mark in MARKS)


def meta_of(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """The ``meta`` of a node or column: of its config, or in the older place beside it."""
    return {**(node.get("meta") or {}), **((node.get("config") or {}).get("meta") or {})}


def _telling(test: Mapping[str, Any], personal: frozenset[str]) -> frozenset[str]:
    """The columns of a test's rows of which it is known that they hold nothing personal.

    A test of the project's own may bring any column under any name.
    """
    of_dbt = test.get("test_metadata") or {}
    column = _tested_column(test)
    known = _TELLING.get(str(of_dbt.get("name"))) if not of_dbt.get("namespace") else None
    if known is None or not column.isidentifier() or WHOLE in personal or column in personal:
        return frozenset()
    # A macro of the project may have the name of one of dbt's.
    macros = (test.get("depends_on") or {}).get("macros") or ()
    if f"macro.dbt.test_{of_dbt['name']}" not in macros:
        return frozenset()
    return known | {column}


def _tested_column(test: Mapping[str, Any]) -> str:
    return str(test.get("column_name") or "").strip('`"').lower()


def _marked(node: Mapping[str, Any]) -> frozenset[str]:
    columns = (node.get("columns") or {}).values()
    found = {str(c["name"]).lower() for c in columns if is_marked(meta_of(c))}
    meta = meta_of(node)
    whole = any(meta.get(mark) for mark in OF_TABLES)
    return frozenset(found | ({WHOLE} if whole else set()))


def _parents(node: Mapping[str, Any]) -> Sequence[str]:
    return (node.get("depends_on") or {}).get("nodes") or ()
