"""The plots."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkwap.page import charts, run_history
from sparkwap.page.formats import (
    VERDICTS,
)

from .conftest import FIRST, node, run


def test_plots_have_their_data_and_the_colours_of_the_verdicts() -> None:
    found = run_history.overviews([run(FIRST, 5, "published")], [node(FIRST, "a", "published")])
    spec = charts.verdicts(run_history.verdict_bars(found)).to_dict()
    assert spec["data"]["values"][0]["tables"] == 1
    scale = spec["encoding"]["color"]["scale"]
    assert dict(zip(scale["domain"], scale["range"], strict=True)) == {
        name: badge.colour for name, badge in VERDICTS.items()
    }


@pytest.mark.parametrize(
    "chart",
    [
        charts.verdicts([{"run": "a"}]),
        charts.durations([{"run": "a", "outcome": "held"}]),
        charts.tests([{"test": "a"}]),
        charts.metric([{"at": "a"}]),
        charts.reasons([{"reason": "a"}]),
        charts.timeline([{"version": "a"}]),
    ],
)
def test_plots_are_valid_and_include_their_data(chart: Any) -> None:
    # Altair validates plots by the schema of Vega-Lite.
    assert len(json.loads(chart.to_json())["data"]["values"]) == 1
