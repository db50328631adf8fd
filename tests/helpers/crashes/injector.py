"""The fault injector: dies, or breaks something, at a step of the gate.

`inject` switches it on in the process that is to die. A fault is
``<step>:<action>[:<occurrence>]``::

    publish.committed:kill-process   the first time that the step is reached
    statement.sending:kill-server:3  the third time

The actions are those of `ACTIONS`. The server is the embedded one of the lake that
``LAKE_VARIABLE`` names.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy.exc import OperationalError

from sparkwap.core import checkpoints
from sparkwap.core.checkpoints import Checkpoint

LAKE_VARIABLE = "SPARKWAP_FAULT_LAKE"
STRIKES = "sparkwap: the fault strikes at"
"""What the standard error says then; without it the step was not reached."""


class InjectedFault(Exception):
    """What the action ``raise`` raises; of no class that the code handles."""


class Injector:
    """Does one action, at one occurrence of one step.

    Args:
        step: Name of the step.
        action: One of `ACTIONS`.
        occurrence: Which time that the step is reached, from 1 on.

    Raises:
        ValueError: There is no such action, or the occurrence is below 1.
    """

    def __init__(self, step: str, action: str, occurrence: int = 1) -> None:
        if action not in ACTIONS or occurrence < 1:
            raise ValueError(
                "a fault is <step>:<action>[:<occurrence from 1 on>] with one of the actions "
                f"{', '.join(ACTIONS)}"
            )
        self._step = step
        self._action = ACTIONS[action]
        self._left = occurrence
        self._lock = threading.Lock()

    @classmethod
    def parse(cls, text: str) -> Injector:
        """The injector of a fault as text."""
        step, _, rest = text.partition(":")
        action, _, occurrence = rest.partition(":")
        times = occurrence or "1"
        return cls(step, action, int(times) if times.isdigit() else 0)

    def __call__(self, step: Checkpoint, facts: Mapping[str, Any]) -> None:
        """As a listener of `sparkwap.core.checkpoints`."""
        if step.name != self._step:
            return
        with self._lock:
            self._left -= 1
            due = self._left == 0
        if due:
            sys.stderr.write(f"{STRIKES} {step.name}\n")
            self._action(step)


def _kill_process(_step: Checkpoint) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_server(_step: Checkpoint) -> None:
    from sparkwap.server import status

    found = status(Path(os.environ.get(LAKE_VARIABLE, ".lake")))
    if found is not None:
        psutil.Process(found.endpoint.pid).kill()


def _raise(step: Checkpoint) -> None:
    raise InjectedFault(f"a fault was injected at {step.name}")


def _fill_disk(step: Checkpoint) -> None:
    raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} (injected at {step.name})")


def _lose_network(step: Checkpoint) -> None:
    """Shut all TCP connections of this process, or say what a database without any would say."""
    shut = 0
    for connection in psutil.Process().net_connections(kind="tcp"):
        if connection.status == psutil.CONN_ESTABLISHED and connection.fd >= 0:
            with socket.socket(fileno=os.dup(connection.fd)) as mine:
                mine.shutdown(socket.SHUT_RDWR)
            shut += 1
    if not shut:
        gone = ConnectionError(f"the connection was lost (injected at {step.name})")
        raise OperationalError("commit", {}, gone, connection_invalidated=True)


ACTIONS: Mapping[str, Callable[[Checkpoint], None]] = {
    "kill-process": _kill_process,
    "kill-server": _kill_server,
    "raise": _raise,
    "disk-full": _fill_disk,
    "lost-network": _lose_network,
}
"""What can go wrong: SIGKILL of this process (dbt, or a process that runs the library without dbt),
SIGKILL of the server, an exception, a disk without space, a network that is gone."""


def inject(fault: str) -> None:
    """Switch a fault on in this process."""
    checkpoints.listen(Injector.parse(fault))
