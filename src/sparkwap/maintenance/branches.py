"""Sweeping the catalog: what is left of runs on tables and beside them, taken away.

`survey` looks, `sweep_branch` and `sweep_table` each take away in one transaction. What to take is
decided in `sparkwap.maintenance.decision`; the files that nothing refers to then are the matter of
`orphans`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sparkwap.catalog import branches as br
from sparkwap.catalog import lease as leasing
from sparkwap.catalog import metadata as md
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.leases import Lease
from sparkwap.catalog.model import Identifier, LedgerRows
from sparkwap.catalog.pointers import Pointer, PointerUpdate
from sparkwap.catalog.store import Staged
from sparkwap.core.errors import GateError
from sparkwap.core.names import (
    base_tag,
    branch_of_base_tag,
    is_publish_tag,
    is_run_branch,
    publish_of_abort_tag,
)
from sparkwap.maintenance.decision import BranchFact, ManifestFact, TagFact

if TYPE_CHECKING:
    from sparkwap.ledger.records import KeptManifest, LedgerPublish
    from sparkwap.publish.lake import Lake

Alive = Callable[[Lease, float], bool]


class InUse(GateError):
    """A living run holds the branch; nothing was taken away."""


@dataclass(frozen=True)
class Survey:
    """The catalog as a sweep finds it.

    Attributes:
        now: The catalog's time.
        branches: The open audit branches.
        tags: sparkwap's tags on live tables.
        leases: All leases, and whether the run of each lives.
        rows: All rows of the catalog.
        side_schemas: Side schema -> audit branch.
        manifests: The manifests that the ledger keeps.
    """

    now: datetime
    branches: tuple[BranchFact, ...]
    tags: tuple[TagFact, ...]
    leases: tuple[tuple[Lease, bool], ...]
    rows: tuple[Pointer, ...]
    side_schemas: Mapping[str, str]
    manifests: tuple[ManifestFact, ...] = ()

    @property
    def live(self) -> tuple[Lease, ...]:
        """The leases of runs that live."""
        return tuple(lease for lease, lives in self.leases if lives)


@dataclass
class _Seen:
    """What is known of a branch, table by table."""

    ours: bool = False
    times: list[int] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)


def survey(lake: Lake, alive: Alive = leasing.alive) -> Survey:
    """Look at all that a sweep could take away.

    Args:
        lake: The lake.
        alive: Whether the run of a lease lives, at the catalog's time.

    Raises:
        CatalogError: A metadata file is missing or cannot be read.
    """
    now = lake.leases.now()
    leases = tuple((lease, alive(lease, now)) for lease in lake.leases.all())
    rows, marked = lake.store.backend.all(), lake.store.backend.side_schemas()
    documents = dict(
        zip(rows, lake.store.map(lambda row: lake.store.load(row.location), rows), strict=True)
    )
    in_use = {lease.branch: leasing.told(lease, lives=True) for lease, lives in leases if lives}
    seen = {branch: _Seen(ours=True) for branch in marked.values()}
    tags: list[TagFact] = []
    published, undone = _published_at(lake), _undone_at(lake)
    known = frozenset(marked.values())
    for row, document in documents.items():
        owner = marked.get(row.identifier[0])
        if owner is not None:
            seen[owner].times.append(int(document.get("last-updated-ms") or _view_time(document)))
        elif row.kind == "table":
            for branch in br.branches_of(document, known):
                _look_at(seen.setdefault(branch, _Seen()), document, branch)
            tags += _tags(row.identifier, document, in_use, published, undone)
    history = _last_seen(lake)
    for lease, _ in leases:
        history[lease.branch] = max(history.get(lease.branch, _EARLY), lease.last_heard)
    facts = [
        BranchFact(
            branch,
            is_run_branch(branch),
            found.ours,
            _latest(found, history.get(branch)),
            in_use.get(branch),
        )
        for branch, found in sorted(seen.items())
    ]
    return Survey(
        datetime.fromtimestamp(now, UTC),
        tuple(facts),
        tuple(tags),
        leases,
        tuple(rows),
        marked,
        tuple(
            manifest_facts(
                lake.ledger.kept_manifests(), lake.ledger.runs(), lake.ledger.publishes(), seen
            )
        ),
    )


_EARLY = datetime.min.replace(tzinfo=UTC)
_ABORT_TAG_KEEPS = timedelta(days=1)
"""Longer than a server may be at work on one request, and a process stand still."""


def _look_at(seen: _Seen, document: md.Document, branch: str) -> None:
    refs = md.refs_of(document)
    head, base = refs.get(branch), refs.get(base_tag(branch))
    # A branch of the same name that a user has made on another table is not touched.
    seen.ours = seen.ours or br.is_ours(document, branch)
    seen.changed.append(int(document.get("last-updated-ms") or 0))
    if head is not None and (base is None or head.snapshot_id != base.snapshot_id):
        snapshot = md.snapshot(document, head.snapshot_id) or {}
        seen.times.append(int(snapshot.get("timestamp-ms") or document["last-updated-ms"]))


def _latest(seen: _Seen, history: datetime | None) -> datetime | None:
    times = [datetime.fromtimestamp(ms / 1000, UTC) for ms in seen.times]
    times += [history] if history is not None else []
    if not times and seen.changed:
        # Opened and never written: no later than the first of its tables was changed last.
        times = [datetime.fromtimestamp(min(seen.changed) / 1000, UTC)]
    return max(times, default=None)


def _view_time(document: md.Document) -> int:
    return max((int(v["timestamp-ms"]) for v in document.get("versions") or ()), default=0)


def _tags(
    identifier: Identifier,
    document: md.Document,
    in_use: Mapping[str, str],
    published: Mapping[str, datetime],
    undone: Mapping[str, datetime],
) -> Iterable[TagFact]:
    refs, main = md.refs_of(document), md.main_of(document)
    using = [words for branch, words in in_use.items() if branch in refs]
    for name, ref in refs.items():
        branch, aborted = branch_of_base_tag(name), publish_of_abort_tag(name)
        if aborted is not None and ref.type == "tag":
            yield TagFact(
                ".".join(identifier),
                name,
                None,
                needed=False,
                since=undone.get(aborted),
                keeps=_ABORT_TAG_KEEPS,
                in_use=using[0] if using else None,
                aborted=True,
            )
            continue
        if ref.type != "tag" or not (branch or is_publish_tag(name)):
            continue
        age = (document.get("refs") or {}).get(name, {}).get("max-ref-age-ms")
        snapshot = md.snapshot(document, ref.snapshot_id) or {}
        written = int(snapshot.get("timestamp-ms") or 0)
        yield TagFact(
            ".".join(identifier),
            name,
            branch,
            needed=branch in refs or branch in in_use if branch else ref.snapshot_id == main,
            # A publish comes after what it publishes was written.
            since=published.get(name[-8:]) or datetime.fromtimestamp(written / 1000, UTC),
            keeps=None if age is None else timedelta(milliseconds=int(age)),
            in_use=using[0] if using else None,
        )


def _published_at(lake: Lake) -> dict[str, datetime]:
    """Short run id -> when that run last published."""
    found: dict[str, datetime] = {}
    for publish in lake.ledger.publishes():
        short = publish.run_id.replace("-", "")[:8].lower()
        found[short] = max(found.get(short, _EARLY), publish.published_at)
    return found


def _undone_at(lake: Lake) -> dict[str, datetime]:
    """Publish id -> when the journal of a publish was closed as undone."""
    rows = [] if lake.store.backend.atomic else lake.ledger.rows("journal")
    return {row["publish_id"]: row["at"] for row in rows if row["state"] in ("undone", "torn")}


def _last_seen(lake: Lake) -> dict[str, datetime]:
    """Audit branch -> when a run on it last ended."""
    found: dict[str, datetime] = {}
    for run in lake.ledger.runs():
        if run["branch"] and run["ended_at"] and run["outcome"] != "discarded":
            found[run["branch"]] = max(found.get(run["branch"], _EARLY), run["ended_at"])
    return found


def manifest_facts(
    kept: Collection[KeptManifest],
    runs: Iterable[Mapping[str, Any]],
    publishes: Iterable[LedgerPublish],
    open_branches: Collection[str],
) -> list[ManifestFact]:
    """What each manifest of the ledger is still good for.

    A pull request is compared with the latest publish of a table, or, once that is rolled back,
    with the one before it. So a manifest is of use until another one takes its place in each table.

    Args:
        kept: The manifests.
        runs: Rows of the ledger's ``runs``.
        publishes: All publishes, newest first.
        open_branches: Names of branches.
    """
    used = {one.hash: one.stored_at for one in kept}
    needed = set()
    for run in runs:
        code = run.get("manifest_hash")
        if code in used:
            _used(used, code, run["ended_at"])
            if run["branch"] in open_branches:
                needed.add(code)
    project = {one.hash: one.project for one in kept}
    replaced_at: dict[tuple[str, Identifier], datetime] = {}
    for publish in publishes:
        code = publish.manifest_hash
        if code is None or code not in used:
            continue
        _used(used, code, publish.published_at)
        for table in ((project[code], entry.identifier) for entry in publish.left):
            if table in replaced_at:
                _used(used, code, replaced_at[table])
            else:
                needed.add(code)
            replaced_at[table] = publish.published_at
    return [ManifestFact(one.hash, one.hash in needed, used[one.hash]) for one in kept]


def _used(used: dict[str, datetime], code: str, at: datetime | None) -> None:
    used[code] = max(used[code], at or _EARLY)


# -- taking away ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class SweptBranch:
    """A branch that was taken away.

    Attributes:
        branch: The branch.
        tables: Tables that had it.
        side: Tables and views in its side schemas.
        schemas: Its side schemas.
        snapshots: Number of snapshots that only it held.
        leases: Leases of dead runs on it, which are gone with it.
    """

    branch: str
    tables: tuple[Identifier, ...]
    side: tuple[Identifier, ...]
    schemas: tuple[str, ...]
    snapshots: int
    leases: tuple[Lease, ...]


def sweep_branch(
    lake: Lake,
    branch: str,
    *,
    run_id: str,
    reason: str,
    older_than: datetime,
    alive: Alive = leasing.alive,
) -> SweptBranch:
    """Take an audit branch away with all that exists only on it, in one transaction.

    Tables lose the branch, its base tag and the snapshots that only it held; its side schemas go.
    The ledger gets rows in ``runs`` and ``sweeps`` in the same transaction, in which the leases
    are looked at once more. No file is deleted.

    Args:
        lake: The lake.
        branch: The audit branch.
        run_id: The run that sweeps.
        reason: Why, for the ledger.
        older_than: Only snapshots from before this time go; younger ones go by a later sweep.
        alive: Whether the run of a lease lives, at the catalog's time.

    Raises:
        InUse: A living run holds the branch; nothing has changed.
        CatalogError: Other writers were faster each time, or the database failed.
    """
    before_ms = int(older_than.timestamp() * 1000)
    lake.ledger.ensure({"runs", "sweeps"})

    def unused(leases: Sequence[Lease], now: float) -> None:
        for lease in leases:
            if lease.branch == branch and alive(lease, now):
                raise InUse(
                    f"{branch} is {leasing.told(lease, lives=True)}. Nothing of it was changed."
                )

    def stage() -> Staged[SweptBranch]:
        rows, marked = lake.store.backend.all(), lake.store.backend.side_schemas()
        dead = tuple(lease for lease in lake.leases.all() if lease.branch == branch)
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
        swept = SweptBranch(
            branch,
            tuple(sorted(row.identifier for row, _, _ in found)),
            tuple(sorted(row.identifier for row in side)),
            tuple(sorted(schemas)),
            sum(gone for _, _, gone in found),
            dead,
        )
        objects = _objects_of_branch(lake, swept, side, [row for row, _, _ in found])
        recorded = _rows_of_branch(swept, run_id, reason, objects)
        swaps, files = lake.store.grow([(row, change) for row, change, _ in found])
        swaps += [PointerUpdate(row, None) for row in side]
        return lake.ledger.beside(
            Staged(swept, swaps, files, drop_schemas=schemas, guard=lake.leases.guard(unused)),
            recorded,
        )

    swept = lake.store.commit(stage, "sweep", run_id=run_id, branch=branch)
    for lease in swept.leases:
        lake.leases.release(lease.run_id)
    return swept


def sweep_table(
    lake: Lake,
    identifier: Identifier,
    tags: Collection[str],
    *,
    run_id: str,
    reason: str,
    older_than: datetime,
) -> tuple[tuple[str, ...], int]:
    """Take tags away from a table, and the snapshots of runs that no branch or tag reaches.

    Args:
        lake: The lake.
        identifier: The table.
        tags: The tags.
        run_id: The run that sweeps.
        reason: Why, for the ledger.
        older_than: Only snapshots from before this time go.

    Returns:
        The tags that are gone, and the number of snapshots.

    Raises:
        CatalogError: Other writers were faster each time, or the database failed.
    """
    before_ms = int(older_than.timestamp() * 1000)
    lake.ledger.ensure({"sweeps"})

    def stage() -> Staged[tuple[tuple[str, ...], int]]:
        row = lake.store.backend.get(identifier)
        if row is None or row.kind != "table":
            return Staged(((), 0))
        document = lake.store.load(row.location)
        gone = tuple(sorted(set(tags) & set(md.refs_of(document))))
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
    """A live table's metadata as it would be after a sweep, for telling what that frees: pure."""
    refs = {*tags, *(ref for branch in branches for ref in (branch, base_tag(branch)))}
    gone = tuple(refs & set(md.refs_of(document)))
    snapshots = unreferenced(document, gone, before_ms)
    return MetadataChange(document).remove_refs(*gone).remove_snapshots(snapshots).document(None)


def unreferenced(document: md.Document, dropped: Collection[str], before_ms: int) -> set[int]:
    """The snapshots that runs have written and that no branch or tag reaches: pure.

    Args:
        document: A table's metadata.
        dropped: Branches and tags that are about to go.
        before_ms: Only snapshots from before this time, in milliseconds since the epoch.

    Returns:
        Their ids; none for a table whose files are not its own to delete (``gc.enabled=false``),
        and none that another tool has written: it may have staged them without a branch.
    """
    if md.properties_of(document).get(md.GC_ENABLED, "true").lower() == "false":
        return set()
    snapshots = {int(one["snapshot-id"]): one for one in document.get("snapshots") or ()}
    reached: set[int] = set()
    for name, ref in md.refs_of(document).items():
        current: int | None = None if name in dropped else ref.snapshot_id
        while current is not None and current in snapshots and current not in reached:
            reached.add(current)
            parent = snapshots[current].get("parent-snapshot-id")
            current = None if parent is None else int(parent)
    return {
        number
        for number, one in snapshots.items()
        if number not in reached
        and int(one["timestamp-ms"]) < before_ms
        and "wap_run" in (one.get("summary") or {})
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
    lake: Lake, swept: SweptBranch, side: Sequence[Pointer], tables: Sequence[Pointer]
) -> list[dict[str, Any]]:
    """What of a branch goes, table by table; for side objects with their folder and identity."""
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
    return objects or [{}]


def died(lease: Lease, message: str) -> dict[str, Any]:
    """The ledger's row of a run that came to no end of its own."""
    return {
        "run_id": lease.run_id,
        "branch": lease.branch,
        "command": lease.command,
        "started_at": lease.began,
        "ended_at": lease.last_heard,
        "outcome": "died",
        "message": message,
    }


def _rows_of_branch(
    swept: SweptBranch, run_id: str, reason: str, objects: Sequence[Mapping[str, Any]]
) -> list[LedgerRows]:
    now = datetime.now(UTC)
    dead = [died(lease, leasing.told(lease, lives=False)) for lease in swept.leases]
    run = {
        "run_id": run_id,
        "branch": swept.branch,
        "command": "wap_sweep",
        "started_at": now,
        "ended_at": now,
        # From here on the history of the branch begins anew.
        "outcome": "discarded",
        "message": reason,
    }
    common = {
        "run_id": run_id,
        "swept_at": now,
        "what": "branch",
        "object": swept.branch,
        "reason": reason,
    }
    return [
        LedgerRows("runs", [*dead, run]),
        LedgerRows("sweeps", [{**common, **one} for one in objects]),
    ]
