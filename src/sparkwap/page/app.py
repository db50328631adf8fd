"""The page, by Streamlit: ``sparkwap page`` runs this file. It draws, and decides nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from sparkwap.alerts.project import Project, of_manifest
from sparkwap.core.dbt_cli import DbtCall, parse_call
from sparkwap.core.errors import SparkwapError
from sparkwap.core.personal import Hidden
from sparkwap.core.redaction import redact
from sparkwap.gate.settings import settings_of
from sparkwap.landing.raw_models import RawModel, raw_models
from sparkwap.ledger.records import LOADED
from sparkwap.page import access, act, charts, look, shown
from sparkwap.page.command import folder_of
from sparkwap.publish.lake import Lake

_ROWS_SHOWN = 200
_DAYS = (1, 7, 30, 90, 365)
_RUNS_PLOTTED = 60
_REASONS_SHOWN = 5
_NEVER = datetime.min.replace(tzinfo=UTC)
# Streamlit leaves a hand's breadth free above each page.
_STYLE = "<style>[data-testid=stMainBlockContainer] {padding-top: 2.5rem}</style>"


class Page:
    """What all views share: the lake, the project's files, and whether the token was given."""

    def __init__(self, call: DbtCall, lake: Lake, days: int, unlocked: bool) -> None:
        self.call = call
        self.lake = lake
        self.days = days
        self.unlocked = unlocked
        self.now = datetime.now(UTC)

    @cached_property
    def history(self) -> look.History:
        """The ledger's last days."""
        return look.history(self.lake, self.days, self.now)

    @cached_property
    def runs(self) -> list[shown.RunShown]:
        """The runs of the last days, newest first."""
        return shown.runs(self.history.runs, self.history.nodes, self.history.ended_otherwise)

    @cached_property
    def branches(self) -> list[look.Standing]:
        """The open audit branches."""
        return look.branches(self.lake)

    @cached_property
    def manifest(self) -> Mapping[str, Any] | None:
        """dbt's manifest; None if no command has left one."""
        return look.artifact(self.call.project_dir / self.call.target_path / "manifest.json")

    @cached_property
    def built(self) -> set[tuple[str, ...]]:
        """Schema and name of what the project builds."""
        nodes = (self.manifest or {}).get("nodes", {}).values()
        return {(node["schema"], node["alias"]) for node in nodes if node.get("alias")}

    @cached_property
    def project(self) -> Project:
        """Owners and personal columns."""
        return of_manifest(self.manifest or {})

    @cached_property
    def raw_models(self) -> list[RawModel]:
        """The models that read landing files."""
        return raw_models(self.manifest, self.call.project_dir) if self.manifest else []

    def told(self, nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """The reasons of nodes, without what may quote a personal value."""
        return {
            row["node_id"]: self.project.harmless(row["reason"], row["node_id"])
            for row in nodes
            if row["reason"]
        }

    def hidden(self, name: str, columns: Sequence[str]) -> set[str]:
        """The columns of a table, in lower case, whose values are never shown."""
        schema, table = name.split(".", 1)
        return {column.lower() for column in self._hidden.of((schema, table), columns)}

    @cached_property
    def _hidden(self) -> Hidden:
        manifest = self.manifest or {}
        nodes = {**manifest.get("nodes", {}), **manifest.get("sources", {})}
        tables = {
            key: (str(node.get("schema")), str(node.get("alias") or node.get("identifier")))
            for key, node in nodes.items()
        }
        return Hidden.of_project(self.project, tables, self._hide_patterns)

    @cached_property
    def _hide_patterns(self) -> tuple[str, ...]:
        from dbt.config.project import load_raw_project

        raw = load_raw_project(str(self.call.project_dir))
        return settings_of(raw, self.call.variables).diff_hide


# ---------------------------------------------------------------- what needs attention


def draw_home(page: Page) -> None:
    """What needs somebody, newest first."""
    st.title("What needs attention")
    branches = [
        (one.name, one.since, [row["verdict"] for row in one.history.nodes], one.lease is not None)
        for one in page.branches
    ]
    waiting = [(q.table, len(q.rows)) for q in look.quarantines(page.lake, page.raw_models)]
    items = shown.attention(branches, page.runs, waiting)
    if not items:
        st.success("Nothing: no branch is left open, no run died, no row is in quarantine.")
    else:
        _table(
            [
                {"since (UTC)": shown.when(one.at), "what": one.what, "view": one.view}
                for one in items
            ]
        )
    if page.runs:
        last = page.runs[0]
        st.caption(shown.plain(f"The last run: {last.label}"))


# ---------------------------------------------------------------- runs


def draw_runs(page: Page) -> None:
    """Runs: totals, verdicts and durations as plots, all runs, one run."""
    st.title("Runs")
    found = page.runs
    if not found:
        _empty(
            f"No run in the last {shown.counted(page.days, 'day')}.",
            "A run writes, audits and publishes all that it builds:",
            "dbt build",
        )
        return
    rates = shown.rates(found)
    cells = st.columns(5)
    cells[0].metric("runs", len(found))
    for cell, (verdict, count) in zip(cells[1:], rates.items(), strict=False):
        cell.metric(f"{shown.marked(verdict)}", f"{count:,}", help="tables, over all runs")
    cells[4].metric("open branches", len(page.branches))
    plotted = [run for run in found if run.counts][:_RUNS_PLOTTED]
    if plotted:
        left, right = st.columns(2)
        with left:
            st.subheader("Verdicts of the gate")
            _plot(charts.verdicts(shown.verdict_bars(plotted)))
        with right:
            st.subheader("Duration")
            _plot(charts.durations(shown.durations(plotted)))
    st.subheader("All runs")
    _table(
        [
            {
                "started (UTC)": shown.when(run.started),
                "run": run.short,
                "outcome": shown.marked(run.outcome),
                **{f"{shown.look_of(v).mark} {v}": run.counts.get(v, 0) for v in shown.VERDICTS},
                "took": shown.lasted(run.seconds),
                "command": run.command,
                "target": run.target,
                "branch": run.branch,
                "message": run.message if page.unlocked else "",
            }
            for run in found
        ],
        "outcome",
    )
    st.subheader("One run")
    chosen = st.selectbox("run", plotted or found, format_func=lambda run: run.label, key="run")
    nodes = [n for n in page.history.nodes if n["run_id"] == chosen.run_id]
    _table(shown.tables_of_run(chosen.run_id, nodes, page.told(nodes)), "verdict")


# ---------------------------------------------------------------- branches


def draw_branches(page: Page) -> None:
    """Open audit branches: what is on them and why, against main, and the buttons."""
    st.title("Open audit branches")
    _last_action()
    if not page.branches:
        st.success("No audit branch is open: all that was built is published or discarded.")
        st.caption("A run that is held or rejected leaves its branch here, as this one does:")
        st.code("SPARKWAP_PUBLISH=never dbt build", language="shell")
        return
    st.caption(
        "What is on a branch, readers of main do not see. It was held or rejected, or its run is "
        "at work."
    )
    for one in sorted(page.branches, key=lambda one: one.since or _NEVER, reverse=True):
        with st.container(border=True):
            _draw_branch(page, one)


def _draw_branch(page: Page, one: look.Standing) -> None:
    nodes = one.history.nodes
    verdicts = [row["verdict"] for row in nodes]
    st.subheader(one.name, anchor=f"branch-{one.name}")
    counts = "  ".join(
        f"{shown.marked(v)} {verdicts.count(v)}" for v in shown.VERDICTS if v in verdicts
    )
    size = shown.counted(len(one.open.tables) + len(one.open.side), "table")
    state = "building" if one.lease else counts or "no verdict"
    st.markdown(f"{size}, {shown.age(one.since, page.now)} &nbsp; **{state}**")
    for reason, tables in shown.whys(nodes, page.told(nodes))[:_REASONS_SHOWN]:
        names = ", ".join(tables[:_REASONS_SHOWN])
        more = f" and {len(tables) - _REASONS_SHOWN} more" if len(tables) > _REASONS_SHOWN else ""
        st.markdown(
            f"- {shown.plain(shown.short(reason, 240))}  \n  :gray[{shown.plain(names)}{more}]"
        )
    if one.lease:
        st.info(shown.plain(f"{one.name} is {one.lease}."), icon=":material/lock:")
    _table(
        shown.branch_rows(nodes, look.compared(page.lake, one.name, "main")),
        "verdict",
    )
    failed = [row for row in one.history.tests if row["status"] in ("fail", "error", "warn")]
    if failed:
        st.markdown("**Tests that did not pass**")
        _table(
            [
                {
                    "status": shown.marked(row["status"]),
                    "test": row["test_name"],
                    "failures": row["failures"],
                    "found": row.get("finding")
                    or (
                        shown.short(page.project.error_class(row["message"] or "", row["test_id"]))
                        if page.unlocked
                        else ""
                    ),
                }
                for row in failed
            ],
            "status",
        )
    _draw_diff(page, one)
    loaded = any(node["node_id"].startswith(LOADED) for node in nodes)
    with st.expander("Commands that go on from here"):
        for what, command in shown.commands(one.name, set(filter(None, verdicts)), loaded):
            st.markdown(what)
            st.code(command, language="shell")
    _draw_buttons(page, one)


def _draw_diff(page: Page, one: look.Standing) -> None:
    folder = folder_of(page.call)
    document = look.artifact(act.diff_file(folder, one.name))
    with st.expander("Rows that differ from main"):
        if document is None:
            st.caption(
                "Counts above come from Iceberg's metadata. Which rows were added, removed and "
                "changed, Spark tells:"
            )
            st.code(act.typed("wap_diff", {"branch": one.name}), language="shell")
        else:
            at = shown.when(datetime.fromisoformat(document["at"]))
            st.caption(shown.plain(f"Compared with {document['against']} at {at} UTC."))
            if shown.is_stale(document, one.history.nodes):
                st.warning("The branch was built again since. Compare anew.")
            _table(shown.diff_rows(document))
            for table in document["tables"] if page.unlocked else ():
                if table["samples"]:
                    name = shown.plain(f"{table['schema']}.{table['name']}")
                    st.markdown(f"Sample rows of **{name}**")
                    _table(shown.diff_samples(table))
            if not page.unlocked:
                _locked("sample rows")
        if st.button(
            "Compare row by row",
            key=f"diff-{one.name}",
            icon=":material/difference:",
            disabled=not page.unlocked,
            help="Starts the server if it does not run.",
        ):
            _act(page, "wap_diff", act.diff_arguments(folder, one.name))


def _draw_buttons(page: Page, one: look.Standing) -> None:
    left, right, _ = st.columns([1, 1, 2])
    asked = f"asked-{one.name}"
    reason = shown.unpublishable(
        [row["verdict"] for row in one.history.nodes], one.lease is not None
    )
    pressed = left.button(
        "Approve and publish",
        key=f"publish-{one.name}",
        type="secondary" if reason else "primary",
        icon=":material/publish:",
        disabled=bool(reason) or not page.unlocked,
        width="stretch",
        help=reason
        or "dbt run-operation wap_publish: the gate decides, by the tests that were passed.",
    )
    # Asked again: a browser may send what a disabled button would.
    if pressed and not reason:
        _act(page, "wap_publish", {"branch": one.name})
    if right.button(
        "Discard …",
        key=f"discard-{one.name}",
        icon=":material/delete:",
        disabled=not page.unlocked,
        width="stretch",
        help="dbt run-operation wap_discard: drops the branch and all that is only on it.",
    ):
        st.session_state[asked] = True
    if reason:
        st.caption(f":material/block: It cannot be published. {reason}")
    if not page.unlocked:
        _locked("these buttons")
    elif st.session_state.get(asked):
        st.warning(f"Drop {one.name} and all that exists only on it? It cannot be brought back.")
        yes, no, _ = st.columns([1, 1, 2])
        if yes.button(f"Yes, discard {one.name}", key=f"yes-{one.name}", width="stretch"):
            st.session_state.pop(asked)
            _act(page, "wap_discard", {"branch": one.name})
        if no.button("Keep it", key=f"no-{one.name}", width="stretch"):
            st.session_state.pop(asked)
            st.rerun()


def _act(page: Page, operation: str, arguments: Mapping[str, Any]) -> None:
    """Call an operation, keep what it said for the next drawing, and draw anew."""
    # Asked again: a button may have been drawn before the session was locked.
    if not page.unlocked:
        return
    with st.spinner(f"{act.typed(operation, arguments)} …"):
        names = [one.branch for one in page.lake.branches.all()]
        st.session_state["done"] = act.perform(page.call, operation, arguments, open_branches=names)
    st.rerun()


def _last_action() -> None:
    done: act.Done | None = st.session_state.get("done")
    if done is None:
        return
    if done.ok:
        st.success("Done.", icon=":material/check_circle:")
    else:
        st.error("It was not done; what was said:", icon=":material/error:")
    with st.expander(done.command, expanded=True):
        st.code(done.text or "(nothing was said)", language=None)
        if st.button("Dismiss", key="dismiss"):
            st.session_state.pop("done")
            st.rerun()


# ---------------------------------------------------------------- tests


def draw_tests(page: Page) -> None:
    """Test history: a grid of tests by runs, pass rates, and the metrics of anomaly audits."""
    st.title("Tests")
    if not page.history.tests:
        _empty(
            f"No test ran in the last {shown.counted(page.days, 'day')}.",
            "dbt's own tests are the audits:",
            "dbt build",
        )
        return
    left, right = st.columns([1, 2])
    failed_only = left.toggle("only tests that did not always pass", value=True)
    text = right.text_input("name contains", placeholder="part of a test's name")
    st.subheader("Pass and fail over runs")
    results = shown.tests_over_runs(page.history.tests, failed_only=failed_only, text=text)
    if results:
        _plot(charts.tests(results))
    elif failed_only and not text:
        st.success("All tests passed in all runs.")
    else:
        st.info("No test has this in its name.")
    st.subheader("Each test")
    _table(
        shown.worst_tests(page.history.tests),
        "now",
        {"pass rate": st.column_config.ProgressColumn(format="percent", min_value=0, max_value=1)},
    )
    st.subheader("Metrics")
    names = shown.metric_names(page.history.metrics)
    if not names:
        _empty(
            "No anomaly audit has measured anything yet.",
            "Give a table one of them, such as wap_volume_anomaly (docs/anomalies.md), and:",
            "dbt build",
        )
        return
    chosen = st.selectbox("metric", names, key="metric")
    st.caption("The band is what was expected from what is published; a cross is an anomaly.")
    _plot(charts.metric(shown.metric_points(page.history.metrics, chosen)))


# ---------------------------------------------------------------- quarantine


def draw_quarantine(page: Page) -> None:
    """Quarantine: rows that could not be used, by reason, with samples."""
    st.title("Quarantine")
    found = look.quarantines(page.lake, page.raw_models)
    waiting = [one for one in found if one.rows]
    if not waiting:
        st.success("No row is in quarantine: all that has landed could be used.")
        count = shown.counted(len(found), "table")
        st.caption(f"{count} of landing files looked at. What lands next comes in by:")
        st.code("sparkwap build", language="shell")
        return
    for one in waiting:
        with st.container(border=True):
            st.subheader(shown.plain(one.table))
            share = len(one.rows) / (len(one.rows) + one.good)
            st.markdown(
                f"{shown.counted(len(one.rows), 'row')}, {share:.2%} of all that has landed"
            )
            grouped = shown.reasons(one.rows)
            _plot(charts.reasons(grouped))
            _table(grouped)
            with st.expander("The rows"):
                if page.unlocked:
                    _table(
                        [
                            {"file": r.file, "line": r.line, "reason": r.reason, "text": r.text}
                            for r in one.rows[:_ROWS_SHOWN]
                        ]
                    )
                else:
                    _locked("the rows as they were delivered")
            st.caption("Once the landing entry is mended, they are read again by:")
            st.code(f"sparkwap quarantine replay {one.model}", language="shell")


# ---------------------------------------------------------------- the history of a key


def draw_key(page: Page) -> None:
    """The versions of a key as bars over time."""
    st.title("History of a key")
    # A lake has tables of other projects too: those of this one first.
    tables = sorted(look.versioned(page.lake), key=lambda one: one.identifier not in page.built)
    if not tables:
        _empty(
            "No table has versions (valid_from and valid_to, or dbt_valid_from and dbt_valid_to).",
            "Snapshots and models with materialized: scd2 have (docs/history.md):",
            "dbt build --resource-type snapshot",
        )
        return
    if not page.unlocked:
        _locked("rows")
        return
    left, middle, right = st.columns(3)
    table = left.selectbox("table", tables, format_func=lambda one: one.name, key="history")
    hidden = page.hidden(table.name, table.columns)
    names = [
        c for c in table.columns if c not in (table.start, table.end) and not c.startswith("_")
    ]
    key = middle.selectbox("key column", names, index=_key_index(page, table, names), key="key")
    if key.lower() in hidden:
        st.warning(shown.plain(f"{key} is personal, so its values are not shown. Choose another."))
        return
    values = look.keys(page.lake, table, key)
    value = right.selectbox(
        "key",
        [text for text, _ in values],
        format_func=lambda text: (
            f"{text}   ({shown.counted(dict(values).get(text, 0), 'version')})"
        ),
        accept_new_options=True,
        key="value",
        help="Those with most versions come first; any other may be typed.",
    )
    if not value:
        return
    try:
        rows = look.versions(page.lake, table, key, value, table.columns)
    except ValueError:
        st.warning(shown.plain(f"{value} is no value of {key}."))
        return
    found = shown.versions(rows, table.start, table.end, hidden)
    if not found:
        st.info(shown.plain(f"{table.name} has no row with {key} {value}."))
        return
    _plot(charts.timeline(shown.timeline(found, page.now)))
    if hidden:
        st.caption(shown.plain(f"Not shown, as personal: {', '.join(sorted(hidden))}"))
    _table(
        [
            {
                "version": one.number,
                "valid from": shown.when(one.start) or "unknown",
                "valid to": shown.when(one.end) or "current",
                "what": one.what,
                **one.values,
            }
            for one in found
        ]
    )


def _key_index(page: Page, table: look.Versioned, names: Sequence[str]) -> int:
    """Where the key stands among the columns, if dbt knows it."""
    for node in (page.manifest or {}).get("nodes", {}).values():
        if f"{node.get('schema')}.{node.get('alias')}" == table.name:
            given = (node.get("config") or {}).get("unique_key")
            first = given[0] if isinstance(given, list) and given else given
            return names.index(first) if first in names else 0
    return 0


# ---------------------------------------------------------------- two states


def draw_compare(page: Page) -> None:
    """Two branches, receipts or main, side by side."""
    st.title("Compare two branches")
    known = ["main", *(one.name for one in page.branches), *look.tags(page.lake)]
    if len(known) == 1:
        _empty("There is only main, so there is nothing to compare.", "First build:", "dbt build")
        return
    left, right = st.columns(2)
    old = left.selectbox("left", known, key="old")
    new = right.selectbox("right", known, index=1, key="new")
    if old == new:
        st.info("Both are the same. Choose two.")
        return
    found = look.compared(page.lake, new, old)
    st.caption(
        "From Iceberg's metadata: columns, rows, and what the snapshots say of themselves. A table "
        "that a branch does not have is what it is on main. Every row that differs:"
    )
    arguments = {"branch": new, "against": old} if new != "main" else {"branch": old}
    st.code(act.typed("wap_diff", arguments), language="shell")
    _table(shown.comparison_rows(found))
    chosen = st.selectbox("table", found, format_func=lambda one: one.name, key="compared")
    left, right = st.columns(2)
    with left:
        st.subheader("Columns")
        _table(shown.column_rows(chosen))
    with right:
        st.subheader("Snapshot summary")
        _table(shown.summary_rows(chosen))


# ---------------------------------------------------------------- parts


# Each view: its icon, and what draws it.
VIEWS: Mapping[str, tuple[str, Callable[[Page], None]]] = {
    "Home": (":material/home:", draw_home),
    "Runs": (":material/timeline:", draw_runs),
    "Branches": (":material/account_tree:", draw_branches),
    "Tests": (":material/fact_check:", draw_tests),
    "Quarantine": (":material/report:", draw_quarantine),
    "History of a key": (":material/history:", draw_key),
    "Compare": (":material/compare_arrows:", draw_compare),
}


def _plot(chart: alt.Chart | alt.LayerChart) -> None:
    st.altair_chart(chart, width="stretch")


def _table(
    rows: Sequence[Mapping[str, Any]],
    verdict: str | None = None,
    columns: Mapping[str, Any] | None = None,
) -> None:
    frame: Any = pd.DataFrame(list(rows)).convert_dtypes()
    if verdict is not None and not frame.empty:
        frame = frame.style.map(_styled, subset=[verdict])
    st.dataframe(frame, width="stretch", hide_index=True, column_config=dict(columns or {}))


def _styled(text: str) -> str:
    word = str(text).partition(" ")[2]
    return f"color: {shown.look_of(word).colour}; font-weight: 600"


def _empty(what: str, way_on: str, command: str) -> None:
    st.info(what)
    st.caption(way_on)
    st.code(command, language="shell")


def _locked(what: str) -> None:
    st.caption(f":material/lock: The token, in the side bar, opens {what}.")


def _sidebar(settings: access.Settings, call: DbtCall) -> tuple[str, int, bool]:
    """Which view, how many days, and whether the token was given."""
    with st.sidebar:
        st.markdown("## sparkwap")
        st.caption(shown.plain(f"{call.project_dir.name}  ·  target {call.target or 'default'}"))
        names = list(VIEWS)
        asked = st.query_params.get("view", names[0])
        view = st.radio(
            "view",
            names,
            index=names.index(asked) if asked in names else 0,
            format_func=lambda name: f"{VIEWS[name][0]}  {name}",
            label_visibility="collapsed",
        )
        st.query_params["view"] = view
        st.divider()
        days = st.select_slider(
            "days of history", _DAYS, value=30, help="of runs, tests and metrics"
        )
        unlocked = _token(settings)
        st.button("Read again", icon=":material/refresh:", width="stretch")
    return view, int(days), unlocked


def _token(settings: access.Settings) -> bool:
    given = st.text_input(
        "token",
        type="password",
        key="token",
        autocomplete="off",
        placeholder="from the terminal",
        help="`sparkwap page` has printed it. It opens rows, and the buttons.",
    )
    if given and settings.opened_by(given):
        st.caption(":material/lock_open: Rows and buttons are open.")
        return True
    if given:
        st.error("That is not the token.")
    return False


def main() -> None:
    """Draw the page."""
    st.set_page_config(page_title="sparkwap", page_icon=":material/verified:", layout="wide")
    st.html(_STYLE)
    try:
        settings = access.read(Path(os.environ.get(access.SETTINGS, "")))
        call = parse_call(settings.arguments)
        view, days, unlocked = _sidebar(settings, call)
        if "lake" not in st.session_state:
            st.session_state["lake"] = call.lake()
        with look.opened(st.session_state["lake"]) as lake:
            if lake is None:
                st.title(view)
                _empty("There is no lake yet.", "It is made by the first build:", "dbt build")
                return
            VIEWS[view][1](Page(call, lake, days, unlocked))
    except SparkwapError as error:
        st.error("This could not be read:")
        st.code(redact(str(error)), language=None)


main()
