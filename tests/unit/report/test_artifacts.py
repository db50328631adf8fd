"""Answers about models, sources, exposures and lineage."""

from __future__ import annotations

import json

from .conftest import HELPER, NOW, ORDERS, RAW, answer


def test_a_lake_without_history_has_its_artifacts() -> None:
    (orders,) = [m for m in answer("get_models") if m["unique_id"] == ORDERS]
    assert orders["owners"] == ["Ann", "Bob"]
    assert (orders["database_name"], orders["schema_name"]) == ("lake", "s")
    assert orders["tags"] == ["daily"]
    (source,) = answer("get_sources")
    assert (source["table_name"], source["owners"]) == ("events", ["Cy"])
    assert [one["name"] for one in answer("get_seeds")] == ["raw"]
    assert [one["name"] for one in answer("get_snapshots")] == ["history"]
    assert [one["name"] for one in answer("get_singular_tests")] == ["sum"]
    (exposure,) = answer("get_exposures")
    assert exposure["depends_on_nodes"] == [ORDERS]
    assert answer("get_test_results") == []
    assert answer("get_models_runs") == []


def test_coverage_counts_tests_of_columns_and_of_tables() -> None:
    assert answer("get_dbt_models_test_coverage") == [
        {"model_unique_id": ORDERS, "column_tests": 1, "table_tests": 3}
    ]


def test_lineage_has_the_parents_of_each_node() -> None:
    found = {one["unique_id"]: one for one in answer("get_nodes_depends_on_nodes")}
    assert json.loads(found[ORDERS]["depends_on_nodes"]) == [RAW, HELPER]
    assert found[HELPER]["materialization"] == "ephemeral"
    assert {one["type"] for one in found.values()} == {
        "model",
        "seed",
        "snapshot",
        "source",
        "exposure",
    }


def test_source_freshness_comes_from_dbt() -> None:
    sources = {
        "metadata": {"invocation_id": "i", "generated_at": NOW.isoformat()},
        "results": [
            {
                "unique_id": "source.shop.crm.events",
                "status": "error",
                "max_loaded_at": NOW.isoformat(),
                "criteria": {"error_after": {"count": 1, "period": "day"}},
            },
            {"unique_id": "source.shop.gone", "status": "pass"},
        ],
    }
    (found,) = answer("get_source_freshness_results", sources=sources)
    assert (found["status"], found["table_name"]) == ("fail", "events")
    assert found["error_after"] == {"count": 1, "period": "day"}
