"""Keys, from dbt's manifest."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dbt.adapters.sparkwap.diffing import diff, keys
from sparkwap.core.errors import ConfigError
from sparkwap.diff.operation import Diff


def node(name: str, kind: str = "model", **config: Any) -> SimpleNamespace:
    columns = config.pop("columns", {})
    primary = config.pop("primary_key", [])
    return SimpleNamespace(
        unique_id=f"{kind}.p.{name}",
        schema="s",
        alias=name,
        resource_type=kind,
        columns={n: SimpleNamespace(meta=meta, config=None) for n, meta in columns.items()},
        primary_key=primary,
        config=SimpleNamespace(**{"meta": {}, "materialized": "table", **config}),
    )


def test(name: str, on: str, **more: Any) -> SimpleNamespace:
    return SimpleNamespace(
        unique_id=f"test.p.{name}.{on}",
        resource_type="test",
        columns={},
        column_name=more.get("column"),
        attached_node=f"model.p.{on}",
        test_metadata=SimpleNamespace(name=name, kwargs=more.get("kwargs", {})),
        config=SimpleNamespace(where=more.get("where")),
    )


test.__test__ = False  # type: ignore[attr-defined]


def manifest(*nodes: Any) -> Any:
    return SimpleNamespace(nodes={one.unique_id: one for one in nodes}, sources={})


def test_the_sources_of_a_key() -> None:
    found = keys(
        manifest(
            node("by_meta", meta={"diff_key": ["a", "b"]}, unique_key="x"),
            node("by_config", unique_key="x", primary_key=["y"]),
            node("by_constraint", primary_key=["y"]),
            node("by_test"),
            test("unique", "by_test", column="z"),
            node("by_several"),
            test(
                "unique_combination_of_columns",
                "by_several",
                kwargs={"combination_of_columns": ["a", "b"]},
            ),
            node("by_part"),
            test("unique", "by_part", column="z", where="z > 1"),
            node("history", materialized="scd2", unique_key="id"),
            node("snap", kind="snapshot", unique_key="id"),
            node("none"),
        )
    )
    assert {name: key for (_, name), key in found.items()} == {
        "by_meta": ("a", "b"),
        "by_config": ("x",),
        "by_constraint": ("y",),
        "by_test": ("z",),
        "by_several": ("a", "b"),
        "history": ("id", "valid_from"),
        "snap": ("dbt_scd_id",),
    }


def test_a_diff_needs_a_branch() -> None:
    command: Any = SimpleNamespace(settings=SimpleNamespace(branch=None))
    with pytest.raises(ConfigError, match="branch is missing"):
        diff(command, Diff(), [])
