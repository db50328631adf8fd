"""The vars and environment variables that tests use; another value may make another test."""

from __future__ import annotations

import hashlib
import os
import pprint
import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache, cached_property
from typing import Any

from dbt.constants import DEFAULT_ENV_PLACEHOLDER
from dbt.flags import get_flags
from dbt.version import __version__ as dbt_version

from sparkwap.ledger.code import INTERNAL, plain_name
from sparkwap.runs import replay_moment

_TOKEN = 12
_GIVEN = re.compile(
    r"""\b(?P<kind>var|env_var)\s*(?:\.\s*has_var\s*)?\(\s*(?:(['"])(?P<name>.*?)\2)?"""
)
_JINJA = re.compile(r"\{[{%].*?[}%]\}", re.DOTALL)
# Under another name, or by what has all of them; `context["model"]` is the test itself.
_CONTEXT = r"context\b(?!\s*\[\s*(['\"])model\1)"
_ANY_OF = {
    "var": re.compile(
        rf"\b(?:{_CONTEXT}|invocation_args_dict\b|var\b(?!\s*(?:\.\s*has_var\s*)?\())"
    ),
    "env_var": re.compile(rf"\b(?:{_CONTEXT}|env_var\b(?!\s*\())"),
}
_FLAG = re.compile(r"""\bflags\s*(?:\.|\[\s*['"])\s*(?P<name>\w+)""")
_SECRET = "DBT_ENV_SECRET"
_OWNER_OF = {"model": "models", "seed": "seeds", "snapshot": "snapshots"}
_PLACING = ("alias", "schema", "database", "enabled")
_PLACED = re.compile(rf"(?:{'|'.join(_PLACING)})\s*=([^,]*)")
_OUR_VARS = frozenset({"landing_until", "landing_replay", "scd2_restate", replay_moment.VARIABLE})
"""The vars of the pipeline, besides those of the gate: they select what to build and read."""
_METADATA = "DBT_ENV_CUSTOM_ENV_"
"""Prefix of the environment variables that dbt reads as metadata of the command."""
_VOLATILE = re.compile(
    r"\b(?:run_started_at|invocation_id|graph|selected_resources|context|run_query|statement"
    r"|modules\b(?!\s*\.\s*(?:re|itertools)\b)|load_result|adapter\s*\.\s*(?!dispatch\b|quote\b)\w+)\b"
)
"""Expressions that may change a test's query between runs: time, lake, other nodes."""


class Inputs:
    """The values from outside of a project, and the tests that use them.

    Args:
        given: The vars of the command line.
        varying: Names of vars and environment variables that may have any value.
        config: dbt's configuration of the command; None if the manifest was surely parsed with the
            same vars.
        calls: Node -> the macros that it calls, as dbt knew them before it ran the first node;
            None if it has run none.
    """

    def __init__(
        self,
        manifest: Any,
        given: Mapping[str, Any],
        varying: Collection[str],
        config: Any,
        calls: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self._outside = {
            f"var {name}": value
            for name, value in given.items()
            if not name.startswith("wap_") and name not in _OUR_VARS
        }
        self._outside |= _environment(getattr(manifest, "env_vars", {}))
        self._varying = {f"{kind} {name}" for kind in (*_ANY_OF, "flags") for name in varying}
        for name in self._varying:
            self._outside.pop(name, None)
        self._parsed_with = _other_vars(manifest, config) if config is not None else None
        self._macros: Mapping[str, Any] = getattr(manifest, "macros", {})
        self._files: Mapping[str, Any] = getattr(manifest, "files", {})
        self._nodes: Mapping[str, Any] = manifest.nodes
        self._sources: Mapping[str, Any] = getattr(manifest, "sources", {})
        self._used_by_macro = cache(self._used_in_macro)
        self._used_by_parent = cache(self._used_by_place)
        self._used_by_yaml = cache(self._used_in_yaml)
        self._called = cache(self._called_by)
        self._text_of = cache(self._macro_text)
        self._overrides = cache(self._find_overrides)
        self._config = config
        self._calls = calls or {}

    @property
    def varied(self) -> bool:
        """Whether the command line has vars that may change or disable a model or test."""
        return any(one.startswith("var ") for one in self._outside)

    def of_unit_test(self, test: Any) -> dict[str, str]:
        """Return the tokens of the values that a unit test's YAML uses, as in `of_test`."""
        return self._tokens(_used(self._written(test, "unit_tests", test.name)))

    def of_test(self, test: Any, tested: Collection[str]) -> tuple[dict[str, str], str, bool]:
        """Return the values from outside of the project that a test uses, and its code.

        dbt does not keep a config as it was before rendering. So variables are searched in the text
        of the test, of the YAML that its config may come from, and of the macros that it calls. The
        ephemeral models that it reads count too, because they are part of its query, and so do the
        names and schemas of the tables and views that it reads. Values that dbt does not record,
        such as its flags, count only in the text of the test's own package: macros of other
        packages read the flags for other purposes.

        Args:
            tested: Ids of the nodes and sources that it reads.

        Returns:
            A token of the value of each variable or flag; a token of the code of the query; and
            whether the code may make another query in each run, by the time, by the state of the
            lake or by a variable that may have any value.
        """
        used = self._used_by_test(test, tested)
        above = [node for key in sorted(tested) if (node := self._nodes.get(key)) is not None]
        inlined = [node for node in above if str(node.config.materialized) == "ephemeral"]
        written, called = self._roots([test, *inlined])
        text, _ = self._text_of(written)
        kwargs = getattr(getattr(test, "test_metadata", None), "kwargs", None)
        own = [test.raw_code, test.unrendered_config, kwargs, *(one.raw_code for one in inlined)]
        varies = (
            self._text_of(called)[1]
            or _is_volatile(own)
            or any(self._may_vary(one) for one in used)
        )
        placed = [getattr(one, "unrendered_config", None) for one in above]
        code = _token((dbt_version, own, placed, text, self._project_vars))
        return self._tokens(used), code, varies

    def _may_vary(self, used: str) -> bool:
        return (
            used in self._varying
            or used.startswith("var wap_")
            or used.removeprefix("var ") in _OUR_VARS
        )

    def _roots(self, nodes: Sequence[Any]) -> tuple[frozenset[str], frozenset[str]]:
        """Return the macros that the code of nodes calls, and those with the macros of a run.

        When a node runs, dbt adds the macros whose names are made at run time and those that the
        materialization calls. Tests that have run are compared with tests that have not, so these
        are no part of their code.
        """
        called: set[str] = set()
        written: set[str] = set()
        for node in nodes:
            known = self._calls.get(node.unique_id, node.depends_on.macros)
            written.update(known)
            called.update(known, set(node.depends_on.macros) - self._of_materialization)
        overrides = frozenset().union(*(self._overrides(node.package_name) for node in nodes))
        return overrides.union(written), overrides.union(called)

    @cached_property
    def _of_materialization(self) -> frozenset[str]:
        """The macros that dbt calls for each test, independent of its query."""
        return self._called(
            frozenset(key for key in self._macros if ".materialization_test_" in key)
        )

    @cached_property
    def _project_vars(self) -> dict[str, Any]:
        project = getattr(self._config, "vars", None)
        return project.to_dict() if project is not None else {}

    @cached_property
    def given(self) -> dict[str, str]:
        """The values that this command got from outside of the project: name to token."""
        args = getattr(self._config, "args", None)
        found = {
            **self._outside,
            **{f"the {name}": getattr(args, name, None) or None for name in ("target", "profile")},
            "flags FULL_REFRESH": getattr(get_flags(), "FULL_REFRESH", None) or None,
            "the vars of the manifest": self._parsed_with,
        }
        metadata = (name for name in os.environ if name.startswith(_METADATA))
        found |= {f"env_var {name}": os.environ[name] for name in metadata}
        return {name: _token(value) for name, value in sorted(found.items()) if value is not None}

    def _used_by_test(self, test: Any, tested: Collection[str]) -> set[str]:
        kwargs = getattr(getattr(test, "test_metadata", None), "kwargs", None)
        used = _used((test.raw_code, test.unrendered_config, kwargs))
        owner = getattr(test, "file_key_name", None) or ""
        used |= self._used_by_yaml(f"{test.package_name}://{test.original_file_path}", owner)
        macros = frozenset(test.depends_on.macros) | self._overrides(test.package_name)
        used |= self._used_by_macros(macros, test.package_name)
        for key in tested:
            used |= self._used_by_parent(key)
        return used

    def _tokens(self, used: set[str]) -> dict[str, str]:
        found = {
            name: _token(value)
            for name, value in sorted((self._at_run_time(used) | self._outside).items())
            # A name that is made at run time may be any.
            if name in used or name.split(" ")[0] in used
        }
        if self._parsed_with is not None:
            vars_used = (one for one in used if one.split(" ")[0] == "var")
            found |= dict.fromkeys(vars_used, self._parsed_with)
        return found

    def _at_run_time(self, used: set[str]) -> dict[str, Any]:
        """Return the flags and environment variables that a test reads only when it runs.

        dbt does not record them. One that is not set, or false, counts as not used.
        """
        found: dict[str, Any] = {}
        for one in used - self._outside.keys() - self._varying:
            kind, _, name = one.partition(" ")
            if kind == "flags":
                value = getattr(get_flags(), name, None)
            else:
                asked = kind == "env_var" and not name.startswith(_SECRET)
                value = os.environ.get(name) if asked else None
            if value:
                found[one] = value
        return found

    def _used_by_place(self, key: str) -> set[str]:
        """Return what the place of a table that a test reads uses, or an ephemeral model's text."""
        source = self._sources.get(key)
        if source is not None:
            return _used(self._written(source, "sources", source.source_name))
        node = self._nodes.get(key)
        if node is None:
            return set()
        code = getattr(node, "raw_code", "") or ""
        written = self._written(node, _OWNER_OF.get(str(node.resource_type), "models"), node.name)
        configs = [getattr(node, "unrendered_config", None) or {}]
        configs += [one.get("config") or {} for one in written]
        used = _used([{k: v for k, v in one.items() if k in _PLACING} for one in configs])
        if str(node.config.materialized) != "ephemeral":
            # The rows of a table or view are what the test looks at, however they came about.
            return used | _used(_PLACED.findall(code))
        macros = frozenset(node.depends_on.macros)
        return used | _used(code) | self._used_by_macros(macros, node.package_name)

    def _written(self, node: Any, of: str, name: str) -> Any:
        """Return the entries of a node in its YAML, before rendering."""
        patch = getattr(node, "patch_path", None)
        where = patch or f"{node.package_name}://{node.original_file_path}"
        return [one for one in self._entries(where, of) if one.get("name") == name]

    def _entries(self, path: str, of: str) -> Sequence[Mapping[str, Any]]:
        """Return the entries of a kind (``models``, ...) in a YAML file, before rendering."""
        written: Mapping[str, Any] = getattr(self._files.get(path), "dict_from_yaml", None) or {}
        return written.get(of) or ()

    def _find_overrides(self, package: str) -> frozenset[str]:
        """Return the macros that dbt may call in the place of its own for a node of a package.

        Those are macros of the root project, of the package itself, and of the packages in which
        the project has dbt look for them (`dispatch`). Other packages only have their own macros
        of the same name. Materializations may come from any package.
        """
        internal = {
            plain_name(macro.name)
            for macro in self._macros.values()
            if macro.package_name in INTERNAL
        }
        searched = self._searched | {package}
        return frozenset(
            key
            for key, macro in self._macros.items()
            if macro.package_name not in INTERNAL
            and plain_name(macro.name) in internal
            and (
                self._config is None
                or macro.package_name in searched
                or macro.name.startswith("materialization_")
            )
        )

    @cached_property
    def _searched(self) -> frozenset[str]:
        """The packages whose macros may replace those of dbt for all nodes."""
        found: set[Any] = {getattr(self._config, "project_name", None)}
        for entry in getattr(self._config, "dispatch", None) or ():
            if entry.get("macro_namespace") in INTERNAL:
                found.update(entry.get("search_order") or ())
        return frozenset(found - {None})

    def _used_in_yaml(self, path: str, owner: str) -> set[str]:
        """Return what the entry of the model, seed, ... that a test is written at uses."""
        of, _, name = owner.partition(".")
        entries = self._entries(path, of)
        return _used([entry for entry in entries if of == "sources" or entry.get("name") == name])

    def _used_by_macros(self, macros: frozenset[str], package: str) -> set[str]:
        return {
            one
            for key in self._called(macros)
            for one in self._used_by_macro(key)
            if self._macros[key].package_name == package
            or one in self._outside
            or not one.startswith(("flags ", "env_var "))
        }

    def _called_by(self, macros: frozenset[str]) -> frozenset[str]:
        """Return macros and all macros that they call, directly or not."""
        seen: set[str] = set()
        todo = set(macros)
        while todo:
            seen |= todo
            todo = {
                one
                for key in todo & self._macros.keys()
                for one in self._macros[key].depends_on.macros
            } - seen
        return frozenset(seen & self._macros.keys())

    def _macro_text(self, macros: frozenset[str]) -> tuple[str, bool]:
        """Return a token of the text of macros and all that they call, and whether it may vary."""
        texts = [self._macros[key].macro_sql for key in sorted(self._called(macros))]
        return _token(texts), _is_volatile(texts)

    def _used_in_macro(self, key: str) -> set[str]:
        macro = self._macros[key]
        if macro.package_name in INTERNAL:
            # Macros of dbt and the adapter use the context for other things than variables.
            return _named(macro.macro_sql)
        return _used(macro.macro_sql)


def _token(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:_TOKEN]


def _is_volatile(written: Any) -> bool:
    return any(_VOLATILE.search(jinja) for jinja in _JINJA.findall(repr(written)))


def _environment(parsed: Mapping[str, str]) -> dict[str, Any]:
    """Return the environment variables that a manifest was parsed with, with present values.

    dbt parses files again if a variable that they use has changed, but not a manifest that its
    caller passes. In that case both values count.
    """
    found: dict[str, Any] = {}
    for name, value in parsed.items():
        now = os.environ.get(name)
        then = None if value == DEFAULT_ENV_PLACEHOLDER else value
        if now is not None or then is not None:
            found[f"env_var {name}"] = now if now == then else (then, now)
    return found


def _other_vars(manifest: Any, config: Any) -> str | None:
    """Return a token of the vars that a manifest was parsed with; None if this command has them.

    It is computed as in dbt's ``ManifestLoader.build_manifest_state_check``. Only a manifest that
    the caller of dbt passes can have other vars.
    """
    state = getattr(manifest, "state_check", None)
    parsed = str(state.vars_hash.checksum) if state is not None else ""
    args = config.args
    own = [
        getattr(args, "profile", "") or "",
        getattr(args, "target", "") or "",
        dbt_version,
    ]
    text = "\x00".join([pprint.pformat(config.cli_vars), *own])
    return None if parsed in ("", hashlib.sha256(text.encode()).hexdigest()) else parsed[:_TOKEN]


def _named(text: str) -> set[str]:
    """Return the variables that a text reads: `var max_age`; `var` if it may be any."""
    return {" ".join(filter(None, (one["kind"], one["name"]))) for one in _GIVEN.finditer(text)}


def _used(written: Any) -> set[str]:
    """Return the variables and flags that a text may use, or texts in lists and mappings."""
    if isinstance(written, str):
        jinja = " ".join(_JINJA.findall(written))
        flags = {one["name"].upper() for one in _FLAG.finditer(written)}
        any_of = {kind for kind, reach in _ANY_OF.items() if reach.search(jinja)}
        any_of |= {"var"} if "VARS" in flags else set()
        return _named(written) | any_of | {f"flags {name}" for name in flags - {"VARS"}}
    if isinstance(written, Mapping):
        written = written.values()
    elif not isinstance(written, list | tuple):
        return set()
    return set().union(*(_used(one) for one in written))
