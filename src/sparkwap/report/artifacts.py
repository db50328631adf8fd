"""Answers about the project: models, seeds, snapshots, sources, exposures, lineage."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from sparkwap.report.facts import (
    TABLE_TYPES,
    Answer,
    ReportFacts,
    Row,
    depends_on,
    iso,
    owners,
    tested_node,
)

# dbt's status of a freshness check -> the status on the page.
_FRESHNESS = {"error": "fail", "runtime error": "error"}


def artifacts(facts: ReportFacts, kind: str) -> Answer:
    """Return the models, seeds, snapshots or sources."""
    return [_artifact(facts, node) for node in facts.of_type(kind)]


def snapshots(facts: ReportFacts) -> Answer:
    """Return the snapshots; Elementary reads more fields of them than of models."""
    return [
        {
            **_artifact(facts, node),
            "depends_on_macros": json.dumps(depends_on(node, "macros")),
            "depends_on_nodes": json.dumps(depends_on(node)),
            "path": node["path"],
            "generated_at": iso(facts.now),
            "unique_key": json.dumps(node["config"].get("unique_key")),
            "incremental_strategy": None,
        }
        for node in facts.of_type("snapshot")
    ]


def exposures(facts: ReportFacts) -> Answer:
    """Return the exposures."""
    return [
        {
            "name": node["name"],
            "unique_id": key,
            "owners": [(node.get("owner") or {}).get("name")] if node.get("owner") else [],
            "tags": list(node.get("tags") or ()),
            "package_name": node["package_name"],
            "description": node.get("description"),
            "full_path": node["original_file_path"],
            "meta": dict(node.get("meta") or {}),
            "label": node.get("label"),
            "url": node.get("url"),
            "type": node.get("type"),
            "maturity": node.get("maturity"),
            "depends_on_nodes": depends_on(node),
            "owner": node.get("owner"),
        }
        for key, node in facts.manifest.get("exposures", {}).items()
    ]


def singular_tests(facts: ReportFacts) -> Answer:
    """Return the singular tests."""
    return [
        {
            "unique_id": node["unique_id"],
            "name": node["name"],
            "original_path": node["original_file_path"],
            "package_name": node["package_name"],
            "tags": list(node.get("tags") or ()),
        }
        for node in facts.of_type("test")
        if not node.get("test_metadata")
    ]


def coverage(facts: ReportFacts) -> Answer:
    """Return the number of tests of each table and of its columns."""
    columns: Counter[str] = Counter()
    tables: Counter[str] = Counter()
    for test in facts.of_type("test", "unit_test"):
        parent = tested_node(facts, test)
        if parent is not None:
            (columns if test.get("column_name") else tables)[parent] += 1
    return [
        {"model_unique_id": key, "column_tests": columns[key], "table_tests": tables[key]}
        for key in sorted({*columns, *tables})
    ]


def lineage(facts: ReportFacts) -> Answer:
    """Return the nodes that each node reads."""
    nodes = [
        {
            "unique_id": node["unique_id"],
            "depends_on_nodes": json.dumps(depends_on(node)),
            "materialization": node.get("config", {}).get("materialized"),
            "type": node["resource_type"],
        }
        for node in facts.of_type(*TABLE_TYPES, "source")
    ]
    return nodes + [
        {
            "unique_id": key,
            "depends_on_nodes": json.dumps(depends_on(node)),
            "materialization": None,
            "type": "exposure",
        }
        for key, node in facts.manifest.get("exposures", {}).items()
    ]


def freshness(facts: ReportFacts) -> Answer:
    """Return the results of the last ``dbt source freshness``, if there is one."""
    if facts.sources is None:
        return []
    metadata = facts.sources["metadata"]
    return [
        {
            "source_freshness_execution_id": f"{metadata['invocation_id']}.{result['unique_id']}",
            "unique_id": result["unique_id"],
            "max_loaded_at": result.get("max_loaded_at"),
            "snapshotted_at": result.get("snapshotted_at"),
            "max_loaded_at_time_ago_in_s": result.get("max_loaded_at_time_ago_in_s"),
            "generated_at": metadata["generated_at"],
            "status": _FRESHNESS.get(result["status"], result["status"]),
            "original_status": result["status"],
            "error": result.get("error"),
            "invocation_id": metadata["invocation_id"],
            "database_name": facts.database,
            "schema_name": source["schema"],
            "source_name": source["source_name"],
            "table_name": source["identifier"],
            "test_type": "source_freshness",
            "test_sub_type": "freshness",
            "loaded_at_field": source.get("loaded_at_field"),
            "meta": dict(source.get("meta") or {}),
            "owners": owners(source),
            "tags": list(source.get("tags") or ()),
            "error_after": (result.get("criteria") or {}).get("error_after"),
            "warn_after": (result.get("criteria") or {}).get("warn_after"),
            "filter": (result.get("criteria") or {}).get("filter"),
            "relation_name": source.get("relation_name") or source["identifier"],
            "invocations_rank_index": 1,
        }
        for result in facts.sources["results"]
        if (source := facts.known.get(result["unique_id"])) is not None
    ]


def _artifact(facts: ReportFacts, node: Row) -> dict[str, Any]:
    return {
        "name": node["name"],
        "unique_id": node["unique_id"],
        "owners": owners(node),
        "tags": list(node.get("tags") or ()),
        "package_name": node["package_name"],
        "description": node.get("description"),
        "full_path": node["original_file_path"],
        "meta": dict((node.get("config") or {}).get("meta") or {}),
        "materialization": (node.get("config") or {}).get("materialized"),
        "database_name": facts.database,
        "schema_name": node["schema"],
        "table_name": node.get("alias") or node["identifier"],
        "source_name": node.get("source_name"),
        "patch_path": node.get("patch_path"),
    }
