"""What a sweep takes away: the decision, free of catalog and clock.

A sweep removes only what runs have left behind. In doubt a branch stays: if its age is unknown,
if its run may be alive, or if sparkwap did not open it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sparkwap.gate.settings import Limits


@dataclass(frozen=True, slots=True)
class BranchFact:
    """An audit branch as it is found.

    Attributes:
        name: The branch.
        of_run: It is a run's own, and not one that a user has named.
        ours: sparkwap opened it, and no user.
        last_seen: When anything last happened on it: a write, an audit, a sign of life of its
            run; None if nobody knows.
        in_use: In words by which living run; None if by none.
    """

    name: str
    of_run: bool
    ours: bool
    last_seen: datetime | None
    in_use: str | None = None


@dataclass(frozen=True, slots=True)
class TagFact:
    """A tag of sparkwap's on a table.

    Attributes:
        table: ``schema.name``.
        name: The tag.
        branch: For a tag that keeps the base of an audit branch, that branch; else None.
        needed: For the base of a branch: the table has the branch, or its run lives. For a
            receipt: it tags what readers see now.
        since: When a receipt was given, or a publish undone; None if nobody knows.
        keeps: How long the tag is to stay; None for ever.
        in_use: By which living run the table is in use, in words; None if by none.
        aborted: It keeps the table from what may still be on its way of an undone publish.
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
    """A manifest that the ledger keeps: the code of publishes and of runs.

    Attributes:
        hash: Its hash.
        needed: It is the code of some table's latest publish, or of a run on an open branch.
        last_used: When it was that last, or was stored, or built with.
    """

    hash: str
    needed: bool
    last_used: datetime


@dataclass(frozen=True, slots=True)
class Swept:
    """A branch or tag to take away, and the reason in words."""

    name: str
    reason: str
    table: str | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """A branch that stays, and the reason in words."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What to take away; ``kept`` are the branches that stay, ``manifests`` hashes."""

    branches: tuple[Swept, ...]
    kept: tuple[Kept, ...]
    tags: tuple[Swept, ...]
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
        branches: The open audit branches.
        tags: sparkwap's tags.
        limits: The ages.
        now: The catalog's time.
        manifests: The manifests that the ledger keeps.
    """
    swept: list[Swept] = []
    kept: list[Kept] = []
    for branch in branches:
        reason = why_kept(branch, limits, now)
        if reason is None and branch.last_seen is not None:
            age = words(now - branch.last_seen)
            swept.append(Swept(branch.name, f"nothing happened on it for {age}"))
        else:
            kept.append(Kept(branch.name, str(reason)))
    gone = {one.name for one in swept}
    return SweepPlan(
        tuple(swept),
        tuple(kept),
        tuple(
            Swept(tag.name, reason, tag.table)
            for tag in tags
            for reason in [_why_tag_goes(tag, gone, now)]
            if reason is not None
        ),
        tuple(
            one.hash
            for one in manifests
            if not one.needed and now - one.last_used >= timedelta(days=limits.manifest_days)
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
    age, limit = now - branch.last_seen, _limit(limits, branch)
    if age < limit:
        return f"{words(age)} old, and {words(limit)} are allowed"
    return None


def _why_tag_goes(tag: TagFact, gone: Collection[str], now: datetime) -> str | None:
    if tag.in_use is not None or tag.needed:
        return None
    if tag.branch is not None:
        # That of a branch that goes now goes with it.
        left_over = tag.branch not in gone
        return "it keeps the base of a branch that is no more" if left_over else None
    if tag.since is None or tag.keeps is None or now - tag.since < tag.keeps:
        return None
    what = "the abort tag of an undone publish, which" if tag.aborted else "a receipt that"
    return f"{what} was to stay for {words(tag.keeps)}"


def words(age: timedelta) -> str:
    """An age in words, rounded down: ``8 days``."""
    seconds = age.total_seconds()
    if seconds < 0:
        return "less than no time (clocks differ)"
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {unit}{'s' if count != 1 else ''}"
    return "less than a minute"


def _limit(limits: Limits, branch: BranchFact) -> timedelta:
    return timedelta(days=limits.run_days if branch.of_run else limits.named_days)
