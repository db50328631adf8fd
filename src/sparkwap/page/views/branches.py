"""Views of branches: open branches with their buttons, and a comparison of two branches."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import streamlit as st

from sparkwap.core import next_command
from sparkwap.core.text import counted, some_of
from sparkwap.ledger.records import LOADED, time_of
from sparkwap.page import actions, comparison, open_branches, queries
from sparkwap.page.command import folder_of
from sparkwap.page.formats import (
    VERDICTS,
    escape_markdown,
    format_age,
    format_status,
    format_time,
    shorten,
)
from sparkwap.page.views.common import Page, draw_empty, draw_locked, draw_table

_REASONS_SHOWN = 5


def draw_branches(page: Page) -> None:
    """Draw the open audit branches: reasons, differences from main, and buttons."""
    st.title("Open audit branches")
    actions.forget(folder_of(page.call), [branch.name for branch in page.branches])
    _last_action()
    if not page.branches:
        st.success("No audit branch is open: all builds are published or discarded.")
        st.caption("A held or rejected run leaves its branch open. To see one:")
        st.code("SPARKWAP_PUBLISH=never dbt build", language="shell")
        return
    st.caption(
        "Readers of main do not see the tables on a branch. A branch is open because its run was "
        "held or rejected, did not end, or is still running."
    )
    for branch in sorted(page.branches, key=lambda b: time_of(b.since), reverse=True):
        with st.container(border=True):
            _draw_branch(page, branch)


def _draw_branch(page: Page, branch: queries.BranchOverview) -> None:
    nodes = branch.history.nodes
    verdicts = [row["verdict"] for row in nodes]
    st.subheader(branch.name, anchor=f"branch-{branch.name}")
    counts = "  ".join(f"{format_status(v)} {verdicts.count(v)}" for v in VERDICTS if v in verdicts)
    size = counted(len(branch.open.tables) + len(branch.open.side), "table")
    state = "building" if branch.lease else counts or "no verdict"
    st.markdown(f"{size}, {format_age(branch.since, page.now)} &nbsp; **{state}**")
    for reason, tables in open_branches.unpublished_reasons(nodes, page.reasons(nodes))[
        :_REASONS_SHOWN
    ]:
        names = escape_markdown(some_of(tables, _REASONS_SHOWN))
        st.markdown(f"- {escape_markdown(shorten(reason, 240))}  \n  :gray[{names}]")
    if branch.lease:
        st.info(escape_markdown(f"{branch.name} is {branch.lease}."), icon=":material/lock:")
    draw_table(
        open_branches.branch_rows(nodes, queries.compare(page.lake, branch.name, "main")),
        "verdict",
    )
    failed = [row for row in branch.history.tests if row["status"] in ("fail", "error", "warn")]
    if failed:
        st.markdown("**Tests that did not pass**")
        draw_table(
            [
                {
                    "status": format_status(row["status"]),
                    "test": row["test_name"],
                    "failures": row["failures"],
                    "found": page.shown(row["finding"], row["test_id"])
                    if row.get("finding")
                    else shorten(page.project.error_class(row["message"] or "", row["test_id"]))
                    if page.unlocked
                    else "",
                }
                for row in failed
            ],
            "status",
        )
    _draw_diff(page, branch)
    loaded = any(node["node_id"].startswith(LOADED) for node in nodes)
    with st.expander("Commands that continue from here"):
        for purpose, command in open_branches.next_commands(
            branch.name, set(filter(None, verdicts)), loaded
        ):
            st.markdown(purpose)
            st.code(command, language="shell")
    _draw_buttons(page, branch)


def _draw_diff(page: Page, branch: queries.BranchOverview) -> None:
    folder = folder_of(page.call)
    document = queries.artifact(actions.diff_file(folder, branch.name))
    with st.expander("Rows that differ from main"):
        if document is None:
            st.caption(
                "The counts above come from Iceberg's metadata. This command lists the rows that "
                "were added, removed and changed:"
            )
            st.code(next_command.operation("wap_diff", branch.name), language="shell")
        else:
            at = format_time(datetime.fromisoformat(document["at"]))
            st.caption(escape_markdown(f"Compared with {document['against']} at {at} UTC."))
            if comparison.is_stale(document, branch.history.nodes):
                st.warning("The branch was built after this comparison. Compare again.")
            draw_table(comparison.diff_rows(document))
            for table in document["tables"] if page.unlocked else ():
                if table["samples"]:
                    name = escape_markdown(f"{table['schema']}.{table['name']}")
                    st.markdown(f"Sample rows of **{name}**")
                    draw_table(comparison.diff_samples(table, page.hidden))
            if not page.unlocked:
                draw_locked("sample rows")
        if st.button(
            "Compare row by row",
            key=f"diff-{branch.name}",
            icon=":material/difference:",
            disabled=not page.unlocked,
            help="Starts the server if it is not running.",
        ):
            _act(page, "wap_diff", actions.diff_arguments(folder, branch.name))


def _draw_buttons(page: Page, branch: queries.BranchOverview) -> None:
    left, right, _ = st.columns([1, 1, 2])
    confirming = f"asked-{branch.name}"
    reason = open_branches.publish_blocker(
        [row["verdict"] for row in branch.history.nodes], branch.lease is not None
    )
    pressed = left.button(
        "Approve and publish",
        key=f"publish-{branch.name}",
        type="secondary" if reason else "primary",
        icon=":material/publish:",
        disabled=bool(reason) or not page.unlocked,
        width="stretch",
        help=reason
        or "Runs dbt run-operation wap_publish. The gate decides by the results of the tests.",
    )
    # Checked again: a browser may send the click of a disabled button.
    if pressed and not reason:
        _act(page, "wap_publish", {"branch": branch.name})
    if right.button(
        "Discard …",
        key=f"discard-{branch.name}",
        icon=":material/delete:",
        disabled=not page.unlocked,
        width="stretch",
        help="Runs dbt run-operation wap_discard: drops the branch and everything on it.",
    ):
        st.session_state[confirming] = True
    if reason:
        st.caption(f":material/block: This branch cannot be published. {reason}")
    if not page.unlocked:
        draw_locked("these buttons")
    elif st.session_state.get(confirming):
        st.warning(f"Drop {branch.name} and everything on it? This cannot be undone.")
        yes, no, _ = st.columns([1, 1, 2])
        if yes.button(f"Yes, discard {branch.name}", key=f"yes-{branch.name}", width="stretch"):
            st.session_state.pop(confirming)
            _act(page, "wap_discard", {"branch": branch.name})
        if no.button("Keep it", key=f"no-{branch.name}", width="stretch"):
            st.session_state.pop(confirming)
            st.rerun()


def _act(page: Page, operation: str, arguments: Mapping[str, Any]) -> None:
    """Call an operation, keep its result for the next drawing, and draw the page again."""
    # Checked again: the button may have been drawn before the session was locked.
    if not page.unlocked:
        return
    with st.spinner(f"{next_command.operation(operation, **arguments)} …"):
        names = [branch.branch for branch in page.lake.branches.all()]
        st.session_state["done"] = actions.perform(
            page.call, operation, arguments, open_branches=names
        )
    st.rerun()


def _last_action() -> None:
    done: actions.Done | None = st.session_state.get("done")
    if done is None:
        return
    if done.ok:
        st.success("Done.", icon=":material/check_circle:")
    else:
        st.error("The command failed. Its output:", icon=":material/error:")
    with st.expander(done.command, expanded=True):
        st.code(done.text or "(no output)", language=None)
        if st.button("Dismiss", key="dismiss"):
            st.session_state.pop("done")
            st.rerun()


def draw_compare(page: Page) -> None:
    """Draw a comparison of two branches, receipts or main."""
    st.title("Compare two branches")
    known = ["main", *(branch.name for branch in page.branches), *queries.tags(page.lake)]
    if len(known) == 1:
        draw_empty(
            "There is only main, so there is nothing to compare.", "Build first:", "dbt build"
        )
        return
    left, right = st.columns(2)
    old = left.selectbox("left", known, key="old")
    new = right.selectbox("right", known, index=1, key="new")
    if old == new:
        st.info("Both sides are the same. Choose two different branches.")
        return
    found = queries.compare(page.lake, new, old)
    st.caption(
        "Columns, row counts and snapshot summaries, from Iceberg's metadata. A table that a "
        "branch does not have is taken from main. This command lists every row that differs:"
    )
    arguments = {"branch": new, "against": old} if new != "main" else {"branch": old}
    st.code(next_command.operation("wap_diff", **arguments), language="shell")
    draw_table(comparison.comparison_rows(found))
    chosen = st.selectbox("table", found, format_func=lambda table: table.name, key="compared")
    left, right = st.columns(2)
    with left:
        st.subheader("Columns")
        draw_table(comparison.column_rows(chosen))
    with right:
        st.subheader("Snapshot summary")
        draw_table(comparison.summary_rows(chosen))
