"""Decides what a sweep removes. Pure: no catalog, no clock.

A sweep removes only what runs have left. A branch stays if its age is unknown, if its run may be
alive, or if sparkwap did not open it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sparkwap.core import text
from sparkwap.gate.settings import Limits


@dataclass(frozen=True, slots=True)
class BranchFact:
    """An audit branch.

    Attributes:
        of_run: A run made the branch for itself; False if a user has named it.
        ours: sparkwap opened it, not a user.
        last_seen: The last write, audit or heartbeat of a run; None if not known.
        in_use: The living run that uses it, in words; None if there is none.
        known: Whether ``last_seen`` is of the branch itself. Else it is the last change of a table.
    """

    name: str
    of_run: bool
    ours: bool
    last_seen: datetime | None
    in_use: str | None = None
    known: bool = True


@dataclass(frozen=True, slots=True)
class TagFact:
    """A tag of sparkwap on a table.

    Attributes:
        table: ``schema.name``.
        branch: The audit branch whose base the tag marks; None for other tags.
        needed: For the base of a branch: the table has the branch, or its run lives. For a
            receipt: it marks the snapshot that readers see now.
        since: Time of the publish of a receipt, or of the undoing of a publish; None if not known.
        keeps: How long the tag stays; None for ever.
        in_use: The living run that uses the table, in words; None if there is none.
        aborted: An abort tag, which blocks late requests of an undone publish.
    """

    table: str
    name: str
    branch: str | None
    needed: bool
    since: datetime | None = None
    keeps: timedelta | None = None
    in_use: str | None = None
    aborted: bool = False


@dataclass(frozen=True, slots=True)
class ManifestFact:
    """A manifest in the ledger: the code of publishes and runs.

    Attributes:
        needed: It is the code of a table's latest publish, or of a run on an open branch.
        last_used: The last time that it was needed, stored, or used by a run.
    """

    hash: str
    needed: bool
    last_used: datetime


@dataclass(frozen=True, slots=True)
class Reasoned:
    """A branch or tag that is removed or stays, and why, in words."""

    name: str
    reason: str
    table: str | None = None


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """The branches, tags and manifests (hashes) to remove, and the branches that stay."""

    branches: tuple[Reasoned, ...]
    kept: tuple[Reasoned, ...]
    tags: tuple[Reasoned, ...]
    manifests: tuple[str, ...] = ()


def decide(
    branches: Sequence[BranchFact],
    tags: Sequence[TagFact],
    limits: Limits,
    now: datetime,
    manifests: Sequence[ManifestFact] = (),
) -> SweepPlan:
    """Decide what to sweep.

    Args:
        now: The catalog's time.
    """
    swept: list[Reasoned] = []
    kept: list[Reasoned] = []
    for branch in branches:
        reason = why_kept(branch, limits, now)
        if reason is None and branch.last_seen is not None:
            age = words(now - branch.last_seen)
            swept.append(Reasoned(branch.name, f"no activity for {age}"))
        else:
            kept.append(Reasoned(branch.name, str(reason)))
    gone = {branch.name for branch in swept}
    return SweepPlan(
        tuple(swept),
        tuple(kept),
        tuple(
            Reasoned(tag.name, reason, tag.table)
            for tag in tags
            for reason in [_why_tag_goes(tag, gone, now)]
            if reason is not None
        ),
        tuple(
            manifest.hash
            for manifest in manifests
            if not manifest.needed
            and now - manifest.last_used >= timedelta(days=limits.manifest_days)
        ),
    )


def why_kept(branch: BranchFact, limits: Limits, now: datetime) -> str | None:
    """Return why a branch stays, in words; None if it goes."""
    if branch.in_use is not None:
        return branch.in_use
    if not branch.ours:
        return "it was not opened by sparkwap"
    if branch.last_seen is None:
        return "its age is not known; drop it by hand: wap_discard"
    age = now - branch.last_seen
    limit = timedelta(days=limits.run_days if branch.of_run else limits.named_days)
    if age < limit:
        return f"{words(age)} old; the limit is {words(limit)}"
    return None


def _why_tag_goes(tag: TagFact, gone: Collection[str], now: datetime) -> str | None:
    if tag.in_use is not None or tag.needed:
        return None
    if tag.branch is not None:
        # The removal of a branch also removes its base tag.
        left_over = tag.branch not in gone
        return "it marks the base of a branch that no longer exists" if left_over else None
    if tag.since is None or tag.keeps is None or now - tag.since < tag.keeps:
        return None
    kind = "the abort tag of an undone publish" if tag.aborted else "a receipt"
    return f"{kind}, past its age of {words(tag.keeps)}"


def words(span: timedelta) -> str:
    """Return an age in words, rounded down: ``8 days``."""
    seconds = span.total_seconds()
    return text.age(seconds) if seconds >= 0 else "less than 0 s (clocks differ)"
