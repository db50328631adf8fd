"""Fixtures of the tests of sweeps and maintenance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

DAY = 86_400


@pytest.fixture
def later(bench: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let days pass by the catalog's clock."""
    clock = bench.lake.store.backend.clock

    def pass_days(days: float) -> None:
        monkeypatch.setattr(
            bench.lake.store.backend, "clock", lambda connection: clock(connection) + days * DAY
        )

    return pass_days
