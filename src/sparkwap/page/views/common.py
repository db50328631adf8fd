"""The lake and the project's files for all views, and functions that draw tables and plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from sparkwap.alerts.project import Project, of_manifest
from sparkwap.core.dbt_cli import DbtCall
from sparkwap.core.personal import Hidden, tells_value, without_values
from sparkwap.gate.settings import settings_of
from sparkwap.landing.raw_models import RawModel, raw_models
from sparkwap.page import queries, run_history
from sparkwap.page.formats import badge_of, escape_markdown
from sparkwap.publish.lake import Lake


class Page:
    """The lake, the project's files, and whether the token was given."""

    def __init__(self, call: DbtCall, lake: Lake, days: int, unlocked: bool) -> None:
        self.call = call
        self.lake = lake
        self.days = days
        self.unlocked = unlocked
        self.now = datetime.now(UTC)

    @cached_property
    def history(self) -> queries.RecentHistory:
        """The ledger's rows of the last days."""
        return queries.recent_history(self.lake, self.days, self.now)

    @cached_property
    def runs(self) -> list[run_history.RunOverview]:
        """The runs of the last days, newest first."""
        return run_history.overviews(
            self.history.runs, self.history.nodes, self.history.ended_otherwise
        )

    @cached_property
    def branches(self) -> list[queries.BranchOverview]:
        """The open audit branches."""
        return queries.branch_overviews(self.lake)

    @cached_property
    def manifest(self) -> Mapping[str, Any] | None:
        """dbt's manifest; None if no command has written one."""
        return queries.artifact(self.call.project_dir / self.call.target_path / "manifest.json")

    @cached_property
    def project(self) -> Project:
        """Owners and personal columns."""
        return of_manifest(self.manifest or {})

    @cached_property
    def raw_models(self) -> list[RawModel]:
        """The models that read landing files."""
        return raw_models(self.manifest, self.call.project_dir) if self.manifest else []

    def shown(self, reason: str, node_id: str) -> str:
        """Return a reason or finding without values: personal ones, and all without the token."""
        found = self.project.harmless(reason, node_id)
        return found if self.unlocked else without_values(found, "it needs the token")

    def reasons(self, nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """Return the reasons of nodes by node id, as `shown`."""
        return {
            row["node_id"]: self.shown(row["reason"], row["node_id"])
            for row in nodes
            if row["reason"]
        }

    @cached_property
    def metrics(self) -> list[Mapping[str, Any]]:
        """The metrics of the last days, without those that may tell a value; see `shown`."""
        return [
            row
            for row in self.history.metrics
            if not self.project.is_withheld(row["metric"], [row["node_id"], row["test_id"]])
            and (self.unlocked or not tells_value(row["metric"]))
        ]

    def knows(self, name: str) -> bool:
        """Return whether the manifest has a table, and thus its personal columns."""
        return name.lower() in {".".join(table).lower() for table in self._tables.values()}

    def hidden(self, name: str, columns: Sequence[str]) -> set[str]:
        """Return the columns of a table, in lower case, whose values are never shown.

        They are its personal columns; all columns if the manifest does not have the table.
        """
        schema, table = name.split(".", 1)
        known = self.knows(name)
        hidden = self._hidden.of((schema, table), columns) if known else columns
        return {column.lower() for column in hidden}

    @cached_property
    def _tables(self) -> Mapping[str, tuple[str, str]]:
        manifest = self.manifest or {}
        nodes = {**manifest.get("nodes", {}), **manifest.get("sources", {})}
        return {
            key: (str(node.get("schema")), str(node.get("alias") or node.get("identifier")))
            for key, node in nodes.items()
        }

    @cached_property
    def _hidden(self) -> Hidden:
        return Hidden.of_project(self.project, self._tables, self._hide_patterns)

    @cached_property
    def _hide_patterns(self) -> tuple[str, ...]:
        from dbt.config.project import load_raw_project

        raw = load_raw_project(str(self.call.project_dir))
        return settings_of(raw, self.call.variables).diff_hide


def draw_plot(chart: alt.Chart | alt.LayerChart) -> None:
    st.altair_chart(chart, width="stretch")


def draw_table(
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
    return f"color: {badge_of(word).colour}; font-weight: 600"


def draw_empty(message: str, next_step: str, command: str) -> None:
    st.info(message)
    st.caption(next_step)
    st.code(command, language="shell")


def draw_unknown(names: Sequence[str]) -> None:
    """Say that the rows of tables are not shown, because their marks are not known."""
    st.caption(
        "Not shown, because target/manifest.json does not have it, so its personal columns are not "
        f"known: {escape_markdown(', '.join(names))}"
    )


def draw_locked(content: str) -> None:
    st.caption(f":material/lock: Type the token into the sidebar to unlock {content}.")
