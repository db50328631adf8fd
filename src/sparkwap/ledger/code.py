"""Digests of the code of nodes and tests.

dbt compares a project with one other state, but several builds may have written to the branch of a
pull request. Therefore each node and test has a digest, which can be compared with its digest in
the build that made the candidate.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from sparkwap.core.dbt_cli import VARIABLES
from sparkwap.ledger.manifests import COLUMN_ORDER, Document, reduced

BUILT = frozenset({"model", "seed", "snapshot"})

_VARIABLE = "variable "
"""The beginning of the parts that are variables."""

_TEST_CONFIG = (
    "severity", "warn_if", "error_if", "fail_calc", "where", "limit", "store_failures",
)  # fmt: skip


def digests(manifest: Document) -> dict[str, str]:
    """Return the digests of all enabled models, seeds, snapshots, tests and unit tests, by id.

    `same` compares two of them. A digest of a node is that of its other parts (see `parts`), and
    that of its variables; a manifest of an older version has no variables.
    """
    manifest = reduced(manifest)
    found = {}
    for key, one in parts(manifest).items():
        variables = [item for item in one.items() if item[0].startswith(_VARIABLE)]
        found[key] = _digest(sorted(one.items() - {*variables}))
        if VARIABLES in manifest:
            found[key] += f":{_digest(sorted(variables))}"
    return found | unit_tests(manifest)


def same(one: str | None, other: str | None) -> bool:
    """Return whether two digests are of the same code; None is that of no code."""
    if one is None or other is None:
        return one is other
    return one == other or one.split(":")[0] == other or other.split(":")[0] == one


def unit_tests(manifest: Document) -> dict[str, str]:
    """Return the digests of all unit tests of a reduced manifest, by id."""
    return {
        key: _digest(
            # dbt's checksum does not include the config.
            [test.get(one) for one in ("checksum", "model", "overrides")]
            + list(((test.get("config") or {}).get("meta") or {}).items())
        )
        for key, test in manifest["unit_tests"].items()
    }


def parts(manifest: Document) -> dict[str, dict[str, str]]:
    """Return the digests of the parts of all models, seeds, snapshots and tests, by id and part.

    The parts of a node are its text, its configuration as it is written, its contract, its
    persisted descriptions, its place in the project, each macro that it may call, also through
    other macros, and the project's variables that it may use. The manifest is a `reduced` one.
    """
    macros = manifest["macros"]
    texts = {key: _digest(str(macro["macro_sql"])) for key, macro in macros.items()}
    words, variables = ProjectMacros(macros), manifest.get(VARIABLES) or {}
    packages = {one["package_name"] for one in macros.values()}
    # The name of a package is a scope of variables, and may be a word of any text.
    names = variables.keys() - packages - {manifest["metadata"].get("project_name")}
    named = words.naming(names)
    # As a variable may name the table of a source, it is part of the code of what reads it.
    tables = {
        key: _digest([one.get("schema"), one.get("identifier")])
        for key, one in (manifest.get("sources") or {}).items()
    }
    found = {}
    for key, node in manifest["nodes"].items():
        if node["resource_type"] in BUILT or node["resource_type"] == "test":
            own, scopes = words.of(node), ("", node.get("package_name"))
            used = _named_in(_text(node), names).union(*(named[one] for one in own))
            values = {one: [variables[one].get(scope) for scope in scopes] for one in used}
            read = tables.keys() & set((node.get("depends_on") or {}).get("nodes") or ())
            found[key] = {
                **{part: _digest(value) for part, value in _parts(node).items()},
                **{f"source {name_of(one)}": tables[one] for one in read},
                **{f"macro {one}": texts[one] for one in {*called(node, macros), *own}},
                **{f"{_VARIABLE}{one}": _digest(value) for one, value in values.items()},
            }
    return found


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
    # dbt's checksum of a contract does not know the order of the columns.
    columns = [
        [name, column.get("data_type"), column.get("constraints"), column.get("quote")]
        for name in node.get(COLUMN_ORDER) or ()
        for column in [(node.get("columns") or {}).get(name) or {}]
    ]
    enforced = bool(contract.get("enforced"))
    found["contract"] = [contract.get("checksum"), columns] if enforced else []
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
    """Return the ids of the macros that a node calls, directly or through other macros."""
    waiting = list((node.get("depends_on") or {}).get("macros") or ())
    seen: set[str] = set()
    while waiting:
        key = waiting.pop()
        if key not in seen and key in macros:
            seen.add(key)
            waiting += macros[key]["depends_on"]["macros"]
    return sorted(seen)


class ProjectMacros:
    """The macros of a project and its packages that a node may call.

    dbt's `depends_on` has the macros that the text calls while dbt parses it: none in a branch of
    `is_incremental()`, and none that dbt's own macros call, as far as the project overrides them.
    Here a macro counts also if its name is a word of a text that counts.
    """

    def __init__(self, macros: Mapping[str, Any]) -> None:
        own = {key: one for key, one in macros.items() if one["package_name"] in INTERNAL}
        self._texts = {key: str(one["macro_sql"]) for key, one in macros.items() if key not in own}
        self._macros = macros
        self._named: dict[str, list[str]] = {}
        for key in self._texts:
            for name in {macros[key]["name"], plain_name(macros[key]["name"])}:
                self._named.setdefault(name, []).append(key)
        known = {plain_name(one["name"]) for one in own.values()}
        names = {key: str(macros[key]["name"]) for key in self._texts}
        self._materializations = {
            key: name for key, name in names.items() if name.startswith("materialization_")
        }
        self._overrides = {
            key: plain
            for key, name in names.items()
            if (plain := plain_name(name)) in known or name in BUILTINS
        }
        self._words = {
            key: frozenset(_WORD.findall(text)) & self._named.keys()
            for key, text in self._texts.items()
        }

    def of(self, node: Mapping[str, Any], overrides: Collection[str] | None = None) -> set[str]:
        """Return the ids of the macros that a node may call.

        Args:
            overrides: Only these macros of dbt may call one of the project in their place; None for
                all of them, and for the materializations of the project.
        """
        waiting = set(_WORD.findall(_text(node)))
        waiting.add(f"test_{(node.get('test_metadata') or {}).get('name')}")
        found = self._texts.keys() & set(called(node, self._macros)) | {
            key for key, name in self._overrides.items() if overrides is None or name in overrides
        }
        if overrides is None:
            prefix = f"materialization_{(node.get('config') or {}).get('materialized')}_"
            found |= {
                key for key, name in self._materializations.items() if name.startswith(prefix)
            }
        waiting |= {word for key in found for word in self._words[key]}
        done: set[str] = set()
        while waiting:
            word = waiting.pop()
            done.add(word)
            for key in self._named.get(word, ()):
                found.add(key)
                waiting |= self._words[key] - done
        return found

    def naming(self, names: Collection[str]) -> dict[str, set[str]]:
        """Return the ids of the project's macros, each with the names that are words of it."""
        return {key: _named_in(text, names) for key, text in self._texts.items()}


def _named_in(text: str, names: Collection[str]) -> set[str]:
    """Return the names that are words of a text; a name with other characters is a part of it."""
    words = set(_WORD.findall(text)) if names else ()
    return {one for one in names if one in words or (one in text and not _WORD.fullmatch(one))}


def _text(node: Mapping[str, Any]) -> str:
    config = node.get("config") or {}
    written = [
        node.get("raw_code"),
        node.get("unrendered_config"),
        config.get("pre-hook"),
        config.get("post-hook"),
        node.get("test_metadata"),
    ]
    # JSON writes a line break with a letter, which would be part of the next word.
    return re.sub(r"\\[nrt]", " ", json.dumps(written, default=str, ensure_ascii=False))


INTERNAL = frozenset({"dbt", "dbt_spark", "dbt_sparkwap"})
BUILTINS = frozenset({"ref", "source", "config"})
"""Functions of dbt that a macro of the same name replaces."""
NAMING = frozenset(
    {
        "generate_schema_name", "generate_schema_name_for_env", "generate_alias_name",
        "generate_database_name",
    }
)  # fmt: skip
"""Macros that name schemas and tables; the names are in the manifest."""
_WORD = re.compile(r"\w+")
_PREFIX = re.compile(r"^(?:default|spark|sparkwap)__")


def plain_name(name: str) -> str:
    """Return a macro's name without the prefix of its dispatch."""
    return _PREFIX.sub("", name)
