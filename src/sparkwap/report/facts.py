"""The facts that the report is made from, and helpers that read nodes of the manifest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from sparkwap.core.personal import PersonalMarks, named_in

Row = Mapping[str, Any]
Answer = list[dict[str, Any]]

TABLE_TYPES = ("model", "seed", "snapshot")


@dataclass(frozen=True)
class ReportFacts:
    """The data of the report: the manifest, and rows of four tables of the ledger.

    Attributes:
        database: The catalog's name.
        now: The time of the report (UTC).
        samples: Stored rows of failed tests, by the test's id.
        sources: dbt's ``sources.json``; None if there is none.
    """

    manifest: Mapping[str, Any]
    runs: Sequence[Row]
    nodes: Sequence[Row]
    tests: Sequence[Row]
    metrics: Sequence[Row]
    database: str
    now: datetime
    days: int = 30
    samples: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    sources: Mapping[str, Any] | None = None

    @cached_property
    def marks(self) -> PersonalMarks:
        """The marks of personal columns."""
        return PersonalMarks(self.known.get, named_in(self.known))

    def shown(self, test_id: str) -> list[dict[str, Any]]:
        """Return the stored rows of a test, without columns that may be personal."""
        rows = [dict(row) for row in self.samples.get(test_id) or ()]
        names = list(rows[0]) if rows else []
        kept = [names[place] for place in self.marks.shown(test_id, names)]
        return [{name: row[name] for name in kept} for row in rows] if kept else []

    @cached_property
    def known(self) -> Mapping[str, Row]:
        """The models, seeds, snapshots, tests and sources of the project, by unique id."""
        return {
            **self.manifest["nodes"],
            **self.manifest.get("sources", {}),
            **self.manifest.get("unit_tests", {}),
        }

    @cached_property
    def plots(self) -> Mapping[tuple[str, str], list[Row]]:
        """The metrics of the report's days, by test and metric, oldest first."""
        found: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in self.recent(self.metrics, "measured_at"):
            found[row["test_id"], row["metric"]].append(row)
        return found

    @cached_property
    def project(self) -> str:
        """The project's name."""
        return str(self.manifest["metadata"]["project_name"])

    def recent(self, rows: Iterable[Row], time: str) -> list[Row]:
        """Return the rows within the report's days, oldest first; ``time`` is their time column."""
        since = self.now - timedelta(days=self.days)
        return sorted((row for row in rows if row[time] >= since), key=lambda row: row[time])

    def of_type(self, *types: str) -> list[Row]:
        """Return the project's nodes of these types."""
        return [node for node in self.known.values() if node["resource_type"] in types]


def is_table(node: Row) -> bool:
    """Return whether a node is built; an ephemeral model is not."""
    return (node.get("config") or {}).get("materialized") != "ephemeral"


def owners(node: Row) -> list[str]:
    """Return the owners in ``meta.owner``: a text with commas, or a list."""
    owner = ((node.get("config") or {}).get("meta") or node.get("meta") or {}).get("owner")
    if isinstance(owner, str):
        return [part.strip() for part in owner.split(",") if part.strip()]
    return [str(name) for name in owner] if isinstance(owner, list | tuple) else []


def depends_on(node: Row, kind: str = "nodes") -> list[str]:
    """Return the ids of the nodes (or macros) that a node depends on."""
    return list((node.get("depends_on") or {}).get(kind) or ())


def iso(at: datetime) -> str:
    """Return a time as text, always of the same length, so that texts sort as times do."""
    return at.isoformat(timespec="microseconds")


def tested_node(facts: ReportFacts, test: Row) -> str | None:
    """Return the id of the node that a test is attached to, or of the first node that it reads."""
    attached = test.get("attached_node")
    if attached:
        return str(attached)
    return next((node for node in depends_on(test) if node in facts.known), None)
