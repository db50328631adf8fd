"""The batches of a microbatch model that `main` lacks.

dbt counts the batches of a run back from now, by the model's ``lookback``. What a run has built and
not published is not built again once it lies further back, and neither is what no run has built.
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
    """The ranges of time that a run has built of a model, when, and whether `main` has got them."""

    ranges: tuple[Range, ...]
    at: datetime
    published: bool


def as_utc(at: datetime) -> datetime:
    """A moment that is in UTC where it does not say what it is in."""
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def merged(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """The same ranges, in order, those that touch as one."""
    found: list[Range] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return tuple(found)


def written(ranges: Iterable[Range]) -> list[str] | None:
    """Ranges as the ledger has them; None for none."""
    return [f"{start.isoformat()}/{end.isoformat()}" for start, end in ranges] or None


def read(row: Mapping[str, Any]) -> tuple[Range, ...]:
    """The ranges of a row of the ledger's ``nodes``; none for one of an older version."""
    pairs = (text.split("/") for text in row.get("batches") or ())
    return tuple(
        (datetime.fromisoformat(start), datetime.fromisoformat(end)) for start, end in pairs
    )


def builds(rows: Iterable[tuple[Mapping[str, Any], bool]]) -> list[BatchBuild]:
    """The builds of a model since it was last published as a whole, or nobody knows as what.

    Args:
        rows: Its rows of ``nodes``, oldest first, and whether `main` has got what they tell of.
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
    """The ranges that were built or passed over, and that `main` has not got.

    A publish has all of its ranges that were wanted before it. For what was wanted later it has
    those that were over by then: the last batch of a run is most often one that still grows.

    Args:
        builds: All builds of a model, oldest first.
    """
    wanted = [(one, build.at) for build in builds if not build.published for one in build.ranges]
    wanted += _passed_over(builds)
    left: list[Range] = []
    for one, at in wanted:
        parts = [one]
        for build in builds:
            for start, end in build.ranges if build.published else ():
                has = (start, end if build.at >= at else min(end, build.at))
                parts = [rest for part in parts for rest in _without(part, has)]
        left += parts
    return merged(left)


def notices(node_id: str, ranges: Sequence[Range]) -> Iterator[str]:
    """A line for each range that `main` lacks, with the command that builds it."""
    for start, end in ((f"{start:{_SHOWN}}", f"{end:{_SHOWN}}") for start, end in ranges):
        chosen = next_command.selected(node_id)
        command = f"build --select {chosen} --event-time-start {start} --event-time-end {end}"
        yield (
            f"main lacks its batches from {start} to {end}, which were not published or not built, "
            f"and later runs pass them over: {next_command.dbt(command)}"
        )


def _passed_over(builds: Sequence[BatchBuild]) -> Iterator[tuple[Range, datetime]]:
    """What lies between the end of all that is published and the start of the next publish."""
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
