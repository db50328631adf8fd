"""The Streamlit app that ``sparkwap page`` runs: the sidebar and the chosen view."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import streamlit as st

from sparkwap.core.dbt_cli import DbtCall, parse_call
from sparkwap.core.errors import SparkwapError
from sparkwap.core.redaction import redact
from sparkwap.page import access, queries
from sparkwap.page.formats import escape_markdown
from sparkwap.page.views import branches, rows, runs
from sparkwap.page.views.common import Page, draw_empty

_DAYS = (1, 7, 30, 90, 365)
# Streamlit's default padding leaves much empty space at the top.
_STYLE = "<style>[data-testid=stMainBlockContainer] {padding-top: 2.5rem}</style>"

# View -> its icon, and the function that draws it.
VIEWS: Mapping[str, tuple[str, Callable[[Page], None]]] = {
    "Home": (":material/home:", runs.draw_home),
    "Runs": (":material/timeline:", runs.draw_runs),
    "Branches": (":material/account_tree:", branches.draw_branches),
    "Tests": (":material/fact_check:", runs.draw_tests),
    "Quarantine": (":material/report:", rows.draw_quarantine),
    "History of a key": (":material/history:", rows.draw_key),
    "Compare": (":material/compare_arrows:", branches.draw_compare),
}


def _sidebar(settings: access.Settings, call: DbtCall) -> tuple[str, int, bool]:
    """Draw the sidebar; returns the view, the days of history, and whether the token was given."""
    with st.sidebar:
        st.markdown("## sparkwap")
        st.caption(
            escape_markdown(f"{call.project_dir.name}  ·  target {call.target or 'default'}")
        )
        names = list(VIEWS)
        wanted = st.query_params.get("view", names[0])
        view = st.radio(
            "view",
            names,
            index=names.index(wanted) if wanted in names else 0,
            format_func=lambda name: f"{VIEWS[name][0]}  {name}",
            label_visibility="collapsed",
        )
        st.query_params["view"] = view
        st.divider()
        days = st.select_slider(
            "days of history", _DAYS, value=30, help="of runs, tests and metrics"
        )
        unlocked = _token(settings)
        st.button("Reload", icon=":material/refresh:", width="stretch")
    return view, int(days), unlocked


def _token(settings: access.Settings) -> bool:
    given = st.text_input(
        "token",
        type="password",
        key="token",
        autocomplete="off",
        placeholder="from the terminal",
        help="`sparkwap page` printed it. It unlocks rows and buttons.",
    )
    if given and settings.opened_by(given):
        st.caption(":material/lock_open: Rows and buttons are unlocked.")
        return True
    if given:
        st.error("This token is wrong.")
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
        with queries.opened(st.session_state["lake"]) as lake:
            if lake is None:
                st.title(view)
                draw_empty("There is no lake yet.", "The first build creates it:", "dbt build")
                return
            page = Page(call, lake, days, unlocked)
            if page.manifest is None:
                st.warning(
                    "target/manifest.json is missing or cannot be read, so personal columns are "
                    "not known. The page shows no rows and no texts that may quote them. This "
                    "command writes the file: dbt parse"
                )
            VIEWS[view][1](page)
    except SparkwapError as error:
        st.error("The page cannot read the project or the lake:")
        st.code(redact(str(error)), language=None)


main()
