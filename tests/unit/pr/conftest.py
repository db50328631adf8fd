"""Rows of the ledger about a branch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sparkwap.gate.verdicts import PUBLISHING_OFF
from sparkwap.pr.standing import BranchState, standing

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
ORDERS = ("shop", "orders")
KEY = "model.shop.orders"
REFUSED = "main moved"


def node(name: str = "orders", run_id: str = "r1", minutes: int = 1, **more: Any) -> dict[str, Any]:
    """A row of a model that was built and is held, because publishing is off."""
    return {
        "run_id": run_id,
        "node_id": f"model.shop.{name}",
        "resource_type": "model",
        "schema": "shop",
        "name": name,
        "how": "branch",
        "base_metadata": "file",
        "candidate_snapshot": 7,
        "candidate_metadata": None,
        "status": "built",
        "verdict": "held",
        "reason": PUBLISHING_OFF,
        "refusal": None,
        "built_at": NOW + timedelta(minutes=minutes),
        **more,
    }


def audit(name: str, run_id: str = "r1", **more: Any) -> dict[str, Any]:
    """A row of a test that passed on that model."""
    return {
        "run_id": run_id,
        "test_id": f"test.shop.{name}.1a2b",
        "test_name": name,
        "status": "pass",
        "failures": 0,
        "audited": {KEY: "7"},
        "executed_at": NOW + timedelta(minutes=1),
        **more,
    }


def run(run_id: str = "r1", minutes: int = 0, **more: Any) -> dict[str, Any]:
    """A row of a run that built and held."""
    return {
        "run_id": run_id,
        "started_at": NOW + timedelta(minutes=minutes),
        "outcome": "held",
        "message": None,
        "publish_id": None,
        "manifest_hash": f"code of {run_id}",
        **more,
    }


def stands(
    *nodes: dict[str, Any],
    tests: tuple[dict[str, Any], ...] = (),
    runs: tuple[dict[str, Any], ...] = (run(),),
    is_open: bool = True,
) -> BranchState:
    return standing("pr_1", is_open=is_open, nodes=nodes, tests=tests, runs=runs)
