"""A run's lease: taken before the run writes, renewed while it is alive, released at its end.

The lease of a run that dies expires, because nothing renews it. On the machine of the run, the dead
process is noticed at once.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from datetime import datetime
from functools import cache
from pathlib import Path

import psutil

from sparkwap.catalog.leases import Lease, Leases
from sparkwap.core.errors import CatalogError
from sparkwap.core.names import short_run_id

RENEW_SECONDS = 60.0

MAINTENANCE = "wap_maintain"
"""The command in the lease of a maintenance."""

REPLAY = "replay"
"""The command in the lease of a run that reads former states of tables."""

ProcessStarted = Callable[[int], float | None]
"""Process id -> start of the process, in seconds since the epoch; None if there is none."""

# A correction of the machine's clock also changes the start time of a running process.
_SAME_START_SECONDS = 60.0


class Holding:
    """A lease that a thread renews each ``every`` seconds until it is released."""

    def __init__(self, leases: Leases, lease: Lease, every: float = RENEW_SECONDS) -> None:
        self._leases = leases
        self._lease = lease
        self._every = every
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="sparkwap-lease", daemon=True)
        self._thread.start()

    @property
    def lease(self) -> Lease:
        """The lease as of its last renewal."""
        return self._lease

    def release(self) -> None:
        """Release the lease. If the catalog cannot be reached, the lease expires later."""
        if self._done.is_set():
            return
        self._done.set()
        self._thread.join(self._every)
        try:
            self._leases.release(self._lease.run_id)
        except Exception:
            return

    def _renew(self) -> None:
        while not self._done.wait(self._every):
            try:
                renewed = self._leases.renew(self._lease)
            except Exception:
                # The next renewal may reach the catalog; the lease is valid for many of them.
                continue
            if renewed is None:
                return
            self._lease = renewed


def hold(
    leases: Leases, *, run_id: str, branch: str, command: str, every: float = RENEW_SECONDS
) -> Holding:
    """Take the lease of a run of this process, and keep renewing it."""
    from sqlalchemy.exc import DBAPIError

    pid = os.getpid()
    lease = Lease(
        run_id,
        branch,
        command,
        pid,
        process_started(pid) or 0.0,
        socket.gethostname(),
        this_machine(),
    )
    try:
        return Holding(leases, leases.take(lease), every)
    except DBAPIError as error:
        raise CatalogError(
            f"The lease of the run cannot be written to the catalog's database: {error.orig}. "
            "Nothing was written. Check the database (space, rights, connection), then run the "
            "same command again."
        ) from error


def alive(
    lease: Lease, now: float, *, machine: str | None = None, started: ProcessStarted | None = None
) -> bool:
    """Return whether the run of a lease is alive, as far as this machine can know.

    Args:
        now: The catalog's time.
        machine: The machine that checks; by default, this machine.
        started: Returns the start of a process; by default, of a process of this machine.
    """
    if lease.expired(now):
        return False
    if lease.machine != (machine or this_machine()):
        return True
    found = (started or process_started)(lease.pid)
    # The start is "not a number" if this user may not inspect the process; it counts as alive.
    return found is not None and not abs(found - lease.process_started) > _SAME_START_SECONDS


def living(leases: Leases) -> list[Lease]:
    """Return the leases of runs that are alive, as far as this machine can know."""
    now = leases.now()
    return [lease for lease in leases.all() if alive(lease, now)]


def taken_before(leases: Leases, own: Lease) -> list[Lease]:
    """Return the leases of other live runs that took the same branch before ``own``."""
    return [
        lease
        for lease in living(leases)
        if lease.branch == own.branch and (lease.since, lease.run_id) < (own.since, own.run_id)
    ]


def describe(lease: Lease, *, lives: bool) -> str:
    """Return a lease in words, for messages."""
    who = f"run {short_run_id(lease.run_id)}, process {lease.pid} on host {lease.host}"
    if lives:
        return f"in use by {who}, since {_time(lease.began)}"
    return f"{who} is dead; it was last heard of at {_time(lease.last_heard)}"


def process_started(pid: int) -> float | None:
    """Return the start of a process of this machine, in seconds since the epoch.

    None if it does not exist or is a zombie; "not a number" if this user may not inspect it.
    """
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return float(process.create_time())
    except psutil.NoSuchProcess:
        return None
    except psutil.Error:
        return float("nan")


@cache
def this_machine() -> str:
    """Return an id of this machine or container, to which its process ids belong.

    The host name alone is not enough: containers may share it, and so do two boots of a machine.
    """
    parts = [socket.gethostname()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        try:
            here = Path(path)
            parts.append(str(here.readlink()) if here.is_symlink() else here.read_text().strip())
        except OSError:
            parts.append(str(int(psutil.boot_time())))
    return " ".join(parts)


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
