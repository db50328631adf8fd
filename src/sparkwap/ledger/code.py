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

    Two digests are equal if all parts are; see `parts`.
    """
    manifest = reduced(manifest)
    return {key: _digest(list(found.items())) for key, found in parts(manifest).items()} | {
        key: _digest([test.get("checksum"), test.get("model"), test.get("overrides")])
        for key, test in manifest["unit_tests"].items()
    }


def parts(manifest: Document) -> dict[str, dict[str, str]]:
    """Return the digests of the parts of all models, seeds, snapshots and tests, by id and part.

    The parts of a node are its text, its configuration as it is written, its contract, its
    persisted descriptions, its place in the project, and each macro that it calls, also through
    other macros.

    Args:
        manifest: A reduced manifest, see `sparkwap.ledger.manifests.reduced`.
    """
    macros = manifest["macros"]
    texts = {key: _digest(str(macro["macro_sql"])) for key, macro in macros.items()}
    return {
        key: {part: _digest(value) for part, value in _parts(node).items()}
        | {f"macro {one}": texts[one] for one in called(node, macros)}
        for key, node in manifest["nodes"].items()
        if node["resource_type"] in BUILT or node["resource_type"] == "test"
    }


def name_of(node_id: str) -> str:
    """Return a node's name without its kind and project, and a test's name without its hash."""
    parts = node_id.split(".")
    return ".".join(parts[2:3] if parts[0] == "test" else parts[2:])


def _parts(node: Mapping[str, Any]) -> dict[str, Any]:
    config, contract = node.get("config") or {}, node.get("contract") or {}
    checksum = (node.get("checksum") or {}).get("checksum")
    found = {
        "text": [checksum, node.get("raw_code"), node.get("language")],
        "configuration": [node.get("unrendered_config")],
        "place": [node.get("fqn"), node.get("version"), node.get("latest_version")],
    }
    if node["resource_type"] == "test":
        found["arguments"] = [node.get("test_metadata")]
        found["configuration"] += [config.get(key) for key in _TEST_CONFIG]
        return found
    found["configuration"] += [config.get("materialized")]
    found["contract"] = [contract.get("checksum") if contract.get("enforced") else None]
    found["descriptions"] = _persisted(node, config.get("persist_docs") or {})
    return found


def _persisted(node: Mapping[str, Any], persisted: Mapping[str, Any]) -> list[Any]:
    columns = node.get("columns") or {}
    return [
        node.get("description") if persisted.get("relation") else None,
        {key: column.get("description") for key, column in columns.items()}
        if persisted.get("columns")
        else None,
    ]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def called(node: Mapping[str, Any], macros: Mapping[str, Any]) -> list[str]:
    """Return the ids of the macros that a node calls, directly or through other macros.

    Args:
        node: A node of a manifest.
        macros: The manifest's macros by id.
    """
    waiting = list((node.get("depends_on") or {}).get("macros") or ())
    seen: set[str] = set()
    while waiting:
        key = waiting.pop()
        if key not in seen and key in macros:
            seen.add(key)
            waiting += macros[key]["depends_on"]["macros"]
    return sorted(seen)
