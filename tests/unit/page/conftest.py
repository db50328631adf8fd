"""Rows of the ledger, and a table in one of two compared states."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sparkwap.ledger.schemas import SCHEMAS
from sparkwap.page.comparison import TableSide

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
FIRST = "1a2b3c4d-0000-4000-8000-000000000000"
SECOND = "2b3c4d5e-0000-4000-8000-000000000000"


def row(table: str, **more: Any) -> dict[str, Any]:
    """Return a row with all columns of the ledger's table."""
    assert set(more) <= set(SCHEMAS[table].names)
    return {**dict.fromkeys(SCHEMAS[table].names), **more}


def run(run_id: str, hours_ago: float, outcome: str, seconds: float = 5, **more: Any) -> Any:
    at = NOW - timedelta(hours=hours_ago)
    ended = at + timedelta(seconds=seconds)
    return row(
        "runs", run_id=run_id, started_at=at, ended_at=ended, outcome=outcome, command="build",
        **more,
    )  # fmt: skip


def node(run_id: str, name: str, verdict: str | None, **more: Any) -> Any:
    given = {"schema": "s", "name": name, "node_id": f"model.shop.{name}", "built_at": NOW}
    return row("nodes", run_id=run_id, verdict=verdict, **{**given, **more})


def result(run_id: str, name: str, status: str, hours_ago: float, **more: Any) -> Any:
    at = NOW - timedelta(hours=hours_ago)
    given = {"test_id": f"test.{name}", "test_name": name, "executed_at": at}
    return row("tests", run_id=run_id, status=status, **{**given, **more})


def side(rows: int | None = 1, snapshot: int | None = 1, **more: Any) -> TableSide:
    columns = more.pop("columns", (("id", "bigint"),))
    return TableSide("table", rows, snapshot, more, columns)
