"""Views of runs: items that need attention, verdicts, durations, results of tests, metrics."""

from __future__ import annotations

import streamlit as st

from sparkwap.core.text import counted
from sparkwap.page import charts, open_branches, raw_tables, run_history
from sparkwap.page.formats import (
    VERDICTS,
    badge_of,
    escape_markdown,
    format_duration,
    format_status,
    format_time,
)
from sparkwap.page.views.common import Page, draw_empty, draw_locked, draw_plot, draw_table

_RUNS_PLOTTED = 60


def draw_home(page: Page) -> None:
    """Draw the items that need attention, newest first."""
    st.title("What needs attention")
    branches = [
        (b.name, b.since, [row["verdict"] for row in b.history.nodes], b.lease is not None)
        for b in page.branches
    ]
    waiting = [(q.table, len(q.rows)) for q in raw_tables.quarantines(page.lake, page.raw_models)]
    items = open_branches.attention_items(branches, page.runs, waiting)
    if not items:
        st.success("Nothing: no branch is open, no run died, no row is in quarantine.")
    else:
        draw_table(
            [
                {"since (UTC)": format_time(item.at), "what": item.what, "view": item.view}
                for item in items
            ]
        )
    lags = raw_tables.topic_lags(page.call.lake(), page.raw_models)
    if lags:
        st.subheader("Kafka topics")
        draw_table(
            [
                {
                    "topic": lag.topic,
                    "raw model": lag.model,
                    "newest message on main (UTC)": format_time(lag.newest),
                    "unread messages": "unknown" if lag.unread is None else f"{lag.unread:,}",
                }
                for lag in lags
            ]
        )
    for lag in lags:
        if lag.problem:
            st.warning(escape_markdown(lag.problem))
    if page.runs:
        last = page.runs[0]
        st.caption(escape_markdown(f"Last run: {last.label}"))


def draw_runs(page: Page) -> None:
    """Draw all runs with totals, verdicts and durations, and the tables of one run."""
    st.title("Runs")
    found = page.runs
    if not found:
        draw_empty(
            f"No run in the last {counted(page.days, 'day')}.",
            "A run writes, audits and publishes tables:",
            "dbt build",
        )
        return
    rates = run_history.verdict_totals(found)
    cells = st.columns(5)
    cells[0].metric("runs", len(found))
    for cell, (verdict, count) in zip(cells[1:], rates.items(), strict=False):
        cell.metric(f"{format_status(verdict)}", f"{count:,}", help="tables, over all runs")
    cells[4].metric("open branches", len(page.branches))
    plotted = [run for run in found if run.counts][:_RUNS_PLOTTED]
    if plotted:
        left, right = st.columns(2)
        with left:
            st.subheader("Verdicts of the gate")
            draw_plot(charts.verdicts(run_history.verdict_bars(plotted)))
        with right:
            st.subheader("Duration")
            draw_plot(charts.durations(run_history.duration_bars(plotted)))
    st.subheader("All runs")
    draw_table(
        [
            {
                "started (UTC)": format_time(run.started),
                "run": run.short,
                "outcome": format_status(run.outcome),
                **{f"{badge_of(v).mark} {v}": run.counts.get(v, 0) for v in VERDICTS},
                "took": format_duration(run.seconds),
                "command": run.command,
                "target": run.target,
                "branch": run.branch,
                "project": run.project,
                "by": run.by if page.unlocked else "",
                "message": run.message if page.unlocked else "",
            }
            for run in found
        ],
        "outcome",
    )
    st.subheader("One run")
    chosen = st.selectbox("run", plotted or found, format_func=lambda run: run.label, key="run")
    nodes = [n for n in page.history.nodes if n["run_id"] == chosen.run_id]
    draw_table(run_history.tables_of_run(nodes, page.reasons(nodes)), "verdict")


def draw_tests(page: Page) -> None:
    """Draw the results of tests over runs, pass rates, and the metrics of anomaly audits."""
    st.title("Tests")
    if not page.history.tests:
        draw_empty(
            f"No test ran in the last {counted(page.days, 'day')}.",
            "dbt's own tests are the audits:",
            "dbt build",
        )
        return
    left, right = st.columns([1, 2])
    failed_only = left.toggle("only tests that failed or warned", value=True)
    text = right.text_input("name contains", placeholder="part of the test's name")
    st.subheader("Pass and fail over runs")
    results = run_history.test_grid(page.history.tests, failed_only=failed_only, text=text)
    if results:
        draw_plot(charts.tests(results))
    elif failed_only and not text:
        st.success("All tests passed in all runs.")
    else:
        st.info("No test has this text in its name.")
    st.subheader("Each test")
    draw_table(
        run_history.pass_rates(page.history.tests),
        "now",
        {"pass rate": st.column_config.ProgressColumn(format="percent", min_value=0, max_value=1)},
    )
    st.subheader("Metrics")
    if len(page.metrics) < len(page.history.metrics):
        if page.unlocked:
            st.caption("Metrics that may tell a personal value are not shown.")
        else:
            draw_locked("metrics that may tell the value of a row")
    names = run_history.metric_names(page.metrics)
    if not names and page.history.metrics:
        return
    if not names:
        draw_empty(
            "No anomaly audit has measured anything yet.",
            "Add one to a table, such as wap_volume_anomaly (docs/anomalies.md), and build:",
            "dbt build",
        )
        return
    chosen = st.selectbox("metric", names, key="metric")
    st.caption("The band is the range that earlier publishes predict. A cross is an anomaly.")
    draw_plot(charts.metric(run_history.metric_points(page.metrics, chosen)))
