"""The stored state of a running server, and checks that it is still valid."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from sparkwap.core.errors import ServerError
from sparkwap.server.config import LOOPBACK, Endpoint, LakePaths
from sparkwap.server.defaults import marker

Progress = Callable[[str], None]

LOCK_TIMEOUT_SECONDS = 300

# A process id is not used again so soon, and a clock that is set moves the start of all processes.
_CLOCK_SECONDS = 60
_EXEC_SECONDS = 1


@dataclass(frozen=True)
class ServerState:
    """A server that was started.

    Attributes:
        pid: process id of the Spark driver.
        created: its start in seconds since 1970.
        thrift_port: see ``Endpoint``.
        connect_port: see ``Endpoint``.
        token: see ``Endpoint``.
        watchdog_pid: process id of the watchdog, the driver's parent.
        settings: what the server was started with and a client may compare.
        ready: both endpoints have been seen listening.
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
        """How to reach the server."""
        return Endpoint(LOOPBACK, self.thrift_port, self.connect_port, self.token, self.pid)


def write_private(path: Path, text: str) -> None:
    """Replace a file at once by one that only its owner can read."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(partial, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    partial.replace(path)


def write(layout: LakePaths, state: ServerState) -> None:
    """Write the state down."""
    write_private(layout.state, json.dumps(asdict(state), indent=1))


def read(layout: LakePaths) -> ServerState | None:
    """Return the state as written, None if there is none or it is unreadable."""
    try:
        return ServerState(**json.loads(layout.state.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def forget(layout: LakePaths, pid: int | None = None) -> None:
    """Remove the state; with ``pid`` only if it is that of this process."""
    state = read(layout)
    if pid is None or (state is not None and state.pid == pid):
        layout.state.unlink(missing_ok=True)


def server_process(layout: LakePaths, state: ServerState) -> psutil.Process | None:
    """Return the live process of ``state`` if it is verifiably this lake's server, else None."""
    # By its command line, not by its start time, which moves when the machine's clock is set.
    try:
        process = psutil.Process(state.pid)
        begun = time.monotonic()
        # None is there to be read while the process is being started: exec clears it first.
        while not (line := process.cmdline()) and time.monotonic() - begun < _EXEC_SECONDS:
            time.sleep(0.01)
        return process if marker(layout.lake) in line else None
    except psutil.Error:  # among them a zombie, which has no command line
        return None


def client_lives(pid: int, created: float) -> bool:
    """Tell whether process ``pid`` runs (a zombie does not) and is the one begun at ``created``."""
    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - created) < _CLOCK_SECONDS
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def listens(process: psutil.Process, *ports: int) -> bool:
    """Tell whether the process itself listens on all of the ports."""
    try:
        connections = process.net_connections(kind="tcp")
    except psutil.Error:
        return False
    open_ports = {c.laddr.port for c in connections if c.status == psutil.CONN_LISTEN}
    return open_ports.issuperset(ports)


def register_client(layout: LakePaths, pid: int) -> None:
    """Note that process ``pid`` uses the server, which then stays up while the process lives."""
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
    """Return the ids of the registered processes that live, and drop the others."""
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
    """The lock of the server's files, which only their owner can open."""
    return FileLock(layout.lock, mode=0o600, poll_interval=0.1)


@contextmanager
def locked(layout: LakePaths, progress: Progress) -> Iterator[None]:
    """Hold the lock of the server's files; others, in any process or thread, wait.

    Raises:
        ServerError: another process has held the lock for too long.
    """
    started = told = time.monotonic()

    def waits() -> bool:
        nonlocal told
        now = time.monotonic()
        if now - told >= 3 or told == started:
            told = now
            progress(f"waiting for another process that starts the server ({now - started:.0f} s)")
        return False

    try:
        held = lock_of(layout).acquire(LOCK_TIMEOUT_SECONDS, cancel_check=waits)
    except Timeout as error:
        raise ServerError(
            f"Another process has been starting or stopping the server of {layout.lake} "
            f"for {LOCK_TIMEOUT_SECONDS} seconds. Nothing was changed. See what it does: "
            f"sparkwap server logs --lake {layout.lake}"
        ) from error
    with held:
        yield
