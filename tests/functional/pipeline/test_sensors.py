"""Readings of room sensors, some of which cannot be right: the example project, as it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.functional.pipeline.conftest import NewPipeline, Pipeline

LANDING = Path(__file__).parents[3] / "examples" / "sensors" / "landing"


@pytest.fixture(scope="module")
def sensors(new_example: NewPipeline) -> Pipeline:
    pipeline = new_example("sensors")
    pipeline.deliver(LANDING)
    done = pipeline.sparkwap("build")
    assert done.returncode == 0, done.stdout
    assert "2 drops published, up to 2024-02-29" in done.stdout
    return pipeline


def test_impossible_readings_are_quarantined_and_the_others_published(sensors: Pipeline) -> None:
    bad = {row["line"]: row["reason"] for row in sensors.rows("quarantine_building__readings")}
    rule = "rule temperature in range: temperature_c between -10 and 50"
    assert bad == {5: rule, 12: rule, 18: "temperature_c is not a decimal(5,1): n/a"}
    good = sensors.rows("stg_building__readings")
    assert len(good) == 48 - len(bad)
    assert all(-10 <= row["temperature_c"] <= 50 for row in good)
    days = {(r["room"], str(r["measured_on"])): r for r in sensors.rows("fct_room_temperatures")}
    assert len(days) == 6 and days["roof", "2024-02-29"]["readings"] == 6
