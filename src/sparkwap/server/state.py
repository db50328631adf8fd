"""The stored state of a running server, and checks that it is still valid."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from sparkwap.core.errors import ServerError
from sparkwap.server.config import LOOPBACK, Endpoint, LakePaths
from sparkwap.server.defaults import marker

Progress = Callable[[str], None]

LOCK_TIMEOUT_SECONDS = 300

# A process id is not reused so soon. Setting the clock moves the start time of all processes.
_CLOCK_SECONDS = 60
_EXEC_SECONDS = 1


@dataclass(frozen=True)
class ServerState:
    """A server that was started.

    Attributes:
        pid: process id of the Spark driver.
        created: start time in seconds since 1970.
        watchdog_pid: process id of the watchdog, the driver's parent.
        settings: the settings at the start, for comparisons by clients.
        ready: whether both endpoints have listened.
    """

    pid: int
    created: float
    thrift_port: int
    connect_port: int
    token: str = field(repr=False)
    watchdog_pid: int
    settings: dict[str, str]
    ready: bool = False

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint of the server."""
        return Endpoint(LOOPBACK, self.thrift_port, self.connect_port, self.token, self.pid)


def write_private(path: Path, text: str) -> None:
    """Replace a file atomically by a file that only its owner can read."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(partial, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    partial.replace(path)


def write(layout: LakePaths, state: ServerState) -> None:
    """Write the state to its file."""
    write_private(layout.state, json.dumps(asdict(state), indent=1))


def read(layout: LakePaths) -> ServerState | None:
    """Return the stored state; None if it is missing or unreadable.

    A server of another version may have written it, so unknown fields are ignored.
    """
    known = {one.name for one in fields(ServerState)}
    try:
        content = json.loads(layout.state.read_text())
        return ServerState(**{name: content[name] for name in content.keys() & known})
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        return None


def forget(layout: LakePaths, pid: int | None = None) -> None:
    """Remove the state; with ``pid``, only if it is the state of this process."""
    state = read(layout)
    if pid is None or (state is not None and state.pid == pid):
        layout.state.unlink(missing_ok=True)


def server_process(layout: LakePaths, state: ServerState) -> psutil.Process | None:
    """Return the process of ``state`` if it runs and is verified as this lake's server."""
    # Verified by the command line: the start time moves when the machine's clock is set.
    try:
        process = psutil.Process(state.pid)
        begun = time.monotonic()
        # The command line is empty while exec starts the process.
        while not (line := process.cmdline()) and time.monotonic() - begun < _EXEC_SECONDS:
            time.sleep(0.01)
        return process if marker(layout.lake) in line else None
    except psutil.Error:  # also for a zombie, which has no command line
        return None


def running(layout: LakePaths) -> tuple[ServerState, psutil.Process] | None:
    """Return the stored state and the process of the lake's server if it runs."""
    state = read(layout)
    process = server_process(layout, state) if state else None
    return (state, process) if state and process else None


def client_lives(pid: int, created: float) -> bool:
    """Return whether process ``pid`` runs, is not a zombie, and was started at ``created``."""
    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - created) < _CLOCK_SECONDS
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def ports(process: psutil.Process, status: str) -> set[int]:
    """Return the ports of a process's own connections in a status of TCP; none if unknown."""
    try:
        connections = process.net_connections(kind="tcp")
    except psutil.Error:
        return set()
    return {one.laddr.port for one in connections if one.status == status}


def register_client(layout: LakePaths, pid: int) -> None:
    """Register process ``pid`` as a client; the server stays up while the process runs."""
    try:
        created = psutil.Process(pid).create_time()
    except psutil.Error:
        return
    path = layout.clients / str(pid)
    with suppress(FileNotFoundError):
        if path.read_text() == str(created):
            return
    layout.clients.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(path, str(created))


def live_clients(layout: LakePaths) -> list[int]:
    """Return the ids of the registered processes that run, and remove the others."""
    alive = []
    for path in layout.clients.glob("[0-9]*"):
        try:
            lives = client_lives(int(path.name), float(path.read_text()))
        except (ValueError, FileNotFoundError):
            lives = False
        if lives:
            alive.append(int(path.name))
        else:
            path.unlink(missing_ok=True)
    return sorted(alive)


def lock_of(layout: LakePaths) -> FileLock:
    """Return the lock of the server's files, which only their owner can open."""
    return FileLock(layout.lock, mode=0o600, poll_interval=0.1)


@contextmanager
def locked(layout: LakePaths, progress: Progress) -> Iterator[None]:
    """Hold the lock of the server's files while the block runs; other processes and threads wait.

    Raises:
        ServerError: another process has held the lock for too long.
    """
    started = last_progress = time.monotonic()

    def report_wait() -> bool:
        nonlocal last_progress
        now = time.monotonic()
        if now - last_progress >= 3 or last_progress == started:
            last_progress = now
            progress(f"waiting for another process that starts the server ({now - started:.0f} s)")
        return False

    try:
        held = lock_of(layout).acquire(LOCK_TIMEOUT_SECONDS, cancel_check=report_wait)
    except Timeout as error:
        raise ServerError(
            f"Another process has been starting or stopping the server of {layout.lake} "
            f"for {LOCK_TIMEOUT_SECONDS} seconds. Nothing was changed. Read the log: "
            f"{layout.command('logs')}"
        ) from error
    with held:
        yield
