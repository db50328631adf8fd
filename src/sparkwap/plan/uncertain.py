"""Finds what may change the result of a node although its code and its inputs do not.

It reads the text of the node, and of the macros of the project and its packages that it may call.
Names in Jinja are allowed, not forbidden: what is not on the list may have another value in each
command. The macros of dbt and sparkwap on the list compute text from their arguments alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from sparkwap.audits.shared_statement import volatile_in
from sparkwap.ledger.code import BUILTINS

DECLARED = "wap_reuse"
"""A config: true declares that the result depends only on the code and on what is read."""

_OWN_PYTHON = re.compile(
    r"\s*from sparkwap import (?P<of>cdc|landing)\s+def model\(dbt, session\):"
    r"(?:\s+dbt\.config\([\w\s=\"\',]*\))?"
    r"\s+return (?P=of)\.model\(dbt, session(?:, dbt\.ref\([\"\']\w+[\"\']\))?\)\s*"
)
"""A model of raw rows or of states, which reads its files or what it refs, and its own table."""
_OTHER_STATE = re.compile(
    r"\b(?:version|timestamp|system_version|system_time)\s+as\s+of\b"
    r"|\.\s*`?(?:branch|tag|snapshot_id|at_timestamp)_",
    re.IGNORECASE,
)
_CONTEXT = frozenset(
    {
        "ref", "source", "config", "this", "execute", "return", "exceptions", "log", "print",
        "caller", "varargs", "kwargs", "loop", "range", "dict", "namespace", "joiner", "cycler",
        "fromjson", "tojson", "fromyaml", "toyaml", "set", "set_strict", "zip", "zip_strict",
        "local_md5", "_dbt_generic_test_kwargs",
    }
)  # fmt: skip
DBT_MACROS = frozenset(
    {
        "is_incremental", "should_full_refresh", "get_where_subquery", "any_value", "array_append",
        "array_concat", "array_construct", "bool_or", "cast", "cast_bool_to_text", "concat",
        "dateadd", "datediff", "date", "date_trunc", "escape_single_quotes", "except", "hash",
        "intersect", "last_day", "length", "listagg", "position", "replace", "right", "safe_cast",
        "split_part", "string_literal", "type_bigint", "type_boolean", "type_float", "type_int",
        "type_numeric", "type_string", "type_timestamp", "test_not_null", "test_unique",
        "test_accepted_values", "test_relationships", "test_accepted_range", "test_not_empty",
        "test_scd2_exactly_one_version", "test_scd2_in_order", "test_scd2_no_gap",
        "test_scd2_no_overlap", "test_scd2_one_current", "added_columns", "change_events",
        "scd2_join",
        "scd2_valid_at", "scd2_version", "scd2_end", "exact_cast", "cdc_columns", "landing_key",
    }
)  # fmt: skip
_ATTRIBUTES: Mapping[str, frozenset[str]] = {
    "adapter": frozenset({"quote", "dispatch"}),
    "builtins": BUILTINS,
    "dbt": DBT_MACROS,
}


def why_uncertain(node: Mapping[str, Any], macros: Mapping[str, Any]) -> str | None:
    """Return why a node may have another result with the same code and inputs; None if it cannot.

    Args:
        node: A model, seed, snapshot or data test of a manifest.
        macros: The macros of the project and its packages that it may call.
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
    known = {str(macro["name"]) for macro in macros.values()}
    known |= {str(macro["package_name"]) for macro in macros.values()}
    for where, text in _texts(node, macros):
        if why := _why(text, known):
            return f"{where} uses {why}"
    return None


def _texts(node: Mapping[str, Any], macros: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the texts of a node and of the macros that it may call, with words for each."""
    if node["resource_type"] != "seed":
        yield "it", str(node.get("raw_code") or "")
    config = node.get("config") or {}
    hooks = [config.get(f"{when}-hook") for when in ("pre", "post")]
    arguments = (node.get("test_metadata") or {}).get("kwargs")
    for text in _leaves([node.get("unrendered_config"), hooks, arguments]):
        # dbt renders an argument that looks like a call, also without braces.
        call = re.fullmatch(r"\s*(?:env_var|ref|var|source|doc)\s*\(.+\)\s*", text)
        yield "its configuration", f"{{{{ {text} }}}}" if call else text
    for macro in macros.values():
        yield f"the macro {macro['name']}", str(macro["macro_sql"])


def _leaves(written: Any) -> Iterator[str]:
    if isinstance(written, str):
        yield written
    elif isinstance(written, Mapping):
        for value in written.values():
            yield from _leaves(value)
    elif isinstance(written, list | tuple):
        for value in written:
            yield from _leaves(value)


def _why(text: str, known: set[str]) -> str | None:
    """Return what a text uses that may change by itself; None if it uses nothing of that kind."""
    if "{{" in text or "{%" in text:
        from dbt_common.clients.jinja import parse
        from jinja2 import meta, nodes

        try:
            tree = parse(text)
        except Exception:
            return "Jinja that cannot be read"
        for call in tree.find_all(nodes.Getattr):
            # `adapter` and `dbt` have attributes of both kinds.
            of = call.node.name if isinstance(call.node, nodes.Name) else None
            safe = _ATTRIBUTES.get(str(of))
            if safe is not None and call.attr not in safe:
                return f"{of}.{call.attr}"
        legal = _CONTEXT | DBT_MACROS | known | _ATTRIBUTES.keys()
        if strange := sorted(meta.find_undeclared_variables(tree) - legal):
            return "variables" if strange[0] in ("var", "env_var") else strange[0]
        before_dots = [id(call.node) for call in tree.find_all(nodes.Getattr)]
        for name in tree.find_all(nodes.Name):
            if name.name in _ATTRIBUTES and id(name) not in before_dots:
                return f"{name.name} as a value"
    if other := _OTHER_STATE.search(text):
        return f"another state of a table ({other[0]})"
    return volatile_in(text)
