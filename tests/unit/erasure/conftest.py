"""A lake with three people in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.people import lake_of_people

from sparkwap.publish.lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with lake_of_people(tmp_path) as lake:
        yield lake
