"""The batches of a microbatch model that are missing on `main`.

A run of dbt builds the latest batches only, as many as the model's ``lookback`` says. Older batches
that were not built, or built but not published, are not built again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sparkwap.core import next_command
from sparkwap.gate.verdicts import PUBLISHING_OFF

Range = tuple[datetime, datetime]
_SHOWN = "%Y-%m-%dT%H:%M:%S"


@dataclass(frozen=True, slots=True)
class BatchBuild:
    """The time ranges of a model that a run has built, when, and whether they are on `main`."""

    ranges: tuple[Range, ...]
    at: datetime
    published: bool


def as_utc(at: datetime) -> datetime:
    """Return a time with its time zone; UTC if it has none."""
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def merged(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return the ranges in order, with adjacent and overlapping ranges merged."""
    found: list[Range] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return tuple(found)


def written(ranges: Iterable[Range]) -> list[str] | None:
    """Return ranges in the form of the ledger; None if there are none."""
    return [f"{start.isoformat()}/{end.isoformat()}" for start, end in ranges] or None


def read(row: Mapping[str, Any]) -> tuple[Range, ...]:
    """Return the ranges of a row of the ledger's ``nodes``; none if an older version wrote it."""
    pairs = (text.split("/") for text in row.get("batches") or ())
    return tuple(
        (datetime.fromisoformat(start), datetime.fromisoformat(end)) for start, end in pairs
    )


def builds(rows: Iterable[tuple[Mapping[str, Any], bool]]) -> list[BatchBuild]:
    """Return the builds of a model since its last publish without ranges (a full build).

    Args:
        rows: The model's rows of ``nodes``, oldest first, and whether the build is on `main`.
    """
    found: list[BatchBuild] = []
    for row, published in rows:
        ranges = read(row)
        if published and not ranges:
            found = []
        elif ranges and PUBLISHING_OFF not in (row["reason"] or ""):
            found.append(BatchBuild(ranges, row["built_at"], published))
    return found


def lacking(builds: Sequence[BatchBuild]) -> tuple[Range, ...]:
    """Return the ranges that were built or skipped, and that are missing on `main`.

    A publish contains its ranges for all builds before it. For a later build it contains only the
    time before the publish, because the last batch of a run usually still grows.

    Args:
        builds: All builds of a model, oldest first.
    """
    wanted = [(span, build.at) for build in builds if not build.published for span in build.ranges]
    wanted += _skipped(builds)
    left: list[Range] = []
    for span, at in wanted:
        parts = [span]
        for build in builds:
            for start, end in build.ranges if build.published else ():
                has = (start, end if build.at >= at else min(end, build.at))
                parts = [rest for part in parts for rest in _without(part, has)]
        left += parts
    return merged(left)


def lost(builds: Sequence[BatchBuild], kept: Range) -> tuple[Range, ...]:
    """Return the published ranges that `main` loses if it is built anew from one range only."""
    has = merged(span for build in builds if build.published for span in build.ranges)
    return tuple(rest for part in has for rest in _without(part, kept))


def untold(rows: Sequence[tuple[Mapping[str, Any], bool]]) -> tuple[BatchBuild, ...]:
    """Return a build with all batches that `main` may have, although no publish tells of them.

    A full build has no ranges, nor has a publish by an older version or another program. The first
    publish with ranges may have added them to such rows.

    Args:
        rows: As for `builds`.
    """
    published = [row for row, is_published in rows if is_published]
    ends = [row["built_at"] for row in published if not read(row)]
    if not published:
        ends = [datetime.now(UTC)]
    elif published[0].get("base_snapshot") is not None:
        ends.append(published[0]["built_at"])
    start = datetime.min.replace(tzinfo=UTC)
    return tuple(BatchBuild(((start, as_utc(at)),), at, True) for at in sorted(ends)[-1:])


def notices(node_id: str, ranges: Sequence[Range]) -> Iterator[str]:
    """Yield a line for each range that is missing on `main`, with the command that builds it."""
    for start, end in ((f"{start:{_SHOWN}}", f"{end:{_SHOWN}}") for start, end in ranges):
        chosen = next_command.selected(node_id)
        command = f"build --select {chosen} --event-time-start {start} --event-time-end {end}"
        yield (
            f"main lacks its batches from {start} to {end}, which were not built or not published. "
            f"Later runs do not build them. Build them with: {next_command.dbt(command)}"
        )


def _skipped(builds: Sequence[BatchBuild]) -> Iterator[tuple[Range, datetime]]:
    """Yield the gaps between the end of all published ranges and the start of the next publish."""
    last: datetime | None = None
    for build in builds:
        if build.published:
            start = min(start for start, _ in build.ranges)
            if last is not None and start > last:
                yield (last, start), build.at
            ends = [end for _, end in build.ranges]
            last = max([*ends, last] if last is not None else ends)


def _without(part: Range, other: Range) -> Iterator[Range]:
    (start, end), (first, last) = part, other
    if last <= start or end <= first or last <= first:
        yield part
        return
    if start < first:
        yield start, first
    if last < end:
        yield last, end
