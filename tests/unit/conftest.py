"""Unit tests start no process: no JVM, no dbt, no database server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

_STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn"})
_watched = False


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if _watched and event in _STARTS:
        pytest.fail(f"A unit test starts a process ({event}). Move it to tests/integration.")


# A hook cannot be taken off, and functional tests may run in this process, too.
sys.addaudithook(_refuse)


@pytest.fixture(autouse=True)
def starts_no_process() -> Iterator[None]:
    global _watched
    _watched = True
    yield
    _watched = False
