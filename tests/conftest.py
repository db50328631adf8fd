"""What all tests share: no test is timed, none leaves a secret behind, and a lake without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.bench import Bench
from hypothesis import HealthCheck, settings

from sparkwap.core import redaction

# A busy machine is no fault of the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

UNIT = Path(__file__).parent / "unit"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if UNIT in item.path.parents:
            item.add_marker(pytest.mark.unit)


@pytest.fixture(autouse=True)
def secrets_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that tells a secret hides it in its own texts only."""
    monkeypatch.setattr(redaction, "_known", set(redaction._known))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A lake without Spark, on SQLite."""
    bench = Bench(tmp_path)
    yield bench
    bench.lake.close()
