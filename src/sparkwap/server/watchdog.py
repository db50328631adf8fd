"""The parent process of the Spark driver: it stops an idle server and cleans up after a dead one.

``process.ensure`` starts it in its own session, so it outlives the dbt process. Its only argument
is the path of the launch file.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType

import psutil
from filelock import Timeout

from sparkwap.server import state as states
from sparkwap.server.config import LakePaths
from sparkwap.server.state import ServerState

GRACE_SECONDS = 15
LOG_LIMIT_BYTES = 20_000_000
_OUT_OF_MEMORY = 3  # Java's exit code with -XX:+ExitOnOutOfMemoryError

# Each Thrift session leaves a database connection open in the driver. An idle server stops when it
# uses more than this share of its descriptors, so that a new server starts.
DESCRIPTOR_SHARE = 0.5


@dataclass(frozen=True)
class Launch:
    """The watchdog's input: the driver's command, its idle time and the server's state."""

    lake: str
    command: list[str]
    idle_seconds: float
    thrift_port: int
    connect_port: int
    token: str = field(repr=False)
    settings: dict[str, str]

    def write(self, path: Path) -> None:
        """Write a file that only the owner can read, because it has the token."""
        states.write_private(path, json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Launch:
        """Read a file of ``write``."""
        return cls(**json.loads(path.read_text()))


def run(launch: Launch) -> int:
    """Start the driver, wait until it ends, and return its exit code."""
    layout = LakePaths(Path(launch.lake))
    woken = _wake_on_child()
    driver = subprocess.Popen(launch.command, stdin=subprocess.DEVNULL, cwd=layout.server)

    def terminate(_signal: int, _frame: FrameType | None) -> None:
        driver.terminate()

    signal.signal(signal.SIGTERM, terminate)
    process = psutil.Process(driver.pid)
    states.write(
        layout,
        ServerState(
            pid=driver.pid,
            created=process.create_time(),
            thrift_port=launch.thrift_port,
            connect_port=launch.connect_port,
            token=launch.token,
            watchdog_pid=os.getpid(),
            settings=launch.settings,
        ),
    )
    layout.activity.touch()
    code = _watch(launch, layout, driver, process, woken)
    why = f"exit code {code}"
    if code == _OUT_OF_MEMORY:
        why = "its heap was full: increase `memory` in the profile"
    print(f"sparkwap: the server has ended ({why})", file=sys.stderr, flush=True)
    states.forget(layout, driver.pid)
    return code


def _wake_on_child() -> int:
    """Return a descriptor that becomes readable when a child has ended, or at SIGTERM.

    ``Popen.wait`` with a timeout would poll twenty times per second while the server runs.
    """
    woken, signalled = os.pipe()
    for end in (woken, signalled):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda _signal, _frame: None)
    signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
    return woken


def _watch(
    launch: Launch,
    layout: LakePaths,
    driver: subprocess.Popen[bytes],
    process: psutil.Process,
    woken: int,
) -> int:
    tick = min(5.0, max(0.5, launch.idle_seconds / 10)) if launch.idle_seconds else 5.0
    active = time.monotonic()
    while True:
        if select.select([woken], [], [], tick)[0]:
            os.read(woken, 64)
        code = driver.poll()
        if code is not None:
            return code
        state = states.read(layout)
        if not layout.state.exists() or (state is not None and state.pid != driver.pid):
            # The lake was deleted, or has another server, so no client can find this one any more.
            driver.terminate()
            return driver.wait()
        _limit_log(layout)
        if _in_use(launch, layout, process):
            active = time.monotonic()
            layout.activity.touch()
            continue
        idle = time.monotonic() - active
        reason = _reason_to_stop(launch, idle, process)
        if reason and _stop_unused(launch, layout, driver, process, reason):
            return driver.wait()


def _reason_to_stop(launch: Launch, idle: float, process: psutil.Process) -> str | None:
    if launch.idle_seconds and idle >= launch.idle_seconds:
        return f"idle for {launch.idle_seconds / 60:g} minutes"
    if descriptors_used(process) > DESCRIPTOR_SHARE:
        return "idle and short of file descriptors"
    return None


def _in_use(launch: Launch, layout: LakePaths, process: psutil.Process) -> bool:
    if states.live_clients(layout):
        return True
    used = states.ports(process, psutil.CONN_ESTABLISHED)
    return not used.isdisjoint((launch.thrift_port, launch.connect_port))


def _stop_unused(
    launch: Launch,
    layout: LakePaths,
    driver: subprocess.Popen[bytes],
    process: psutil.Process,
    reason: str,
) -> bool:
    """Stop the driver unless there is a new client; return whether it was stopped."""
    try:
        held = states.lock_of(layout).acquire(blocking=False)
    except Timeout:
        return False  # a client registers under this lock, so its holder is about to use the server
    with held:
        if _in_use(launch, layout, process):
            return False
        print(f"sparkwap: stopping the server: {reason}", file=sys.stderr, flush=True)
        states.forget(layout, driver.pid)
        driver.terminate()
        try:
            driver.wait(timeout=GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            driver.kill()
        return True


def descriptors_used(process: psutil.Process) -> float:
    """Return the share of a process's file descriptors that are open; 0 if unknown."""
    with suppress(psutil.Error, AttributeError):
        limit = process.rlimit(psutil.RLIMIT_NOFILE)[0]
        return float(process.num_fds()) / float(limit) if limit > 0 else 0.0
    return 0.0


def _limit_log(layout: LakePaths) -> None:
    # The driver appends to an inherited descriptor, so the file is truncated, not renamed.
    with suppress(OSError):
        if layout.log.stat().st_size > LOG_LIMIT_BYTES:
            os.truncate(layout.log, 0)


def main() -> None:
    """Run with the launch file of the command line."""
    sys.exit(run(Launch.read(Path(sys.argv[1]))))
