"""A manifest, rows of the ledger, and the answers that are made from them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sparkwap.ledger.schemas import SCHEMAS
from sparkwap.report.answers import answers
from sparkwap.report.facts import ReportFacts

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
ORDERS, RAW, HELPER = "model.shop.orders", "seed.shop.raw", "model.shop.helper"
IDS, VOLUME, SINGULAR, UNIT = "test.shop.ids", "test.shop.volume", "test.shop.sum", "unit.shop.u"
GATE = f"test.shop.gate.{ORDERS}"


def node(key: str, **more: Any) -> dict[str, Any]:
    kind, _, name = key.split(".", 2)
    config = {"materialized": more.pop("materialized", "table"), "meta": more.pop("meta", {})}
    return {
        "unique_id": key,
        "name": name,
        "alias": name,
        "schema": "s",
        "resource_type": "unit_test" if kind == "unit" else kind,
        "package_name": "shop",
        "original_file_path": f"models/{name}.sql",
        "path": f"{name}.sql",
        "tags": more.pop("tags", []),
        "config": config,
        "depends_on": {"nodes": more.pop("above", [])},
        **more,
    }


MANIFEST = {
    "metadata": {"project_name": "shop"},
    "nodes": {
        one["unique_id"]: one
        for one in (
            node(ORDERS, meta={"owner": "Ann, Bob"}, tags=["daily"], above=[RAW, HELPER]),
            node(RAW, materialized="seed"),
            node(HELPER, materialized="ephemeral"),
            node("snapshot.shop.history", above=[ORDERS], unique_key="id"),
            node(
                IDS,
                attached_node=ORDERS,
                column_name="id",
                test_metadata={"name": "not_null", "kwargs": {"column_name": "id", "model": "x"}},
                tags=["key"],
                compiled_code="select 1",
            ),
            node(
                VOLUME,
                attached_node=ORDERS,
                test_metadata={"name": "wap_volume_anomaly", "kwargs": {"window": 9}},
            ),
            node(SINGULAR, above=[ORDERS]),
        )
    },
    "sources": {
        "source.shop.crm.events": {
            **node("source.shop.crm.events", meta={"owner": ["Cy"]}),
            "source_name": "crm",
            "identifier": "events",
            "alias": None,
        }
    },
    "exposures": {
        "exposure.shop.board": {**node("exposure.shop.board", above=[ORDERS]), "type": "dashboard"}
    },
    "unit_tests": {UNIT: node(UNIT, above=[ORDERS])},
}


def row(table: str, days_ago: float, **more: Any) -> dict[str, Any]:
    """Return a row with all columns of the ledger's table."""
    at = NOW - timedelta(days=days_ago)
    times = dict.fromkeys(("started_at", "built_at", "executed_at", "measured_at"), at)
    known = SCHEMAS[table].names
    return {**dict.fromkeys(known), **{k: v for k, v in times.items() if k in known}, **more}


def verdict(days_ago: float, said: str, key: str = ORDERS, **more: Any) -> dict[str, Any]:
    return row(
        "nodes", days_ago, run_id=f"r{days_ago}", node_id=key, schema="s", verdict=said, **more
    )


def result(days_ago: float, status: str, key: str = IDS, **more: Any) -> dict[str, Any]:
    return row("tests", days_ago, run_id=f"r{days_ago}", test_id=key, status=status, **more)


def metric(days_ago: float, value: float, state: str = "normal", **more: Any) -> dict[str, Any]:
    given = {"metric": "row_count", "mean": 10.0, "low": 8.0, "high": 12.0, **more}
    return row(
        "metrics",
        days_ago,
        run_id=f"r{days_ago}",
        test_id=VOLUME,
        node_id=ORDERS,
        value=value,
        state=state,
        **given,
    )


def answer(name: str, **more: Any) -> list[dict[str, Any]]:
    """Return the answer of a macro."""
    facts: dict[str, Any] = dict.fromkeys(("runs", "nodes", "tests", "metrics"), ())
    found: list[dict[str, Any]] = answers(
        ReportFacts(**{"manifest": MANIFEST, "database": "lake", "now": NOW, **facts, **more})
    )[name]
    return found


def results_of(key: str, **more: Any) -> list[dict[str, Any]]:
    return [one for one in answer("get_test_results", **more) if one["test_unique_id"] == key]


VERDICTS = [
    verdict(3, "published", seconds=1.5),
    verdict(2, "held", reason="did not run"),
    verdict(1, "rejected", reason="test ids failed (1 row)"),
]
