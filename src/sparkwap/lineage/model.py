"""The types of lineage: what OpenLineage events say besides the results of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sparkwap.catalog.model import How


@dataclass(frozen=True, slots=True)
class Column:
    """A column as its author has described it; None for what is not known."""

    name: str
    type: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A model, seed or snapshot in dbt's manifest.

    Attributes:
        inputs: The tables and views that its code names, as ``schema.table``; an ephemeral model
            is replaced by its own.
        columns: The described columns.
        started_at: The start of its build in this command; None if it was built earlier.
    """

    inputs: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    description: str = ""
    materialized: str = ""
    started_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Version:
    """What a publish did to a table.

    Attributes:
        snapshot: The snapshot of ``main`` after it; None for views and empty tables.
        is_new: Whether there was no object of this name before.
    """

    how: How
    snapshot: int | None
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class Parent:
    """The run of a scheduler that has called the command."""

    namespace: str
    job: str
    run_id: str


@dataclass(frozen=True, slots=True)
class Command:
    """The dbt command whose run has ended.

    Attributes:
        namespace: The namespace of jobs.
        datasets: The namespace of datasets.
        failed: Whether dbt itself fails, such as by a test of a source.
    """

    job: str
    namespace: str
    datasets: str
    dbt_version: str
    parent: Parent | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """What the manifest and the ledger know about the results.

    Attributes:
        nodes: The nodes, by dbt's id.
        versions: The tables of the run's publish, by ``schema.table``.
        test_columns: The column of each test that has one, by dbt's id of the test.
    """

    nodes: Mapping[str, Node] = field(default_factory=dict)
    versions: Mapping[str, Version] = field(default_factory=dict)
    test_columns: Mapping[str, str] = field(default_factory=dict)
