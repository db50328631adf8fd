"""Makes the plots as Altair charts, which the browser draws. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from sparkwap.page.formats import OUTCOMES, STATUSES, VERDICTS, Badge

Rows = Sequence[Mapping[str, Any]]

_PLOT_PIXELS = 320
# The height of a plot includes its axes and legend.
_ROW_PIXELS = 26
_FRAME_PIXELS = 110
_GRID_FRAME_PIXELS = 150
_GOOD, _BAD, _WAITS = (VERDICTS[name].colour for name in ("published", "rejected", "held"))
# Vega's own labels are months without a year. The ticks decide how much of the time is needed.
_MOMENT = (
    "utcFormat(datum.value, utcseconds(datum.value) ? '%Y-%m-%d %H:%M:%S' : "
    "utchours(datum.value) || utcminutes(datum.value) ? '%Y-%m-%d %H:%M' : '%Y-%m-%d')"
)
_ANOMALOUS = alt.datum.state == "anomalous"


def verdicts(bars: Rows) -> alt.Chart:
    """Return a bar chart: tables by verdict, one bar for each run."""
    return (
        _chart(bars)
        .mark_bar(stroke="white", strokeWidth=1)
        .encode(
            x=_runs(),
            y=alt.Y("tables:Q", axis=alt.Axis(tickMinStep=1)).title("tables"),
            color=_colours("verdict", VERDICTS),
            order="order:Q",
            tooltip=_tooltip("run", "started", "command", "verdict", "tables"),
        )
    )


def durations(points: Rows) -> alt.Chart:
    """Return a bar chart of the durations of runs."""
    outcomes = {point["outcome"] for point in points}
    return (
        _chart(points)
        .mark_bar(width=alt.RelativeBandSize(0.4))
        .encode(
            x=_runs(),
            y=alt.Y("seconds:Q").title("seconds"),
            color=_colours("outcome", {k: v for k, v in OUTCOMES.items() if k in outcomes}),
            tooltip=_tooltip("run", "started", "command", "outcome", "took"),
        )
    )


def tests(results: Rows) -> alt.LayerChart:
    """Return a grid of tests by runs: one square for each result, with its symbol."""
    rows = len({result["test"] for result in results})
    base = _chart(results, rows * _ROW_PIXELS + _GRID_FRAME_PIXELS).encode(
        x=_runs(None, orient="top"),
        y=alt.Y("test:N", axis=alt.Axis(labelLimit=420, labelOverlap=False)).title(None),
    )
    squares = base.mark_rect(stroke="white", strokeWidth=2, cornerRadius=3).encode(
        color=_colours("status", STATUSES),
        tooltip=_tooltip("test", "run", "at", "status", "failures", "severity", "took"),
    )
    return squares + base.mark_text(color="white", fontSize=12, tooltip=None).encode(text="mark:N")


def metric(points: Rows) -> alt.LayerChart:
    """Return a line chart of a metric, with its expected range as a band."""
    base = _chart(points).encode(x=_moments("at", "measured (UTC)"))
    band = base.mark_area(opacity=0.18, color=_GOOD).encode(
        y=alt.Y("low:Q").title("value"), y2="high:Q"
    )
    values = base.encode(y="value:Q")
    marks = values.mark_point(filled=True, size=90, opacity=1).encode(
        color=alt.when(_ANOMALOUS).then(alt.value(_BAD)).otherwise(alt.value(_GOOD)),
        shape=alt.when(_ANOMALOUS).then(alt.value("cross")).otherwise(alt.value("circle")),
        tooltip=_tooltip("measured", "value", "low", "high", "state"),
    )
    return band + values.mark_line(color="#7F7F7F") + marks


def reasons(rows: Rows) -> alt.Chart:
    """Return a bar chart of rows in quarantine by reason."""
    return (
        _chart(rows, len(rows) * _ROW_PIXELS + _FRAME_PIXELS)
        .mark_bar(color=_WAITS)
        .encode(
            y=alt.Y("reason:N", sort="-x", axis=alt.Axis(labelLimit=420)).title(None),
            x=alt.X("rows:Q", axis=alt.Axis(tickMinStep=1)).title("rows"),
            tooltip=_tooltip("reason", "rows", "files", "first"),
        )
    )


def timeline(bars: Rows) -> alt.LayerChart:
    """Return the versions of a key as bars from beginning to end."""
    base = _chart(bars, len(bars) * (_ROW_PIXELS + 8) + _FRAME_PIXELS).encode(
        y=alt.Y("version:N", sort=alt.EncodingSortField("number")).title(None),
        x=_moments("start", "valid (UTC)"),
    )
    states = alt.Scale(domain=["current", "ended"], range=[_GOOD, "#9FB8C8"])
    spans = base.mark_bar(cornerRadius=3, height=alt.RelativeBandSize(0.6)).encode(
        x2="end:T",
        color=alt.Color("state:N", scale=states, legend=alt.Legend(orient="top")).title(None),
        tooltip=_tooltip("version", "valid_from", "valid_to", "what"),
    )
    is_current = alt.when(alt.datum.state == "current")
    texts = base.mark_text(align="left", dx=6, fontSize=12, limit=420).encode(
        text="what:N", color=is_current.then(alt.value("white")).otherwise(alt.value("#1F2933"))
    )
    return spans + texts


def _chart(rows: Rows, height: int = _PLOT_PIXELS) -> alt.Chart:
    return alt.Chart(alt.Data(values=list(rows)), height=height)


def _moments(field: str, title: str) -> alt.X:
    labels = alt.Axis(labelExpr=_MOMENT, labelOverlap="greedy", tickCount=6)
    return alt.X(f"{field}:T", scale=alt.Scale(type="utc"), axis=labels).title(title)


def _runs(title: str | None = "run (UTC), oldest first", **axis: Any) -> alt.X:
    # The run's id, which distinguishes runs of the same minute, is in the tooltip.
    labels = alt.Axis(labelAngle=-40, labelExpr="split(datum.label, ' · ')[0]", **axis)
    return alt.X("run:N", sort=None, axis=labels).title(title)


def _colours(field: str, badges: Mapping[str, Badge]) -> alt.Color:
    scale = alt.Scale(domain=list(badges), range=[badge.colour for badge in badges.values()])
    legend = alt.Legend(orient="bottom" if field == "status" else "top")
    return alt.Color(f"{field}:N", scale=scale, legend=legend).title(None)


def _tooltip(*fields: str) -> list[alt.Tooltip]:
    # As text: Vega would draw times in the browser's time zone.
    return [alt.Tooltip(f"{field}:N").title(field) for field in fields]
