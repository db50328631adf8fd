"""The results of operations for programs; people read the lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sparkwap.runs.results import RunResults


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
        since: When its oldest table was built or created; None if not known.
        in_use: Whether a run is using it.
        project, actor, host: Of the last run that has ended on it; None if it is not recorded.
        nodes: dbt's ids of the nodes that a run has closed on it; empty if its run did not end.
        rejected: Those that were rejected.
        not_built: ``schema.table`` of each node that has nothing on it -> why.
    """

    branch: str
    since: datetime | None
    in_use: bool
    tables: tuple[OpenTable, ...]
    nodes: tuple[str, ...]
    rejected: tuple[str, ...]
    not_built: Mapping[str, str]
    project: str | None = None
    actor: str | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True)
class LakeStatus:
    """The open audit branches of a lake.

    Attributes:
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
        snapshots: Number of snapshots that nothing reaches.
        manifests: Number of stored versions of the code.
        files: Number of files that nothing refers to.
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


@dataclass(frozen=True, slots=True)
class TableDifference:
    """What a branch changes in a table or view; samples of rows are in what is printed.

    Attributes:
        table: ``schema.table``.
        change: ``unchanged``, ``changed``, ``new``, ``dropped``, or ``failed``: not compared.
        added: Number of rows that only the new state has.
        removed: Number of rows that only the old state has.
        changed: Number of rows with the same key and other values.
        columns: Column -> number of changed rows in which it differs.
        columns_added: Names of the columns that only the new state has.
        columns_removed: Names of the columns that only the old state has.
        columns_retyped: Names of the columns with another type.
        columns_renamed: Old name -> new name.
        notes: Remarks, such as why a table was not compared.
    """

    table: str
    change: str
    added: int
    removed: int
    changed: int
    columns: Mapping[str, int]
    columns_added: tuple[str, ...]
    columns_removed: tuple[str, ...]
    columns_retyped: tuple[str, ...]
    columns_renamed: Mapping[str, str]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DiffResult:
    """What a branch changes, compared with another state."""

    branch: str
    against: str
    at: datetime
    tables: tuple[TableDifference, ...]


@dataclass(frozen=True, slots=True)
class SubjectRows:
    """The rows of a table before an erasure: all, and those that it deletes and changes."""

    table: str
    rows: int
    deleted: int
    changed: int


@dataclass(frozen=True, slots=True)
class ErasureResult:
    """An erasure or a correction of personal values, or its plan. It has no key and no value.

    Attributes:
        subject: The kind of the keys.
        state: ``planned`` (nothing is changed), ``blocked`` (nothing is changed), ``begun`` (this
            or an earlier call was ended by an error; the same call continues), ``proven``, or
            ``not proven``: files still hold the subject.
        tables: The tables with rows of the subject, before the first change.
        files: Number of files that were read.
        holding: Number of those that hold the subject.
        blockers: What has to be done before.
        report: The file with the proof.
    """

    subject: str
    state: str
    tables: tuple[SubjectRows, ...]
    files: int
    holding: int
    blockers: tuple[str, ...]
    report: Path | None = None


Found = (
    RunResults
    | LakeStatus
    | SweepResult
    | MaintenanceResult
    | RollbackResult
    | DiffResult
    | ErasureResult
)
"""What an operation tells programs besides its lines."""


@dataclass(frozen=True, slots=True)
class OperationResult:
    """The result of a run-operation.

    Attributes:
        found: The same for programs, where there is more to it.
    """

    operation: str
    lines: tuple[str, ...]
    found: Found | None
