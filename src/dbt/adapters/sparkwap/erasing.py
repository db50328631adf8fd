"""Passes the manifest's marks, a Spark session and folders to an erasure."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbt.adapters.sparkwap.dbt_nodes import (
    materialized,
    meta_of,
    stored,
    table_of,
    with_history,
)
from sparkwap.catalog import Identifier
from sparkwap.cdc import history
from sparkwap.core.errors import ConfigError
from sparkwap.core.sqltext import quote
from sparkwap.core.text import listed
from sparkwap.erasure import NodeColumns
from sparkwap.erasure.operation import Erasure
from sparkwap.runs.types import DAY_MS

if TYPE_CHECKING:
    from dbt.adapters.sparkwap.command import DbtCommand


def erasure(command: DbtCommand) -> Erasure:
    """Return the erasure of a command's lake."""
    settings = command.settings
    if settings.branch is not None:
        raise ConfigError(
            f"wap_branch is {settings.branch}, but an erasure reads main first. Nothing was "
            "changed. Call it without wap_branch."
        )
    days = settings.tag_retention_days
    credentials = command.credentials
    beside: list[Path] = []
    of_server: list[Path] | None = None
    if credentials.embedded:
        layout = credentials.server_config(command.project_root).layout
        beside, of_server = [layout.sqlite], [layout.server]
    return Erasure(
        command.lake,
        command.connections.rows_of,
        run_id=command.run_id,
        nodes=lambda: node_columns(command.dbt_manifest()),
        project=command.project_name,
        target_name=command.target_name,
        folder=command.target_path / "erasure",
        tag_max_age_ms=None if days is None else days * DAY_MS,
        beside=beside,
        of_server=of_server,
        begin=lambda tables: keep_numbers(command, tables),
    )


def keep_numbers(command: DbtCommand, tables: Collection[Identifier]) -> None:
    """Keep the highest surrogate key of each history of these, which no later version may have."""
    rows_of = command.connections.rows_of
    for node in command.dbt_manifest().nodes.values():
        key = node.config.extra.get("surrogate_key") if materialized(node) == "scd2" else None
        state = command.lake.state(table_of(node)) if key and table_of(node) in tables else None
        name = "version_key" if key is True else str(key)
        # The config may be newer than the table.
        if state is None or not {name, "_batch"} <= {column.name for column in state.columns}:
            continue
        table = ".".join(map(quote, state.identifier))
        number = history.marks(table, name, lambda sql: rows_of(sql)[0]).number
        if number > int(state.properties.get(history.HIGHEST, 0)):
            rows_of(f"alter table {table} set tblproperties ('{history.HIGHEST}' = '{number}')")


def node_columns(manifest: Any) -> list[NodeColumns]:
    """Return the nodes of a manifest with the marks of their columns."""
    kept = with_history(manifest)
    return [
        NodeColumns(
            node_id=node.unique_id,
            identifier=table_of(node),
            resource_type=str(node.resource_type),
            columns={name: meta_of(column) for name, column in node.columns.items()},
            parents=frozenset(getattr(getattr(node, "depends_on", None), "nodes", ())),
            has_history=table_of(node) in kept,
            entry_key=tuple(listed((meta_of(node).get("landing") or {}).get("key"))),
        )
        for node in stored(manifest)
    ]
