"""Makes rows for tables and plots from runs, results of tests and metrics. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sparkwap.core.names import short_run_id
from sparkwap.ledger.records import own_rows, time_of
from sparkwap.page.formats import (
    STATUSES,
    VERDICTS,
    badge_of,
    format_duration,
    format_status,
    format_time,
    shorten,
)

Row = Mapping[str, Any]

_NOT_RUN = "skipped"


@dataclass(frozen=True, slots=True)
class RunOverview:
    """A run with the verdicts of its tables."""

    run_id: str
    short: str
    started: datetime | None
    command: str
    target: str
    branch: str
    project: str
    by: str
    outcome: str
    counts: Mapping[str, int]
    seconds: float | None
    message: str

    @property
    def label(self) -> str:
        """Its text in a selection list."""
        what = ", ".join(filter(None, (self.command, self.outcome)))
        return f"{format_time(self.started)}  {self.short}  {what}"


def overviews(
    rows: Iterable[Row], nodes: Iterable[Row], ended_otherwise: Mapping[str, str] | None = None
) -> list[RunOverview]:
    """Return the runs, newest first.

    Args:
        rows: Rows of the ledger's ``runs``.
        nodes: Rows of its ``nodes``.
        ended_otherwise: The outcome of runs that changed after they ended, by run id.
    """
    later = ended_otherwise or {}
    verdicts: dict[str, Counter[str]] = {}
    for node in nodes:
        verdicts.setdefault(node["run_id"], Counter())[node["verdict"] or "unknown"] += 1
    found = [
        RunOverview(
            run_id=row["run_id"],
            short=short_run_id(row["run_id"]),
            started=row["started_at"] or row["ended_at"],
            command=row["command"] or "",
            target=row["target"] or "",
            branch=row["branch"] or "",
            project=row["project"] or "",
            by=" on ".join(part for part in (row.get("actor"), row.get("host")) if part),
            outcome=later.get(row["run_id"]) or row["outcome"] or "unknown",
            counts=dict(verdicts.get(row["run_id"], {})),
            seconds=_seconds(row),
            message=shorten(row["message"]),
        )
        for row in own_rows(rows)
    ]
    return sorted(found, key=lambda run: time_of(run.started), reverse=True)


def _seconds(row: Row) -> float | None:
    if row["started_at"] is None or row["ended_at"] is None:
        return None
    return float((row["ended_at"] - row["started_at"]).total_seconds())


def _axis(at: datetime | None, run_id: str) -> str:
    """Return the label of a run on an axis: its time, and its id for runs of the same minute."""
    return f"{format_time(at)[:16]} · {short_run_id(run_id)}"


def verdict_bars(found: Sequence[RunOverview]) -> list[dict[str, Any]]:
    """Return the bars for each run and verdict, oldest run first."""
    return [
        {
            "run": _axis(run.started, run.run_id),
            "started": format_time(run.started),
            "command": run.command,
            "verdict": verdict,
            "order": order,
            "tables": run.counts[verdict],
        }
        for run in reversed(found)
        for order, verdict in enumerate(VERDICTS)
        if run.counts.get(verdict)
    ]


def duration_bars(found: Sequence[RunOverview]) -> list[dict[str, Any]]:
    """Return the duration of each run, oldest first, without runs that built or tested nothing."""
    return [
        {
            "run": _axis(run.started, run.run_id),
            "started": format_time(run.started),
            "seconds": round(run.seconds, 1),
            "took": format_duration(run.seconds),
            "outcome": run.outcome,
            "command": run.command,
        }
        for run in reversed(found)
        if run.seconds is not None and run.counts
    ]


def tables_of_run(nodes: Iterable[Row], reasons: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the verdicts and reasons of the tables of a run: rejected first, then held.

    Args:
        nodes: Its rows in the ledger's ``nodes``.
        reasons: The reason of a node without personal values, by node id.
    """
    order = {"rejected": 0, "held": 1, "published": 2}
    own = sorted(
        nodes,
        key=lambda row: (order.get(row["verdict"], 3), row["schema"] or "", row["name"] or ""),
    )
    return [
        {
            "verdict": format_status(row["verdict"]),
            "table": f"{row['schema']}.{row['name']}",
            "kind": row["resource_type"] or "",
            "built": row["how"] or "",
            "took": format_duration(row["seconds"]),
            "why": reasons.get(row["node_id"], row["reason"] or ""),
        }
        for row in own
    ]


def verdict_totals(found: Sequence[RunOverview]) -> dict[str, int]:
    """Return the number of tables with each verdict, over all given runs."""
    return {verdict: sum(run.counts.get(verdict, 0) for run in found) for verdict in VERDICTS}


# Tests


def test_grid(tests: Iterable[Row], *, failed_only: bool, text: str = "") -> list[dict[str, Any]]:
    """Return each result of each test, for a grid of tests by runs, oldest first.

    Args:
        tests: Rows of the ledger's ``tests``.
        failed_only: Return only tests that have failed or warned.
        text: Return only tests with this text in their names.
    """
    rows = [row for row in tests if text.lower() in (row["test_name"] or "").lower()]
    failed = {row["test_id"] for row in rows if row["status"] not in ("pass", _NOT_RUN)}
    rows = [row for row in rows if not failed_only or row["test_id"] in failed]
    rows.sort(key=lambda row: (row["executed_at"], row["test_id"]))
    return [
        {
            "test": row["test_name"] or row["test_id"],
            "test_id": row["test_id"],
            "run": _axis(row["executed_at"], row["run_id"]),
            "at": format_time(row["executed_at"]),
            "status": row["status"] if row["status"] in STATUSES else "skipped",
            "mark": badge_of(row["status"]).mark,
            "failures": row["failures"],
            "took": format_duration(row["seconds"]),
            "severity": row["severity"] or "",
        }
        for row in rows
    ]


def pass_rates(tests: Iterable[Row]) -> list[dict[str, Any]]:
    """Return each test with its pass rate and its last status, lowest rate first.

    Skipped results do not count; a test without other results has no rate.
    """
    by_test: dict[str, list[Row]] = {}
    for row in tests:
        by_test.setdefault(row["test_id"], []).append(row)
    found = []
    for results in by_test.values():
        results.sort(key=lambda row: row["executed_at"])
        ran = [row for row in results if row["status"] != _NOT_RUN]
        passed = sum(row["status"] == "pass" for row in ran)
        last = results[-1]
        found.append(
            {
                "now": format_status(last["status"]),
                "test": last["test_name"] or last["test_id"],
                "results": len(ran),
                "passed": passed,
                "pass rate": passed / len(ran) if ran else None,
                "failures now": last["failures"],
                "last": format_time(last["executed_at"]),
            }
        )
    return sorted(
        found, key=lambda row: (2.0 if row["pass rate"] is None else row["pass rate"], row["test"])
    )


def metric_names(metrics: Iterable[Row]) -> list[str]:
    """Return the metrics of the anomaly audits: ``schema.table metric``, with the scope if any."""
    return sorted({_metric_name(row) for row in metrics})


def metric_points(metrics: Iterable[Row], name: str) -> list[dict[str, Any]]:
    """Return the values of a metric with its expected range, oldest first."""
    rows = sorted(
        (row for row in metrics if _metric_name(row) == name and row["value"] is not None),
        key=lambda row: row["measured_at"],
    )
    return [
        {
            "at": row["measured_at"].isoformat(),
            "measured": format_time(row["measured_at"]),
            "value": row["value"],
            "low": row["low"],
            "high": row["high"],
            "state": row["state"] or "",
        }
        for row in rows
    ]


def _metric_name(row: Row) -> str:
    scope = f" where {row['scope']}" if row["scope"] else ""
    return f"{row['schema']}.{row['name']}  {row['metric']}{scope}"
