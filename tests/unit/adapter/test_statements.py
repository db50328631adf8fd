"""What the guard takes a name in a statement for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dbt.adapters.sparkwap.manifest import ProjectManifest
from dbt.adapters.sparkwap.statements import StatementGuard

GATED = {"write.wap.enabled": "true"}


def guard(package: str, properties: dict[str, str] | None, *selected: str) -> Any:
    """Return a guard beside a node of a package, whose table has these properties, if any."""
    node = SimpleNamespace(
        name="runs", schema="shop", alias="runs", resource_type="model",
        config=SimpleNamespace(materialized="incremental"),
    )  # fmt: skip
    manifest = SimpleNamespace(nodes={f"model.{package}.runs": node}, unit_tests={})
    state = properties is not None and SimpleNamespace(properties=properties, kind="table")
    found: Any = object.__new__(StatementGuard)
    found._side_schemas = {}
    found._runs = SimpleNamespace(active=None, selected=frozenset(selected))
    found._command = SimpleNamespace(
        dbt_manifest=lambda: manifest,
        manifest=ProjectManifest(manifest),
        project_name="shop",
        lake=SimpleNamespace(state=lambda identifier: state or None),
    )
    return found


@pytest.mark.parametrize(
    ("package", "properties", "selected", "state"),
    [
        ("elementary", {}, [], "table"),
        ("elementary", {}, ["model.elementary.runs"], "node"),
        ("elementary", GATED, [], "gated"),
        ("elementary", None, [], "node"),
        ("shop", {}, [], "node"),
    ],
)
def test_a_package_may_write_to_ungated_tables_that_are_not_built(
    package: str, properties: dict[str, str] | None, selected: list[str], state: str
) -> None:
    assert guard(package, properties, *selected)._name_state(("shop", "runs")) == state
