"""``sparkwap watch``: options, the lock, signals."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from sparkwap import build as building
from sparkwap.build import DbtCall, parse_call
from sparkwap.errors import ConfigError, SparkwapError
from sparkwap.names import is_run_branch
from sparkwap.state import LastRun
from sparkwap.watch.decision import Job, Listing, Settings, seconds, times
from sparkwap.watch.loop import Watch, list_folders, run_until, to_stream

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

LOCK = "sparkwap_watch.lock"
_SPARKWAP = (sys.executable, "-m", "sparkwap.cli")
_DURATION = "such as 90s, 15m, 2h, 1d"


def register_watch(commands: Commands) -> None:
    """``sparkwap watch``."""
    text = "a gated build for each new set of landing files, or on a schedule"
    parser = commands.add_parser(
        "watch",
        help=text,
        description=text,
        usage="sparkwap watch [option ...] [-- argument of dbt build ...]",
    )
    parser.add_argument("--every", type=_seconds, help=f"build also so often, {_DURATION}")
    parser.add_argument("--at", action="append", default=[], help="build also at HH:MM, UTC")
    options: dict[str, tuple[str, str]] = {
        "poll": ("5s", "between two looks at the landing folder"),
        "settle": ("10s", "for which no landing file may have changed"),
        "retry-wait": ("30s", "before the second try; then twice as long each time"),
    }
    for name, (default, what) in options.items():
        parser.add_argument(
            f"--{name}", type=_seconds, default=seconds(default), help=f"{what} (default {default})"
        )
    parser.add_argument("--tries", type=int, default=3, help="on the same files (default 3)")
    parser.add_argument(
        "--sweep", type=_or_never, default=seconds("1d"), help="so often, or never (default 1d)"
    )
    parser.add_argument(
        "--alerts", type=_or_never, default=None, help="check so often (default never)"
    )
    parser.add_argument("--once", action="store_true", help="do what is due, and end")
    parser.add_argument("arguments", nargs="*", help=argparse.SUPPRESS)
    parser.set_defaults(handler=watch)


def watch(parsed: argparse.Namespace) -> int:
    """Watch until a signal; returns 0, or with ``--once`` the last build's exit code.

    Raises:
        SparkwapError: The project cannot be used, or is watched already.
    """
    settings = settings_of(parsed)
    call = parse_call(parsed.arguments)
    tell, stop = to_stream(sys.stderr), Event()
    with one_at_a_time(call.project_dir / call.target_path), stopped_by_signals(stop):
        work = DbtWork(call, parsed.arguments, stop)
        folders = work.folders()
        if not folders and settings.every is None and not settings.at:
            raise ConfigError(
                "No raw model has a landing folder, so there is nothing to watch. Nothing was "
                "built. Build on a schedule: sparkwap watch --every 1h"
            )
        tell("started", folders=[str(folder) for folder in folders], pid=os.getpid())

        def listing() -> Listing:
            return list_folders(folders)

        loop = Watch(work, listing, settings, stop, tell)
        code = loop.once() if parsed.once else loop.forever()
        tell("stopped", code=code)
    return code


def settings_of(parsed: argparse.Namespace) -> Settings:
    """The settings of a command line.

    Raises:
        ConfigError: One is illegal.
    """
    if parsed.tries < 1:
        raise ConfigError(f"--tries is {parsed.tries}; legal: 1 or more. Nothing was built.")
    try:
        at = times(parsed.at)
    except ValueError as error:
        raise ConfigError(f"--at: {error}; legal: HH:MM, UTC. Nothing was built.") from error
    given: dict[Job, float | None] = {"sweep": parsed.sweep, "alerts": parsed.alerts}
    return Settings(
        poll=parsed.poll,
        settle=parsed.settle,
        every=parsed.every,
        at=at,
        tries=parsed.tries,
        retry_wait=parsed.retry_wait,
        upkeep=tuple((job, every) for job, every in given.items() if every is not None),
    )


class DbtWork:
    """The work, done by `sparkwap build`, `sparkwap sweep` and others in processes of their own.

    A process for each build, as dbt keeps much of its state for the life of one.

    Args:
        call: How dbt is called.
        arguments: Those of `dbt build`.
        stop: Set from outside; what is running is interrupted then.
    """

    def __init__(self, call: DbtCall, arguments: Sequence[str], stop: Event) -> None:
        self._call = call
        self._arguments = list(arguments)
        self._stop = stop
        self._failed: str | None = None

    def folders(self) -> list[Path]:
        """The landing folders of the project's raw models."""
        models = building.raw_models(self._call.manifest(), self._call.project_dir)
        return sorted({model.root for model in models})

    def unread(self) -> bool:
        models = building.raw_models(self._call.manifest(), self._call.project_dir)
        known = building.known_files(self._call.lake(), models)
        return bool(building.unread_files(models, known, lambda _: None)) or not models

    def build(self) -> int:
        code = self._sparkwap("build", *self._arguments)
        last = LastRun.read(self._call.project_dir / self._call.target_path)
        left = last is not None and last.left and is_run_branch(last.branch)
        self._failed = last.branch if code and last is not None and left else None
        return code

    def discard(self) -> None:
        if self._failed is not None:
            self._call.run("run-operation", "wap_discard", "--args", f"{{branch: {self._failed}}}")
            self._failed = None

    def call(self, job: Job) -> int:
        command = {"sweep": ("sweep",), "alerts": ("alerts", "check")}[job]
        return self._sparkwap(*command, *self._options())

    def _options(self) -> list[str]:
        call = self._call
        given = {
            "--project-dir": call.project_dir,
            "--profiles-dir": call.profiles_dir,
            "--profile": call.profile,
            "--target": call.target,
            "--vars": json.dumps(dict(call.variables), default=str) if call.variables else None,
        }
        return [text for k, v in given.items() if v is not None for text in (k, str(v))]

    def _sparkwap(self, *arguments: str) -> int:
        return run_until([*_SPARKWAP, *arguments], self._stop)


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Hold the lock of a project's target folder; the kernel lets go of it when a process dies.

    Raises:
        SparkwapError: Another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            raise SparkwapError(
                f"Another sparkwap watch (process {file.read().strip() or 'unknown'}) is at work "
                f"here ({path}). Nothing was built. End that one, or let it go on."
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


@contextmanager
def stopped_by_signals(stop: Event) -> Iterator[None]:
    """Set ``stop`` on an interrupt or a request to end, and put the handlers back after it."""

    def ask(*_: Any) -> None:
        stop.set()

    before: dict[signal.Signals, Any] = {}
    for one in (signal.SIGINT, signal.SIGTERM):
        before[one] = signal.signal(one, ask)
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _seconds(text: str) -> float:
    try:
        return seconds(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration, {_DURATION}") from None


def _or_never(text: str) -> float | None:
    return None if text == "never" else _seconds(text)
