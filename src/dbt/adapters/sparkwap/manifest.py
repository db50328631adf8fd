"""Translates dbt's manifest and results into the facts for the gate's decision."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import cache, cached_property, partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from dbt.adapters.sparkwap.dbt_nodes import (
    BUILT_TYPES,
    batches_of,
    depends_on,
    has_table,
    materialized,
    query_of,
    severity_of,
    short_name,
    tested_by,
    why_cannot_fail,
    why_not_replayable,
)
from dbt.adapters.sparkwap.run_results import PASSED, one_line
from dbt.adapters.sparkwap.variables import Inputs
from sparkwap.core.names import folded
from sparkwap.core.text import counted, some_of
from sparkwap.runs.time_travel import Outside

if TYPE_CHECKING:
    from sparkwap.runs.types import NodeFact, TestFact, TestSeen

TEST_TYPES = frozenset({"test", "unit_test"})
# A unit test reads no tables; its definition contains its rows.
READING_TYPES = BUILT_TYPES | {"test"}
# A test of these also tests their parents, because these store no rows of their own.
_WITHOUT_ROWS = frozenset({"view", "ephemeral"})
DROPPED = (
    "dbt dropped it, because it refers to a node that is missing or disabled; correct its ref, or "
    "disable the test"
)
"""An error here, because dbt only warns, and a test with a misspelled ref would never run."""
_OWNERS = frozenset({"models", "seeds", "snapshots"})


class ProjectManifest:
    """The parts of dbt's manifest that the gate uses; its arguments are those of `Inputs`."""

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
            (node.schema, node.alias): key for key, node in self._nodes.items() if has_table(node)
        }
        self._reads = cache(self._reads_of)
        self._inlined_reads = cache(partial(self._reads_of, through=frozenset({"ephemeral"})))
        self._data_test = cache(self._data_test_of)

    def meta(self, node_id: str) -> Mapping[str, Any]:
        """Return the ``config.meta`` of a node; empty if there is no such node."""
        node = self._nodes.get(node_id)
        return (node.config.meta or {}) if node is not None else {}

    def severity(self, test_id: str) -> str:
        """Return a test's severity with its thresholds, as in `TestFact.severity`."""
        test = self._nodes.get(test_id)
        return severity_of(test) if test is not None else ""

    def read_by(self, node: Any) -> list[tuple[str, str]]:
        """Return the tables and views that a node or test reads, including those behind views."""
        return [
            name
            for node_id in sorted(self._closure(depends_on(node)))
            if (name := self.table(node_id)) is not None
        ]

    def outside(self, selected: Collection[str]) -> list[Outside]:
        """Return the relations that selected nodes and tests read but the run does not build."""
        chosen = set(selected)
        found: dict[str, Outside] = {}
        for node in (self._nodes[key] for key in sorted(chosen) if key in self._nodes):
            for node_id in self._inlined(node) - chosen:
                table = self.table(node_id)
                if table is not None:
                    found.setdefault(node_id, Outside(table, short_name(node_id), node.name))
        return list(found.values())

    def not_replayable(self, selected: Collection[str]) -> list[str]:
        """Return the selected nodes that a replay cannot build from their inputs, with reasons."""
        chosen = (self._nodes[key] for key in sorted(selected) if key in self._nodes)
        reasons = ((node.name, why_not_replayable(node)) for node in chosen)
        return [f"{name}: {why}" for name, why in reasons if why]

    def selector(self, node_id: str) -> str:
        """Return the argument of ``--select`` that selects only this node."""
        node = self._nodes[node_id]
        # The name alone of a model `a` also selects the models of a folder `a`.
        file = PurePath(node.original_file_path).name
        exact = "" if set(file) & set(" ,*?[") else f",file:{file}"
        return f"fqn:{'.'.join(node.fqn)}{exact}"

    def table(self, node_id: str) -> tuple[str, str] | None:
        """Return schema and name of a node or source; None if it is ephemeral or missing."""
        source = self._sources.get(node_id)
        if source is not None:
            return source.schema, source.identifier
        node = self._nodes.get(node_id)
        if node is None or materialized(node) == "ephemeral":
            return None
        return node.schema, node.alias

    def code(self, node_id: str) -> str | None:
        """Return a digest of the text of a model or snapshot, or of a seed; None if missing."""
        node = self._nodes.get(node_id)
        if node is None:
            return None
        if str(node.resource_type) == "seed":
            return str(node.checksum.checksum)
        # dbt's checksum is that of the whole file, also of a YAML file with snapshots and tests.
        return hashlib.sha256(node.raw_code.encode()).hexdigest()

    def owner(self, table: tuple[str, str]) -> str | None:
        """Return the model, seed or snapshot with a relation of this name, case-insensitively."""
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
        """Return the tables and views that this invocation had to build."""
        from sparkwap.runs.types import NodeFact

        return [
            NodeFact(
                node_id=result.node.unique_id,
                identifier=(result.node.schema, result.node.alias),
                resource_type=str(result.node.resource_type),
                status=str(result.status),
                message=one_line(result.message),
                parents=self.parents(result.node),
                seconds=result.execution_time,
                batches=batches_of(result),
                code=self.code(result.node.unique_id),
            )
            for result in results
            if has_table(result.node)
        ]

    def known(self) -> frozenset[str]:
        """Return the ids of the nodes and sources whose tests are all among :meth:`tests`.

        Disabled nodes are not included: their tests are disabled too, or read another node.
        """
        return frozenset(self._nodes) | frozenset(self._sources)

    def tests(self) -> list[TestFact]:
        """Return all tests: enabled ones, disabled ones, and those that dbt has dropped."""
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
                frozenset({tested_by(test)}),
                "error",
                inputs=self.inputs.of_unit_test(test),
            )
            for test in self._unit_tests.values()
        ]
        return [*data, *unit, *self._disabled_tests()]

    def _disabled_tests(self) -> list[TestFact]:
        """Return the disabled tests with the nodes that they would read.

        They include tests of disabled or missing models that dbt has parsed again.
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

    def varies(self, test_id: str) -> bool:
        """Return whether each run may make another query of a data test."""
        return self._data_test(test_id).varies

    def _data_test_of(self, test_id: str) -> TestFact:
        from sparkwap.runs.types import TestFact

        test = self._nodes[test_id]
        tested = self.tested(test)
        named = self._closure(self._named_by(test), self._inlined_reads)
        inputs, code, varies = self.inputs.of_test(test, tested)
        return TestFact(
            test_id,
            test.name,
            "data",
            tested,
            severity_of(test),
            views=frozenset(key for key in named if self._is_view(key)),
            behind=tested - named,
            inputs=inputs,
            code=code,
            varies=varies,
            given=self.inputs.given,
        )

    def _named(self, disabled: Any) -> set[str]:
        """Return the nodes that a disabled test names; dbt does not resolve them."""
        names = {ref.name for ref in getattr(disabled, "refs", ())}
        names.add(getattr(disabled, "model", None))
        attached: str = getattr(disabled, "attached_node", None) or ""
        found = {key for key, node in self._nodes.items() if node.name in names}
        return found | ({attached} if attached in self._nodes else set())

    def seen(self, results: Iterable[Any], deferred: Collection[str] = ()) -> list[TestSeen]:
        """Return the test results of this invocation, with an error for each dropped test."""
        from sparkwap.runs.types import TestSeen

        ran = [r for r in results if str(r.node.resource_type) in TEST_TYPES]
        seen = [
            TestSeen(
                r.node.unique_id,
                self._status(r, deferred),
                r.failures,
                one_line(r.message),
                r.execution_time,
                query_of(r.node),
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
            if (why := why_cannot_fail(r.node.config)) is not None
        ]
        return [*seen, *dropped, *blind]

    def _status(self, result: Any, deferred: Collection[str]) -> str:
        passed = str(result.status) in PASSED and str(result.node.resource_type) == "test"
        if passed and deferred and self._closure(depends_on(result.node)) & set(deferred):
            return "deferred"
        return str(result.status)

    def tested(self, node: Any) -> frozenset[str]:
        """Return the ids of the nodes and sources whose rows a test reads, also through views."""
        return self._closure(self._named_by(node))

    def _named_by(self, test: Any) -> set[str]:
        # dbt may not have resolved all refs of a dropped test.
        return set(depends_on(test)) | (set() if test.config.enabled else self._named(test))

    def _is_view(self, node_id: str) -> bool:
        node = self._nodes.get(node_id)
        return node is not None and materialized(node) == "view"

    def dropped(self) -> str | None:
        """Return a line about the dropped tests that count against no table; None if none.

        They belong to a disabled or missing model, or read no other node.
        """
        off = [node for node in self._nodes.values() if not node.config.enabled]
        lost = [node for node in off if not self._is_dropped(node)]
        lost += [node for node in self._disabled_nodes if not self._has_owner(node)]
        names = sorted(node.name for node in lost if str(node.resource_type) == "test")
        if not names:
            return None
        tests = counted(len(names), "test")
        return (
            f"notice     {tests} of disabled or missing models did not run, which holds no table: "
            f"{some_of(names)}"
        )

    def _is_dropped(self, node: Any) -> bool:
        """Return whether dbt has dropped a test that would read a table of the project."""
        # A test that its author disabled is not among the nodes. A test of a disabled or missing
        # model is disabled with the model.
        if str(node.resource_type) != "test" or node.config.enabled:
            return False
        if not self._has_owner(node) or not self.tested(node):
            return False
        gone = [ref.name for ref in node.refs if ref.name not in self._known]
        gone += [source[-1] for source in node.sources]
        return not gone or any(name not in self._disabled for name in gone)

    def _has_owner(self, test: Any) -> bool:
        """Return False if a test belongs to a node that is not in the project."""
        section, _, owner = (getattr(test, "file_key_name", None) or "").partition(".")
        return section not in _OWNERS or owner in self._known

    def parents(self, node: Any) -> frozenset[str]:
        """Return the nodes and sources that a node reads, including those behind views."""
        found = self._closure(depends_on(node)) - {node.unique_id}
        above = {key: self._nodes.get(key) for key in found}
        return frozenset(
            key for key, up in above.items() if up is None or materialized(up) != "ephemeral"
        )

    def inputs_of(self, node_id: str) -> list[tuple[str, str]]:
        """Return the tables and views that a node's SQL names, also through ephemeral models."""
        found = map(self.table, sorted(self._inlined(self._nodes[node_id])))
        return [table for table in found if table is not None]

    def _inlined(self, node: Any) -> frozenset[str]:
        """Return the parents that a node's SQL names, with ephemeral ones replaced by theirs."""
        found: set[str] = set()
        for parent in depends_on(node):
            above = self._nodes.get(parent)
            if above is not None and materialized(above) == "ephemeral":
                found |= self._inlined(above)
            else:
                found.add(parent)
        return frozenset(found)

    def _closure(
        self, node_ids: Iterable[str], reads: Callable[[str], frozenset[str]] | None = None
    ) -> frozenset[str]:
        return frozenset().union(*map(reads or self._reads, node_ids))

    def _reads_of(self, node_id: str, through: AbstractSet[str] = _WITHOUT_ROWS) -> frozenset[str]:
        """Return the node and, if its materialization is in `through`, the nodes that it reads.

        A source that names a table of the project also counts as that table.
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
            elif node is not None and materialized(node) in through:
                todo |= set(depends_on(node)) - seen
        return frozenset(seen)
