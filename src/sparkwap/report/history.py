"""Selects the rows of the ledger that the report shows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sparkwap.report.facts import Row


def with_last_runs(
    manifest: Mapping[str, Any],
    tables: Mapping[str, Sequence[Row]],
    target: str,
    *,
    all_schemas: bool = False,
) -> dict[str, Any]:
    """Return the manifest with the nodes that it disables, as the last run of the target had them.

    A variable may disable a model in one command and enable it in another, with another schema.

    Args:
        tables: ``runs``, ``nodes`` and ``tests`` of the ledger.
        target: The target whose runs count.
        all_schemas: Replace the schema of each node by the schema where a run of the target last
            built it.
    """
    own = _runs_of(manifest, tables["runs"], target)
    nodes = manifest["nodes"]
    disabled = {key: found[-1] for key, found in (manifest.get("disabled") or {}).items() if found}
    off = {key: node for key, node in disabled.items() if key not in nodes}
    known = {**off, **nodes} if all_schemas else off
    schemas = {row["node_id"]: row["schema"]
               for row in sorted(tables["nodes"], key=lambda row: row["built_at"])
               if row["run_id"] in own and row["node_id"] in known and row["schema"]}  # fmt: skip
    reads = {row["test_id"]: sorted(dict(row["audited"] or {}))
             for row in sorted(tables["tests"], key=lambda row: row["executed_at"])
             if row["run_id"] in own and row["test_id"] in off}  # fmt: skip
    found = {key: {**known[key], "schema": schema} for key, schema in schemas.items()}
    found |= {key: {**off[key], "depends_on": {"nodes": above}} for key, above in reads.items()}
    return {**manifest, "nodes": {**nodes, **found}}


def _runs_of(manifest: Mapping[str, Any], runs: Iterable[Row], target: str) -> set[str]:
    wanted = manifest["metadata"]["project_name"], target
    return {row["run_id"] for row in runs if (row["project"], row["target"]) == wanted}


def with_rollbacks(nodes: Iterable[Row], undone: Collection[tuple[str, str, str]]) -> list[Row]:
    """Return the rows with the verdict ``held`` for tables whose publish was rolled back.

    Args:
        undone: Run, schema and name of the tables whose publish was rolled back.
    """
    return [
        {**row, "verdict": "held", "reason": "its publish was rolled back"}
        if row["verdict"] == "published" and (row["run_id"], row["schema"], row["name"]) in undone
        else row
        for row in nodes
    ]


def rows_of_project(
    manifest: Mapping[str, Any],
    tables: Mapping[str, Sequence[Row]],
    target: str,
    *,
    all_schemas: bool = False,
) -> dict[str, list[Row]]:
    """Return the rows of the runs that built this project in the manifest's schemas, by table.

    A lake also has runs of other projects, and of the same project in a developer's schema. The
    nodes of the latter have the same ids.

    Args:
        manifest: dbt's ``manifest.json``; see `with_last_runs`.
        tables: ``runs``, ``nodes`` and other tables of the ledger whose rows have a ``run_id``.
        all_schemas: Include the runs of the target in every schema.
    """
    project, nodes = manifest["metadata"]["project_name"], manifest["nodes"]
    schemas = {node["schema"] for node in nodes.values()}
    foreign = {row["run_id"] for row in tables["runs"] if row["project"] not in (None, project)}
    built: dict[str, set[str]] = {}
    for row in tables["nodes"]:
        if row["schema"] is not None:
            built.setdefault(row["run_id"], set()).add(row["schema"])
            known = nodes.get(row["node_id"])
            if known is not None and row["schema"] != known["schema"]:
                foreign.add(row["run_id"])
    # The manifest need not have the nodes of such a run: they may be deleted, or new on a branch.
    foreign |= {run_id for run_id, written in built.items() if not written & schemas}
    if all_schemas:
        foreign -= _runs_of(manifest, tables["runs"], target)
    return {
        name: [row for row in rows if row["run_id"] not in foreign] for name, rows in tables.items()
    }
