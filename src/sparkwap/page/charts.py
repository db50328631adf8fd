"""The plots, as Vega-Lite specifications: plain dicts, drawn by the browser. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparkwap.page.shown import OUTCOMES, STATUSES, VERDICTS, Look

Spec = dict[str, Any]

_PLOT_PIXELS = 320
# The height of a plot has its axes and legend in it.
_ROW_PIXELS = 26
_FRAME_PIXELS = 110
_GRID_FRAME_PIXELS = 150
# The run's id, which parts two runs of one minute, is in the tooltip.
_RUN_AXIS = {"labelAngle": -40, "labelExpr": "split(datum.label, ' · ')[0]"}


def verdicts(bars: Sequence[Mapping[str, Any]]) -> Spec:
    """Tables by verdict, one bar for each run."""
    return {
        "data": {"values": list(bars)},
        "height": _PLOT_PIXELS,
        "mark": {"type": "bar", "stroke": "white", "strokeWidth": 1},
        "encoding": {
            "x": {
                "field": "run",
                "type": "nominal",
                "sort": None,
                "title": "run (UTC), oldest first",
                "axis": _RUN_AXIS,
            },
            "y": {
                "field": "tables",
                "type": "quantitative",
                "title": "tables",
                "axis": {"tickMinStep": 1},
            },
            "color": _colours("verdict", VERDICTS),
            "order": {"field": "order"},
            "tooltip": _tooltip("run", "started", "command", "verdict", "tables"),
        },
    }


def durations(points: Sequence[Mapping[str, Any]]) -> Spec:
    """What each run took."""
    return {
        "data": {"values": list(points)},
        "height": _PLOT_PIXELS,
        "mark": {"type": "bar", "width": {"band": 0.4}},
        "encoding": {
            "x": {
                "field": "run",
                "type": "nominal",
                "sort": None,
                "title": "run (UTC), oldest first",
                "axis": _RUN_AXIS,
            },
            "y": {"field": "seconds", "type": "quantitative", "title": "seconds"},
            "color": _colours(
                "outcome",
                {k: v for k, v in OUTCOMES.items() if k in {p["outcome"] for p in points}},
            ),
            "tooltip": _tooltip("run", "started", "command", "outcome", "took"),
        },
    }


def tests(results: Sequence[Mapping[str, Any]]) -> Spec:
    """A grid of tests by runs: one square for each result, with its sign in it."""
    rows = len({one["test"] for one in results})
    shared = {
        "x": {
            "field": "run",
            "type": "nominal",
            "sort": None,
            "title": None,
            "axis": {**_RUN_AXIS, "orient": "top"},
        },
        "y": {
            "field": "test",
            "type": "nominal",
            "title": None,
            "axis": {"labelLimit": 420, "labelOverlap": False},
        },
    }
    return {
        "data": {"values": list(results)},
        "height": rows * _ROW_PIXELS + _GRID_FRAME_PIXELS,
        "layer": [
            {
                "mark": {"type": "rect", "stroke": "white", "strokeWidth": 2, "cornerRadius": 3},
                "encoding": {
                    **shared,
                    "color": _colours("status", STATUSES),
                    "tooltip": _tooltip(
                        "test", "run", "at", "status", "failures", "severity", "took"
                    ),
                },
            },
            {
                "mark": {"type": "text", "color": "white", "fontSize": 12, "tooltip": None},
                "encoding": {**shared, "text": {"field": "mark"}},
            },
        ],
    }


def metric(points: Sequence[Mapping[str, Any]]) -> Spec:
    """A metric over time, with the band of what was expected."""
    x = {"field": "at", "type": "temporal", "title": "measured (UTC)", "scale": {"type": "utc"}}
    return {
        "data": {"values": list(points)},
        "height": _PLOT_PIXELS,
        "layer": [
            {
                "mark": {"type": "area", "opacity": 0.18, "color": VERDICTS["published"].colour},
                "encoding": {
                    "x": x,
                    "y": {"field": "low", "type": "quantitative", "title": "value"},
                    "y2": {"field": "high"},
                },
            },
            {
                "mark": {"type": "line", "color": "#7F7F7F"},
                "encoding": {"x": x, "y": {"field": "value", "type": "quantitative"}},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
                "encoding": {
                    "x": x,
                    "y": {"field": "value", "type": "quantitative"},
                    "color": {
                        "condition": {
                            "test": "datum.state == 'anomalous'",
                            "value": VERDICTS["rejected"].colour,
                        },
                        "value": VERDICTS["published"].colour,
                    },
                    "shape": {
                        "condition": {"test": "datum.state == 'anomalous'", "value": "cross"},
                        "value": "circle",
                    },
                    "tooltip": _tooltip("measured", "value", "low", "high", "state"),
                },
            },
        ],
    }


def reasons(rows: Sequence[Mapping[str, Any]]) -> Spec:
    """Rows in quarantine by reason."""
    return {
        "data": {"values": list(rows)},
        "height": len(rows) * _ROW_PIXELS + _FRAME_PIXELS,
        "mark": {"type": "bar", "color": VERDICTS["held"].colour},
        "encoding": {
            "y": {
                "field": "reason",
                "type": "nominal",
                "sort": "-x",
                "title": None,
                "axis": {"labelLimit": 420},
            },
            "x": {
                "field": "rows",
                "type": "quantitative",
                "title": "rows",
                "axis": {"tickMinStep": 1},
            },
            "tooltip": _tooltip("reason", "rows", "files", "first"),
        },
    }


def timeline(bars: Sequence[Mapping[str, Any]]) -> Spec:
    """The versions of a key: a bar each, from its beginning to its end."""
    y = {"field": "version", "type": "nominal", "sort": {"field": "number"}, "title": None}
    x = {"field": "start", "type": "temporal", "scale": {"type": "utc"}}
    return {
        "data": {"values": list(bars)},
        "height": len(bars) * (_ROW_PIXELS + 8) + _FRAME_PIXELS,
        "layer": [
            {
                "mark": {"type": "bar", "cornerRadius": 3, "height": {"band": 0.6}},
                "encoding": {
                    "y": y,
                    "x": {**x, "title": "valid (UTC)"},
                    "x2": {"field": "end"},
                    "color": {
                        "field": "state",
                        "type": "nominal",
                        "title": None,
                        "scale": {
                            "domain": ["current", "ended"],
                            "range": [VERDICTS["published"].colour, "#9FB8C8"],
                        },
                        "legend": {"orient": "top"},
                    },
                    "tooltip": _tooltip("version", "valid_from", "valid_to", "what"),
                },
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 6, "fontSize": 12, "limit": 420},
                "encoding": {
                    "y": y,
                    "x": x,
                    "text": {"field": "what"},
                    "color": {
                        "condition": {"test": "datum.state == 'current'", "value": "white"},
                        "value": "#1F2933",
                    },
                },
            },
        ],
    }


def _colours(field: str, looks: Mapping[str, Look]) -> Spec:
    return {
        "field": field,
        "type": "nominal",
        "title": None,
        "scale": {"domain": list(looks), "range": [look.colour for look in looks.values()]},
        "legend": {"orient": "bottom" if field == "status" else "top"},
    }


def _tooltip(*fields: str) -> list[Spec]:
    # As text: Vega would draw times in the browser's own zone.
    return [{"field": field, "type": "nominal", "title": field} for field in fields]
