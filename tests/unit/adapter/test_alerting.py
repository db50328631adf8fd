"""The alerts' part of the adapter: sample rows of failed tests, and errors that do not matter."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import agate
import pytest

from dbt.adapters.sparkwap.alerting import RunAlerts
from sparkwap.gate.alert_settings import AlertSettings


class Node:
    """A node of dbt's manifest with nothing but its dict."""

    def __init__(self, **content: Any) -> None:
        self._content = content

    def to_dict(self, omit_none: bool) -> dict[str, Any]:
        assert omit_none
        return self._content


class Command:
    """Answers each query with two rows, or fails."""

    def __init__(self, fails: bool = False) -> None:
        self.connections = self
        self.queries: list[str] = []
        self.fails = fails

    def dbt_manifest(self) -> Any:
        test = Node(depends_on={"nodes": ["model.shop.orders"]})
        nodes = {"test.shop.t": test, "model.shop.orders": Node()}
        return SimpleNamespace(nodes=nodes, sources={}, unit_tests={}, groups={})

    def execute(self, sql: str, fetch: bool) -> tuple[None, agate.Table]:
        assert fetch
        self.queries.append(sql)
        if self.fails:
            raise RuntimeError("the server is gone")
        return None, agate.Table([[1, "a"], [2, None]], ["id", "name"])


def result(should_error: Any) -> dict[str, Any]:
    names = ["failures", "should_warn", "should_error"]
    return {"table": agate.Table([[3, should_error, should_error]], names)}


def keep(command: Command, given: Any, rows: int = 5) -> dict[str, Any]:
    run = SimpleNamespace(settings=SimpleNamespace(alerts=AlertSettings(sample_rows=rows)))
    alerts = RunAlerts(command, run)  # type: ignore[arg-type]
    alerts.keep_sample("test.shop.t", "select * from orders", given)
    return alerts._samples


def test_a_failed_test_keeps_sample_rows() -> None:
    samples = keep(command := Command(), result(True))
    assert samples["test.shop.t"].rows == (("1", "a"), ("2", "NULL"))
    (query,) = command.queries
    assert query.endswith("limit 5")
    assert "select * from orders" in query


@pytest.mark.parametrize("given", [result(False), {"table": agate.Table([], ["failures"])}, None])
def test_no_query_for_a_test_that_passed(given: Any) -> None:
    assert keep(command := Command(), given) == {}
    assert command.queries == []


def test_no_query_without_sample_rows() -> None:
    assert keep(command := Command(), result(True), rows=0) == {}
    assert command.queries == []


def test_a_failed_sample_query_does_not_fail_the_test() -> None:
    assert keep(command := Command(fails=True), result(True)) == {}
    assert len(command.queries) == 1
