"""Passes the manifest's marks, a Spark session and folders to an erasure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbt.adapters.sparkwap.dbt_nodes import meta_of, stored, table_of, with_history
from sparkwap.core.errors import ConfigError
from sparkwap.erasure import NodeColumns
from sparkwap.erasure.operation import Erasure
from sparkwap.runs.types import DAY_MS

if TYPE_CHECKING:
    from dbt.adapters.sparkwap.command import DbtCommand


def erasure(command: DbtCommand) -> Erasure:
    """Return the erasure of a command's lake.

    Raises:
        ConfigError: The command reads an audit branch, but an erasure starts from ``main``.
    """
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
    )


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
        )
        for node in stored(manifest)
    ]
