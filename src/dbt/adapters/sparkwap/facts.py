"""dbt's manifest and results, as the facts that the gate decides on."""

from __future__ import annotations

import hashlib
import os
import pprint
import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from dbt.artifacts.schemas.results import RunStatus, TestStatus
from dbt.constants import DEFAULT_ENV_PLACEHOLDER

from sparkwap.core.redaction import redact
from sparkwap.gate.thresholds import cannot_fail
from sparkwap.runs.replay import Outside

if TYPE_CHECKING:
    from sparkwap.runs.types import NodeFact, TestFact, TestSeen

BUILT_TYPES = frozenset({"model", "seed", "snapshot"})
PASSED = frozenset({"pass", "warn"})
TEST_TYPES = frozenset({"test", "unit_test"})
# A unit test is given its rows.
READING_TYPES = BUILT_TYPES | {"test"}
# A test reads through these: their rows are those of what they select from.
SEE_THROUGH = frozenset({"view", "ephemeral"})
DROPPED = (
    "dbt dropped it, as it refers to what is not in the project or is disabled; correct its ref, "
    "or disable the test"
)
"""What dbt only warns of: a test with a misspelled ref would be missed by nobody."""
_OWNERS = frozenset({"models", "seeds", "snapshots"})
_NAMED = 3
_TOKEN = 12
_THRESHOLDS = {"warn_if": "!= 0", "error_if": "!= 0", "fail_calc": "count(*)"}

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
_HEADINGS = re.compile(
    r"^(?:(?:Runtime|Database|Compilation) Error(?: in [\w ]+ \S+ \([^)]*\))? +"
    r"|An error occurred during execution of unit test '[^']*'. )+"
)
_MACROS = re.compile(r"\n\s*> (?:in|called by) ")
_SHORT = 300
_CUT = " ..."


def calls(manifest: Any) -> dict[str, list[str]]:
    """Node id -> ids of the macros that it calls, as far as dbt knows by now.

    :param manifest: dbt's own; None for none.
    """
    nodes: Mapping[str, Any] = getattr(manifest, "nodes", {})
    return {key: list(getattr(node.depends_on, "macros", ())) for key, node in nodes.items()}


def tables(manifest: Any) -> set[tuple[str, str]]:
    """Schema and name of all that a project builds, as tables or views.

    :param manifest: dbt's own; None for none.
    """
    nodes: Mapping[str, Any] = getattr(manifest, "nodes", {})
    return {
        (node.schema, node.alias)
        for node in nodes.values()
        if str(node.resource_type) in BUILT_TYPES and _materialized(node) != "ephemeral"
    }


def source_tables(manifest: Any) -> set[tuple[str, str]]:
    """Schema and name of all sources of a project.

    :param manifest: dbt's own; None for none.
    """
    sources: Mapping[str, Any] = getattr(manifest, "sources", {})
    return {(source.schema, source.identifier) for source in sources.values()}


_OWNER_OF = {"model": "models", "seed": "seeds", "snapshot": "snapshots"}
_PLACING = ("alias", "schema", "database", "enabled")
_PLACED = re.compile(rf"(?:{'|'.join(_PLACING)})\s*=([^,]*)")
_OUR_VARS = ("wap_", "landing_", "scd2_", "as_of")
"""What the vars of the gate and the pipeline begin with: they say what to build and to read."""
_INTERNAL = frozenset({"dbt", "dbt_spark", "dbt_sparkwap"})


class Manifest:
    """The parts of dbt's manifest that the gate looks at.

    :param manifest: dbt's own, with ``nodes`` and ``unit_tests`` by unique id.
    :param given: the vars of the command line.
    :param varying: names of vars and environment variables that may have any value.
    :param config: dbt's configuration of the command; None takes for granted that the manifest was
        parsed with the same vars.
    """

    def __init__(
        self,
        manifest: Any,
        given: Mapping[str, Any] | None = None,
        varying: Collection[str] = (),
        config: Any = None,
    ) -> None:
        self._outside = {
            f"var {name}": value
            for name, value in (given or {}).items()
            if not name.startswith(_OUR_VARS)
        }
        self._outside |= _environment(getattr(manifest, "env_vars", {}))
        self._varying = {f"{kind} {name}" for kind in _ANY_OF for name in varying}
        for name in self._varying:
            self._outside.pop(name, None)
        self._parsed_with = _other_vars(manifest, config) if config is not None else None
        self._macros: Mapping[str, Any] = getattr(manifest, "macros", {})
        self._files: Mapping[str, Any] = getattr(manifest, "files", {})
        self._nodes: Mapping[str, Any] = manifest.nodes
        self._sources: Mapping[str, Any] = getattr(manifest, "sources", {})
        self._unit_tests: Mapping[str, Any] = manifest.unit_tests
        disabled = getattr(manifest, "disabled", {})
        self._known = {node.name for node in self._nodes.values()}
        self._disabled_nodes = [node for nodes in disabled.values() for node in nodes]
        self._disabled = {node.name for node in self._disabled_nodes}
        self._built = {
            (node.schema, node.alias): key
            for key, node in self._nodes.items()
            if str(node.resource_type) in BUILT_TYPES and _materialized(node) != "ephemeral"
        }
        self._reads = cache(self._reads_of)
        self._used_by_macro = cache(self._used_in_macro)

    @property
    def varied(self) -> bool:
        """Whether the command line has vars by which a model or test may be another, or off."""
        return any(one.startswith("var ") for one in self._outside)

    def meta(self, node_id: str) -> Mapping[str, Any]:
        """The ``config.meta`` of a node; empty if there is no such node."""
        node = self._nodes.get(node_id)
        return (node.config.meta or {}) if node is not None else {}

    def severity(self, test_id: str) -> str:
        """A test's severity with its thresholds, as `TestFact.severity` has it."""
        test = self._nodes.get(test_id)
        return _severity(test) if test is not None else ""

    def read_by(self, node: Any) -> list[tuple[str, str]]:
        """Tables and views that a node or test reads, those behind views included."""
        return [
            name
            for node_id in sorted(self._closure(_depends_on(node)))
            if (name := self.table(node_id)) is not None
        ]

    def outside(self, selected: Collection[str]) -> list[Outside]:
        """What the selected nodes and tests read and the run does not build."""
        chosen = set(selected)
        found: dict[str, Outside] = {}
        for node in (self._nodes[one] for one in sorted(chosen) if one in self._nodes):
            for node_id in self._inlined(node) - chosen:
                table = self.table(node_id)
                if table is not None:
                    found.setdefault(node_id, Outside(table, _short(node_id), node.name))
        return list(found.values())

    def not_replayable(self, selected: Collection[str]) -> list[str]:
        """Those of the selected nodes that no earlier state of what they read can make anew."""
        chosen = (self._nodes[one] for one in sorted(selected) if one in self._nodes)
        told = ((node.name, _keeps(node)) for node in chosen)
        return [f"{name}: {why}" for name, why in told if why]

    def selector(self, node_id: str) -> str:
        """What selects this node, and no other, in ``--select``."""
        node = self._nodes[node_id]
        # By its name alone a model `a` comes with all that is in a folder `a` beside it.
        file = PurePath(node.original_file_path).name
        exact = "" if set(file) & set(" ,*?[") else f",file:{file}"
        return f"fqn:{'.'.join(node.fqn)}{exact}"

    def table(self, node_id: str) -> tuple[str, str] | None:
        """Schema and name of a node or source; None for what is no table, or not there."""
        source = self._sources.get(node_id)
        if source is not None:
            return source.schema, source.identifier
        node = self._nodes.get(node_id)
        if node is None or _materialized(node) == "ephemeral":
            return None
        return node.schema, node.alias

    @cached_property
    def tables(self) -> frozenset[tuple[str, str]]:
        """Schema and name, in lower case, of all models, seeds and snapshots."""
        built = (n for n in self._nodes.values() if str(n.resource_type) in BUILT_TYPES)
        return frozenset((node.schema.lower(), node.alias.lower()) for node in built)

    def nodes(self, results: Iterable[Any]) -> list[NodeFact]:
        """The tables and views that this invocation was to build."""
        from sparkwap.runs.types import NodeFact

        return [
            NodeFact(
                node_id=result.node.unique_id,
                identifier=(result.node.schema, result.node.alias),
                resource_type=str(result.node.resource_type),
                status=str(result.status),
                message=one_line(result.message),
                parents=self._parents(result.node),
                seconds=result.execution_time,
            )
            for result in results
            if str(result.node.resource_type) in BUILT_TYPES
            and result.node.config.materialized != "ephemeral"
        ]

    def known(self) -> frozenset[str]:
        """Ids of the nodes and sources whose tests are all among :meth:`tests`.

        Not those of what is switched off: its tests are off with it, or read something else.
        """
        return frozenset(self._nodes) | frozenset(self._sources)

    def tests(self) -> list[TestFact]:
        """All tests that are expected: those that are enabled, and those that dbt has dropped."""
        from sparkwap.runs.types import TestFact

        data = [
            TestFact(
                node.unique_id,
                node.name,
                "data",
                self._tested(node),
                _severity(node),
                inputs=self._inputs(node),
            )
            for node in self._nodes.values()
            if str(node.resource_type) == "test" and (node.config.enabled or self._is_dropped(node))
        ]
        unit = [
            TestFact(
                test.unique_id,
                test.name,
                "unit",
                frozenset({_tested(test)}),
                "error",
                inputs=self._tokens(_used(self._written(test, "unit_tests", test.name))),
            )
            for test in self._unit_tests.values()
        ]
        return [*data, *unit, *self._disabled_tests()]

    def _inputs(self, test: Any) -> dict[str, str]:
        """What a test uses that came from outside of the project -> a token of its value.

        By the text of the test, of the YAML that its config may come from, and of the macros that
        it calls: dbt keeps no config as it was before it was rendered. So also of the ephemeral
        models that it reads, which are a part of its query, and of where the tables and views are
        that it reads.
        """
        used = _used((test.raw_code, test.unrendered_config, self._yaml_of(test)))
        used |= _used(getattr(getattr(test, "test_metadata", None), "kwargs", None))
        used |= self._used_by_macros(frozenset(test.depends_on.macros) | self._overrides)
        for key in self._tested(test):
            used |= self._used_by_parent(key)
        return self._tokens(used)

    def _tokens(self, used: set[str]) -> dict[str, str]:
        # dbt has no record of a variable that a test asks for only when it runs.
        asked = {
            one: os.environ[name]
            for one in used - self._varying
            if (name := one.removeprefix("env_var ")) != one and name in os.environ
        }
        found = {
            name: hashlib.sha256(repr(value).encode()).hexdigest()[:_TOKEN]
            for name, value in sorted((asked | self._outside).items())
            # A name that is made at run time may be any.
            if name in used or name.split(" ")[0] in used
        }
        if self._parsed_with is not None:
            vars_used = (one for one in used if one.split(" ")[0] == "var")
            found |= dict.fromkeys(vars_used, self._parsed_with)
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
        if _materialized(node) != "ephemeral":
            # The rows of a table or view are what the test looks at, however they came about.
            return used | _used(_PLACED.findall(code))
        return used | _used(code) | self._used_by_macros(frozenset(node.depends_on.macros))

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

    def _used_by_macros(self, macros: frozenset[str]) -> set[str]:
        seen: set[str] = set()
        todo = set(macros)
        while todo:
            seen |= todo
            todo = {
                one
                for key in todo & self._macros.keys()
                for one in self._macros[key].depends_on.macros
            } - seen
        return set().union(*(self._used_by_macro(key) for key in seen & self._macros.keys()))

    def _used_in_macro(self, key: str) -> set[str]:
        macro = self._macros[key]
        if macro.package_name in _INTERNAL:
            # Macros of dbt and the adapter use the context for other things than variables.
            return _named(macro.macro_sql)
        return _used(macro.macro_sql)

    def _disabled_tests(self) -> list[TestFact]:
        """The tests that are switched off, with what they would have read.

        Among them are those of disabled or missing models that dbt has parsed once more.
        """
        from sparkwap.runs.types import TestFact

        return [
            TestFact(
                test.unique_id,
                test.name,
                "unit" if str(test.resource_type) == "unit_test" else "data",
                self._closure(self._named(test)),
                "",
                disabled=True,
            )
            for test in self._disabled_nodes
            if str(test.resource_type) in TEST_TYPES and self._has_owner(test)
        ]

    def _named(self, disabled: Any) -> set[str]:
        """The nodes that a disabled test names; dbt has not looked them up."""
        names = {ref.name for ref in getattr(disabled, "refs", ())}
        names.add(getattr(disabled, "model", None))
        attached: str = getattr(disabled, "attached_node", None) or ""
        found = {key for key, node in self._nodes.items() if node.name in names}
        return found | ({attached} if attached in self._nodes else set())

    def seen(self, results: Iterable[Any], deferred: Collection[str] = ()) -> list[TestSeen]:
        """The test results of this invocation; an error for each test that dbt has dropped.

        :param deferred: ids of nodes for which dbt read the tables of another state.
        """
        from sparkwap.runs.types import TestSeen

        ran = [r for r in results if str(r.node.resource_type) in TEST_TYPES]
        seen = [
            TestSeen(
                r.node.unique_id,
                self._status(r, deferred),
                r.failures,
                one_line(r.message),
                r.execution_time,
            )
            for r in ran
        ]
        dropped = [
            TestSeen(node.unique_id, "error", None, DROPPED)
            for node in self._nodes.values()
            if self._is_dropped(node)
        ]
        blind = [
            TestSeen(r.node.unique_id, "error", None, why)
            for r in ran
            if (why := _cannot_fail(r.node.config)) is not None
        ]
        return [*seen, *dropped, *blind]

    def _status(self, result: Any, deferred: Collection[str]) -> str:
        passed = str(result.status) in PASSED and str(result.node.resource_type) == "test"
        if passed and deferred and self._closure(_depends_on(result.node)) & set(deferred):
            return "deferred"
        return str(result.status)

    def _tested(self, node: Any) -> frozenset[str]:
        # What dbt has dropped it may not have looked up as a whole.
        named = set() if node.config.enabled else self._named(node)
        return self._closure({*_depends_on(node), *named})

    def dropped(self) -> str | None:
        """A line on the tests that dbt has dropped and that count against no table.

        They belong to a model that is disabled or missing, or read nothing else.
        """
        off = [node for node in self._nodes.values() if not node.config.enabled]
        lost = [node for node in off if not self._is_dropped(node)]
        lost += [node for node in self._disabled_nodes if not self._has_owner(node)]
        names = sorted(node.name for node in lost if str(node.resource_type) == "test")
        if not names:
            return None
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        tests, count = ("test", "counts") if len(names) == 1 else ("tests", "count")
        return (
            f"notice     {len(names):,} {tests} of disabled or missing models {count} against no "
            f"table: {', '.join(names[:_NAMED])}{more}"
        )

    def _is_dropped(self, node: Any) -> bool:
        """Whether dbt has dropped a test that would have read a table of the project."""
        # A test that is switched off on purpose is not among the nodes at all; one whose model is
        # switched off, or not there, goes with it.
        if str(node.resource_type) != "test" or node.config.enabled:
            return False
        if not self._has_owner(node) or not self._tested(node):
            return False
        gone = [ref.name for ref in node.refs if ref.name not in self._known]
        gone += [source[-1] for source in node.sources]
        return not gone or any(name not in self._disabled for name in gone)

    def _has_owner(self, test: Any) -> bool:
        """Whether what a test belongs to is in the project, as far as it belongs to one node."""
        of, _, owner = (getattr(test, "file_key_name", None) or "").partition(".")
        return of not in _OWNERS or owner in self._known

    def _parents(self, node: Any) -> frozenset[str]:
        """What a node reads; a view that this run does not build has the rows of what it reads."""
        found = self._closure(_depends_on(node)) - {node.unique_id}
        above = {key: self._nodes.get(key) for key in found}
        return frozenset(
            key for key, one in above.items() if one is None or _materialized(one) != "ephemeral"
        )

    def _inlined(self, node: Any) -> frozenset[str]:
        """What a node's SQL names: its parents, ephemeral ones replaced by theirs."""
        found: set[str] = set()
        for parent in _depends_on(node):
            above = self._nodes.get(parent)
            if above is not None and _materialized(above) == "ephemeral":
                found |= self._inlined(above)
            else:
                found.add(parent)
        return frozenset(found)

    def _closure(self, node_ids: Iterable[str]) -> frozenset[str]:
        return frozenset().union(*(self._reads(node_id) for node_id in node_ids))

    def _reads_of(self, node_id: str) -> frozenset[str]:
        """The node, and what it reads if its rows are those of what it reads.

        A source that names a table of the project is that table, too.
        """
        seen: set[str] = set()
        todo = {node_id}
        while todo:
            key = todo.pop()
            seen.add(key)
            node = self._nodes.get(key)
            if key in self._sources:
                same = self._built.get((self._sources[key].schema, self._sources[key].identifier))
                todo |= ({same} if same else set()) - seen
            elif node is not None and _materialized(node) in SEE_THROUGH:
                todo |= set(_depends_on(node)) - seen
        return frozenset(seen)


def one_line(message: str | None) -> str | None:
    """An error of dbt's, short, without the headings and macros that say where it was."""
    if message is None:
        return None
    text = _MACROS.split(message, maxsplit=1)[0]
    short = redact(_HEADINGS.sub("", " ".join(text.split())))
    return short if len(short) <= _SHORT else short[: _SHORT - len(_CUT)] + _CUT


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
    """The variables that a text may use, or texts within lists and mappings, as `_named` has it."""
    if isinstance(written, str):
        jinja = " ".join(_JINJA.findall(written))
        return _named(written) | {kind for kind, reach in _ANY_OF.items() if reach.search(jinja)}
    if isinstance(written, Mapping):
        written = written.values()
    elif not isinstance(written, list | tuple):
        return set()
    return set().union(*(_used(one) for one in written))


def _severity(test: Any) -> str:
    """A test's severity, with the thresholds that are not dbt's own: `warn, error_if > 10`."""
    given = {name: str(getattr(test.config, name, usual)) for name, usual in _THRESHOLDS.items()}
    changed = [f"{name} {given[name]}" for name, usual in _THRESHOLDS.items()
               if given[name] != usual]  # fmt: skip
    return ", ".join([str(test.config.severity).lower(), *changed])


def _cannot_fail(config: Any) -> str | None:
    given = {name: str(getattr(config, name, usual)) for name, usual in _THRESHOLDS.items()}
    return cannot_fail(
        severity=str(getattr(config, "severity", "error")),
        error_if=given["error_if"],
        fail_calc=given["fail_calc"],
        limit=getattr(config, "limit", None),
        where=getattr(config, "where", None),
    )


def deferred(manifest: Any, args: Any, selected: Collection[str]) -> frozenset[str]:
    """The nodes for which dbt reads the tables of another state: `--defer --favor-state`.

    :param manifest: dbt's own.
    :param args: those of the command line.
    :param selected: ids of the nodes that this invocation runs.
    """
    if not (getattr(args, "defer", False) and getattr(args, "favor_state", False)):
        return frozenset()
    return frozenset(
        key
        for key, node in manifest.nodes.items()
        if key not in selected and _is_elsewhere(node, getattr(node, "defer_relation", None))
    )


def _short(node_id: str) -> str:
    """A node as its reader calls it: ``orders``, ``source:raw.events``."""
    kind, _, name = node_id.split(".", 2)
    return f"source:{name}" if kind == "source" else name


def _keeps(node: Any) -> str | None:
    """Why a node's rows are no function of what it reads; None if they are."""
    kind = _materialized(node)
    if kind == "snapshot":
        return "a snapshot is the history of what it saw, run by run"
    if kind == "incremental" and getattr(node.config, "full_refresh", None) is False:
        return "with full_refresh: false it is never built as a whole"
    if kind == "incremental" and getattr(node.config, "incremental_strategy", None) == "microbatch":
        return "dbt cuts a microbatch model into batches by today's date"
    return None


def _is_elsewhere(node: Any, other: Any) -> bool:
    # The same name is the same table: it is read on the branch.
    return other is not None and (other.schema, other.alias) != (node.schema, node.alias)


def _materialized(node: Any) -> str:
    return str(getattr(node.config, "materialized", ""))


def _tested(unit_test: Any) -> str:
    # dbt looks it up in the same way: a unit test depends on what it tests, and on nothing else.
    return str(unit_test.depends_on.nodes[0])


def mark_rejected(results: Iterable[Any], rejected: Mapping[str, str], tests: Manifest) -> int:
    """Make dbt's own record say what the gate said, so that ``dbt retry`` does the right thing.

    dbt retries what did not succeed. A rejected table was built without an error, so to dbt only
    its test failed, and a retry would audit the same rows again. Here the table becomes an error,
    and its other tests are skipped: they have to see the rows that a retry will build. They have
    no message, as dbt counts what was skipped with one among the errors, and elsewhere not.

    :param rejected: reason by node id.
    :return: how many tests had passed and are skipped now.
    """
    again = 0
    reads = {test.test_id: test.reads for test in tests.tests()}
    for result in results:
        node_id = result.node.unique_id
        if node_id in rejected and str(result.status) == "success":
            result.status = RunStatus.Error
            result.message = f"Not published: {rejected[node_id]}"
        elif reads.get(node_id, frozenset()) & rejected.keys() and str(result.status) in PASSED:
            result.adapter_response = {**result.adapter_response, "audited": str(result.status)}
            result.message = None
            result.status = TestStatus.Skipped
            again += 1
    return again


def audited_again(count: int) -> str | None:
    """A line on the tests that :func:`mark_rejected` has skipped; None if it has skipped none."""
    if not count:
        return None
    tests, them = ("test", "it") if count == 1 else ("tests", "them")
    return (
        f"{count:,} {tests} passed above on rows that are rejected now: dbt counts {them} as "
        "skipped, to be run again on the rows that a retry builds."
    )


def dbt_failed(results: Iterable[Any]) -> bool:
    """Whether dbt itself ends with a failure, so that the exit code needs no help."""
    return any(
        str(r.status) in ("error", "fail", "runtime error", "partial success") for r in results
    )


def _depends_on(node: Any) -> list[str]:
    # Seeds have macros to depend on, but no nodes.
    return list(getattr(node.depends_on, "nodes", []))
