"""The decisions of the anomaly audits, from numbers alone."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from statistics import fmean, stdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkwap.audits.anomaly import (
    METRICS,
    AnomalyRule,
    ColumnChange,
    PastValue,
    column_changes,
    column_metrics,
    judge,
    training,
)
from sparkwap.core.errors import ConfigError

NOW = datetime(2026, 1, 30, tzinfo=UTC)
FIGURES = st.floats(-1e9, 1e9).filter(lambda x: x == 0 or abs(x) > 1e-6)


def daily(*values: float, until: datetime = NOW) -> list[PastValue]:
    """Return one sample per day; the last one is of the day before ``until``."""
    return [
        PastValue(value, until - timedelta(days=len(values) - n)) for n, value in enumerate(values)
    ]


def state(value: float | None, *history: float, metric: str = "row_count", **rule: Any) -> str:
    return judge(metric, value, daily(*history), AnomalyRule(**rule), NOW).state


STEADY = (100.0, 101.0, 99.0, 100.0, 102.0, 98.0, 100.0)


@pytest.mark.parametrize(
    ("value", "direction", "expected"),
    [
        (10, "both", "anomalous"),
        (10, "drop", "anomalous"),
        (10, "spike", "normal"),
        (1000, "both", "anomalous"),
        (1000, "spike", "anomalous"),
        (1000, "drop", "normal"),
        (101, "both", "normal"),
    ],
)
def test_a_value_far_from_the_mean_is_an_anomaly_in_the_configured_direction(
    value: float, direction: Any, expected: str
) -> None:
    assert state(value, *STEADY, direction=direction) == expected


def test_with_too_few_samples_nothing_is_an_anomaly() -> None:
    assert state(0, *STEADY[:6]) == "learning"
    assert state(0, *STEADY) == "anomalous"
    assert state(0, *STEADY[:2], min_samples=2) == "anomalous"


def test_the_tolerance_replaces_the_spread_of_a_metric_that_never_varied() -> None:
    same = (1000.0,) * 7
    assert state(1001, *same) == "normal"
    assert state(1051, *same) == "anomalous"
    assert state(100, *same) == "anomalous"
    assert state(1001, *same, tolerance=0) == "anomalous"
    assert state(1000, *same, tolerance=0) == "normal"
    assert judge("row_count", 10, daily(*same), AnomalyRule(), NOW).score == -math.inf


def test_the_tolerance_of_a_share_is_an_absolute_difference() -> None:
    never = (0.0,) * 7
    assert state(0.009, *never, metric="null_share:email") == "normal"
    assert state(0.011, *never, metric="null_share:email") == "anomalous"
    assert state(0.04, *never, metric="null_share:email", tolerance=0.05) == "normal"


def test_a_missing_value_after_values_is_an_anomaly() -> None:
    assert state(None, *STEADY, metric="mean:amount") == "anomalous"
    assert state(math.nan, *STEADY, metric="mean:amount") == "anomalous"
    assert state(None, *STEADY[:3], metric="mean:amount") == "unmeasured"


def test_only_the_last_samples_count() -> None:
    long_ago = (5.0,) * 30
    assert state(5, *long_ago, *STEADY) == "normal"
    assert state(5, *long_ago, *STEADY, window=7) == "anomalous"


def test_by_day_of_week_a_quiet_sunday_is_compared_with_sundays() -> None:
    weeks = [100.0, 100.0, 100.0, 100.0, 100.0, 10.0, 12.0] * 6
    monday = datetime(2026, 1, 5, tzinfo=UTC)
    history = [PastValue(value, monday + timedelta(days=n)) for n, value in enumerate(weeks)]
    sunday = monday + timedelta(days=len(weeks) + 6)
    assert sunday.weekday() == 6
    rule = AnomalyRule(seasonality="day_of_week", min_samples=6)
    assert judge("row_count", 12, history, rule, sunday).state == "normal"
    assert judge("row_count", 100, history, rule, sunday).state == "anomalous"
    assert judge("row_count", 100, history, AnomalyRule(), sunday).state == "normal"
    assert {one.at.weekday() for one in training(history, rule, sunday)} == {6}


def test_steady_growth_is_no_anomaly() -> None:
    """The score of the next step of a line is below 1.8, whatever the window."""
    for count in (7, 30, 100):
        grown = [1000.0 + 10 * n for n in range(count)]
        rule = AnomalyRule(window=count, tolerance=0)
        assert judge("row_count", 1000.0 + 10 * count, daily(*grown), rule, NOW).state == "normal"


def test_the_words_have_the_expected_range() -> None:
    words = judge("row_count", 10, daily(*(100.0,) * 7), AnomalyRule(), NOW).words()
    assert words == (
        "row_count is 10 (90 % below the mean, 100): expected 95 to 105, by 7 published runs"
    )
    words = judge("row_count", 10, daily(*(100.0,) * 7), AnomalyRule(direction="drop"), NOW).words()
    assert words.endswith("expected at least 95, by 7 published runs")
    words = judge("null_share:email", 0.5, daily(*(0.0,) * 7), AnomalyRule(), NOW).words()
    assert words == ("null_share:email is 0.5 (mean 0): expected 0 to 0.01, by 7 published runs")
    words = judge("mean:amount", None, daily(*STEADY), AnomalyRule(), NOW).words()
    assert words == "mean:amount has no value, but had one in 7 published runs"
    words = judge("row_count", 10, [], AnomalyRule(), NOW).words()
    assert words == "row_count is 10; too few published runs to judge it (0)"


@given(st.lists(FIGURES, min_size=2, max_size=40), FIGURES, st.floats(0.1, 10))
def test_a_value_is_an_anomaly_if_it_is_out_of_its_bounds(
    history: list[float], value: float, sensitivity: float
) -> None:
    rule = AnomalyRule(sensitivity=sensitivity, min_samples=2, window=40)
    found = judge("row_count", value, daily(*history), rule, NOW)
    assert found.low is not None
    assert found.high is not None
    assert found.anomalous == (not found.low <= value <= found.high)
    assert found.mean == pytest.approx(fmean(history))
    assert found.spread == pytest.approx(stdev(history))
    # A value equal to all past values is never an anomaly.
    assert not judge("row_count", found.mean, daily(*history), rule, NOW).anomalous


@given(st.lists(FIGURES, min_size=2, max_size=20), FIGURES)
def test_the_order_of_the_history_does_not_matter(history: list[float], value: float) -> None:
    samples, rule = daily(*history), AnomalyRule(min_samples=2, window=5)
    there = judge("row_count", value, samples, rule, NOW)
    assert there == judge("row_count", value, samples[::-1], rule, NOW)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"sensitivity": 0}, "sensitivity: 0 is not allowed"),
        ({"sensitivity": "3"}, "sensitivity: '3' is not allowed"),
        ({"window": 1}, "window: 1 is not allowed"),
        ({"window": True}, "window: True is not allowed"),
        ({"min_samples": 2.5}, "min_samples: 2.5 is not allowed"),
        ({"min_samples": 31}, "31 is more than the window, 30"),
        ({"direction": "down"}, "legal: both, drop, spike"),
        ({"seasonality": "weekly"}, "legal: none, day_of_week"),
        ({"tolerance": -1}, "tolerance: -1 is not allowed"),
        ({"sensitivty": 3}, "legal: sensitivity"),
    ],
)
def test_the_error_of_illegal_arguments_lists_the_legal_ones(
    arguments: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError) as error:
        AnomalyRule.from_arguments("wap_volume_anomaly", arguments)
    assert told in str(error.value)
    assert "stays on the audit branch" in str(error.value)


def test_one_error_lists_all_illegal_arguments() -> None:
    with pytest.raises(ConfigError, match=r"window.*direction"):
        AnomalyRule.from_arguments("wap_volume_anomaly", {"window": 0, "direction": "up"})


def test_arguments_without_a_value_take_their_default() -> None:
    assert AnomalyRule.from_arguments("t", {"window": None, "direction": "drop"}) == AnomalyRule(
        direction="drop"
    )


# Columns

PUBLISHED = [("id", "bigint"), ("name", "string"), ("amount", "decimal(10,2)")]


def test_unchanged_columns() -> None:
    assert column_changes(PUBLISHED, PUBLISHED) == []
    assert column_changes(PUBLISHED, [("NAME", "string"), *PUBLISHED[::2]]) == []


def test_changed_columns() -> None:
    after = [("id", "int"), ("amount", "decimal(10,2)"), ("email", "string")]
    found = column_changes(PUBLISHED, after)
    assert found == [
        ColumnChange("name", "removed", "string", None),
        ColumnChange("email", "added", None, "string"),
        ColumnChange("id", "type", "bigint", "int"),
    ]
    assert [one.words() for one in found] == [
        "name (string) was removed",
        "email (string) was added",
        "id was bigint and is int",
    ]
    assert column_changes(PUBLISHED, after, ["added", "NAME", "id"]) == []
    assert len(column_changes(PUBLISHED, after, ["type"])) == 2


def test_allowed_must_be_a_list() -> None:
    with pytest.raises(ConfigError, match="'added'; it must be a list"):
        column_changes(PUBLISHED, PUBLISHED, "added")


# The SQL of metrics


def test_metrics_of_a_column() -> None:
    assert column_metrics("a", "`a`", "mean") == {"mean:a": "avg(`a`)"}
    assert column_metrics("a", "`a`", ["null_share", "distinct_share"]) == {
        "null_share:a": "count_if(`a` is null) / nullif(count(*), 0)",
        "distinct_share:a": "count(distinct `a`) / nullif(count(`a`), 0)",
    }


@pytest.mark.parametrize("wanted", [[], ["median"], "median", 3, ["mean", 1]])
def test_the_error_of_unknown_metrics_lists_the_known_ones(wanted: Any) -> None:
    with pytest.raises(ConfigError) as error:
        column_metrics("a", "`a`", wanted)
    assert all(metric in str(error.value) for metric in METRICS)
