"""dbt's manifest and results, as the facts that the gate decides on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache, cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from dbt.adapters.sparkwap.run_results import PASSED, one_line
from dbt.adapters.sparkwap.variables import Inputs
from sparkwap.core.names import folded
from sparkwap.gate.thresholds import cannot_fail
from sparkwap.runs.batches import as_utc, merged
from sparkwap.runs.time_travel import Outside

if TYPE_CHECKING:
    from sparkwap.runs.batches import Range
    from sparkwap.runs.types import NodeFact, TestFact, TestSeen

BUILT_TYPES = frozenset({"model", "seed", "snapshot"})
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
_THRESHOLDS = {"warn_if": "!= 0", "error_if": "!= 0", "fail_calc": "count(*)"}


def calls(manifest: Any) -> dict[str, list[str]]:
    """Node id -> ids of the macros that it calls, as far as dbt knows by now; None has none."""
    nodes: Mapping[str, Any] = getattr(manifest, "nodes", {})
    return {key: list(getattr(node.depends_on, "macros", ())) for key, node in nodes.items()}


def tables(manifest: Any) -> set[tuple[str, str]]:
    """Schema and name of all that a manifest's project builds, as tables or views."""
    nodes: Mapping[str, Any] = getattr(manifest, "nodes", {})
    return {
        (node.schema, node.alias)
        for node in nodes.values()
        if str(node.resource_type) in BUILT_TYPES and _materialized(node) != "ephemeral"
    }


def source_tables(manifest: Any) -> set[tuple[str, str]]:
    """Schema and name of all sources of a manifest's project."""
    sources: Mapping[str, Any] = getattr(manifest, "sources", {})
    return {(source.schema, source.identifier) for source in sources.values()}


class Manifest:
    """The parts of dbt's manifest that the gate looks at.

    :param manifest: dbt's own, with ``nodes`` and ``unit_tests`` by unique id.
    :param given: the vars of the command line.
    :param varying: names of vars and environment variables that may have any value.
    :param config: dbt's configuration of the command; None takes for granted that the manifest was
        parsed with the same vars.
    :param calls: the macros that nodes call, as far as dbt knew before it ran the first one.
    """

    def __init__(
        self,
        manifest: Any,
        given: Mapping[str, Any] | None = None,
        varying: Collection[str] = (),
        config: Any = None,
        calls: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self.inputs = Inputs(manifest, given or {}, varying, config, calls)
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
        self._data_test = cache(self._data_test_of)

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

    def owner(self, table: tuple[str, str]) -> str | None:
        """The model, seed or snapshot that has a table or view of this name, in whatever case."""
        return self._owners.get(folded(table))

    @cached_property
    def _owners(self) -> dict[tuple[str, str], str]:
        return {folded(table): key for table, key in self._built.items()}

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
                batches=_batches(result),
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
            self._data_test(node.unique_id)
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
                inputs=self.inputs.of_unit_test(test),
            )
            for test in self._unit_tests.values()
        ]
        return [*data, *unit, *self._disabled_tests()]

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

    def _data_test_of(self, test_id: str) -> TestFact:
        from sparkwap.runs.types import TestFact

        test = self._nodes[test_id]
        tested = self._tested(test)
        inputs, code = self.inputs.of_test(test, tested)
        return TestFact(
            test_id,
            test.name,
            "data",
            tested,
            _severity(test),
            inputs=inputs,
            code=code,
            given=self.inputs.given,
        )

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
                _query(r.node),
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


def _severity(test: Any) -> str:
    """A test's severity, with the thresholds that are not dbt's own: `warn, error_if > 10`."""
    given = {name: str(getattr(test.config, name, usual)) for name, usual in _THRESHOLDS.items()}
    changed = [f"{name} {given[name]}" for name, usual in _THRESHOLDS.items()
               if given[name] != usual]  # fmt: skip
    return ", ".join([str(test.config.severity).lower(), *changed])


def _batches(result: Any) -> tuple[Range, ...]:
    """What a microbatch model was to build, whether it could or not; nothing for other nodes."""
    found = getattr(result, "batch_results", None)
    batches = [*found.successful, *found.failed] if found else []
    # dbt counts in UTC, and reads a record of its own without saying so.
    return merged((as_utc(start), as_utc(end)) for start, end in batches)


def _query(test: Any) -> str | None:
    """What a data test has asked the lake, with the limit that dbt puts behind it."""
    compiled = getattr(test, "compiled_code", None)
    if str(test.resource_type) != "test" or compiled is None:
        return None
    limit = getattr(test.config, "limit", None)
    return str(compiled) if limit is None else f"{compiled}\nlimit {limit}"


def _cannot_fail(config: Any) -> str | None:
    given = {name: str(getattr(config, name, usual)) for name, usual in _THRESHOLDS.items()}
    return cannot_fail(
        severity=str(getattr(config, "severity", "error")),
        error_if=given["error_if"],
        fail_calc=given["fail_calc"],
        limit=getattr(config, "limit", None),
        where=getattr(config, "where", None),
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


def _materialized(node: Any) -> str:
    return str(getattr(node.config, "materialized", ""))


def _tested(unit_test: Any) -> str:
    # dbt looks it up in the same way: a unit test depends on what it tests, and on nothing else.
    return str(unit_test.depends_on.nodes[0])


def _depends_on(node: Any) -> list[str]:
    # Seeds have macros to depend on, but no nodes.
    return list(getattr(node.depends_on, "nodes", []))
