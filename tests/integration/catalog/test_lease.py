"""The lease of a killed process does not count as alive."""

from __future__ import annotations

import subprocess
import sys
import time

from sparkwap.catalog import lease as leasing
from sparkwap.catalog.leases import Lease


def test_a_killed_process_is_dead_at_once() -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    started = leasing.process_started(sleeper.pid)
    assert started is not None
    here = leasing.this_machine()
    mine = Lease("a run", "dev", "build", sleeper.pid, started, "x", here, 1000.0, 2000.0)
    assert leasing.alive(mine, 2001.0)
    sleeper.kill()
    # The parent has not waited for it, so it is a zombie.
    deadline = time.monotonic() + 5
    while leasing.alive(mine, 2001.0) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not leasing.alive(mine, 2001.0)
    sleeper.wait()
    assert not leasing.alive(mine, 2001.0)
