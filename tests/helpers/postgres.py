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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_USERS = ("postgres", "nobody")


@dataclass
class Postgres:
    """A server and its one database.

    Attributes:
        folder: its data.
        port: its port on loopback.
        rights: whom it runs as, for `subprocess`.
        max_connections: the most connections.
        idle_seconds: how long a connection may do nothing; 0 for no limit.
    """

    folder: Path
    port: int
    rights: Mapping[str, Any]
    max_connections: int = 100
    idle_seconds: int = 0
    _process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        """SQLAlchemy's URI of the database, for its superuser."""
        return self.uri_of("lake")

    def uri_of(self, role: str) -> str:
        """Return the URI for another role."""
        return f"postgresql+psycopg2://{role}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        options = ["-p", str(self.port), "-k", str(self.folder)]
        options += ["-c", "listen_addresses=127.0.0.1", "-F"]
        options += ["-c", f"max_connections={self.max_connections}"]
        options += ["-c", f"idle_session_timeout={self.idle_seconds}s"]
        command = ["postgres", "-D", str(self.folder / "data"), *options]
        self._process = subprocess.Popen(command, cwd=self.folder, **self.rights)
        _wait(self.port)

    def stop(self) -> None:
        """Shut the server down without waiting for its clients, whose connections break."""
        if self._process is None:
            return
        # SIGTERM would wait for every client that has not hung up.
        self._process.send_signal(signal.SIGINT)
        self._process.wait(timeout=30)


@contextmanager
def running_postgres(max_connections: int = 100, idle_seconds: int = 0) -> Iterator[Postgres]:
    """Start a server on loopback. Skips where there is none."""
    if not (shutil.which("initdb") and shutil.which("postgres")):
        pytest.skip("initdb and postgres are not on this machine")
    pytest.importorskip("psycopg2")
    user = _user()
    if user is None:
        pytest.skip("PostgreSQL refuses to run as root, and there is no other user for it")
    folder = Path(tempfile.mkdtemp(prefix="wap-pg-"))
    rights: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if os.geteuid() == 0:
        shutil.chown(folder, user)
        rights |= {"user": user, "env": {**os.environ, "HOME": str(folder)}}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data = str(folder / "data")
    initdb = ["initdb", "-D", data, "-A", "trust", "-U", "lake", "--no-sync", "-E", "UTF8"]
    subprocess.run(initdb, check=True, cwd=folder, **rights)
    server = Postgres(folder, port, rights, max_connections, idle_seconds)
    try:
        server.start()
        yield server
    finally:
        server.stop()
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
