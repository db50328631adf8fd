"""What all tests share: CI's time, untimed tests, secrets of their own, a lake without Spark."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from changed_tests import ROOT, UNKNOWN_SECONDS, known_seconds
from dbt_common.tests import enable_test_caching
from helpers.bench import Bench
from hypothesis import HealthCheck, settings

from sparkwap.core import redaction

# Hundreds of projects have the same macros, whose parsing takes a third of a test's Python time.
enable_test_caching()
# A busy machine is no fault of the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

UNIT = Path(__file__).parent / "unit"
UNIT_TESTS_LONGER = 600
"""Seconds after ``CI_DEADLINE`` in which unit tests still begin."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark unit tests, and sort files so that slow ones run first: no worker is left with one."""
    smoke = config.option.markexpr == "smoke"
    table = ROOT / "tests" / ("durations-smoke.csv" if smoke else "durations.csv")
    seconds = known_seconds(table)
    for item in items:
        if UNIT in item.path.parents:
            item.add_marker(pytest.mark.unit)
    items.sort(key=lambda item: -seconds.get(str(item.path.relative_to(ROOT)), UNKNOWN_SECONDS))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin no test after ``CI_DEADLINE`` (seconds since 1970), no unit test ten minutes after it.

    CI is ended after 90 minutes and would then report nothing. On a machine that is many times
    slower than usual the tests that are left are reported as skipped. A unit test takes seconds.
    """
    deadline = float(os.environ.get("CI_DEADLINE") or "inf")
    if item.get_closest_marker("unit"):
        deadline += UNIT_TESTS_LONGER
    if time.time() > deadline:
        pytest.skip("the time of CI is up; `make test` and `make check-all` run this test")


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
