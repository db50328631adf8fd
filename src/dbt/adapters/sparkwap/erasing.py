"""What an erasure needs of dbt: the marks in the manifest, a Spark session, folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbt_common.invocation import get_invocation_id

from dbt.adapters.sparkwap import facts
from sparkwap.core.errors import ConfigError
from sparkwap.erasure import Erasure, NodeColumns
from sparkwap.runs.types import DAY_MS

if TYPE_CHECKING:
    from dbt.adapters.sparkwap.impl import SparkWapAdapter

REACHED_TYPES = facts.BUILT_TYPES | {"source", "test"}


def erasure(adapter: SparkWapAdapter) -> Erasure:
    """The erasure of an adapter's lake.

    :raises ConfigError: the command reads an audit branch, and so not what readers see.
    """
    settings = adapter._settings()
    if settings.branch is not None:
        raise ConfigError(
            f"wap_branch is {settings.branch}, and an erasure begins with what readers of main "
            "see. Nothing was changed. Call it without wap_branch."
        )
    days = settings.tag_retention_days
    credentials = adapter.credentials
    beside: list[Path] = []
    of_server: list[Path] | None = None
    if credentials.embedded:
        layout = credentials.server_config(adapter._project_root).layout
        beside, of_server = [layout.sqlite], [layout.server]
    return Erasure(
        adapter.lake,
        lambda statement: rows_of(adapter, statement),
        run_id=get_invocation_id(),
        nodes=lambda: node_columns(adapter.get_macro_resolver()),
        project=str(getattr(adapter.config, "project_name", "")),
        target_name=str(getattr(adapter.config, "target_name", "")),
        folder=adapter._target_path / "erasure",
        tag_max_age_ms=None if days is None else days * DAY_MS,
        beside=beside,
        of_server=of_server,
    )


def rows_of(adapter: SparkWapAdapter, statement: str) -> Sequence[Sequence[Any]]:
    """The rows that a statement returns in the session of this thread."""
    with adapter.connections.exception_handler(statement):
        cursor = adapter.connections.get_thread_connection().handle.cursor()
        cursor.execute(statement)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []


def node_columns(manifest: Any) -> list[NodeColumns]:
    """The nodes of a manifest with the marks of their columns."""
    nodes = [*manifest.nodes.values(), *getattr(manifest, "sources", {}).values()]
    return [
        NodeColumns(
            node_id=node.unique_id,
            identifier=(node.schema, getattr(node, "alias", None) or node.identifier),
            resource_type=str(node.resource_type),
            columns={name: column_meta(column) for name, column in node.columns.items()},
            parents=frozenset(getattr(getattr(node, "depends_on", None), "nodes", ())),
        )
        for node in nodes
        if str(node.resource_type) in REACHED_TYPES
    ]


def column_meta(column: Any) -> Mapping[str, Any]:
    """A column's ``meta``: of its config, or in the older place beside it."""
    config = getattr(column, "config", None)
    return {**(getattr(column, "meta", None) or {}), **(getattr(config, "meta", None) or {})}
