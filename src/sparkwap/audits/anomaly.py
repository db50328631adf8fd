"""Anomalies: whether a candidate's metric is one that the published ones would lead to expect.

All decisions of the anomaly audits are made here, from figures alone. A metric (a row count, the
share of nulls in a column) is compared with what it was in the last published candidates of the
same table: how many standard deviations it is away from their mean.
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
"""Metrics between 0 and 1, whose changes are counted in points and not in parts of their mean."""

_TOLERANCE = 0.05
_SHARE_TOLERANCE = 0.01


@dataclass(frozen=True, slots=True)
class AnomalyRule:
    """What counts as an anomaly.

    Attributes:
        sensitivity: Standard deviations from the mean beyond which a value is an anomaly.
        window: How many of the last published candidates are compared with, at most.
        min_samples: How many there must be; with fewer, nothing is an anomaly yet.
        direction: Whether to mind a ``drop`` below the mean, a ``spike`` above it, or ``both``.
        seasonality: ``day_of_week`` compares with candidates of the same day of the week (UTC).
        tolerance: A change that is never an anomaly: a part of the mean, or, for a share, points
            (0.01 is one of a hundred). It stands in for the spread of a metric that has none: after
            ten counts of 1,000 one of 1,001 is no alarm. None for the default, 0.05 or 0.01.
    """

    sensitivity: float = 3.0
    window: int = 30
    min_samples: int = 7
    direction: Direction = "both"
    seasonality: Seasonality = "none"
    tolerance: float | None = None

    @classmethod
    def from_arguments(cls, test: str, arguments: Mapping[str, Any]) -> AnomalyRule:
        """The rule of a test's arguments; those that are None take their default.

        Args:
            test: The test's name, for the message.
            arguments: By the names of the attributes.

        Raises:
            ConfigError: Unknown names or illegal values; one message that lists them all.
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
    """A metric of one published candidate: its value, and when it was measured (UTC)."""

    value: float
    at: datetime


@dataclass(frozen=True, slots=True)
class AnomalyResult:
    """What is to be said of one metric of a candidate.

    Attributes:
        metric: Its name: ``row_count``, ``null_share:email``.
        value: The candidate's value; None where it has none (the mean of no rows).
        state: ``normal``, ``anomalous``, ``learning`` while too few candidates are published, or
            ``unmeasured`` where the candidate has no value.
        samples: How many published candidates it was compared with.
        mean: Their mean; None while learning.
        spread: Their standard deviation (of a sample); None while learning.
        low: The smallest value that is no anomaly; None where any is small enough.
        high: The greatest such value; None where any is great enough.
        score: Distance from the mean in standard deviations; None while learning, infinite where
            the published values were all the same.
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
        """Whether the audit fails by it."""
        return self.state == "anomalous"

    def words(self) -> str:
        """It in one line, for the summary: figures, and what was expected."""
        if self.state == "learning":
            return (
                f"{self.metric} is {_figure(self.value)}; too few published runs to judge it "
                f"({self.samples})"
            )
        if self.value is None:
            return f"{self.metric} has no value, as it had in {self.samples} published runs"
        change = _change(self.metric, self.value, self.mean)
        told = f"{self.metric} is {_figure(self.value)}{change}"
        return f"{told}: expected {self._expected()}, by {self.samples} published runs"

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

    Args:
        metric: Its name; what comes before the colon says what kind it is.
        value: The candidate's value; None, or not a finite number, where there is none.
        history: The metric in published candidates, in any order.
        rule: What counts as an anomaly.
        at: When the candidate was measured (UTC).

    A metric that is None after published candidates had values is an anomaly: the mean of a column
    that is empty now is not a good one.
    """
    if value is not None and not math.isfinite(value):
        value = None
    values = [sample.value for sample in training(history, rule, at)]
    count = len(values)
    if count < max(rule.min_samples, 2):
        return AnomalyResult(metric, value, "unmeasured" if value is None else "learning", count)
    mean, spread = fmean(values), stdev(values)
    room = max(rule.sensitivity * spread, allowance(metric, mean, rule))
    # A share cannot be beyond these anyhow, and nobody would expect it there.
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
    """The samples that a value measured at ``at`` is compared with, the latest first."""
    season = rule.seasonality == "day_of_week"
    fitting = [one for one in history if not season or one.at.weekday() == at.weekday()]
    return sorted(fitting, key=lambda one: one.at, reverse=True)[: rule.window]


def allowance(metric: str, mean: float, rule: AnomalyRule) -> float:
    """The change of a metric that is never an anomaly, in its own units."""
    share = _is_share(metric)
    if rule.tolerance is None:
        return _SHARE_TOLERANCE if share else _TOLERANCE * abs(mean)
    return rule.tolerance if share else rule.tolerance * abs(mean)


def _is_share(metric: str) -> bool:
    return metric.partition(":")[0] in SHARES


Change = Literal["added", "removed", "type"]


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A column that is not as it was published.

    Attributes:
        column: Its name.
        change: ``added``, ``removed``, or ``type`` for another type.
        before: The published type; None for an added column.
        after: The candidate's type; None for a removed column.
    """

    column: str
    change: Change
    before: str | None
    after: str | None

    def words(self) -> str:
        """It in a few words."""
        if self.change == "type":
            return f"{self.column} was {self.before} and is {self.after}"
        return f"{self.column} ({self.after or self.before}) was {self.change}"


def column_changes(
    before: Sequence[tuple[str, str]], after: Sequence[tuple[str, str]], allowed: Sequence[str] = ()
) -> list[ColumnChange]:
    """How a candidate's columns differ from the published ones.

    Names that differ in case only are the same column, as they are to Spark.

    Args:
        before: Name and type of each published column.
        after: Those of the candidate.
        allowed: Kinds of changes, and names of columns, that are no matter.

    Raises:
        ConfigError: ``allowed`` is not a list of texts.
    """
    if isinstance(allowed, str) or not all(isinstance(one, str) for one in allowed):
        raise ConfigError(
            f"wap_schema_changes: allowed is {allowed!r}; it is a list of kinds of changes "
            f"({', '.join(get_args(Change))}) and names of columns. The audit did not run, so its "
            "table stays on the audit branch. Correct it, and build again: dbt retry"
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
    accepted = {one.lower() for one in allowed}
    return [one for one in found if not {one.change, one.column.lower()} & accepted]


def _score(value: float, mean: float, spread: float) -> float:
    if spread > 0:
        return (value - mean) / spread
    return 0.0 if value == mean else math.copysign(math.inf, value - mean)


def _change(metric: str, value: float, mean: float | None) -> str:
    """`` (90 % below the mean, 100)``; shares and means of 0 have no such part."""
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
    """What is wrong with an argument; empty if nothing is."""
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
        return f"{key}: there is no such argument; legal: {', '.join(close or sorted(checks))}"
    legal, words = checks[key]
    return "" if legal else f"{key}: {value!r} is not allowed; legal: {words}"


METRICS: Mapping[str, str] = {
    "null_share": "count_if({column} is null) / count(*)",
    "blank_share": "count_if(trim({column}) = '') / count(*)",
    "zero_share": "count_if({column} = 0) / count(*)",
    "distinct_count": "count(distinct {column})",
    "distinct_share": "count(distinct {column}) / count({column})",
    "min": "min({column})",
    "max": "max({column})",
    "sum": "sum({column})",
    "mean": "avg({column})",
    "stddev": "stddev_samp({column})",
    "min_length": "min(length({column}))",
    "max_length": "max(length({column}))",
    "mean_length": "avg(length({column}))",
}
"""Metrics of a column -> their SQL. Those of no rows are null, not an error."""


def column_metrics(column: str, quoted: str, wanted: Any) -> dict[str, str]:
    """Metric -> SQL expression of what is to be measured of a column.

    Args:
        column: Its name, which becomes a part of the metric's.
        quoted: Its name as SQL takes it.
        wanted: The test's ``metrics``: a name or a list of names, of :data:`METRICS`.

    Raises:
        ConfigError: A name is none of these, or there is none.
    """
    names = [wanted] if isinstance(wanted, str) else wanted
    if not isinstance(names, list | tuple) or not names:
        names, unknown = [], [wanted]
    else:
        unknown = [one for one in names if one not in METRICS]
    if unknown:
        raise ConfigError(
            f"wap_column_anomaly: metrics is {', '.join(map(repr, unknown))}; legal: "
            f"{', '.join(METRICS)}. The audit did not run, so its table stays on the audit branch. "
            "Correct it, and build again: dbt retry"
        )
    return {f"{one}:{column}": _guarded(METRICS[one], quoted) for one in cast(list[str], names)}


def _guarded(template: str, quoted: str) -> str:
    """The SQL, with a division by none made null instead of an error (ANSI mode)."""
    above, divided, below = template.partition(" / ")
    if divided:
        template = f"{above} / nullif({below}, 0)"
    return template.replace("{column}", quoted)
