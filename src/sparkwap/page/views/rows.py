"""Views of rows: the quarantine, and the versions of one key."""

from __future__ import annotations

import streamlit as st

from sparkwap.core import next_command
from sparkwap.core.personal import RAW_TEXT
from sparkwap.core.text import counted
from sparkwap.page import charts, key_history, queries, raw_tables
from sparkwap.page.formats import escape_markdown, format_time
from sparkwap.page.views.common import (
    Page,
    draw_empty,
    draw_locked,
    draw_plot,
    draw_table,
    draw_unknown,
)

_ROWS_SHOWN = 200


def draw_quarantine(page: Page) -> None:
    """Draw the rows in quarantine by reason, with samples."""
    st.title("Quarantine")
    found = raw_tables.quarantines(page.lake, page.raw_models)
    waiting = [quarantined for quarantined in found if quarantined.rows]
    if not waiting:
        st.success("No row is in quarantine.")
        count = counted(len(found), "table")
        st.caption(f"Checked: {count} of landing files. To read new files:")
        st.code(next_command.sparkwap("build"), language="shell")
        return
    for table in waiting:
        with st.container(border=True):
            st.subheader(escape_markdown(table.table))
            share = len(table.rows) / (len(table.rows) + table.good)
            st.markdown(f"{counted(len(table.rows), 'row')}, {share:.2%} of all delivered rows")
            grouped = raw_tables.group_reasons(table.rows)
            draw_plot(charts.reasons(grouped))
            draw_table(grouped)
            with st.expander("The rows"):
                _draw_bad_rows(page, table)
            st.caption("After you have fixed the landing entry, read the rows again:")
            st.code(next_command.sparkwap(f"quarantine replay {table.model}"), language="shell")


def _draw_bad_rows(page: Page, table: raw_tables.Quarantine) -> None:
    # A bad row is one text: a personal value in it cannot be distinguished from the others.
    personal = page.hidden(table.table, table.columns) - RAW_TEXT
    if not page.knows(table.table):
        draw_unknown([table.table])
    elif personal:
        named = escape_markdown(", ".join(sorted(personal)))
        st.caption(f"Not shown, because the table has personal columns: {named}. In a terminal:")
        st.code(next_command.sparkwap(f"quarantine list {table.model}"), language="shell")
    elif not page.unlocked:
        draw_locked("the rows as they were delivered")
    else:
        draw_table(
            [
                {"file": row.file, "line": row.line, "reason": row.reason, "text": row.text}
                for row in table.rows[:_ROWS_SHOWN]
            ]
        )


def draw_key(page: Page) -> None:
    """Draw the versions of a key as bars over time."""
    st.title("History of a key")
    # A lake also has tables of other projects, whose marks are not known here.
    found = queries.versioned(page.lake)
    tables = [table for table in found if page.knows(table.name)]
    unknown = [table.name for table in found if table not in tables]
    if unknown:
        draw_unknown(unknown)
    if not tables:
        draw_empty(
            "No table has versions (valid_from and valid_to, or dbt_valid_from and dbt_valid_to).",
            "Snapshots and models with materialized: scd2 have versions (docs/history.md):",
            "dbt build --resource-type snapshot",
        )
        return
    if not page.unlocked:
        draw_locked("rows")
        return
    left, middle, right = st.columns(3)
    table = left.selectbox("table", tables, format_func=lambda t: t.name, key="history")
    hidden = page.hidden(table.name, table.columns)
    index = _key_index(page, table)
    key = middle.selectbox("key column", table.keys, index=index, key="key")
    if key.lower() in hidden:
        st.warning(
            escape_markdown(f"{key} is personal, so its values are not shown. Choose another.")
        )
        return
    values = queries.keys(page.lake, table, key)
    value = right.selectbox(
        "key",
        [text for text, _ in values],
        format_func=lambda text: f"{text}   ({counted(dict(values).get(text, 0), 'version')})",
        accept_new_options=True,
        key="value",
        help="Keys with most versions come first. You can type any other key.",
    )
    if not value:
        return
    try:
        rows = queries.versions(page.lake, table, key, value, table.columns)
    except ValueError:
        st.warning(escape_markdown(f"{value} is not a value of {key}."))
        return
    versions = key_history.versions(rows, table.start, table.end, hidden)
    if not versions:
        st.info(escape_markdown(f"{table.name} has no row with {key} {value}."))
        return
    draw_plot(charts.timeline(key_history.timeline(versions, page.now)))
    if hidden:
        st.caption(escape_markdown(f"Personal columns, not shown: {', '.join(sorted(hidden))}"))
    draw_table(
        [
            {
                "version": version.number,
                "valid from": format_time(version.start) or "unknown",
                "valid to": format_time(version.end) or "current",
                "what": version.what,
                **version.values,
            }
            for version in versions
        ]
    )


def _key_index(page: Page, table: queries.Versioned) -> int:
    """Return the position of the model's unique_key among the columns; 0 if it has none."""
    for node in (page.manifest or {}).get("nodes", {}).values():
        if f"{node.get('schema')}.{node.get('alias')}" == table.name:
            given = (node.get("config") or {}).get("unique_key")
            first = given[0] if isinstance(given, list) and given else given
            return table.keys.index(first) if first in table.keys else 0
    return 0
