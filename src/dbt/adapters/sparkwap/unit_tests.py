"""Unit tests of the rows that a table has after its build, on a throw-away table."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from typing import Any

from dbt.adapters.base.meta import available
from dbt.adapters.contracts.relation import RelationType

from dbt.adapters.sparkwap.command import DbtCommand, as_dbt_error
from dbt.adapters.sparkwap.dbt_nodes import depends_on, materialized, tested_by
from dbt.adapters.sparkwap.placement import Placement
from dbt.adapters.sparkwap.relation import SparkWapRelation, identifier_of
from sparkwap.gate.unit_tests import UnitTest, compared
from sparkwap.ledger.manifests import EXPECT

# They change no rows, and may direct files into the folder of the node's own table.
_WITHOUT: Mapping[str, Any] = {"location_root": None, "tblproperties": None, "persist_docs": {}}
_REF = re.compile(r"""ref\((?:[^()]*,)?\s*['"](\w+)['"]\s*\)""")
# What dbt makes of a snapshot's `relation`.
_RELATION = re.compile(r"\s*select \* from \{\{\s*ref\([^()]*\)\s*\}\}\s*")


class UnitTests:
    """The unit tests that build a throw-away table."""

    def __init__(self, command: DbtCommand, placement: Placement) -> None:
        self._command, self._placement = command, placement

    @available.parse(lambda *a, **k: None)
    def table_test(self, compiled: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return dbt's context of the tested model or snapshot, to build its table.

        Returns:
            The context, with a throw-away table as ``this``, which :meth:`throw_away` has to drop,
            and SQL of the rows that it has before as ``before``; None if there is no table. None
            for a test of the select's rows.
        """
        manifest = self._command.dbt_manifest()
        test = manifest.unit_tests[compiled["unique_id"]]
        if EXPECT not in test.config.meta:
            return None
        node = manifest.nodes[tested_by(test)]
        snapshots = self._snapshots_of(node.unique_id)
        before = _given_this(compiled)
        overrides = test.overrides.macros if test.overrides else {}
        with as_dbt_error():
            kind = compared(
                UnitTest(
                    test.name,
                    test.config.meta,
                    materialized(node),
                    node.config.get("incremental_strategy"),
                    gives_this=before is not None,
                    is_incremental=overrides.get("is_incremental"),
                    snapshots=snapshots.keys(),
                )
            )
        if kind == "select":
            return None
        if kind == "snapshot":
            node = snapshots[test.config.meta[EXPECT]]
        # Imported late, because it is part of dbt's commands.
        from dbt.context.providers import generate_runtime_model_context

        node = copy.deepcopy(node)
        for key, value in _WITHOUT.items():
            node.config[key] = value
        context: dict[str, Any] = generate_runtime_model_context(
            node, self._command.config, manifest
        )
        if kind == "snapshot":
            before = _given_snapshot(test, node.name, context)
        schema, name = self._placement.throw_away_table()
        context["this"] = SparkWapRelation.create(
            schema=schema, identifier=name, type=RelationType.Table
        )
        context["model"] |= {"schema": schema, "alias": name}
        return context | {"before": before}

    def _snapshots_of(self, model_id: str) -> dict[str, Any]:
        """Return the snapshots that take all rows of a model, by name."""
        return {
            node.name: node
            for node in self._command.dbt_manifest().nodes.values()
            if str(node.resource_type) == "snapshot"
            and depends_on(node) == [model_id]
            and _RELATION.fullmatch(node.raw_code)
        }

    @available.parse(lambda *a, **k: "")
    def throw_away(self, table: SparkWapRelation, caller: Callable[[], str]) -> str:
        """Run the body of a call block, then drop the table, also after an error."""
        try:
            return caller()
        finally:
            self._placement.drop_throw_away(identifier_of(table))


def _given_this(compiled: Mapping[str, Any]) -> str | None:
    """Return SQL of the given rows of `this`; None if the unit test has none.

    dbt has compiled them to a common table expression, whether the model names `this` or not.
    """
    this = compiled.get("this_input_node_unique_id")
    for cte in compiled["extra_ctes"]:
        if cte["id"] == this:
            return f"with {cte['sql']} select * from {cte['sql'].split(' as (')[0]}"
    return None


def _given_snapshot(test: Any, name: str, context: Mapping[str, Any]) -> str | None:
    """Return SQL of the given rows of a snapshot; None if the unit test has none.

    dbt compiles only the inputs that the model names.
    """
    for given in test.given:
        found = _REF.fullmatch(given.input.strip())
        if found is not None and found[1] == name:
            rows = given.rows or []
            return str(rows if isinstance(rows, str) else context["get_fixture_sql"](rows, None))
    return None
