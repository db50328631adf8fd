"""Collects what runs have left in the catalog: audit branches, tags, leases and manifests.

`decision` decides what a sweep removes, and `removal` removes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sparkwap.catalog import branches as br
from sparkwap.catalog import lease as leasing
from sparkwap.catalog import metadata as md
from sparkwap.catalog.content_equality import same_rows
from sparkwap.catalog.leases import Lease
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.pointers import Pointer
from sparkwap.core.errors import ConfigError
from sparkwap.core.names import (
    base_tag,
    branch_of_base_tag,
    is_publish_tag,
    is_run_branch,
    publish_of_abort_tag,
    publish_tag,
)
from sparkwap.maintenance.decision import BranchFact, ManifestFact, TagFact

if TYPE_CHECKING:
    from sparkwap.ledger.records import KeptManifest, LedgerPublish
    from sparkwap.publish.lake import Lake


@dataclass(frozen=True)
class Survey:
    """The facts about the catalog from which a sweep decides.

    Attributes:
        now: The catalog's time.
        tags: sparkwap's tags on live tables.
        leases: All leases, and whether the run of each lives.
        side_schemas: Side schema -> audit branch.
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

    @property
    def replayed(self) -> bool:
        """Whether a living run reads former states of tables."""
        return replay(self.live) is not None


def replay(living: Iterable[Lease]) -> str | None:
    """Return a living run that reads former states of tables, in words; None if there is none."""
    found = (leasing.describe(one, lives=True) for one in living if one.command == leasing.REPLAY)
    return next(found, None)


@dataclass
class _Seen:
    """The facts about a branch from its tables; times are in milliseconds since the epoch."""

    ours: bool = False
    times: list[int] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)


def take_survey(lake: Lake) -> Survey:
    """Collect the facts about everything that a sweep could remove."""
    now = lake.leases.now()
    leases = tuple((lease, leasing.alive(lease, now)) for lease in lake.leases.all())
    rows, marked = lake.store.backend.all(), lake.store.backend.side_schemas()
    documents = dict(zip(rows, lake.store.documents(rows), strict=True))
    facts = branch_facts(lake, documents, marked, leases)
    in_use = {lease.branch: leasing.describe(lease, lives=True) for lease, lives in leases if lives}
    tags: list[TagFact] = []
    published, undone = _published_at(lake), _undone_at(lake)
    replayed = replay(lease for lease, lives in leases if lives)
    for row, document in documents.items():
        if row.identifier[0] not in marked and row.kind == "table":
            tags += _tags(row.identifier, document, in_use, published, undone, replayed)
    return Survey(
        datetime.fromtimestamp(now, UTC),
        facts,
        tuple(tags),
        leases,
        tuple(rows),
        marked,
        tuple(
            manifest_facts(
                lake.ledger.kept_manifests(),
                lake.ledger.runs(),
                lake.ledger.publishes(),
                {one.name for one in facts},
            )
        ),
    )


def branch_facts(
    lake: Lake,
    documents: Mapping[Pointer, md.Document],
    side_schemas: Mapping[str, str],
    leases: Iterable[tuple[Lease, bool]],
) -> tuple[BranchFact, ...]:
    """Return the facts about the open audit branches, by name; for arguments, see `Survey`."""
    leases = list(leases)
    in_use = {lease.branch: leasing.describe(lease, lives=True) for lease, lives in leases if lives}
    seen = {branch: _Seen(ours=True) for branch in side_schemas.values()}
    known = frozenset(seen)
    for row, document in documents.items():
        owner = side_schemas.get(row.identifier[0])
        if owner is not None:
            seen[owner].times.append(int(document.get("last-updated-ms") or _view_time(document)))
        elif row.kind == "table":
            for branch in br.branches_of(document, known):
                _look_at(seen.setdefault(branch, _Seen()), document, branch)
    history = _last_seen(lake)
    for lease, _ in leases:
        history[lease.branch] = max(history.get(lease.branch, _EARLY), lease.last_heard)
    return tuple(
        BranchFact(
            branch,
            is_run_branch(branch),
            found.ours,
            _latest(found, history.get(branch)),
            in_use.get(branch),
            known=bool(found.times) or branch in history,
        )
        for branch, found in sorted(seen.items())
    )


_EARLY = datetime.min.replace(tzinfo=UTC)
_ABORT_TAG_KEEPS = timedelta(days=1)
"""Longer than a server can work on one request, and than a process can be suspended."""


def _look_at(seen: _Seen, document: md.Document, branch: str) -> None:
    refs = md.refs_of(document)
    head, base = refs.get(branch), refs.get(base_tag(branch))
    # A user may have made a branch of the same name on another table.
    seen.ours = seen.ours or br.is_ours(document, branch)
    seen.changed.append(int(document.get("last-updated-ms") or 0))
    if head is not None and (base is None or head.snapshot_id != base.snapshot_id):
        snapshot = md.snapshot(document, head.snapshot_id) or {}
        seen.times.append(int(snapshot.get("timestamp-ms") or document["last-updated-ms"]))


def _latest(seen: _Seen, history: datetime | None) -> datetime | None:
    times = [datetime.fromtimestamp(ms / 1000, UTC) for ms in seen.times]
    times += [history] if history is not None else []
    if not times and seen.changed:
        # Opened and never written, so opened before the first of its tables was last changed.
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
    replayed: str | None,
) -> Iterable[TagFact]:
    refs = md.refs_of(document)
    using = [words for branch, words in in_use.items() if branch in refs]
    using += [replayed] if replayed else []
    for name, ref in refs.items():
        branch, aborted = branch_of_base_tag(name), publish_of_abort_tag(name)
        if ref.type != "tag" or not (branch or aborted is not None or is_publish_tag(name)):
            continue
        keeps: timedelta | None = _ABORT_TAG_KEEPS
        if aborted is not None:
            since = undone.get(aborted)
        else:
            age = md.raw_refs(document)[name].get("max-ref-age-ms")
            keeps = None if age is None else timedelta(milliseconds=int(age))
            snapshot = md.snapshot(document, ref.snapshot_id) or {}
            # Without a row of the publish, the time when the snapshot was written is a lower bound.
            written = datetime.fromtimestamp(int(snapshot.get("timestamp-ms") or 0) / 1000, UTC)
            since = published.get(name, written)
        yield TagFact(
            ".".join(identifier),
            name,
            branch,
            needed=is_needed(document, name, in_use),
            since=since,
            keeps=keeps,
            in_use=using[0] if using else None,
            aborted=aborted is not None,
        )


def is_needed(document: md.Document, tag: str, in_use: Collection[str]) -> bool:
    """Return whether a table needs a tag of sparkwap now; see `TagFact`. Pure.

    Args:
        tag: The base tag of a branch, or another tag of the table.
        in_use: The branches of living runs.
    """
    refs, branch = md.refs_of(document), branch_of_base_tag(tag)
    if branch:
        return branch in refs or branch in in_use
    return is_publish_tag(tag) and same_rows(document, refs[tag].snapshot_id, md.main_of(document))


def _published_at(lake: Lake) -> dict[str, datetime]:
    """Return receipt -> time of the last publish of its run."""
    found: dict[str, datetime] = {}
    for publish in lake.ledger.publishes():
        with suppress(ConfigError):  # a row of somebody else, whose run has no receipt
            tag = publish_tag(publish.run_id)
            found[tag] = max(found.get(tag, _EARLY), publish.published_at)
    return found


def _undone_at(lake: Lake) -> dict[str, datetime]:
    """Return publish id -> time when the journal of an undone publish was closed."""
    rows = [] if lake.store.backend.atomic else lake.ledger.rows("journal")
    return {row["publish_id"]: row["at"] for row in rows if row["state"] in ("undone", "torn")}


def _last_seen(lake: Lake) -> dict[str, datetime]:
    """Return audit branch -> time when a run on it last ended."""
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
    """Return, for each manifest of the ledger, whether it is needed and when it was last used.

    A pull request is compared with the latest publish of a table, or, after a rollback, with the
    publish before it. So a manifest is used until a later publish has replaced it in each table.

    Args:
        publishes: All publishes, newest first.
    """
    used = {manifest.hash: manifest.stored_at for manifest in kept}
    needed = set()
    for run in runs:
        code = run.get("manifest_hash")
        if code in used:
            _used(used, code, run["ended_at"])
            if run["branch"] in open_branches:
                needed.add(code)
    project = {manifest.hash: manifest.project for manifest in kept}
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
    return [ManifestFact(m.hash, m.hash in needed, used[m.hash]) for m in kept]


def _used(used: dict[str, datetime], code: str, at: datetime | None) -> None:
    used[code] = max(used[code], at or _EARLY)
