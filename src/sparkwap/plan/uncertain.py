"""Finds what may change the result of a node although its code and its inputs do not.

It reads the text of the node and of the macros that it calls. Macros of dbt and of the adapters use
variables and the clock for other purposes, such as the time of a load. Only the audits do not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from sparkwap.audits.shared_statement import VOLATILE
from sparkwap.ledger.code import called

DECLARED = "wap_reuse"
"""A config: true declares that the result depends only on the code and on what is read."""

_OWN_MACROS = frozenset({"dbt", "dbt_spark"})
_OWN_PYTHON = re.compile(
    r"\s*from sparkwap import (?P<of>cdc|landing)\s+def model\(dbt, session\):"
    r"(?:\s+dbt\.config\([\w\s=\"\',]*\))?"
    r"\s+return (?P=of)\.model\(dbt, session(?:, dbt\.ref\([\"\']\w+[\"\']\))?\)\s*"
)
"""A model of raw rows or of states, which reads its files or what it refs, and its own table."""
_JINJA = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_VARIABLE = re.compile(r"\b(?:env_)?var\s*[.(]")
_LOOKS = re.compile(
    r"\b(run_started_at|invocation_id|invocation_args_dict|graph|selected_resources|modules|context"
    r"|run_query|statement|load_result|target|env|flags|dbt_metadata_envs|thread_id"
    r"|adapter\s*\.\s*(?!dispatch\b|quote\b)\w+|wap_now|wap_published)\b"
)
"""What a text may ask dbt for: the time, the target, the lake, the other nodes."""


def why_uncertain(node: Mapping[str, Any], macros: Mapping[str, Any]) -> str | None:
    """Return why a node may have another result with the same code and inputs; None if it cannot.

    Args:
        node: A model, seed, snapshot or data test of a manifest.
        macros: The manifest's macros by id.
    """
    config = node.get("config") or {}
    declared = config.get(DECLARED, (config.get("meta") or {}).get(DECLARED))
    if declared is True:
        return None
    if declared is False:
        return f"{DECLARED} is false"
    if (node.get("checksum") or {}).get("name") == "path":
        return "its file is too large for dbt to detect changes"
    if _OWN_PYTHON.fullmatch(str(node.get("raw_code") or "")):
        return None
    if node.get("language") == "python":
        return f"it is a Python model without {DECLARED}: true"
    if config.get("incremental_strategy") == "microbatch":
        return "its batches follow the clock"
    for where, text in _texts(node, macros):
        jinja = " ".join(_JINJA.findall(text))
        if _VARIABLE.search(text):
            return f"{where} uses variables"
        if looked := _LOOKS.search(jinja):
            return f"{where} uses {looked[1]}"
        if volatile := VOLATILE.search(_JINJA.sub(" ", text)):
            return f"{where} uses {volatile[1] or volatile[2]}"
    return None


def _texts(node: Mapping[str, Any], macros: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the texts of a node and of the macros that it calls, with words for each."""
    if node["resource_type"] != "seed":
        yield "it", str(node.get("raw_code") or "")
    config = node.get("config") or {}
    hooks = [config.get(f"{when}-hook") for when in ("pre", "post")]
    arguments = (node.get("test_metadata") or {}).get("kwargs")
    written = [node.get("unrendered_config"), hooks, arguments]
    yield "its configuration", json.dumps(written, default=str)
    is_test = node["resource_type"] == "test"
    own = _OWN_MACROS if is_test else _OWN_MACROS | {"dbt_sparkwap"}
    for key in called(node, macros):
        if macros[key]["package_name"] not in own:
            yield f"the macro {macros[key]['name']}", str(macros[key]["macro_sql"])


def names_in(node: Mapping[str, Any], macros: Mapping[str, Any]) -> str:
    """Return the text in which a node may name tables without `ref` or `source`."""
    return "\n".join(_JINJA.sub(" ", text) for _, text in _texts(node, macros))
