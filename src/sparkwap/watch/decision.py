"""What is due: the decision of ``sparkwap watch``, free of clock, disk and processes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from datetime import time as time_of_day
from typing import Literal

Listing = frozenset[tuple[str, int, int]]
"""Path, size in bytes, and time of the last change in nanoseconds, of each landing file."""

Job = Literal["sweep", "alerts"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How to watch; all times in seconds.

    Attributes:
        poll: Between two looks at the landing folder.
        settle: For which nothing may have changed in it before it is read.
        every: Between two builds without new files; None for none.
        at: Times of day, UTC, of builds without new files.
        tries: How often a build is tried on the same files.
        retry_wait: Before the second try; each next one waits twice as long.
        longest_wait: Between two tries, at most.
        upkeep: Between two calls of a job that keeps the lake in order; what is absent is never
            called.
    """

    poll: float = 5.0
    settle: float = 10.0
    every: float | None = None
    at: tuple[time_of_day, ...] = ()
    tries: int = 3
    retry_wait: float = 30.0
    longest_wait: float = 600.0
    upkeep: tuple[tuple[Job, float], ...] = (("sweep", 86_400.0),)


@dataclass(frozen=True, slots=True)
class State:
    """What is known; all times in seconds since the epoch.

    Attributes:
        began: When the watch began.
        listing: The landing files as last seen.
        changed: When they were last seen to change.
        done: The files that were there when a build last took all of them, or failed for good.
        built: When a build last began; None for never.
        failed: Number of tries that have failed on the present files.
        next_try: When the next one is due.
        upkeep: When each job was last called.
    """

    began: float
    listing: Listing = frozenset()
    changed: float = 0.0
    done: Listing = frozenset()
    built: float | None = None
    failed: int = 0
    next_try: float = 0.0
    upkeep: tuple[tuple[Job, float], ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Build:
    """Build now; ``why`` is ``new files``, ``schedule`` or ``retry``."""

    why: Literal["new files", "schedule", "retry"]


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Call a job that keeps the lake in order."""

    job: Job


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is due for so many seconds; ``why`` says what is waited for."""

    seconds: float
    why: Literal["nothing is due", "files are arriving", "the next try"]


Action = Build | Upkeep | Wait


def look(state: State, listing: Listing, now: float) -> State:
    """The state after a look at the landing folder.

    Other files are another matter: what failed may succeed with them.
    """
    if listing == state.listing:
        return state
    return replace(state, listing=listing, changed=now, failed=0, next_try=0.0)


def decide(state: State, settings: Settings, now: float) -> Action:
    """What to do now.

    Files that are still being written would be read half, so that nothing is built, not even on
    schedule, before the folder has settled.
    """
    new = state.listing != state.done
    if new and now - state.changed < settings.settle:
        left = state.changed + settings.settle - now
        return Wait(min(left, settings.poll), "files are arriving")
    if state.failed:
        if now >= state.next_try:
            return Build("retry")
        return Wait(min(state.next_try - now, settings.poll), "the next try")
    if new:
        return Build("new files")
    due = next_build(state, settings)
    if due is not None and now >= due:
        return Build("schedule")
    for job, every in settings.upkeep:
        if now >= dict(state.upkeep).get(job, state.began) + every:
            return Upkeep(job)
    return Wait(settings.poll, "nothing is due")


def next_build(state: State, settings: Settings) -> float | None:
    """When the next build without new files is due; None for never."""
    last = state.began if state.built is None else state.built
    due = [] if settings.every is None else [last + settings.every]
    due += (_next_at(last, one) for one in settings.at)
    return min(due, default=None)


def succeeded(state: State, taken: Listing, began: float) -> State:
    """The state after a build that took all of the files ``taken``."""
    return replace(state, done=taken, built=began, failed=0, next_try=0.0)


def failed(state: State, settings: Settings, taken: Listing, began: float, now: float) -> State:
    """The state after a build that failed.

    After the last try the files count as done: the same files would fail in the same way, until
    something changes, or the schedule says so.
    """
    count = state.failed + 1
    if count >= settings.tries:
        return replace(state, done=taken, built=began, failed=0, next_try=0.0)
    wait = min(settings.retry_wait * 2 ** (count - 1), settings.longest_wait)
    return replace(state, built=began, failed=count, next_try=now + wait)


def gave_up(state: State, settings: Settings) -> bool:
    """Whether the try that fails now is the last one on these files."""
    return state.failed + 1 >= settings.tries


def called(state: State, job: Job, now: float) -> State:
    """The state after a job was called, whatever came of it."""
    return replace(state, upkeep=tuple({**dict(state.upkeep), job: now}.items()))


def _next_at(since: float, at: time_of_day) -> float:
    """The first moment after ``since`` that has this time of day, UTC."""
    then = datetime.fromtimestamp(since, UTC)
    due = datetime.combine(then.date(), at, UTC)
    return (due if due > then else due + timedelta(days=1)).timestamp()


def seconds(text: str) -> float:
    """A duration: ``90``, ``90s``, ``15m``, ``2h``, ``1d``.

    Raises:
        ValueError: It is none, or not more than nothing.
    """
    unit = {"s": 1, "m": 60, "h": 3600, "d": 86_400}.get(text[-1:].lower())
    number = float(text if unit is None else text[:-1]) * (unit or 1)
    if not 0 < number < float("inf"):
        raise ValueError(text)
    return number


def times(texts: Iterable[str]) -> tuple[time_of_day, ...]:
    """Times of day: ``06:00``.

    Raises:
        ValueError: One is none.
    """
    return tuple(time_of_day.fromisoformat(text) for text in texts)
