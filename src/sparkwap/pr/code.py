"""Digests of the code of nodes and tests.

dbt compares a project with one other state, but several builds may have written to the branch of a
pull request. Therefore each node and test has a digest, which can be compared with its digest in
the build that made the candidate.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from sparkwap.ledger.manifests import Document, reduced

BUILT = frozenset({"model", "seed", "snapshot"})

_TEST_CONFIG = (
    "severity", "warn_if", "error_if", "fail_calc", "where", "limit", "store_failures",
)  # fmt: skip


def digests(manifest: Document) -> dict[str, str]:
    """Return the digests of all enabled models, seeds, snapshots, tests and unit tests, by id.

    Two digests are equal if these are equal: text, configuration as it is written, contract,
    persisted descriptions, place in the project, and all macros that the node calls.
    """
    manifest = reduced(manifest)
    macros = manifest["macros"]
    found = {
        key: _digest(_node(node), _called(node, macros))
        for key, node in manifest["nodes"].items()
        if node["resource_type"] in BUILT or node["resource_type"] == "test"
    }
    return found | {
        key: _digest([test.get("checksum"), test.get("model"), test.get("overrides")], [])
        for key, test in manifest["unit_tests"].items()
    }


def name_of(node_id: str) -> str:
    """Return a node's name without its kind and project, and a test's name without its hash."""
    parts = node_id.split(".")
    return ".".join(parts[2:3] if parts[0] == "test" else parts[2:])


def _node(node: Mapping[str, Any]) -> list[Any]:
    config = node.get("config") or {}
    common = [
        (node.get("checksum") or {}).get("checksum"),
        node.get("raw_code"),
        node.get("unrendered_config"),
        node.get("fqn"),
        node.get("language"),
        node.get("version"),
        node.get("latest_version"),
    ]
    if node["resource_type"] == "test":
        return [*common, node.get("test_metadata"), [config.get(key) for key in _TEST_CONFIG]]
    contract = node.get("contract") or {}
    return [
        *common,
        config.get("materialized"),
        contract.get("checksum") if contract.get("enforced") else None,
        _persisted(node, config.get("persist_docs") or {}),
    ]


def _persisted(node: Mapping[str, Any], persisted: Mapping[str, Any]) -> list[Any]:
    columns = node.get("columns") or {}
    return [
        node.get("description") if persisted.get("relation") else None,
        {key: column.get("description") for key, column in columns.items()}
        if persisted.get("columns")
        else None,
    ]


def _digest(parts: list[Any], called: list[tuple[str, str]]) -> str:
    text = json.dumps([parts, called], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _called(node: Mapping[str, Any], macros: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return ids and texts of the macros that a node calls, directly or through other macros."""
    waiting = list((node.get("depends_on") or {}).get("macros") or ())
    seen: dict[str, str] = {}
    while waiting:
        key = waiting.pop()
        macro = macros.get(key)
        if key in seen or macro is None:
            continue
        seen[key] = str(macro["macro_sql"])
        waiting += macro["depends_on"]["macros"]
    return sorted(seen.items())
