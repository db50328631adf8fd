"""Passes the manifest's keys and marks and a Spark session to a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dbt.adapters.sparkwap.alerting import project
from dbt.adapters.sparkwap.dbt_nodes import BUILT_TYPES, stored, table_of
from sparkwap.core.command_end import CommandEnd
from sparkwap.core.personal import Hidden
from sparkwap.core.text import listed
from sparkwap.diff.differ import Differ
from sparkwap.diff.operation import Diff, deliver, result

if TYPE_CHECKING:
    from dbt.adapters.sparkwap.command import DbtCommand
    from sparkwap.catalog import Identifier


def diff(command: DbtCommand, request: Diff, found: list[CommandEnd]) -> list[str]:
    """Run ``wap_diff``; returns the lines to print, and adds its result to ``found``."""
    branch = request.branch or command.settings.branch
    if branch is None:
        raise request.refused("branch is missing")
    manifest = command.dbt_manifest()
    tables = {node.unique_id: table_of(node) for node in stored(manifest)}
    hidden = Hidden.of_project(project(command), tables, command.settings.diff_hide)
    differ = Differ(
        command.lake,
        command.connections.rows_of,
        keys=keys(manifest),
        hidden=hidden,
        sample=request.sample,
    )
    compared = differ.compare(branch, request.against, request.tables)
    found.append(CommandEnd(result=result(compared)))
    return deliver(compared, request)


def keys(manifest: Any) -> dict[Identifier, tuple[str, ...]]:
    """Return the keys of models, seeds and snapshots, by table; tables without key are absent."""
    unique = _tested(manifest)
    found = {}
    for node in manifest.nodes.values():
        if str(node.resource_type) in BUILT_TYPES:
            key = _key(node, unique.get(node.unique_id, ()))
            if key:
                found[node.schema, node.alias] = key
    return found


def _key(node: Any, tested: Sequence[str]) -> tuple[str, ...]:
    """Return the key of a node: from ``meta.diff_key``, its materialization, its constraints or
    its tests."""
    meta = node.config.meta or {}
    own = tuple(listed(meta.get("diff_key")))
    if own:
        return own
    key = tuple(listed(getattr(node.config, "unique_key", None)))
    # A history has one row per version of a key.
    if str(node.resource_type) == "snapshot":
        names = getattr(node.config, "snapshot_meta_column_names", None)
        return (getattr(names, "dbt_scd_id", None) or "dbt_scd_id",)
    if str(getattr(node.config, "materialized", "")) == "scd2":
        return (*key, "valid_from") if key else ()
    return key or tuple(getattr(node, "primary_key", None) or ()) or tuple(tested)


def _tested(manifest: Any) -> dict[str, tuple[str, ...]]:
    """Return the columns of the uniqueness tests, by tested node."""
    found: dict[str, tuple[str, ...]] = {}
    for test in manifest.nodes.values():
        about = getattr(test, "test_metadata", None)
        if str(test.resource_type) != "test" or about is None:
            continue
        key: list[str] = []
        if about.name == "unique":
            key = listed(getattr(test, "column_name", None))
        elif about.name == "unique_combination_of_columns":
            key = listed((about.kwargs or {}).get("combination_of_columns"))
        node = getattr(test, "attached_node", None)
        if key and node and getattr(test.config, "where", None) is None:
            found.setdefault(node, tuple(key))
    return found
