"""What alerts need of a dbt project: whose a table is, and which of its columns are personal.

A column is personal if its ``meta`` has one of `MARKS`, which are those of an erasure
(``docs/erasure.md``) and ``sensitive`` and ``pii``. Values of such columns, and whatever cannot be
shown not to be one, are never sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sparkwap.alerts.model import Sample

MARKS = ("subject", "personal", "subject_text", "sensitive", "pii")
RAW_TEXT = frozenset({"_raw", "raw_text"})
"""Columns with the text of rows that could not be used: nobody knows what is in it."""

_CELL = 80
# Where the gate's reasons go on with what Spark or dbt said.
_CITING = re.compile(
    r"(build failed|build ended with the unknown status '[^']*'"
    r"|ended in an error|ended with the unknown status '[^']*')(?:: | \()"
)
_NUMBER = re.compile(r"\d[\d,]*")
_ERROR_CLASS = re.compile(r"\[[A-Z][A-Z0-9_.]+\]")
# dbt's own tests, and the columns of their rows that come from the tested column or are counts.
_TELLING: Mapping[str, frozenset[str]] = {
    "not_null": frozenset(),
    "unique": frozenset({"unique_field", "n_records"}),
    "accepted_values": frozenset({"value_field", "n_records"}),
    "relationships": frozenset({"from_field"}),
}

Lookup = Callable[[str], Mapping[str, Any] | None]
"""A node, source or test of the manifest by its unique id, in the shape of ``manifest.json``."""


@dataclass(frozen=True)
class Project:
    """A project's owners and marks.

    Attributes:
        lookup: Finds a node of the manifest.
        groups: dbt's groups, by name.
    """

    lookup: Lookup
    groups: Mapping[str, Mapping[str, Any]]

    @cached_property
    def _personal(self) -> dict[str, frozenset[str]]:
        return {}

    # -- owners ----------------------------------------------------------------------------------

    def owners(self, node_ids: Iterable[str]) -> tuple[str, ...]:
        """Whose some nodes and tests are: ``meta.owner`` of each, else the owner of its group."""
        found = (owner for node_id in node_ids for owner in self._owners(node_id))
        return tuple(dict.fromkeys(found))

    def _owners(self, node_id: str) -> tuple[str, ...]:
        node = self.lookup(node_id)
        if node is None:
            return ()
        given = _meta(node).get("owner")
        if given is None:
            group = self.groups.get(str(_config(node, "group") or ""), {})
            owner = group.get("owner") or {}
            given = owner.get("email") or owner.get("name")
        return _names(given)

    # -- personal columns ------------------------------------------------------------------------

    def personal(self, node_id: str) -> frozenset[str]:
        """The personal columns, lower case, of a node and of all that it is made from.

        Its own table may have them under the same name without a mark. ``*`` is a table that is
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
        found = _CITING.search(reason) if self.personal(node_id) else None
        if found is None:
            return reason
        error = _ERROR_CLASS.search(reason, found.end())
        kept = f"{reason[: found.end(1)]}: {error[0] + ' ' if error else ''}"
        return f"{kept}(its text is withheld: personal columns)"

    def sample(
        self, test_id: str, columns: Sequence[str], rows: Iterable[Sequence[object]]
    ) -> Sample:
        """What may be shown of the rows that failed a test."""
        test = self.lookup(test_id) or {}
        personal = self.personal(test_id)
        shown = [
            index
            for index, column in enumerate(columns)
            if column.lower() not in RAW_TEXT
            and (not personal or column.lower() in _telling(test, personal))
        ]
        hidden = [column for index, column in enumerate(columns) if index not in shown]
        named = ", ".join(sorted(personal - {"*"})) or "the whole table"
        withheld = f"withheld: {', '.join(hidden)} (personal: {named})" if hidden else ""
        if hidden and not personal:
            withheld = f"withheld: {', '.join(hidden)}"
        if not shown:
            return Sample(withheld=withheld)
        return Sample(
            tuple(columns[index] for index in shown),
            tuple(tuple(_cell(row[index]) for index in shown) for row in rows),
            withheld,
        )


def trouble(reasons: Iterable[str]) -> str:
    """What stays the same in some reasons while the trouble is the same.

    Numbers of rows differ from night to night, and Spark's texts have ids in them.
    """
    text = "; ".join(reasons)
    found = _CITING.search(text)
    return _NUMBER.sub("#", text[: found.end(1)] if found else text)


def of_manifest(manifest: Mapping[str, Any]) -> Project:
    """The project of a ``manifest.json``."""
    nodes, sources = manifest.get("nodes") or {}, manifest.get("sources") or {}
    units = manifest.get("unit_tests") or {}
    groups = {str(group["name"]): group for group in (manifest.get("groups") or {}).values()}
    return Project(
        lambda node_id: nodes.get(node_id) or sources.get(node_id) or units.get(node_id), groups
    )


def _telling(test: Mapping[str, Any], personal: frozenset[str]) -> frozenset[str]:
    """The columns of a test's rows of which it is known that they hold nothing personal.

    A test of the project's own may bring any column under any name.
    """
    of_dbt = test.get("test_metadata") or {}
    column = str(test.get("column_name") or "").strip('`"').lower()
    known = _TELLING.get(str(of_dbt.get("name"))) if not of_dbt.get("namespace") else None
    if known is None or not column.isidentifier() or "*" in personal or column in personal:
        return frozenset()
    # A macro of the project may have the name of one of dbt's.
    macros = (test.get("depends_on") or {}).get("macros") or ()
    if f"macro.dbt.test_{of_dbt['name']}" not in macros:
        return frozenset()
    return known | {column}


def _marked(node: Mapping[str, Any]) -> frozenset[str]:
    columns = (node.get("columns") or {}).values()
    found = {str(c["name"]).lower() for c in columns if _is_marked({**_meta(c)})}
    meta = _meta(node)
    whole = any(meta.get(mark) for mark in ("sensitive", "pii"))
    return frozenset(found | ({"*"} if whole else set()))


def _is_marked(meta: Mapping[str, Any]) -> bool:
    return any(meta.get(mark) for mark in MARKS)


def _parents(node: Mapping[str, Any]) -> Sequence[str]:
    return (node.get("depends_on") or {}).get("nodes") or ()


def _meta(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """The ``meta`` of a node or column: of its config, or in the older place beside it."""
    return {**(node.get("meta") or {}), **((node.get("config") or {}).get("meta") or {})}


def _config(node: Mapping[str, Any], key: str) -> Any:
    return (node.get("config") or {}).get(key) or node.get(key)


def _names(given: object) -> tuple[str, ...]:
    if given is None:
        return ()
    parts = given if isinstance(given, list | tuple) else str(given).split(",")
    return tuple(name for name in (str(part).strip().lstrip("@") for part in parts) if name)


def _cell(value: object) -> str:
    text = "NULL" if value is None else " ".join(str(value).split())
    return text if len(text) <= _CELL else text[: _CELL - 3] + "..."
