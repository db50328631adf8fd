"""Alerts from the end of a run, or a rollback, to the endpoint: gate, ledger and HTTP."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from helpers.endpoints import Endpoint, dead_address

from dbt.adapters.sparkwap import alerting
from dbt.adapters.sparkwap.alerting import RunAlerts
from sparkwap.alerts import look
from sparkwap.alerts.notify import notify
from sparkwap.alerts.project import of_manifest
from sparkwap.gate.placement import Desired
from sparkwap.gate.settings import GateSettings
from sparkwap.publish.lake import Lake
from sparkwap.runs.operations import LakeOperations
from sparkwap.runs.run import Run
from sparkwap.runs.types import Invocation, NodeFact, RunEnd, TestFact, TestSeen

ORDERS = ("shop", "orders")
NODE = NodeFact("model.shop.orders", ORDERS, "model", "success", None, frozenset())
TEST = TestFact("test.shop.ids", "ids", "data", frozenset({NODE.node_id}), "error")
MANIFEST: dict[str, Any] = {
    "nodes": {
        NODE.node_id: {
            "unique_id": NODE.node_id,
            "resource_type": "model",
            "schema": "shop",
            "alias": "orders",
            "config": {"meta": {"owner": "jane"}},
        }
    }
}
ROUTE = {"name": "team", "type": "webhook", "url": "{{ env_var('HOOK') }}"}


class Node(SimpleNamespace):
    def to_dict(self, omit_none: bool) -> dict[str, Any]:
        return dict(MANIFEST["nodes"][NODE.node_id])


class Command:
    """The part of the adapter's `DbtCommand` that alerts use."""

    def __init__(self, lake: Lake, settings: GateSettings) -> None:
        self.lake = lake
        self.settings = settings
        self.target_name = "prod"
        self.run_id = "f" * 32

    def dbt_manifest(self) -> Any:
        config = SimpleNamespace(meta={"owner": "jane"})
        node = Node(
            unique_id=NODE.node_id,
            name="orders",
            schema="shop",
            alias="orders",
            resource_type="model",
            config=config,
        )
        return SimpleNamespace(nodes={NODE.node_id: node}, sources={}, unit_tests={}, groups={})


class Manifest:
    """The part of the adapter's `ProjectManifest` that alerts use."""

    def __init__(self, *seen: TestSeen) -> None:
        self._seen = list(seen)

    def tests(self) -> list[TestFact]:
        return [TEST]

    def seen(self, _: Any) -> list[TestSeen]:
        return self._seen


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    lake = Lake("lake", {"uri": uri, "warehouse": f"{tmp_path}/warehouse"})
    lake.ensure_schema("shop")
    lake.catalog.create_table(ORDERS, rows(1).schema).append(rows(1))
    yield lake
    lake.close()


@pytest.fixture
def settings(hook: Endpoint, monkeypatch: pytest.MonkeyPatch) -> GateSettings:
    monkeypatch.setenv("HOOK", hook.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("sparkwap.alerts.send._FIRST_WAIT", 0.02)
    alerts = {"routes": [ROUTE], "timeout": 5, "tries": 2}
    return GateSettings.from_vars({"wap_alerts": alerts})


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def live(lake: Lake) -> list[int]:
    return sorted(lake.catalog.load_table(ORDERS).scan().to_arrow()["id"].to_pylist())


def close(lake: Lake, settings: GateSettings, seen: TestSeen) -> tuple[Run, RunEnd, list[str]]:
    """Build a row, close the run, and send its alerts as the adapter does."""
    run_id = str(uuid.uuid4())
    run = Run(
        lake,
        Invocation(
            run_id=run_id,
            branch=f"wap_{run_id[:8]}",
            settings=settings,
            command="build",
            project="shop",
            target_name="prod",
        ),
    )
    run.begin(NODE.node_id, ORDERS)
    run.candidates.place_table(ORDERS, Desired())
    lake.catalog.load_table(ORDERS).append(rows(2), branch=run.branch)
    run.built(NODE.node_id, ORDERS, must_write=True)
    closing = run.close([NODE], [TEST], [seen])
    alerts = RunAlerts(Command(lake, settings), run)  # type: ignore[arg-type]
    return run, closing, alerts.closed(closing, Manifest(seen), [])  # type: ignore[arg-type]


FAILED = TestSeen(TEST.test_id, "fail", 3, None)
PASSED = TestSeen(TEST.test_id, "pass", 0, None)


def check(lake: Lake, settings: GateSettings) -> list[Any]:
    found = look.everything(lake, settings.alerts, MANIFEST, of_manifest(MANIFEST), "x")
    return notify(lake.ledger, found, settings.alerts, target="prod")


def test_a_rejection_is_sent_once(lake: Lake, settings: GateSettings, hook: Endpoint) -> None:
    run, _, lines = close(lake, settings, FAILED)
    assert lines == ["  alert sent to team: 1 table rejected"]
    (request,) = hook.received
    (event,) = request.json["events"]
    assert (event["kind"], event["subject"], event["branch"]) == (
        "rejected",
        "shop.orders",
        run.branch,
    )
    assert request.json["owners"] == ["jane"]
    assert event["reasons"] == ["test ids failed (3 rows)"]
    assert event["tests"][0]["failures"] == 3
    assert "dbt retry" in str(event["next"])
    # The next run and `sparkwap alerts check` find the same problem.
    assert close(lake, settings, TestSeen(TEST.test_id, "fail", 7, None))[2] == []
    assert check(lake, settings) == []
    assert len(hook.received) == 1
    assert live(lake) == [1]


def test_a_published_run_sends_nothing(lake: Lake, settings: GateSettings, hook: Endpoint) -> None:
    assert close(lake, settings, PASSED)[2] == []
    assert (live(lake), hook.received) == ([1, 2], [])


def test_the_next_check_sends_an_alert_that_could_not_be_sent(
    lake: Lake, settings: GateSettings, hook: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", dead_address())
    _, closing, lines = close(lake, settings, FAILED)
    assert lines[0] == "  alert not sent to team: 1 table rejected: it cannot be reached"
    assert closing.decision.verdicts[NODE.node_id].outcome == "rejected"
    monkeypatch.setenv("HOOK", hook.url)
    (done,) = check(lake, settings)
    assert (done.problem, done.message.events[0].kind) == ("", "rejected")
    assert check(lake, settings) == []


def test_a_rollback_is_sent_to_the_owners(
    lake: Lake, settings: GateSettings, hook: Endpoint
) -> None:
    run, _, _ = close(lake, settings, PASSED)
    operations = LakeOperations(
        lake,
        run_id=str(uuid.uuid4()),
        settings=settings,
        project="shop",
        target_name="prod",
        tests=lambda: [TEST],
        known=lambda: [NODE.node_id],
    )
    operations.call("wap_rollback", {"run": run.run_id[:8]})
    assert live(lake) == [1]
    command: Any = Command(lake, settings)
    lines = alerting.rolled_back(command, operations.rolled_back)
    assert lines == ["  alert sent to team: 1 table rolled back"]
    (request,) = hook.received
    assert (request.json["owners"], request.json["events"][0]["kind"]) == (["jane"], "rolled_back")
    assert check(lake, settings) == []


def test_a_run_that_the_gate_could_not_close_is_sent(
    lake: Lake, settings: GateSettings, hook: Endpoint
) -> None:
    run = Run(
        lake,
        Invocation(
            run_id=str(uuid.uuid4()),
            branch="dev",
            settings=settings,
            command="build",
            project="shop",
            target_name="prod",
        ),
    )
    alerts = RunAlerts(Command(lake, settings), run)  # type: ignore[arg-type]
    alerts.broke_down("the disk is full", [NODE.node_id])
    (request,) = hook.received
    (event,) = request.json["events"]
    assert (event["kind"], event["subject"]) == ("failed", "dbt build of shop")
    assert event["reasons"] == ["the disk is full"]
