"""The decisions of the anomaly audits, from numbers alone.

A metric of a candidate (the row count, the share of nulls in a column) is compared with its values
in the last published candidates of the same table, by its distance from their mean in standard
deviations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from statistics import fmean, stdev
from typing import Any, Literal, cast, get_args

from sparkwap.core.errors import ConfigError

Direction = Literal["both", "drop", "spike"]
Seasonality = Literal["none", "day_of_week"]
State = Literal["normal", "anomalous", "learning", "unmeasured"]

SHARES = frozenset({"null_share", "blank_share", "zero_share", "distinct_share"})
"""Metrics between 0 and 1, whose tolerance is an absolute difference and no share of the mean."""

_TOLERANCE = 0.05
_SHARE_TOLERANCE = 0.01


@dataclass(frozen=True, slots=True)
class AnomalyRule:
    """What counts as an anomaly.

    Attributes:
        sensitivity: Standard deviations from the mean beyond which a value is an anomaly.
        window: Maximum number of the last published candidates to compare with.
        min_samples: Minimum number of them; with fewer, nothing is an anomaly.
        direction: What is an anomaly: a ``drop`` below the mean, a ``spike`` above it, or ``both``.
        seasonality: ``day_of_week`` compares with candidates of the same day of the week (UTC).
        tolerance: A change that is never an anomaly: a share of the mean or, for the metrics in
            `SHARES`, an absolute difference. It replaces the spread of a metric that never varied:
            after ten counts of 1,000, a count of 1,001 is no anomaly. None for the default, 0.05 or
            0.01.
    """

    sensitivity: float = 3.0
    window: int = 30
    min_samples: int = 7
    direction: Direction = "both"
    seasonality: Seasonality = "none"
    tolerance: float | None = None

    @classmethod
    def from_arguments(cls, test: str, arguments: Mapping[str, Any]) -> AnomalyRule:
        """Return the rule of a test's arguments; None stands for the default.

        Raises:
            ConfigError: Unknown names or illegal values; one message lists all of them.
        """
        given = {key: value for key, value in arguments.items() if value is not None}
        problems = [text for key, value in given.items() if (text := _problem(key, value))]
        window, least = given.get("window", cls().window), given.get("min_samples")
        if not problems and least is not None and least > window:
            problems.append(f"min_samples: {least} is more than the window, {window}")
        if problems:
            raise ConfigError(
                f"{test}: " + "; ".join(problems) + ". The audit did not run, so its table stays "
                "on the audit branch. Correct the test's arguments, and build again: dbt retry"
            )
        return cls(**given)


@dataclass(frozen=True, slots=True)
class PastValue:
    """A metric of one published candidate: its value, and the time of its measurement (UTC)."""

    value: float
    at: datetime


@dataclass(frozen=True, slots=True)
class AnomalyResult:
    """The result of an audit of one metric of a candidate.

    Attributes:
        metric: The metric's name: ``row_count``, ``null_share:email``.
        value: The candidate's value; None if it has none (the mean of no rows).
        state: ``normal``, ``anomalous``, ``learning`` while too few candidates are published, or
            ``unmeasured`` if the candidate also has no value.
        samples: Number of published candidates that the value was compared with.
        mean: Their mean; None while learning.
        spread: Their standard deviation (of a sample); None while learning.
        low: The smallest value that is no anomaly; None for no lower bound.
        high: The greatest value that is no anomaly; None for no upper bound.
        score: Distance from the mean in standard deviations; None while learning, infinite if the
            published values are all the same.
    """

    metric: str
    value: float | None
    state: State
    samples: int
    mean: float | None = None
    spread: float | None = None
    low: float | None = None
    high: float | None = None
    score: float | None = None

    @property
    def anomalous(self) -> bool:
        """Whether the audit fails because of this metric."""
        return self.state == "anomalous"

    def words(self) -> str:
        """Return the result in one line for the summary: the value and the expected range."""
        if self.state == "learning":
            return (
                f"{self.metric} is {_figure(self.value)}; too few published runs to judge it "
                f"({self.samples})"
            )
        if self.value is None:
            return f"{self.metric} has no value, but had one in {self.samples} published runs"
        change = _change(self.metric, self.value, self.mean)
        actual = f"{self.metric} is {_figure(self.value)}{change}"
        return f"{actual}: expected {self._expected()}, by {self.samples} published runs"

    def _expected(self) -> str:
        if self.low is None:
            return f"at most {_figure(self.high)}"
        if self.high is None:
            return f"at least {_figure(self.low)}"
        return f"{_figure(self.low)} to {_figure(self.high)}"


def judge(
    metric: str, value: float | None, history: Sequence[PastValue], rule: AnomalyRule, at: datetime
) -> AnomalyResult:
    """Judge one metric of a candidate.

    A value of None is an anomaly if published candidates had values, such as the mean of a column
    that is now empty.

    Args:
        metric: The metric's name; the part before the colon is its kind.
        value: The candidate's value; None, NaN or infinite if there is none.
        history: The metric in published candidates, in any order.
        at: The time of the measurement (UTC).
    """
    if value is not None and not math.isfinite(value):
        value = None
    values = [sample.value for sample in training(history, rule, at)]
    count = len(values)
    if count < max(rule.min_samples, 2):
        return AnomalyResult(metric, value, "unmeasured" if value is None else "learning", count)
    mean, spread = fmean(values), stdev(values)
    room = max(rule.sensitivity * spread, allowance(metric, mean, rule))
    # The expected range of a share must not exceed its possible values.
    least, most = (0.0, 1.0) if _is_share(metric) else (-math.inf, math.inf)
    low = None if rule.direction == "spike" else max(mean - room, least)
    high = None if rule.direction == "drop" else min(mean + room, most)
    if value is None:
        return AnomalyResult(metric, None, "anomalous", count, mean, spread, low, high)
    outside = (low is not None and value < low) or (high is not None and value > high)
    return AnomalyResult(
        metric,
        value,
        "anomalous" if outside else "normal",
        count,
        mean,
        spread,
        low,
        high,
        _score(value, mean, spread),
    )


def training(history: Sequence[PastValue], rule: AnomalyRule, at: datetime) -> list[PastValue]:
    """Return the samples to compare with a value of the time ``at``, the latest first."""
    season = rule.seasonality == "day_of_week"
    fitting = [past for past in history if not season or past.at.weekday() == at.weekday()]
    return sorted(fitting, key=lambda past: past.at, reverse=True)[: rule.window]


def allowance(metric: str, mean: float, rule: AnomalyRule) -> float:
    """Return the change of a metric that is never an anomaly, in the metric's units."""
    share = _is_share(metric)
    if rule.tolerance is None:
        return _SHARE_TOLERANCE if share else _TOLERANCE * abs(mean)
    return rule.tolerance if share else rule.tolerance * abs(mean)


def _is_share(metric: str) -> bool:
    return metric.partition(":")[0] in SHARES


Change = Literal["added", "removed", "type"]


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A difference between a candidate's column and the published one.

    Attributes:
        before: The published type; None for an added column.
        after: The candidate's type; None for a removed column.
    """

    column: str
    change: Change
    before: str | None
    after: str | None

    def words(self) -> str:
        """Return the change in a few words."""
        if self.change == "type":
            return f"{self.column} was {self.before} and is {self.after}"
        return f"{self.column} ({self.after or self.before}) was {self.change}"


def column_changes(
    before: Sequence[tuple[str, str]], after: Sequence[tuple[str, str]], allowed: Sequence[str] = ()
) -> list[ColumnChange]:
    """Return how a candidate's columns differ from the published ones.

    Names that differ only in case are the same column, as in Spark.

    Args:
        before: Name and type of each published column.
        after: Name and type of each column of the candidate.
        allowed: Kinds of changes, and names of columns, to ignore.
    """
    if isinstance(allowed, str) or not all(isinstance(item, str) for item in allowed):
        raise ConfigError(
            f"wap_schema_changes: allowed is {allowed!r}; it must be a list of kinds of changes "
            f"({', '.join(get_args(Change))}) and names of columns. The audit did not run, so its "
            "table stays on the audit branch. Correct the argument, and build again: dbt retry"
        )
    old = {name.lower(): (name, kind) for name, kind in before}
    new = {name.lower(): (name, kind) for name, kind in after}
    found = [
        *(
            ColumnChange(name, "removed", kind, None)
            for key, (name, kind) in old.items()
            if key not in new
        ),
        *(
            ColumnChange(name, "added", None, kind)
            for key, (name, kind) in new.items()
            if key not in old
        ),
        *(
            ColumnChange(name, "type", old[key][1], kind)
            for key, (name, kind) in new.items()
            if key in old and old[key][1] != kind
        ),
    ]
    accepted = {item.lower() for item in allowed}
    return [change for change in found if not {change.change, change.column.lower()} & accepted]


def _score(value: float, mean: float, spread: float) -> float:
    if spread > 0:
        return (value - mean) / spread
    return 0.0 if value == mean else math.copysign(math.inf, value - mean)


def _change(metric: str, value: float, mean: float | None) -> str:
    """Return `` (90 % below the mean, 100)``; without a percentage for shares and a mean of 0."""
    if mean is None:
        return ""
    if _is_share(metric) or mean == 0:
        return f" (mean {_figure(mean)})"
    part = abs(value - mean) / abs(mean)
    side = "below" if value < mean else "above"
    return f" ({part:.0%} {side} the mean, {_figure(mean)})".replace("%", " %")


def _figure(value: float | None) -> str:
    if value is None:
        return "none"
    value = float(value)
    if value.is_integer():
        return f"{value:,.0f}"
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.1f}"


def _problem(key: str, value: Any) -> str:
    """Return the problem of an argument; empty if there is none."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    whole = isinstance(value, int) and not isinstance(value, bool)
    checks: dict[str, tuple[bool, str]] = {
        "sensitivity": (number and 0 < value < math.inf, "a number above 0"),
        "window": (whole and value >= 2, "a whole number of 2 or more"),
        "min_samples": (whole and value >= 2, "a whole number of 2 or more"),
        "direction": (value in get_args(Direction), ", ".join(get_args(Direction))),
        "seasonality": (value in get_args(Seasonality), ", ".join(get_args(Seasonality))),
        "tolerance": (number and 0 <= value < math.inf, "a number of 0 or more"),
    }
    if key not in checks:
        close = get_close_matches(key, checks, n=1)
        return f"{key}: no such argument; legal: {', '.join(close or sorted(checks))}"
    legal, words = checks[key]
    return "" if legal else f"{key}: {value!r} is not allowed; legal: {words}"


METRICS: Mapping[str, str] = {
    "null_share": "count_if({column} is null) / nullif(count(*), 0)",
    "blank_share": "count_if(trim({column}) = '') / nullif(count(*), 0)",
    "zero_share": "count_if({column} = 0) / nullif(count(*), 0)",
    "distinct_count": "count(distinct {column})",
    "distinct_share": "count(distinct {column}) / nullif(count({column}), 0)",
    "min": "min({column})",
    "max": "max({column})",
    "sum": "sum({column})",
    "mean": "avg({column})",
    "stddev": "stddev_samp({column})",
    "min_length": "min(length({column}))",
    "max_length": "max(length({column}))",
    "mean_length": "avg(length({column}))",
}
"""SQL of each metric of a column; null for a column without rows, also in ANSI mode."""


def column_metrics(column: str, quoted: str, wanted: Any) -> dict[str, str]:
    """Return the SQL expressions of a column's metrics, by metric.

    Args:
        column: The column's name, which becomes a part of the metric's name.
        wanted: The test's ``metrics``: a name or a list of names of :data:`METRICS`.
    """
    names = [wanted] if isinstance(wanted, str) else wanted
    if not isinstance(names, list | tuple) or not names:
        names, unknown = [], [wanted]
    else:
        unknown = [name for name in names if name not in METRICS]
    if unknown:
        raise ConfigError(
            f"wap_column_anomaly: metrics is {', '.join(map(repr, unknown))}; legal: "
            f"{', '.join(METRICS)}. The audit did not run, so its table stays on the audit branch. "
            "Correct the argument, and build again: dbt retry"
        )
    return {
        f"{name}:{column}": METRICS[name].replace("{column}", quoted)
        for name in cast(list[str], names)
    }
