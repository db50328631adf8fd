"""Runs, tests and metrics over time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sparkwap.page import run_history
from sparkwap.page.formats import (
    format_status,
    format_time,
)

from .conftest import FIRST, NOW, SECOND, node, result, row, run


def test_runs_have_the_verdicts_of_their_tables_newest_first() -> None:
    found = run_history.overviews(
        [run(FIRST, 5, "published"), run(SECOND, 1, "rejected", 75)],
        [
            node(FIRST, "a", "published"),
            node(FIRST, "b", "published"),
            node(SECOND, "a", "rejected"),
            node(SECOND, "b", "held"),
        ],
    )
    assert [(one.short, one.outcome, one.seconds) for one in found] == [
        ("2b3c4d5e", "rejected", 75),
        ("1a2b3c4d", "published", 5),
    ]
    assert [one.counts for one in found] == [{"rejected": 1, "held": 1}, {"published": 2}]
    assert run_history.verdict_totals(found) == {"published": 2, "held": 1, "rejected": 1}
    bars = run_history.verdict_bars(found)
    assert [(bar["run"], bar["verdict"], bar["tables"]) for bar in bars] == [
        (f"{format_time(found[1].started)[:16]} · 1a2b3c4d", "published", 2),
        (f"{format_time(found[0].started)[:16]} · 2b3c4d5e", "held", 1),
        (f"{format_time(found[0].started)[:16]} · 2b3c4d5e", "rejected", 1),
    ]
    assert [one["took"] for one in run_history.duration_bars(found)] == ["5.0 s", "1 min 15 s"]


def test_a_run_without_data_is_shown() -> None:
    found = run_history.overviews([row("runs", run_id=FIRST, ended_at=NOW)], [])
    assert (found[0].outcome, found[0].seconds, found[0].counts) == ("unknown", None, {})
    assert run_history.verdict_bars(found) == run_history.duration_bars(found) == []


def test_a_run_is_shown_once_whatever_other_rows_have_its_id() -> None:
    rows = [
        run(FIRST, 1, "published", branch="wap_1a2b3c4d"),
        {**run(FIRST, 2, "safe"), "command": "probe"},
        {**run(FIRST, 0.5, "discarded", branch="wap_7e7e7e7e"), "command": "wap_sweep"},
        run(FIRST, 3, "died"),
        *({**run(SECOND, 4, "discarded", branch=b), "command": "wap_sweep"} for b in "ab"),
    ]
    # An older version of sparkwap names the command that has completed the publish of another.
    later = {**rows[0], "command": "wap_sweep"}
    assert run_history.overviews([rows[3], later], [])[0].outcome == "published"
    found = run_history.overviews(rows, [node(FIRST, "a", "published")])
    assert [(one.short, one.outcome, one.branch, one.counts) for one in found] == [
        ("1a2b3c4d", "published", "wap_1a2b3c4d", {"published": 1}),
        ("2b3c4d5e", "discarded", "a", {}),
        ("2b3c4d5e", "discarded", "b", {}),
    ]


def test_rejected_tables_of_a_run_come_first_without_personal_values() -> None:
    nodes = [
        node(FIRST, "a", "published"),
        node(FIRST, "b", "rejected", reason="build failed: the value 'Ann'"),
    ]
    reasons = {"model.shop.b": "build failed"}
    found = run_history.tables_of_run(nodes, reasons)
    assert [(one["table"], one["verdict"], one["why"]) for one in found] == [
        ("s.b", "✖ rejected", "build failed"),
        ("s.a", "✔ published", ""),
    ]


def test_a_publish_that_was_rolled_back_is_not_shown_as_published() -> None:
    rows = [run(FIRST, 5, "published"), run(SECOND, 1, "published")]
    found = run_history.overviews(rows, [], ended_otherwise={FIRST: "rolled back"})
    assert {one.run_id: one.outcome for one in found} == {
        FIRST: "rolled back", SECOND: "published",
    }  # fmt: skip
    assert format_status("rolled back") == "↩ rolled back"


def test_a_skipped_test_does_not_count() -> None:
    tests = [
        result(FIRST, "ids", "pass", 5),
        result(SECOND, "ids", "skipped", 1),
        result(SECOND, "never", "skipped", 1),
    ]
    assert run_history.test_grid(tests, failed_only=True) == []
    rates = [
        (one["test"], one["results"], one["pass rate"]) for one in run_history.pass_rates(tests)
    ]
    assert rates == [("ids", 1, 1.0), ("never", 0, None)]


def test_the_grid_has_each_result_and_can_leave_out_passed_tests() -> None:
    tests = [
        result(SECOND, "ids", "fail", 1, failures=3),
        result(FIRST, "ids", "pass", 5),
        result(FIRST, "sums", "pass", 5),
        result(SECOND, "sums", "no such status", 1),
        result(FIRST, "names", "pass", 5),
    ]
    found = run_history.test_grid(tests, failed_only=True)
    assert [(one["test"], one["status"]) for one in found] == [
        ("ids", "pass"),
        ("sums", "pass"),
        ("ids", "fail"),
        ("sums", "skipped"),
    ]
    assert found[0]["run"] == "2026-01-31 07:00 · 1a2b3c4d"
    assert len(run_history.test_grid(tests, failed_only=False)) == 5
    assert {one["test"] for one in run_history.test_grid(tests, failed_only=False, text="NAM")} == {
        "names"
    }
    worst = run_history.pass_rates(tests)
    assert [(one["test"], one["now"], one["pass rate"]) for one in worst] == [
        ("ids", "✖ fail", 0.5),
        ("sums", "· no such status", 0.5),
        ("names", "✔ pass", 1.0),
    ]
    assert worst[0]["failures now"] == 3


def test_the_points_of_a_metric() -> None:
    def metric(hours_ago: float, value: float | None, **more: Any) -> Any:
        at = NOW - timedelta(hours=hours_ago)
        names = {"schema": "s", "name": "a", "metric": "row_count", "measured_at": at}
        return row("metrics", value=value, **{**names, **more})

    rows = [
        metric(1, 10.0, low=95.0, high=105.0, state="anomalous"),
        metric(2, 100.0, state="learning"),
        metric(3, None),
        metric(1, 5.0, scope="id < 9"),
    ]
    assert run_history.metric_names(rows) == ["s.a  row_count", "s.a  row_count where id < 9"]
    points = run_history.metric_points(rows, "s.a  row_count")
    assert [(one["value"], one["state"]) for one in points] == [
        (100.0, "learning"),
        (10.0, "anomalous"),
    ]
