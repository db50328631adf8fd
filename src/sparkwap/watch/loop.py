"""The loop of ``sparkwap watch``: looks, asks the decision, and does what is due."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any, Protocol, TextIO

from sparkwap.errors import SparkwapError
from sparkwap.redaction import redact
from sparkwap.watch import decision
from sparkwap.watch.decision import Build, Job, Listing, Settings, State, Upkeep, Wait

# dbt cancels its statements on an interrupt, which takes a moment.
_ENDINGS = ((signal.SIGINT, 60.0), (signal.SIGTERM, 15.0), (signal.SIGKILL, None))
_ONWAY = "._COPYING_"


class Work(Protocol):
    """What the loop can have done; each returns an exit code, 0 for success."""

    def unread(self) -> bool:
        """Whether there are landing files that no run has published; True without any folder."""

    def build(self) -> int:
        """Build what is there, behind the gate."""

    def discard(self) -> None:
        """Drop what the build before has left on its own audit branch."""

    def call(self, job: Job) -> int:
        """Keep the lake in order."""


class Watch:
    """Watches until it is stopped.

    Args:
        work: What can be done.
        listing: The landing files as they are now.
        settings: How to watch.
        stop: Set from outside to end.
        tell: Takes an event and its facts, for the log.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        work: Work,
        listing: Callable[[], Listing],
        settings: Settings,
        stop: Event,
        tell: Callable[..., None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._work = work
        self._listing = listing
        self._settings = settings
        self._stop = stop
        self._tell = tell
        self._clock = clock
        self._said = ""

    def forever(self) -> int:
        """Watch until it is stopped; returns 0."""
        self._run(once=False)
        return 0

    def once(self) -> int:
        """Do what is due, tries included, until nothing is; returns the last build's code."""
        return self._run(once=True)

    def _run(self, *, once: bool) -> int:
        state, code = State(began=self._clock()), 0
        while not self._stop.is_set():
            state = decision.look(state, self._listing(), self._clock())
            action = decision.decide(state, self._settings, self._clock())
            if isinstance(action, Build):
                state, code = self._build(state, action)
            elif isinstance(action, Upkeep):
                state = self._keep(state, action.job)
            elif once and action.why == "nothing is due":
                break
            else:
                self._wait(action)
        return code

    def _wait(self, action: Wait) -> None:
        if action.why != self._said:
            self._said = action.why
            self._tell("waiting", reason=action.why)
        self._stop.wait(action.seconds)

    def _build(self, state: State, action: Build) -> tuple[State, int]:
        """Build, unless the files are known already; what a try has left behind goes first."""
        self._said = ""
        began, taken = self._clock(), state.listing
        try:
            if action.why == "new files" and not self._work.unread():
                self._tell("known", files=len(taken))
                return decision.succeeded(state, taken, state.built or state.began), 0
            if action.why == "retry":
                self._work.discard()
            self._tell("building", reason=action.why, files=len(taken), attempt=state.failed + 1)
            code, problem = self._work.build(), None
        except SparkwapError as error:
            code, problem = 1, str(error)
        if self._stop.is_set():
            return state, code
        now = self._clock()
        took = round(now - began, 3)
        if code == 0:
            self._tell("built", seconds=took)
            return decision.succeeded(state, taken, began), 0
        last = decision.gave_up(state, self._settings)
        self._tell(
            "gave up" if last else "failed",
            seconds=took,
            code=code,
            attempt=state.failed + 1,
            message=problem,
            next="dbt run-operation wap_status" if last else None,
        )
        return decision.failed(state, self._settings, taken, began, now), code

    def _keep(self, state: State, job: Job) -> State:
        self._said = ""
        began = self._clock()
        try:
            code, problem = self._work.call(job), None
        except SparkwapError as error:
            code, problem = 1, str(error)
        took = round(self._clock() - began, 3)
        self._tell(job, seconds=took, code=code, message=problem)
        return decision.called(state, job, self._clock())


def list_folders(folders: Iterable[Path]) -> Listing:
    """The files in some folders, but for those that are on their way.

    What cannot be looked at is left out; the build tells what is wrong with it.
    """
    found: set[tuple[str, int, int]] = set()
    for folder in folders:
        for parent, inner, names in os.walk(folder):
            inner[:] = [name for name in inner if not _on_its_way(name)]
            for name in names:
                with suppress(OSError):
                    path = os.path.join(parent, name)  # noqa: PTH118  (a path for each file is slow)
                    if not _on_its_way(name):
                        status = os.stat(path)  # noqa: PTH116
                        found.add((path, status.st_size, status.st_mtime_ns))
    return frozenset(found)


def _on_its_way(name: str) -> bool:
    return name.startswith((".", "_")) or name.endswith(_ONWAY)


def run_until(command: Sequence[str], stop: Event, poll: float = 0.2) -> int:
    """Run a command to its end, or interrupt it, and all that it has started, when stopped.

    It gets a session of its own: an interrupt of the terminal reaches it through here alone, and a
    Spark server that it starts has another one, and stays.
    """
    # It heeds interrupts, also where this process was started to ignore them: a handler, which the
    # watch has, is not inherited.
    child = subprocess.Popen(command, start_new_session=True)
    try:
        while not stop.is_set():
            with suppress(subprocess.TimeoutExpired):
                return child.wait(poll)
    finally:
        if child.poll() is None:
            _end(child)
    return child.returncode


def _end(child: subprocess.Popen[bytes]) -> None:
    for sent, patience in _ENDINGS:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, sent)
        with suppress(subprocess.TimeoutExpired):
            child.wait(patience)
            return


def to_stream(stream: TextIO) -> Callable[..., None]:
    """A log of JSON lines, one for each event; facts without a value are left out."""

    def tell(event: str, **facts: Any) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"at": at, "event": event}
        line |= {key: value for key, value in facts.items() if value is not None}
        print(redact(json.dumps(line, ensure_ascii=False)), file=stream, flush=True)

    return tell
