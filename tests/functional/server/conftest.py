"""Lakes with a server of their own; each is stopped at the end of its test or module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkwap.server import ServerConfig, stop


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A lake for the tests of one module, with a blank in its name."""
    path = tmp_path_factory.mktemp("a lake") / ".lake"
    yield path
    stop(path)


@pytest.fixture(scope="module")
def config(lake: Path) -> ServerConfig:
    """The settings of that lake's server."""
    return ServerConfig(lake=lake, idle_minutes=10, memory="512m", cores=1)


@pytest.fixture
def other_lake(tmp_path: Path) -> Iterator[Path]:
    """A lake for one test."""
    path = tmp_path / ".lake"
    yield path
    stop(path)
