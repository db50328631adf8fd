"""The results of operations for programs; people read the lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sparkwap.gate.results import RunResults


@dataclass(frozen=True, slots=True)
class PublishRecord:
    """A publish, and how many tables and views it had."""

    publish_id: str
    run_id: str
    branch: str
    published_at: datetime
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A table or view on an audit branch.

    Attributes:
        table: ``schema.table``.
        verdict: ``held``, ``rejected`` or ``published``; None if it is not in the ledger.
        reason: Why it is not published.
        where: ``branch``, or ``table`` or ``view`` for an object of the side schema.
        candidate: The snapshot on the branch, or the name of that object.
        base: The snapshot of main when the branch was opened; None for an object.
        main: The present snapshot of main; None for an object.
    """

    table: str
    verdict: str | None
    reason: str | None
    where: str
    candidate: str
    base: str | None = None
    main: str | None = None


@dataclass(frozen=True, slots=True)
class OpenBranchStatus:
    """An open audit branch.

    Attributes:
        branch: Its name.
        since: When its oldest table was built or created; None if not known.
        in_use: Whether a run is using it.
        project, actor, host: Of the last run that has ended on it; None if it is not recorded.
        tables: Its tables and views.
        nodes: dbt's ids of the nodes that a run has closed on it; empty if its run did not end.
        rejected: Those that were rejected.
    """

    branch: str
    since: datetime | None
    in_use: bool
    tables: tuple[OpenTable, ...]
    nodes: tuple[str, ...]
    rejected: tuple[str, ...]
    project: str | None = None
    actor: str | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True)
class LakeStatus:
    """The open audit branches of a lake.

    Attributes:
        branches: The branches.
        interrupted: The runs whose sequential publish or rollback has not come to its end.
        unreadable: Tables that cannot be read, with the reason.
    """

    branches: tuple[OpenBranchStatus, ...]
    interrupted: tuple[str, ...]
    unreadable: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What a sweep has removed, or would remove.

    Attributes:
        done: False for a preview.
        branches: The audit branches.
        tags: Number of tags.
        snapshots: Number of snapshots that nothing reaches.
        manifests: Number of stored versions of the code.
        files: Number of files that nothing refers to.
        bytes: Their size.
        died: Runs that died, in words.
        problems: What could not be removed, with the reason.
    """

    done: bool
    branches: tuple[str, ...]
    tags: int
    snapshots: int
    manifests: int
    files: int
    bytes: int
    died: tuple[str, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableMaintenance:
    """What a maintenance did with a table, or would do.

    Attributes:
        table: ``schema.table``.
        files: Number of data files before; None if its files were not read.
        delete_files: Number of delete files before.
        bytes: The size of its data files before.
        readings: Readings in a day.
        compacted: Whether its files were merged.
        problem: Why something was not done.
    """

    table: str
    files: int | None
    delete_files: int
    bytes: int
    readings: float
    compacted: bool
    problem: str | None


@dataclass(frozen=True, slots=True)
class MaintenanceResult:
    """A maintenance; ``done`` is False for a preview, ``failed`` has the errors."""

    done: bool
    tables: tuple[TableMaintenance, ...]
    failed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RollbackResult:
    """A rollback: the publishes that it has undone; empty if it only opened the branch again."""

    undone: tuple[PublishRecord, ...]


Found = RunResults | LakeStatus | SweepResult | MaintenanceResult | RollbackResult
"""What an operation tells programs besides its lines."""


@dataclass(frozen=True, slots=True)
class OperationResult:
    """The result of a run-operation.

    Attributes:
        operation: Its name.
        lines: What it prints.
        found: The same for programs, where there is more to it.
    """

    operation: str
    lines: tuple[str, ...]
    found: Found | None
