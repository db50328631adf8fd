"""A run's lease: taken before it writes, renewed while it lives, given back when it ends.

What dies without a word stops renewing, and its lease expires. On the machine of the run itself a
dead process is known at once.
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

ProcessStarted = Callable[[int], float | None]
"""When the process of an id was started, in seconds since the epoch; None if there is none."""

# A machine's clock may be put right while a process runs, and with it the time of its start.
_SAME_START_SECONDS = 60.0


class Holding:
    """A lease that is renewed by a thread until it is released.

    Args:
        leases: The catalog's leases.
        lease: The lease, taken already.
        every: Seconds between two renewals.
    """

    def __init__(self, leases: Leases, lease: Lease, every: float = RENEW_SECONDS) -> None:
        self._leases = leases
        self._lease = lease
        self._every = every
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="sparkwap-lease", daemon=True)
        self._thread.start()

    @property
    def lease(self) -> Lease:
        """The lease as it was last renewed."""
        return self._lease

    def release(self) -> None:
        """Give the lease back. A catalog that cannot be reached lets it expire instead."""
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
                # The next one may reach the catalog again; the lease lives for many of them.
                continue
            if renewed is None:
                return
            self._lease = renewed


def hold(
    leases: Leases, *, run_id: str, branch: str, command: str, every: float = RENEW_SECONDS
) -> Holding:
    """Take the lease of a run of this process, and keep it.

    Raises:
        CatalogError: The catalog cannot be written.
    """
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
            f"The run cannot be put on record in the catalog's database: {error.orig}. Nothing was "
            "written. Check the database (space, rights, connection), then run the same command "
            "again."
        ) from error


def alive(
    lease: Lease,
    now: float,
    *,
    machine: str | None = None,
    started: ProcessStarted | None = None,
) -> bool:
    """Whether the run of a lease lives, as far as can be known from here.

    Args:
        lease: The lease.
        now: The catalog's time.
        machine: The machine that asks; this one if left out.
        started: Looks a process up; on this machine if left out.
    """
    if lease.expired(now):
        return False
    if lease.machine != (machine or this_machine()):
        return True
    found = (started or process_started)(lease.pid)
    # Of a process that may not be looked at nothing is known, so it lives.
    return found is not None and not abs(found - lease.process_started) > _SAME_START_SECONDS


def living(leases: Leases) -> list[Lease]:
    """The leases of runs that live, as far as can be known from here."""
    now = leases.now()
    return [one for one in leases.all() if alive(one, now)]


def taken_before(leases: Leases, own: Lease) -> list[Lease]:
    """The leases of other runs that live and took the same branch before ``own`` did."""
    return [
        one
        for one in living(leases)
        if one.branch == own.branch and (one.since, one.run_id) < (own.since, own.run_id)
    ]


def told(lease: Lease, *, lives: bool) -> str:
    """A lease in the words of a message."""
    who = f"run {short_run_id(lease.run_id)}, process {lease.pid} on host {lease.host}"
    if lives:
        return f"in use by {who}, since {_time(lease.began)}"
    return f"{who} is dead; it was last heard of at {_time(lease.last_heard)}"


def process_started(pid: int) -> float | None:
    """When a process of this machine was started, in seconds since the epoch.

    None if it is not there, or only as a zombie; not a number if it may not be looked at.
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
    """What tells this machine, or container, apart from others whose process ids mean nothing here.

    Containers may share a host's name, and two boots of one machine share its process ids.
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
