"""Finds what may change the result of a node although its code and its inputs do not.

It reads the text of the node, and of the macros of the project and its packages that it may call.
Names in Jinja are allowed, not forbidden: what is not on the list may have another value in each
command. The macros of dbt and sparkwap on the list compute text from their arguments alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from jinja2.filters import FILTERS

from sparkwap.audits.shared_statement import begins_volatile, volatile_in
from sparkwap.ledger.code import BUILTINS, plain_name

DECLARED = "wap_reuse"
"""A config: true declares that the result depends only on the code and on what is read."""

_OWN_PYTHON = re.compile(
    r"\s*from sparkwap import (?P<of>cdc|landing)\s+def model\(dbt, session\):"
    r"(?:\s+dbt\.config\([\w\s=\"\',]*\))?"
    r"\s+return (?P=of)\.model\(dbt, session(?:, dbt\.ref\([\"\']\w+[\"\']\))?\)\s*"
)
"""A model of raw rows or of states, which reads its files or what it refs, and its own table."""
_TABLES = re.compile(
    r"\b(?:insert|merge|update|delete|truncate|load|call|table|view|from|using)\b", re.IGNORECASE
)
"""Words of statements that write to tables, or read tables or files."""
_OTHER_STATE = re.compile(
    r"\b(?:version|timestamp|system_version|system_time)\s+as\s+of\b"
    r"|\.\s*`?(?:branch|tag|snapshot_id|at_timestamp)_",
    re.IGNORECASE,
)
_METADATA_TABLE = re.compile(
    r"\.\s*`?(?:(?:all_)?(?:data_files|delete_files|files|manifests|entries)|history|snapshots|refs"
    r"|metadata_log_entries|partitions|position_deletes|changes)\b",
    re.IGNORECASE,
)
_FORMATS = r"`?(?:avro|binaryfile|csv|delta|hudi|iceberg|jdbc|json|orc|parquet|text|xml)`?\s*\.\s*"
_FILES = re.compile(
    rf"\b(?:from|join|table)\s+{_FORMATS}|(?<!\w){_FORMATS}`|\busing\s+r?['\"]", re.IGNORECASE
)
"""Files, by the name of a format or to a script."""
_LONG_NAME = re.compile(r"(?:[\w`]+|\}\})\s*\.\s*[\w`]+\s*\.\s*[\w`]+|\}\}\s*\.")
"""A name of three parts, or with more than a macro gives: another catalog or another state."""
_JINJA = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
_CALL = re.compile(r"(?:\}\}|['\"])\s*\(")
"""A function whose name may come from Jinja."""
_INCREMENTAL = frozenset({"merge", "delete+insert", "insert_overwrite"})
"""Strategies by which the same rows once more change nothing."""
_SNAPSHOT = frozenset({"check", "timestamp"})
_WHOLE = frozenset({"table", "view", "seed", "ephemeral", "test", "unit"})
"""Materializations whose builds begin without rows."""
_CONFIGURATION = "its configuration"
_OWN_ROWS = frozenset({"this", "is_incremental", "should_full_refresh"})
_FILTERS = (FILTERS.keys() - {"attr", "random"}) | {"as_bool", "as_native", "as_number", "as_text"}
_CONTEXT = frozenset(
    {
        "ref", "source", "config", "this", "execute", "return", "exceptions", "log", "print",
        "caller", "varargs", "kwargs", "loop", "range", "dict", "namespace", "joiner", "cycler",
        "fromjson", "tojson", "fromyaml", "toyaml", "zip", "zip_strict",
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
    "config": frozenset({"get", "require"}),
    "dbt": DBT_MACROS,
    "ref": frozenset(),
    "source": frozenset(),
    "this": frozenset({"database", "schema", "identifier", "name", "table"}),
}


def why_uncertain(node: Mapping[str, Any], macros: Mapping[str, Any]) -> str | None:
    """Return why a node may have another result with the same code and inputs; None if it cannot.

    Args:
        node: A model, seed, snapshot or data test of a manifest.
        macros: The macros of the project and its packages that it may call.
    """
    config = node.get("config") or {}
    if declared(node):
        return None
    if declared(node) is False:
        return f"{DECLARED} is false"
    if (node.get("checksum") or {}).get("name") == "path":
        return "its file is too large for dbt to detect changes"
    if _OWN_PYTHON.fullmatch(str(node.get("raw_code") or "")):
        return None
    if node.get("language") == "python":
        return f"it is a Python model without {DECLARED}: true"
    if config.get("incremental_strategy") == "microbatch":
        return "its batches follow the clock"
    if why := _own_rows(node, config, macros):
        return why
    return _in_texts(node, macros)


def why_hook_uncertain(hook: Mapping[str, Any], macros: Mapping[str, Any]) -> str | None:
    """Return why a hook may change what nodes read, or how, in each command; None if it cannot."""
    for where, text in _texts(hook, macros):
        if used := _TABLES.search(text):
            return f"{where} uses tables ({used[0]})"
    return _in_texts(hook, macros)


def declared(node: Mapping[str, Any]) -> bool | None:
    """Return what a node declares, see `DECLARED`; None if it declares nothing."""
    config = node.get("config") or {}
    found = config.get(DECLARED, (config.get("meta") or {}).get(DECLARED))
    return found if isinstance(found, bool) else None


def _in_texts(node: Mapping[str, Any], macros: Mapping[str, Any]) -> str | None:
    known = {str(macro["name"]) for macro in macros.values()}
    packages = {str(macro["package_name"]) for macro in macros.values()}
    texts = list(_texts(node, macros))
    calls = any(_CALL.search(text) for _, text in texts)
    for where, text in texts:
        # A hook may change a table that its build begins without rows.
        written = {"this"} if where == _CONFIGURATION else set[str]()
        if why := _why(text, known, packages, written, calls=calls):
            return f"{where} uses {why}"
    return None


def _own_rows(
    node: Mapping[str, Any], config: Mapping[str, Any], macros: Mapping[str, Any]
) -> str | None:
    """Return why the same build once more may give other rows; None if it cannot.

    A project may have made its own strategy, of which dbt's manifest does not say that a node uses
    its macros.
    """
    kind, strategy = config.get("materialized"), config.get("incremental_strategy") or "append"
    if node["resource_type"] == "snapshot" and config.get("strategy") not in _SNAPSHOT:
        return f"it has a strategy of its own: {config.get('strategy')}"
    if kind == "incremental":
        if strategy not in _INCREMENTAL:
            return f"each build adds rows to it (incremental_strategy: {strategy})"
        if strategy != "insert_overwrite" and not config.get("unique_key"):
            return "each build adds rows to it (no unique_key)"
        if config.get("incremental_predicates") or config.get("predicates"):
            return f"a build may add rows again that its predicates leave out; see {DECLARED}: true"
    texts = [node.get("raw_code"), *(macro["macro_sql"] for macro in macros.values())]
    # A hook changes only a table that stays.
    texts += () if kind in _WHOLE else _leaves(_hooks(config))
    words = frozenset() if kind in _WHOLE else _OWN_ROWS
    found = [own for text in texts if (own := _own_in(str(text), node, words))]
    if found:
        return f"what a build adds follows from its own rows ({found[0]}); see {DECLARED}: true"
    return None


def _own_in(text: str, node: Mapping[str, Any], words: AbstractSet[str]) -> str | None:
    """Return the name of a node's table in a text, or one of these words in Jinja; None if none."""
    jinja = [found for found in _JINJA.findall(text) if not found.startswith("{#")]
    if used := words & set(re.findall(r"\w+", " ".join(jinja))):
        return min(used)
    schema, alias = (re.escape(str(node.get(one))) for one in ("schema", "alias"))
    found = re.search(rf"\b{schema}`?\s*\.\s*`?{alias}\b", text, re.IGNORECASE)
    return found[0] if found else None


def _hooks(config: Mapping[str, Any]) -> list[Any]:
    return [config.get(f"{when}-hook") for when in ("pre", "post")]


def _texts(node: Mapping[str, Any], macros: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the texts of a node and of the macros that it may call, with words for each."""
    if node["resource_type"] != "seed":
        yield "it", str(node.get("raw_code") or "")
    config = node.get("config") or {}
    arguments = (node.get("test_metadata") or {}).get("kwargs")
    for text in _leaves([node.get("unrendered_config"), _hooks(config), arguments]):
        yield _CONFIGURATION, as_jinja(text)
    for macro in macros.values():
        yield f"the macro {macro['name']}", str(macro["macro_sql"])


def as_jinja(text: str) -> str:
    """Return an argument as dbt renders it: one that looks like a call needs no braces."""
    call = re.fullmatch(r"\s*(?:env_var|ref|var|source|doc)\s*\(.+\)\s*", text)
    return f"{{{{ {text} }}}}" if call else text


def _leaves(written: Any) -> Iterator[str]:
    if isinstance(written, str):
        yield written
    elif isinstance(written, Mapping | list | tuple):
        for value in written.values() if isinstance(written, Mapping) else written:
            yield from _leaves(value)


def _why(
    text: str, known: set[str], packages: set[str], written: set[str], *, calls: bool
) -> str | None:
    """Return what a text uses that may change by itself; None if it uses nothing of that kind."""
    if "{{" in text or "{%" in text:
        from dbt_common.clients.jinja import parse
        from jinja2 import meta, nodes

        try:
            tree: Any = parse(text)
        except Exception:
            return "Jinja that cannot be read"
        for used in tree.find_all(nodes.Filter):
            if not _FILTERS.issuperset(_filters_of(used)):
                return f"the filter {used.name}"
        named = DBT_MACROS | set(map(plain_name, known))
        dispatched = {id(one.node) for one in tree.find_all(nodes.Call) if _name_in(one) in named}
        finder = meta.TrackingCodeGenerator(tree.environment)
        # It would put constants together in the tree, which dbt keeps for the next call.
        finder.optimizer = None
        finder.visit(tree)
        free = finder.undeclared_identifiers
        for call in tree.find_all(nodes.Getattr):
            # `adapter` and `dbt` have attributes of both kinds.
            of = call.node.name if isinstance(call.node, nodes.Name) else None
            safe = _ATTRIBUTES.get(str(of)) if of in free else None
            by_name = call.attr != "dispatch" or id(call) in dispatched
            if safe is not None and not (by_name and call.attr in safe):
                return f"{of}.{call.attr}"
        legal = _CONTEXT | DBT_MACROS | known | packages | _ATTRIBUTES.keys()
        if strange := sorted(free - legal):
            return "variables" if strange[0] in ("var", "env_var") else strange[0]
        direct = {id(one.node) for one in tree.find_all((nodes.Getattr, nodes.Call))}
        of_dbt = free & (_ATTRIBUTES.keys() | packages) - written
        for name in tree.find_all(nodes.Name):
            if name.name in of_dbt and id(name) not in direct:
                return f"{name.name} as a value"
        if piece := _piece(text, tree, calls=calls):
            return f"a word that Jinja puts together ({piece})"
    if other := _OTHER_STATE.search(text) or _METADATA_TABLE.search(text):
        return f"another state of a table ({other[0]})"
    if files := _FILES.search(text):
        return f"files ({files[0]})"
    if other := _LONG_NAME.search(_JINJA.sub("}}", text)):
        return f"a name of many parts ({other[0].replace('}}', '...')})"
    return volatile_in(text)


def _filters_of(used: Any) -> list[str | None]:
    """Return the name of a filter, and that of the filter that `map` is given; None if unknown."""
    given = used.args[:1] if used.name == "map" else ()
    return [used.name, *map(_text_of, given)]


def _name_in(call: Any) -> str | None:
    """Return the text in which a call names a macro, as in `dispatch`; None if there is none."""
    given = [*call.args, *(one.value for one in call.kwargs if one.key == "macro_name")]
    return _text_of(given[0]) if given else None


def _text_of(written: Any) -> str | None:
    """Return a text that is written in Jinja; None for anything else."""
    value = getattr(written, "value", None)
    return value if isinstance(value, str) else None


def _piece(text: str, tree: Any, *, calls: bool) -> str | None:
    """Return the begin of a volatile word that Jinja may complete; None if there is none.

    Args:
        calls: Whether a function of the node may have a name that Jinja gives.
    """
    from jinja2 import nodes

    ends = [text[: found.start()] for found in _JINJA.finditer(text)]
    ends += [one.value for one in tree.find_all(nodes.Const) if isinstance(one.value, str)]
    for end in ends:
        word = re.search(r"\w*\Z", end)
        if word is None:
            continue
        if begins_volatile(word[0].lower()) or (calls and volatile_in(f"{word[0]}()")):
            return word[0]
    return None
