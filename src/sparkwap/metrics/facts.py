"""The facts from which the metrics are made."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sparkwap.catalog import Identifier

Row = Mapping[str, Any]

PARTS = ("lake", "runs", "publishes", "verdicts", "tests", "branches", "project")
"""What is read separately: the lake as a whole, four parts of its ledger, the open branches with
the list of tables, and the dbt project."""


@dataclass(frozen=True, slots=True)
class BranchFacts:
    """An open audit branch.

    Attributes:
        name: The branch.
        tables: The live names of the tables that have a candidate on it.
        nodes: The latest row of each of its nodes in the ledger.
        since: The time of its first write; None if that is unknown.
        in_use: Whether a run is at work on it.
    """

    name: str
    tables: tuple[Identifier, ...] = ()
    nodes: tuple[Row, ...] = ()
    since: datetime | None = None
    in_use: bool = False


@dataclass(frozen=True, slots=True)
class CatalogFacts:
    """The catalog's part of the facts.

    Attributes:
        branches: The open audit branches.
        existing: The tables and views that exist on ``main``.
        unreadable: How many tables and views have unreadable metadata.
    """

    branches: tuple[BranchFacts, ...] = ()
    existing: Collection[Identifier] = ()
    unreadable: int = 0


@dataclass(frozen=True, slots=True)
class RawModelFacts:
    """How far a raw model has read its landing folder or topic.

    Attributes:
        model: Its name.
        unread_files: The number of unread files; None for a topic, or if it is unknown.
        oldest: The change time of the unread file that has waited longest, in seconds since the
            epoch; None if no file is unread.
        unread_messages: The number of unread messages; None for files, or if it is unknown.
        quarantined: The number of rows in quarantine; None if it is unknown.
        faults: Why something is unknown.
    """

    model: str
    unread_files: int | None = None
    oldest: float | None = None
    unread_messages: int | None = None
    quarantined: int | None = None
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts. A part that could not be read is None, and is in ``faults``.

    Attributes:
        project: The dbt project of the call.
        target: The target of the call.
        at: The time when the facts were gathered.
        seconds: How long that took.
        lake_exists: Whether the catalog exists.
        runs: All rows of the ledger's ``runs``.
        publishes: All rows of ``publishes``.
        verdicts: The rows of ``nodes`` whose verdict is held or rejected.
        tests: The rows of ``tests`` of the last runs.
        catalog: The open branches and existing tables.
        raw_models: The raw models of the project.
        faults: Part, or raw model -> why it could not be read.
    """

    project: str
    target: str
    at: datetime
    seconds: float = 0.0
    lake_exists: bool = True
    runs: Sequence[Row] | None = ()
    publishes: Sequence[Row] | None = ()
    verdicts: Sequence[Row] | None = ()
    tests: Sequence[Row] | None = ()
    catalog: CatalogFacts | None = CatalogFacts()
    raw_models: Sequence[RawModelFacts] | None = ()
    faults: Mapping[str, str] = field(default_factory=dict)
