"""Unit tests start no process: no JVM, no dbt, no database server."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from sparkwap.core import next_command

_STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn"})
_watched = False


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if _watched and event in _STARTS:
        pytest.fail(f"A unit test starts a process ({event}). Move it to tests/integration.")


# A hook cannot be taken off, and functional tests may run in this process, too.
sys.addaudithook(_refuse)


@event.listens_for(Engine, "connect")
def _need_not_be_durable(connection: Any, _record: Any) -> None:
    if _watched and isinstance(connection, sqlite3.Connection):
        connection.execute("pragma synchronous = off")


@pytest.fixture(autouse=True)
def has_no_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recommend commands without a target, whatever an earlier test has parsed."""
    monkeypatch.setattr(next_command, "_given", "")


@pytest.fixture(autouse=True)
def starts_no_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Refuse to start a process. No file waits for the disk, which takes a third of the time."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    global _watched
    _watched = True
    yield
    _watched = False
