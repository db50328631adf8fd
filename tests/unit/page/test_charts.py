"""The plots."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
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


@pytest.mark.parametrize("chart", [charts.metric([{"at": "a"}]), charts.timeline([{"start": "a"}])])
def test_each_label_of_a_time_axis_has_year_month_and_day_in_utc(chart: Any) -> None:
    axes = [x for x in encodings(chart.to_dict(), "x") if x["type"] == "temporal"]
    assert axes
    for x in axes:
        assert x["scale"] == {"type": "utc"}
        expression = x["axis"]["labelExpr"]
        assert expression.startswith("utcFormat(datum.value, ")
        formats = re.findall(r"'([^']*)'", expression)
        assert formats == ["%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d"]


def encodings(spec: Any, channel: str) -> Iterator[Any]:
    """Yield the encodings of a channel in a plot and in its layers."""
    if channel in spec.get("encoding", {}):
        yield spec["encoding"][channel]
    for layer in spec.get("layer", []):
        yield from encodings(layer, channel)
