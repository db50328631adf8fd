"""The vars and environment variables that tests use: with another one a test is another test."""

from __future__ import annotations

import hashlib
import os
import pprint
import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache, cached_property
from importlib.metadata import version
from typing import Any

from dbt.constants import DEFAULT_ENV_PLACEHOLDER
from dbt.flags import get_flags

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
"""The vars of the pipeline, beside those of the gate: they say what to build and to read."""
_INTERNAL = frozenset({"dbt", "dbt_spark", "dbt_sparkwap"})
_METADATA = "DBT_ENV_CUSTOM_ENV_"
"""What the names of environment variables begin with that dbt reads as metadata of the command."""
_VOLATILE = re.compile(
    r"\b(?:run_started_at|invocation_id|graph|selected_resources|modules|context|run_query|statement"
    r"|load_result|adapter\s*\.\s*(?!dispatch\b|quote\b)\w+)\b"
)
"""What makes another query of the same test in another run: the time, the lake, other nodes."""


class Inputs:
    """What comes from outside of a project, and which of its tests use it.

    Args:
        manifest: dbt's manifest.
        given: The vars of the command line.
        varying: Names of vars and environment variables that may have any value.
        config: dbt's configuration of the command; None takes for granted that the manifest was
            parsed with the same vars.
        calls: Node -> the macros that it calls, as far as dbt knew before it ran the first one;
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
        self._called = cache(self._called_by)
        self._text_of = cache(self._macro_text)
        self._config = config
        self._calls = calls or {}

    @property
    def varied(self) -> bool:
        """Whether the command line has vars by which a model or test may be another, or off."""
        return any(one.startswith("var ") for one in self._outside)

    def of_unit_test(self, test: Any) -> dict[str, str]:
        """What a unit test uses, as in :meth:`of_test`, by what is written of it."""
        return self._tokens(_used(self._written(test, "unit_tests", test.name)))

    def of_test(self, test: Any, tested: Collection[str]) -> tuple[dict[str, str], str, bool]:
        """What a test uses that came from outside of the project, and what its query is made of.

        By the text of the test, of the YAML that its config may come from, and of the macros that
        it calls: dbt keeps no config as it was before it was rendered. So also of the ephemeral
        models that it reads, which are a part of its query, and of where the tables and views are
        that it reads. What dbt has no record of, such as its flags, counts in the text of the
        test's own package alone: macros of others look at the flags for reasons of their own.

        Args:
            test: dbt's node of the test.
            tested: Ids of what it reads.

        Returns:
            A token of the value of each variable or flag; a token of the code that makes the query;
            and whether that may make another query in each run: by the time, by what it asks the
            lake, by a variable that may have any value.
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
        code = _token((version("dbt-core"), own, placed, text, self._project_vars))
        return self._tokens(used), code, varies

    def _may_vary(self, used: str) -> bool:
        return (
            used in self._varying
            or used.startswith("var wap_")
            or used.removeprefix("var ") in _OUR_VARS
        )

    def _roots(self, nodes: Sequence[Any]) -> tuple[frozenset[str], frozenset[str]]:
        """The macros that nodes call, as far as their code tells; and those of a run.

        dbt adds to a node's macros what it calls when it runs: names made at run time, and all that
        its materialization calls for it. Tests that have run and tests that have not are compared,
        so what is found then is no part of their code.
        """
        called: set[str] = set()
        written: set[str] = set()
        for node in nodes:
            known = self._calls.get(node.unique_id, node.depends_on.macros)
            written.update(known)
            called.update(known, set(node.depends_on.macros) - self._of_materialization)
        return self._overrides.union(written), self._overrides.union(called)

    @cached_property
    def _of_materialization(self) -> frozenset[str]:
        """What dbt calls for each test, whatever its query is."""
        return self._called(
            frozenset(key for key in self._macros if ".materialization_test_" in key)
        )

    @cached_property
    def _project_vars(self) -> dict[str, Any]:
        project = getattr(self._config, "vars", None)
        return project.to_dict() if project is not None else {}

    @cached_property
    def given(self) -> dict[str, str]:
        """All that this command was given from outside of the project -> a token of its value."""
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
        used = _used((test.raw_code, test.unrendered_config, self._yaml_of(test)))
        used |= _used(getattr(getattr(test, "test_metadata", None), "kwargs", None))
        macros = frozenset(test.depends_on.macros) | self._overrides
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
        """Flags, and environment variables that a test asks for only when it runs: dbt has no
        record of them. One that is not given, or switched off, is as the project has it.
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

    def _used_by_parent(self, key: str) -> set[str]:
        """What the place of a table that a test reads, or an ephemeral model's text, uses."""
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
        """The entries of a node in the YAML that tells of it, as they are written."""
        patch = getattr(node, "patch_path", None)
        where = patch or f"{node.package_name}://{node.original_file_path}"
        written: Mapping[str, Any] = getattr(self._files.get(where), "dict_from_yaml", None) or {}
        return [one for one in written.get(of) or () if one.get("name") == name]

    @cached_property
    def _overrides(self) -> frozenset[str]:
        """The project's macros that stand in the place of dbt's or the adapter's own."""
        internal = {
            macro.name for macro in self._macros.values() if macro.package_name in _INTERNAL
        }
        return frozenset(
            key
            for key, macro in self._macros.items()
            if macro.package_name not in _INTERNAL and macro.name in internal
        )

    def _yaml_of(self, test: Any) -> Any:
        """The entry of the model, seed, ... in whose YAML a test stands, as it is written."""
        file = self._files.get(f"{test.package_name}://{test.original_file_path}")
        written: Mapping[str, Any] = getattr(file, "dict_from_yaml", None) or {}
        of, _, owner = (getattr(test, "file_key_name", None) or "").partition(".")
        entries = written.get(of) or ()
        return [entry for entry in entries if of == "sources" or entry.get("name") == owner]

    def _used_by_macros(self, macros: frozenset[str], package: str) -> set[str]:
        return {
            one
            for key in self._called(macros)
            for one in self._used_by_macro(key)
            if self._macros[key].package_name == package or not self._is_at_run_time(one)
        }

    def _called_by(self, macros: frozenset[str]) -> frozenset[str]:
        """Macros, and those that they call in turn."""
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
        """A token of the text of macros and all that they call; whether it is volatile."""
        texts = [self._macros[key].macro_sql for key in sorted(self._called(macros))]
        return _token(texts), _is_volatile(texts)

    def _is_at_run_time(self, used: str) -> bool:
        return used not in self._outside and used.startswith(("flags ", "env_var "))

    def _used_in_macro(self, key: str) -> set[str]:
        macro = self._macros[key]
        if macro.package_name in _INTERNAL:
            # Macros of dbt and the adapter use the context for other things than variables.
            return _named(macro.macro_sql)
        return _used(macro.macro_sql)


def _token(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:_TOKEN]


def _is_volatile(written: Any) -> bool:
    return any(_VOLATILE.search(jinja) for jinja in _JINJA.findall(repr(written)))


def _environment(parsed: Mapping[str, str]) -> dict[str, Any]:
    """The environment variables that a manifest was parsed with, as they are now.

    :param parsed: dbt's record of their values. dbt parses anew what uses one that has changed, but
        not a manifest that its caller hands on: of such a one both values count.
    """
    found: dict[str, Any] = {}
    for name, value in parsed.items():
        now = os.environ.get(name)
        then = None if value == DEFAULT_ENV_PLACEHOLDER else value
        if now is not None or then is not None:
            found[f"env_var {name}"] = now if now == then else (then, now)
    return found


def _other_vars(manifest: Any, config: Any) -> str | None:
    """A token of the vars that a manifest was parsed with; None if they are this command's.

    As dbt's own ``ManifestLoader.build_manifest_state_check`` has it. Only a manifest that the
    caller of dbt hands on can have others.
    """
    state = getattr(manifest, "state_check", None)
    parsed = str(state.vars_hash.checksum) if state is not None else ""
    args = config.args
    own = [
        getattr(args, "profile", "") or "",
        getattr(args, "target", "") or "",
        version("dbt-core"),
    ]
    text = "\x00".join([pprint.pformat(config.cli_vars), *own])
    return None if parsed in ("", hashlib.sha256(text.encode()).hexdigest()) else parsed[:_TOKEN]


def _named(text: str) -> set[str]:
    """The variables that a text asks for: `var max_age`; `var` where it may be any."""
    return {" ".join(filter(None, (one["kind"], one["name"]))) for one in _GIVEN.finditer(text)}


def _used(written: Any) -> set[str]:
    """The variables and flags that a text may use, or texts within lists and mappings."""
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
