"""From dbt's test to the metrics, and back to a query."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from dbt_common.exceptions import DbtRuntimeError

from dbt.adapters.sparkwap.audits import Audits
from dbt.adapters.sparkwap.manifest import ProjectManifest
from dbt.adapters.sparkwap.reuse import Reuse
from sparkwap.audits.anomaly import PastValue

TEST = {"unique_id": "test.p.t", "attached_node": "model.p.a", "config": {}}
NAME = "wap_volume_anomaly"


def manifest(materialized: str = "table") -> ProjectManifest:
    node = SimpleNamespace(
        resource_type="model",
        name="a",
        schema="s",
        alias="a",
        config=SimpleNamespace(materialized=materialized),
    )
    return ProjectManifest(SimpleNamespace(nodes={"model.p.a": node}, unit_tests={}))


class ARun:
    """A run after seven publishes of a table with 100 rows; its candidate has 10 rows."""

    def __init__(self) -> None:
        self.baselines = self.notes = self
        self.kept: dict[str, Any] = {}
        self.asked: list[tuple[Any, ...]] = []

    def history(self, *asked: Any) -> list[PastValue]:
        self.asked.append(asked)
        return [PastValue(100.0, datetime(2026, 1, day, tzinfo=UTC)) for day in range(1, 8)]

    def row_count(self, _: Any) -> int:
        return 10

    def looked_at(self, reader: str, identifier: Any) -> None:
        self.kept[reader] = identifier

    def measured(self, test_id: str, measured: Any) -> None:
        self.kept[test_id] = measured


def audits(run: Any, materialized: str = "table") -> Audits:
    command = SimpleNamespace(manifest=manifest(materialized))
    runs: Any = SimpleNamespace(current=lambda: run, command=command)
    return Audits(runs, Reuse(runs))


def judged(run: Any, test: Any = TEST, scope: str | None = None, **values: Any) -> str:
    return audits(run).judge(NAME, test, values, {}, scope)


def test_an_anomaly_is_a_row_of_the_query_and_a_finding() -> None:
    run = ARun()
    assert "('row_count', 10.0D, 100.0D" in judged(run, row_count=Decimal(10))
    assert run.asked == [(("s", "a"), "row_count", "")]
    assert run.kept["test.p.t"].node_id == "model.p.a"
    assert "90 % below" in run.kept["test.p.t"].finding
    assert judged(run, row_count=100).endswith("where false")
    assert run.kept["test.p.t"].finding is None


def test_a_filter_has_a_history_of_its_own() -> None:
    run = ARun()
    judged(run, {**TEST, "config": {"where": "x > 1"}}, "now()", row_count=100)
    assert run.asked == [(("s", "a"), "row_count", "x > 1; now()")]


def test_without_a_run_the_audit_returns_no_rows() -> None:
    assert judged(None, row_count=0).endswith("where false")


def test_the_metadata_has_the_row_count_of_a_whole_table() -> None:
    def known(run: Any, test: Any = TEST, metrics: Any = ("row_count",)) -> dict[str, int]:
        return audits(run).known_metrics(NAME, test, metrics, {})

    assert known(ARun()) == {"row_count": 10}
    assert known(None) == {}
    assert known(ARun(), {**TEST, "config": {"where": "x > 1"}}) == {}
    assert known(ARun(), metrics=["mean:x"]) == {}


def test_arguments_are_checked_before_the_measurement() -> None:
    with pytest.raises(DbtRuntimeError, match="window"):
        audits(None).known_metrics(NAME, TEST, ["row_count"], {"window": 0})


def test_an_ephemeral_model_cannot_be_audited() -> None:
    with pytest.raises(
        DbtRuntimeError, match=r"cannot audit model\.p\.a, because it is neither a table"
    ):
        audits(None, "ephemeral").known_metrics(NAME, TEST, ["row_count"], {})
