"""The owners of a dbt project's tables, and the columns of failed rows that may be sent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkwap.alerts.model import FailedRows
from sparkwap.core.personal import CITING, WHOLE, PersonalMarks, meta_of, named_in

_CELL = 80
_NUMBER = re.compile(r"(?:wap_)?[0-9a-f]{8}[0-9a-f-]*|\d[\d,]*")


@dataclass(frozen=True)
class Project(PersonalMarks):
    """The owners and the marks of personal columns of a project."""

    groups: Mapping[str, Mapping[str, Any]]

    def owners(self, node_ids: Iterable[str]) -> tuple[str, ...]:
        """Return the owners of nodes and tests: ``meta.owner``, else the owner of the group."""
        found = (owner for node_id in node_ids for owner in self._owners(node_id))
        return tuple(dict.fromkeys(found))

    def _owners(self, node_id: str) -> tuple[str, ...]:
        node = self.lookup(node_id)
        if node is None:
            return ()
        given = meta_of(node).get("owner")
        if given is None:
            group = (node.get("config") or {}).get("group") or node.get("group")
            owner = self.groups.get(str(group or ""), {}).get("owner") or {}
            given = owner.get("email") or owner.get("name")
        return _names(given)

    def sample(
        self, test_id: str, columns: Sequence[str], rows: Iterable[Sequence[object]]
    ) -> FailedRows:
        """Return the rows that failed a test, without columns that may be personal."""
        personal = self.personal(test_id)
        shown = self.shown(test_id, columns)
        hidden = [column for index, column in enumerate(columns) if index not in shown]
        named = ", ".join(sorted(personal - {WHOLE})) or "the whole table"
        withheld = f"withheld: {', '.join(hidden)} (personal: {named})" if hidden else ""
        if hidden and not personal:
            withheld = f"withheld: {', '.join(hidden)}"
        if not shown:
            return FailedRows(withheld=withheld)
        return FailedRows(
            tuple(columns[index] for index in shown),
            tuple(tuple(_cell(row[index]) for index in shown) for row in rows),
            withheld,
        )


def trouble(reasons: Iterable[str]) -> str:
    """Return reasons without the parts that differ while the problem is the same.

    Numbers of rows and ids differ from run to run, and Spark's errors contain ids.
    """
    text = "; ".join(reasons)
    found = CITING.search(text)
    return _NUMBER.sub("#", text[: found.end(1)] if found else text)


def of_manifest(manifest: Mapping[str, Any]) -> Project:
    """Return the project of a ``manifest.json``."""
    nodes, sources = manifest.get("nodes") or {}, manifest.get("sources") or {}
    known = {**(manifest.get("unit_tests") or {}), **sources, **nodes}
    groups = {str(group["name"]): group for group in (manifest.get("groups") or {}).values()}
    return Project(known.get, named_in(known), groups)


def _names(given: object) -> tuple[str, ...]:
    if given is None:
        return ()
    parts = given if isinstance(given, list | tuple) else str(given).split(",")
    return tuple(name for name in (str(part).strip().lstrip("@") for part in parts) if name)


def _cell(value: object) -> str:
    text = "NULL" if value is None else " ".join(str(value).split())
    return text if len(text) <= _CELL else text[: _CELL - 3] + "..."
