"""The metrics that count: those of candidates that were published and not rolled back."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparkwap.audits.anomaly import AnomalyResult
from sparkwap.audits.metrics import Baselines, Measured, exact_rows, published, rows_sql
from sparkwap.catalog.model import LedgerRows
from sparkwap.gate.placement import Desired
from sparkwap.gate.settings import GateSettings
from sparkwap.publish.lake import Lake
from sparkwap.runs.operations import LakeOperations, NotPublished
from sparkwap.runs.run import Run
from sparkwap.runs.types import Invocation, NodeFact, TestFact, TestSeen

ORDERS = ("shop", "orders")
NODE = NodeFact("model.orders", ORDERS, "model", "success", None, frozenset(), seconds=1.5)
VOLUME = TestFact("test.volume", "volume", "data", frozenset({"model.orders"}), "error")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    lake = Lake("lake", {"type": "sql", "uri": uri, "warehouse": f"{tmp_path}/warehouse"})
    lake.ensure_schema("shop")
    lake.catalog.create_table(ORDERS, pa.schema({"id": pa.int64()})).append(rows(1))
    yield lake
    lake.close()


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


class Builds:
    """Builds of one table, audited by one metric."""

    def __init__(self, lake: Lake) -> None:
        self.lake, self.number = lake, 0

    def build(
        self,
        value: float,
        status: str = "pass",
        scope: str = "",
        metric: str = "width",
        part: Any = None,
        publish: Any = "run",
    ) -> str:
        """Build on a new branch, measure, and close the run; returns the run's id."""
        run = self.open(part, publish)
        self.write(run)
        self.audit(run, value, status, scope, metric)
        return run.run_id

    def open(self, part: Any = None, publish: Any = "run", branch: str | None = None) -> Run:
        self.number += 1
        run = Run(
            self.lake,
            Invocation(
                run_id=f"{self.number:08x}-0000-4000-8000-000000000000",
                branch=branch or f"b{self.number}",
                settings=GateSettings(publish=publish),  # type: ignore[arg-type]
                command="build",
                project="shop",
                target_name="dev",
                part=part,
            ),
        )
        run.candidates.load()
        return run

    def write(self, run: Run) -> None:
        run.begin(NODE.node_id, ORDERS)
        run.candidates.place_table(ORDERS, Desired())
        run.lake.catalog.load_table(ORDERS).append(rows(self.number), branch=run.branch)
        run.built(NODE.node_id, ORDERS, must_write=True)

    def audit(
        self, run: Run, value: float, status: str = "pass", scope: str = "", metric: str = "width"
    ) -> None:
        """Measure, and close the run."""
        nodes = [NODE] if run.candidates.target(ORDERS) else []
        state = "anomalous" if status == "fail" else "normal"
        anomaly = AnomalyResult(metric, value, state, 9, 1.0, low=0.5, high=1.5)
        at = NOW + timedelta(days=self.number)
        run.notes.measured(VOLUME.test_id, Measured(NODE.node_id, scope, at, (anomaly,)))
        seen = TestSeen(VOLUME.test_id, status, 0, "Got 1 result", 0.5)
        run.close(nodes, [VOLUME], [seen], {NODE.node_id})

    def operations(self) -> LakeOperations:
        """Return the run-operations."""
        return LakeOperations(
            self.lake,
            run_id="ffffffff-0000-4000-8000-000000000000",
            settings=GateSettings(),
            project="shop",
            target_name="dev",
            tests=lambda: [VOLUME],
            known=lambda: [NODE.node_id],
        )

    def values(self, metric: str = "width", scope: str = "") -> list[float]:
        history = Baselines(self.lake).history(ORDERS, metric, scope)
        return [one.value for one in sorted(history, key=lambda one: one.at)]


@pytest.fixture
def builds(lake: Lake) -> Builds:
    return Builds(lake)


def test_a_new_lake_has_no_history(lake: Lake) -> None:
    assert Baselines(lake).history(ORDERS, "width") == []
    assert Baselines(lake).history(ORDERS, "row_count") == []


def test_a_rejected_candidate_does_not_count(builds: Builds) -> None:
    builds.build(10)
    rejected = builds.build(99, "fail")
    builds.build(11)
    assert builds.values() == [10, 11]
    (kept,) = builds.lake.ledger.of_run("metrics", rejected)
    assert (kept["value"], kept["state"], kept["mean"]) == (99, "anomalous", 1)


def test_a_candidate_that_another_run_replaced_does_not_count(builds: Builds) -> None:
    builds.write(held := builds.open())
    held.close([NODE], [VOLUME], [])
    tests = builds.open(branch=held.branch)
    builds.write(other := builds.open(branch=held.branch))
    other.close([NODE], [VOLUME], [])
    builds.audit(tests, 99)
    assert builds.lake.ledger.of_run("metrics", tests.run_id) == []
    builds.audit(builds.open(branch=held.branch), 10)
    assert builds.values() == [10]


def test_a_rejected_table_of_a_partly_published_run_does_not_count() -> None:
    """A publish counts only for its own candidates, also if its run has other nodes."""
    publish = {"publish_id": "p", "run_id": "r", "action": "publish", "published_at": NOW}
    publishes = [{**publish, "schema": "S", "name": "a", "candidate_snapshot": 1}]
    node = {"run_id": "r", "schema": "s", "candidate_metadata": None}
    nodes = [
        {**node, "name": "a", "candidate_snapshot": 7, "verdict": "rejected"},
        {**node, "name": "a", "candidate_snapshot": 1, "verdict": "published"},
        {**node, "name": "b", "candidate_snapshot": 2, "verdict": "published"},
    ]
    found = published(publishes, nodes)
    assert {name: [one.token for one in kept] for name, kept in found.items()} == {
        ("s", "a"): ["1"]
    }


def test_a_publish_that_was_rolled_back_does_not_count(builds: Builds) -> None:
    builds.build(10)
    undone = builds.build(11)
    (publish,) = builds.lake.ledger.publish(undone)
    builds.lake.publishing.rollback(publish.entries, run_id=undone, publish_id=publish.publish_id)
    assert builds.values() == [10]


def test_a_held_candidate_counts_once_it_is_published(builds: Builds) -> None:
    builds.build(10)
    builds.build(20, publish="never")
    assert builds.values() == [10]
    builds.operations().call("wap_publish", {"branch": "b2"})
    assert builds.values() == [10, 20]


def test_scopes_and_metrics_are_separate(builds: Builds) -> None:
    builds.build(10)
    builds.build(20, scope="country = 'ch'")
    builds.build(30, metric="height")
    assert builds.values() == [10]
    assert builds.values(scope="country = 'ch'") == [20]
    assert builds.values("height") == [30]


def test_partial_builds_are_not_recorded(builds: Builds) -> None:
    builds.build(10, part="sample")
    assert builds.lake.ledger.rows("metrics") == []


def test_the_latest_measurement_of_a_candidate_counts(builds: Builds) -> None:
    builds.build(10)
    (row,) = builds.lake.ledger.rows("metrics")
    again = {**row, "value": 12.0, "measured_at": row["measured_at"] + timedelta(hours=1)}
    builds.lake.ledger.append(LedgerRows("metrics", [again]))
    assert builds.values() == [12]


def test_row_counts_before_the_first_audit_come_from_the_metadata(builds: Builds) -> None:
    builds.build(10)
    builds.build(11, "fail")
    builds.build(12)
    # `main` had one row. The published candidates have two and three; the rejected one is not here.
    assert builds.values("row_count") == [2, 3]
    assert builds.values("row_count", "where") == []


def test_finding_and_seconds_are_in_the_ledger(builds: Builds) -> None:
    run_id = builds.build(10, "fail")
    (test,) = builds.lake.ledger.of_run("tests", run_id)
    assert test["finding"] == (
        "width is 10 (900 % above the mean, 1): expected 0.5 to 1.5, by 9 published runs"
    )
    assert test["seconds"] == 0.5
    (node,) = builds.lake.ledger.of_run("nodes", run_id)
    assert node["seconds"] == 1.5
    assert test["finding"] in node["reason"]


def test_a_later_publish_of_a_held_branch_has_the_finding_again(builds: Builds) -> None:
    builds.build(10, "fail")
    with pytest.raises(NotPublished, match="width is 10"):
        builds.operations().call("wap_publish", {"branch": "b1"})


def test_the_row_count_of_a_run_is_from_its_branch(lake: Lake) -> None:
    run = Run(
        lake,
        Invocation(
            run_id="00000001-0000-4000-8000-000000000000",
            branch="b",
            settings=GateSettings(),
            command="build",
            project="shop",
            target_name="dev",
        ),
    )
    assert run.row_count(ORDERS) == 1
    run.begin(NODE.node_id, ORDERS)
    run.candidates.place_table(ORDERS, Desired())
    run.lake.catalog.load_table(ORDERS).append(rows(7, 8), branch="b")
    assert run.row_count(ORDERS) == 3
    assert run.row_count(("shop", "missing")) is None
    new = ("shop", "new")
    run.candidates.place_beside(new)
    lake.catalog.create_table(("shop__b", "new"), rows().schema).append(rows(1, 2))
    assert run.row_count(new) == 2


def test_the_row_count_of_a_snapshot() -> None:
    assert exact_rows({"total-records": "12"}) == 12
    assert exact_rows({"total-records": "12", "total-position-deletes": "0"}) == 12
    assert exact_rows({"total-records": "12", "total-position-deletes": "1"}) is None
    assert exact_rows({"total-records": "12", "total-equality-deletes": "3"}) is None
    assert exact_rows({}) is None


def test_the_query_returns_only_the_anomalies() -> None:
    bad = AnomalyResult("max:it's", None, "anomalous", 7, 1.0, 0.0, None, 1.5, -math.inf)
    good = AnomalyResult("row_count", 5.0, "normal", 7, 5.0, 0.1, 4.0, 6.0, 0.0)
    sql = rows_sql([bad, good])
    assert sql == (
        "select * from values\n"
        "    ('max:it\\'s', cast(null as double), 1.0D, 0.0D, double('-inf'), "
        "cast(null as double), 1.5D, 7)\n"
        "as anomalies (metric, value, mean, spread, score, low, high, samples)"
    )
    assert rows_sql([good]).endswith("where false")
