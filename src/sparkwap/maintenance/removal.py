"""Removes abandoned audit branches, tags and snapshots, each in one transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sparkwap.catalog import branches as br
from sparkwap.catalog import lease as leasing
from sparkwap.catalog import metadata as md
from sparkwap.catalog.backend import Guard
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.leases import Lease
from sparkwap.catalog.model import Identifier, LedgerRows
from sparkwap.catalog.pointers import Pointer, PointerUpdate
from sparkwap.catalog.store import Staged
from sparkwap.core.errors import GateError
from sparkwap.core.names import base_tag
from sparkwap.maintenance.rules import keeps_files
from sparkwap.maintenance.survey import branch_facts, is_needed, replay

if TYPE_CHECKING:
    from sparkwap.publish.lake import Lake


class InUse(GateError):
    """A run uses the branch, or has used it meanwhile; nothing was removed."""


@dataclass(frozen=True)
class SweptBranch:
    """What was removed with a branch.

    Attributes:
        snapshots: Number of snapshots that only the branch reached.
        leases: Leases of dead runs on the branch.
    """

    snapshots: int
    leases: tuple[Lease, ...]


def sweep_branch(
    lake: Lake,
    branch: str,
    *,
    run_id: str,
    reason: str,
    older_than: datetime,
    last_seen: datetime | None = None,
) -> SweptBranch:
    """Remove an audit branch and everything that exists only on it, in one transaction.

    The transaction removes the branch, its base tag, the snapshots that only it reaches, and its
    side schemas. It adds rows to ``runs`` and ``sweeps`` of the ledger, and checks the leases and
    the age of the branch again. It deletes no files.

    Args:
        older_than: Remove only snapshots from before this time, and none during a replay; a later
            sweep removes the others.
        last_seen: The last activity on the branch, by which it is past its age; None for any.

    Raises:
        InUse: A living run uses the branch, or a later one has used it; nothing has changed.
        CatalogError: Other writers were faster in each try, or the database failed.
    """
    lake.ledger.ensure({"runs", "sweeps"})

    def stage() -> Staged[SweptBranch]:
        rows, marked = lake.store.backend.all(), lake.store.backend.side_schemas()
        leases = lake.leases.all()
        if last_seen is not None:
            documents = dict(zip(rows, lake.store.documents(rows), strict=True))
            ended = [(lease, False) for lease in leases]
            for fact in branch_facts(lake, documents, marked, ended):
                later = fact.known and fact.last_seen and fact.last_seen > last_seen
                if fact.name == branch and later:
                    raise InUse(f"A run has used {branch} meanwhile. The branch was not changed.")
        replayed = replay(leasing.living(lake.leases)) is not None
        before_ms = 0 if replayed else int(older_than.timestamp() * 1000)
        dead = tuple(lease for lease in leases if lease.branch == branch)
        schemas = {schema for schema, owner in marked.items() if owner == branch}
        side = [row for row in rows if row.identifier[0] in schemas]
        live = [row for row in rows if row.kind == "table" and row.identifier[0] not in marked]
        found = [
            (row, *changed)
            for row, changed in zip(
                live,
                lake.store.map(lambda r: _without(lake, r, branch, before_ms), live),
                strict=True,
            )
            if changed is not None
        ]
        swept = SweptBranch(sum(gone for _, _, gone in found), dead)
        objects = _objects_of_branch(lake, side, [row for row, _, _ in found])
        recorded = _rows_of_branch(branch, dead, run_id, reason, objects or [{}])
        swaps, files = lake.store.grow([(row, change) for row, change, _ in found])
        swaps += [PointerUpdate(row, None) for row in side]
        staged = Staged(swept, swaps, files, drop_schemas=schemas, guard=unused(lake, branch))
        # The rows have the folders that a later sweep deletes.
        return lake.ledger.beside(staged, recorded, first=True)

    swept = lake.store.commit(stage, "sweep", run_id=run_id, branch=branch)
    for lease in swept.leases:
        lake.leases.release(lease.run_id)
    return swept


def unused(lake: Lake, branch: str) -> Guard:
    """Return a guard for a commit that raises `InUse` if a living run uses the branch."""

    def check(leases: Sequence[Lease], now: float) -> None:
        for lease in leases:
            if lease.branch == branch and leasing.alive(lease, now):
                in_use = leasing.describe(lease, lives=True)
                raise InUse(f"{branch} is {in_use}. The branch was not changed.")

    return lake.leases.guard(check)


def sweep_table(
    lake: Lake,
    identifier: Identifier,
    tags: Collection[str],
    *,
    run_id: str,
    reason: str,
    older_than: datetime,
) -> tuple[tuple[str, ...], int]:
    """Remove tags of a table, and the snapshots of runs that no branch or tag reaches.

    A table on which a living run has a branch stays as it is, all do during a replay, and so do
    tags that are needed again.

    Args:
        older_than: Remove only snapshots from before this time.

    Raises:
        CatalogError: Other writers were faster in each try, or the database failed.
    """
    before_ms = int(older_than.timestamp() * 1000)
    lake.ledger.ensure({"sweeps"})

    def stage() -> Staged[tuple[tuple[str, ...], int]]:
        row = lake.store.backend.get(identifier)
        if row is None or row.kind != "table":
            return Staged(((), 0))
        document = lake.store.load(row.location)
        refs = md.refs_of(document)
        # Read after the table: a run takes its lease before it opens a branch.
        leases = leasing.living(lake.leases)
        living = {lease.branch for lease in leases}
        # A change of refs makes the commit of a writer fail, even on another branch.
        if living & set(refs) or replay(leases):
            return Staged(((), 0))
        unneeded = (tag for tag in tags if tag in refs and not is_needed(document, tag, living))
        gone = tuple(sorted(unneeded))
        snapshots = unreferenced(document, gone, before_ms)
        if not gone and not snapshots:
            return Staged(((), 0))
        change = MetadataChange(document).remove_refs(*gone).remove_snapshots(snapshots)
        swaps, files = lake.store.grow([(row, change)])
        schema, name = identifier
        common = {"run_id": run_id, "swept_at": datetime.now(UTC), "schema": schema, "name": name}
        recorded = [{**common, "what": "tag", "object": tag, "reason": reason} for tag in gone]
        if snapshots:
            why = "no branch and no tag reaches them"
            recorded.append({**common, "what": "snapshots", "reason": why, "count": len(snapshots)})
        staged = Staged((gone, len(snapshots)), swaps, files)
        return lake.ledger.beside(staged, [LedgerRows("sweeps", recorded)])

    return lake.store.commit(stage, "sweep_table", run_id=run_id, table=".".join(identifier))


def after(
    document: md.Document, branches: Collection[str], tags: Collection[str], before_ms: int
) -> md.Document:
    """Return a live table's metadata as it would be after a sweep, for a preview. Pure."""
    refs = {*tags, *(ref for branch in branches for ref in (branch, base_tag(branch)))}
    gone = tuple(refs & set(md.refs_of(document)))
    snapshots = unreferenced(document, gone, before_ms)
    return MetadataChange(document).remove_refs(*gone).remove_snapshots(snapshots).document(None)


def unreferenced(document: md.Document, dropped: Collection[str], before_ms: int) -> set[int]:
    """Return the snapshots that runs have written and that no branch or tag reaches. Pure.

    Args:
        dropped: Branches and tags that will be removed.
        before_ms: Return only snapshots from before this time, in milliseconds since the epoch.

    Returns:
        The ids of the snapshots; none of a table with ``gc.enabled=false``, and none that another
        tool has written, because it may have staged them without a branch.
    """
    if keeps_files(document):
        return set()
    snapshots = {int(entry["snapshot-id"]): entry for entry in document.get("snapshots") or ()}
    reached: set[int] = set()
    for name, ref in md.refs_of(document).items():
        current: int | None = None if name in dropped else ref.snapshot_id
        while current is not None and current in snapshots and current not in reached:
            reached.add(current)
            parent = snapshots[current].get("parent-snapshot-id")
            current = None if parent is None else int(parent)
    return {
        number
        for number, entry in snapshots.items()
        if number not in reached
        and int(entry["timestamp-ms"]) < before_ms
        and "wap_run" in (entry.get("summary") or {})
    }


def _without(
    lake: Lake, row: Pointer, branch: str, before_ms: int
) -> tuple[MetadataChange, int] | None:
    change = br.discard_branch(lake.store.load(row.location), branch)
    if change is None:
        return None
    snapshots = unreferenced(change.document(None), (), before_ms)
    return change.remove_snapshots(snapshots), len(snapshots)


def _objects_of_branch(
    lake: Lake, side: Sequence[Pointer], tables: Sequence[Pointer]
) -> list[dict[str, Any]]:
    """Return the tables and views of a branch; side objects have their folder and identity."""
    objects: list[dict[str, Any]] = [
        {"schema": row.identifier[0], "name": row.identifier[1]} for row in tables
    ]
    for row in side:
        document = lake.store.load(row.location)
        folder = None if br.is_clone(document) else str(document["location"]).rstrip("/")
        schema, name = row.identifier
        objects.append(
            {"schema": schema, "name": name, "folder": folder, "uuid": md.identity(document)}
        )
    return objects


def died(lease: Lease, message: str) -> dict[str, Any]:
    """Return the ledger's row of a run that died."""
    return {
        "run_id": lease.run_id,
        "branch": lease.branch,
        "command": lease.command,
        "started_at": lease.began,
        "ended_at": lease.last_heard,
        "outcome": "died",
        "message": message,
        # Not those of the command that writes the row.
        **dict.fromkeys(("actor", "catalog_user", "project")),
        "host": lease.host,
    }


def _rows_of_branch(
    branch: str,
    leases: Iterable[Lease],
    run_id: str,
    reason: str,
    objects: Iterable[Mapping[str, Any]],
) -> list[LedgerRows]:
    now = datetime.now(UTC)
    dead = [died(lease, leasing.describe(lease, lives=False)) for lease in leases]
    run = {
        "run_id": run_id,
        "branch": branch,
        "command": "wap_sweep",
        "started_at": now,
        "ended_at": now,
        # A row with this outcome begins a new history of the branch.
        "outcome": "discarded",
        "message": reason,
    }
    common = {
        "run_id": run_id,
        "swept_at": now,
        "what": "branch",
        "object": branch,
        "reason": reason,
    }
    return [
        LedgerRows("runs", [*dead, run]),
        LedgerRows("sweeps", [{**common, **named} for named in objects]),
    ]
