"""dbt's manifest as the ledger stores it: the code of a run, as a base of later comparisons.

Only the parts that dbt's ``state:modified`` compares are stored. Values that differ between two
calls of dbt (times, ids, folders) are left out, so that the same code has the same hash.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkwap import __version__
from sparkwap.core.dbt_cli import VARIABLES
from sparkwap.core.errors import SparkwapError

Document = Mapping[str, Any]
"""A ``manifest.json``, parsed."""

Calls = Mapping[str, Sequence[str]]
"""Node id -> ids of the macros that it calls."""

_METADATA = ("dbt_schema_version", "dbt_version", "project_name", "project_id", "adapter_type")
_VERSION = "sparkwap_version"
COLUMN_ORDER = "sparkwap_column_order"
EXPECT = "wap_expect"
"""The key in a unit test's meta; see `sparkwap.gate.unit_tests`."""
_PARTS = (
    "sources", "exposures", "metrics", "groups", "selectors", "saved_queries", "semantic_models",
    "functions",
)  # fmt: skip
# dbt needs these parts to load a manifest, but does not compare them.
_EMPTY = ("docs", "disabled", "parent_map", "child_map", "group_map")
_MACRO = (
    "name", "resource_type", "package_name", "path", "original_file_path", "unique_id",
    "macro_sql", "depends_on",
)  # fmt: skip
# Fields that depend on the call, the machine or the compilation. `meta` is rendered with the
# variables of the call; `unrendered_config` still has its source.
_VOLATILE = frozenset(
    {
        "created_at", "root_path", "build_path", "compiled", "compiled_code", "compiled_path",
        "extra_ctes", "extra_ctes_injected", "_pre_injected_sql", "deferred", "defer_relation",
        "config_call_dict", "unrendered_config_call_dict", "meta", "docs", "doc_blocks",
        "patch_path", "index",
    }
)  # fmt: skip
_LEVEL = 6


@dataclass(frozen=True, slots=True)
class Packed:
    """A manifest for the ledger: its hash (SHA-256, hex) and its compressed bytes."""

    hash: str
    content: bytes


def reduced(manifest: Document, calls: Calls | None = None) -> dict[str, Any]:
    """Return the parts of a manifest that are stored; other parts that dbt needs are empty.

    Disabled nodes are left out: after a full parse, dbt lists the tests of disabled models among
    its nodes; after a partial parse it does not.

    Args:
        manifest: dbt's manifest, or a reduced one.
        calls: The macros that each node calls, as of the parse. While dbt runs a node, it adds
            more macros to the manifest, so that the manifest differs after a build.
    """
    metadata, calls = manifest["metadata"], calls or {}
    return {
        "metadata": {key: metadata.get(key) for key in _METADATA}
        | {_VERSION: metadata.get(_VERSION, __version__)},
        "nodes": {
            key: _calling(_plain(node), calls.get(key))
            for key, node in manifest["nodes"].items()
            if (node.get("config") or {}).get("enabled", True)
        },
        "macros": {
            key: {name: macro.get(name) for name in _MACRO}
            for key, macro in manifest["macros"].items()
        },
        "unit_tests": {key: _unit_test(one) for key, one in manifest["unit_tests"].items()},
        **{
            part: {key: _plain(one) for key, one in (manifest.get(part) or {}).items()}
            for part in _PARTS
        },
        **{part: {} for part in _EMPTY},
        **({VARIABLES: manifest[VARIABLES]} if VARIABLES in manifest else {}),
    }


def pack(manifest: Document, calls: Calls | None = None) -> Packed:
    """Reduce (see `reduced`) and compress a manifest; the same code gives the same hash."""
    kept = reduced(manifest, calls)
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"), default=str)
    content = text.encode()
    return Packed(hashlib.sha256(content).hexdigest(), zlib.compress(content, _LEVEL))


def unpack(packed: Packed) -> dict[str, Any]:
    """Return the manifest that `pack` has reduced; fails if it does not have its hash."""
    try:
        content = zlib.decompress(packed.content)
    except zlib.error:
        content = b""
    if hashlib.sha256(content).hexdigest() != packed.hash:
        raise SparkwapError(
            f"The manifest {packed.hash[:12]} in wap_ledger.manifests is damaged: its content does "
            "not have that hash. Nothing was changed. Name another publish with --base; the next "
            "publish keeps a whole manifest again."
        )
    found: dict[str, Any] = json.loads(content)
    return found


def _plain(node: Any) -> Any:
    if not isinstance(node, Mapping):
        return node
    kept = {key: value for key, value in node.items() if key not in _VOLATILE}
    if (kept.get("contract") or {}).get("enforced"):
        # The order of the columns, which sorted keys lose.
        kept[COLUMN_ORDER] = node.get(COLUMN_ORDER) or list(kept.get("columns") or {})
    config = kept.get("config")
    if isinstance(config, Mapping):
        kept["config"] = {k: v for k, v in config.items() if k not in ("meta", "docs")}
    return kept


def _calling(node: dict[str, Any], macros: Sequence[str] | None) -> dict[str, Any]:
    if macros is None:
        return node
    return {**node, "depends_on": {**node["depends_on"], "macros": list(macros)}}


def _unit_test(test: Mapping[str, Any]) -> dict[str, Any]:
    # dbt compares the checksum only. The rows of a unit test may contain personal data.
    kept = {**_plain(test), "given": [], "expect": {"rows": []}}
    expect = ((test.get("config") or {}).get("meta") or {}).get(EXPECT)
    if expect is not None:
        kept["config"] = {**kept["config"], "meta": {EXPECT: expect}}
    return kept
