"""A PostgreSQL server of a test's own."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_USERS = ("postgres", "nobody")


@contextmanager
def running_postgres() -> Iterator[str]:
    """Start a server on loopback; yields the URI of its database. Skips where there is none."""
    if not (shutil.which("initdb") and shutil.which("postgres")):
        pytest.skip("initdb and postgres are not on this machine")
    pytest.importorskip("psycopg2")
    user = _user()
    if user is None:
        pytest.skip("PostgreSQL refuses to run as root, and there is no other user for it")
    folder = Path(tempfile.mkdtemp(prefix="wap-pg-"))
    as_user: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if os.geteuid() == 0:
        shutil.chown(folder, user)
        as_user |= {"user": user, "env": {**os.environ, "HOME": str(folder)}}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data = str(folder / "data")
    initdb = ["initdb", "-D", data, "-A", "trust", "-U", "lake", "--no-sync", "-E", "UTF8"]
    subprocess.run(initdb, check=True, cwd=folder, **as_user)
    options = ["-p", str(port), "-k", str(folder), "-c", "listen_addresses=127.0.0.1", "-F"]
    process = subprocess.Popen(["postgres", "-D", data, *options], cwd=folder, **as_user)
    try:
        _wait(port)
        yield f"postgresql+psycopg2://lake@127.0.0.1:{port}/postgres"
    finally:
        # A fast shutdown: SIGTERM would wait for every client that has not hung up.
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
        shutil.rmtree(folder, ignore_errors=True)


def _user() -> str | None:
    """Whom to run the server as: PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()).pw_name
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in _USERS if name in known), None)


def _wait(port: int) -> None:
    import psycopg2

    for _ in range(100):
        try:
            psycopg2.connect(host="127.0.0.1", port=port, user="lake", dbname="postgres").close()
            return
        except psycopg2.OperationalError:
            time.sleep(0.1)
    pytest.fail("PostgreSQL did not start")
