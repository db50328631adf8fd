"""Defines which values are personal, for all features that show or find values.

A column is personal if its ``meta`` has one of `MARKS`; a whole table is personal if its own
``meta`` has one of `OF_TABLES`. Alerts, data diffs, comments on pull requests, the page and the
report hide these values. An erasure (``docs/erasure.md``) uses the first three marks, which
identify the subject.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

SUBJECT, PERSONAL, SUBJECT_TEXT = "subject", "personal", "subject_text"
NOBODY = "nobody"
OF_TABLES = ("sensitive", "pii")
MARKS = (SUBJECT, PERSONAL, SUBJECT_TEXT, *OF_TABLES)
RAW_ROW, QUARANTINED_ROW = "_raw", "raw_text"
MESSAGE_KEY, MESSAGE_HEADERS = "_message_key", "_message_headers"
RAW_TEXT = frozenset({RAW_ROW, QUARANTINED_ROW, MESSAGE_KEY, MESSAGE_HEADERS})
"""Columns with whole rows of landing files, or keys and headers of messages, as text, with unknown
content."""
ERASED_FILE = "erased:"
"""Begins the digest of a landing file after an erasure of its rows: its owner may edit it."""

WHOLE = "*"
"""Stands for all columns of a table."""

CITING = re.compile(
    r"(build failed|build ended with the unknown status '[^']*'"
    r"|ended in an error|ended with the unknown status '[^']*')(?:: | \()"
)
"""The start of a gate's reason that quotes an error of Spark or dbt."""

_TEST = re.compile(r"\btest ([^;]+?) (?:failed|warned|ended )")
"""The name of a test in a gate's reason."""

_VALUES = frozenset(
    {"min", "max", "sum", "mean", "stddev", "min_length", "max_length", "mean_length"}
)
"""Metrics of a column that may tell the value of one row."""

_FIGURE = re.compile(
    rf"\b({'|'.join(_VALUES)}|age_hours)(?::((?:(?!published runs).)+?))? is "
    r".+?(?: published runs|$)"
)
"""The finding of an anomaly audit about such a metric, or the age of a time."""

_ERROR_CLASS = re.compile(r"\[[A-Z][A-Z0-9_.]+\]")
_PERSONAL = "personal columns"
# dbt's own tests, and their result columns that are counts or come from the tested column.
_SAFE_COLUMNS: Mapping[str, frozenset[str]] = {
    "not_null": frozenset(),
    "unique": frozenset({"unique_field", "n_records"}),
    "accepted_values": frozenset({"value_field", "n_records"}),
    "relationships": frozenset({"from_field"}),
}

Identifier = tuple[str, str]
Lookup = Callable[[str], Mapping[str, Any] | None]
"""Returns a node, source or test by its unique id, in the format of ``manifest.json``."""
Named = Callable[[str], Collection[str]]
"""Returns the unique ids of the tests, and perhaps of other nodes, with a name."""


@dataclass(frozen=True)
class PersonalMarks:
    """The marks of a project."""

    lookup: Lookup
    named: Named

    @cached_property
    def _personal(self) -> dict[str, frozenset[str]]:
        return {}

    def personal(self, node_id: str) -> frozenset[str]:
        """Return the personal columns, lower case, of a node and of all its ancestors.

        The node's own table may have such columns without a mark. `WHOLE` stands for a table that
        is personal as a whole.
        """
        known = self._personal.get(node_id)
        if known is None:
            self._personal[node_id] = frozenset()  # ends a cycle, which dbt does not allow
            node = self.lookup(node_id) or {}
            above = (self.personal(parent) for parent in _parents(node))
            known = self._personal[node_id] = _marked(node).union(*above)
        return known

    def may_quote(self, node_ids: Iterable[str]) -> bool:
        """Return whether a text about nodes or tests may quote a personal value.

        This is not so if all of them are known, and no table that they read has a mark.
        """
        return any(self.lookup(key) is None or bool(self.personal(key)) for key in node_ids)

    def harmless(self, reason: str, node_id: str) -> str:
        """Return a reason of the gate without possible values of personal columns.

        A test that the reason names may read other tables than the node.
        """
        tests = [self.named(name) for name in _TEST.findall(reason)]
        node_ids = [node_id, *(key for ids in tests for key in ids)]
        if all(tests) and not self.may_quote(node_ids):
            return reason
        return without_values(reason, columns=frozenset().union(*map(self.personal, node_ids)))

    def is_withheld(self, metric: str, node_ids: Collection[str]) -> bool:
        """Return whether a metric of an anomaly audit may tell a personal value.

        Args:
            metric: The metric, such as ``max:amount``.
            node_ids: The measured node and the audit.
        """
        columns = frozenset().union(*map(self.personal, node_ids))
        return self.may_quote(node_ids) and tells_value(metric, columns)

    def error_class(self, error: str, node_id: str) -> str:
        """Return an error of a node or test; only its class if it may quote a personal value."""
        return _class_of(error, _PERSONAL) if self.may_quote([node_id]) else error

    def shown(self, test_id: str, columns: Sequence[str]) -> list[int]:
        """Return the indexes of the columns of a test's failed rows that may be shown."""
        test, personal = self.lookup(test_id), self.personal(test_id)
        if test is None:
            return []
        if _tested_column(test) in RAW_TEXT:
            return []  # dbt's tests return its values under other names
        return [
            index
            for index, column in enumerate(columns)
            if column.lower() not in RAW_TEXT
            and (not personal or column.lower() in _safe_columns(test, personal))
        ]


@dataclass(frozen=True)
class Hidden:
    """The columns whose values are hidden.

    Attributes:
        marked: Names of marked columns, in lower case. A column with this name is hidden in every
            table, because downstream tables copy personal values.
        tables: Tables that are hidden as a whole, in lower case.
        patterns: The setting ``wap_diff_hide``: ``column``, ``table.column`` or
            ``schema.table.column``, with ``*`` as a wildcard.
    """

    marked: frozenset[str] = RAW_TEXT
    tables: frozenset[Identifier] = frozenset()
    patterns: tuple[str, ...] = ()

    @classmethod
    def of_project(
        cls, marks: PersonalMarks, tables: Mapping[str, Identifier], patterns: Iterable[str] = ()
    ) -> Hidden:
        """Return the hidden columns of a project, whose nodes and sources have these tables."""
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
        """Return whether the values of a column of a table are hidden."""
        name = column.lower()
        schema, table = (part.lower() for part in identifier)
        if name in self.marked or (schema, table) in self.tables:
            return True
        names = (name, f"{table}.{name}", f"{schema}.{table}.{name}")
        return any(fnmatchcase(name, p.lower()) for p in self.patterns for name in names)

    def of(self, identifier: Identifier, columns: Collection[str]) -> tuple[str, ...]:
        """Return the hidden columns among ``columns``."""
        return tuple(name for name in columns if self.hides(identifier, name))


def named_in(nodes: Mapping[str, Mapping[str, Any]]) -> Named:
    """Return the function that finds the nodes and tests of a manifest by name."""
    found: dict[str, list[str]] = {}
    for key, node in nodes.items():
        found.setdefault(str(node.get("name")), []).append(key)
    return lambda name: found.get(name, ())


def tells_value(metric: str, columns: Collection[str] = ()) -> bool:
    """Return whether a metric of an anomaly audit may tell the value of one row.

    The age of a table's newest time does so only if the column is among ``columns``.
    """
    kind, _, column = metric.partition(":")
    return kind in _VALUES or (
        kind == "age_hours" and not {column.lower(), WHOLE}.isdisjoint(columns)
    )


def without_values(reason: str, why: str = _PERSONAL, columns: Collection[str] = ()) -> str:
    """Return a reason of the gate without the texts that may quote a value of a row.

    Of an error of Spark or dbt, it keeps the class, such as ``[CAST_INVALID_INPUT]``.

    Args:
        reason: The reason, or several, or the finding of an audit.
        columns: The personal columns, as for `tells_value`.
    """

    def figure(found: re.Match[str]) -> str:
        metric = f"{found[1]}:{found[2] or ''}"
        withheld = f"{metric} is an anomaly (its value is withheld: {why})"
        return withheld if tells_value(metric, columns) else found[0]

    reason = _FIGURE.sub(figure, reason)
    found = CITING.search(reason)
    if found is None:
        return reason
    return f"{reason[: found.end(1)]}: {_class_of(reason[found.end() :], why)}"


def _class_of(error: str, why: str) -> str:
    found = _ERROR_CLASS.search(error)
    return f"{found[0] + ' ' if found else ''}(its text is withheld: {why})"


def is_marked(meta: Mapping[str, Any]) -> bool:
    """Return whether the ``meta`` of a column marks it as personal."""
    return any(meta.get(mark) for mark in MARKS)


def meta_of(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the ``meta`` of a node or column, from its config or from the older top level."""
    return {**(node.get("meta") or {}), **((node.get("config") or {}).get("meta") or {})}


def _safe_columns(test: Mapping[str, Any], personal: frozenset[str]) -> frozenset[str]:
    """Return the columns of a test's rows that are certainly not personal.

    A project's own test may return any column under any name.
    """
    metadata = test.get("test_metadata") or {}
    column = _tested_column(test)
    known = _SAFE_COLUMNS.get(str(metadata.get("name"))) if not metadata.get("namespace") else None
    if known is None or not column.isidentifier() or WHOLE in personal or column in personal:
        return frozenset()
    # A macro of the project may have the same name as a macro of dbt.
    macros = (test.get("depends_on") or {}).get("macros") or ()
    if f"macro.dbt.test_{metadata['name']}" not in macros:
        return frozenset()
    return known | {column}


def _tested_column(test: Mapping[str, Any]) -> str:
    return str(test.get("column_name") or "").strip('`"').lower()


def _marked(node: Mapping[str, Any]) -> frozenset[str]:
    columns = (node.get("columns") or {}).values()
    found = {str(c["name"]).lower() for c in columns if is_marked(meta_of(c))}
    # dbt names a nested field with dots, and outputs show its whole column.
    found |= {name.partition(".")[0] for name in found}
    meta = meta_of(node)
    whole = any(meta.get(mark) for mark in OF_TABLES)
    return frozenset(found | ({WHOLE} if whole else set()))


def _parents(node: Mapping[str, Any]) -> Sequence[str]:
    return (node.get("depends_on") or {}).get("nodes") or ()
