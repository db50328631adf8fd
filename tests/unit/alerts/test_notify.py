"""Events are sent once, also by several processes, and recorded in the ledger."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from helpers.endpoints import Endpoint, dead_address

from sparkwap.alerts import look
from sparkwap.alerts.model import Event
from sparkwap.alerts.notify import lines_of, notify, safely
from sparkwap.alerts.project import of_manifest
from sparkwap.catalog.model import LedgerRows
from sparkwap.gate.alert_settings import AlertSettings, parse
from sparkwap.ledger.ledger import Ledger
from sparkwap.publish.lake import Lake

from .conftest import RUN, event


def open_lake(folder: Path) -> Lake:
    uri = f"sqlite:///{folder}/catalog.db"
    return Lake("lake", {"uri": uri, "warehouse": f"{folder}/warehouse"})


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = open_lake(tmp_path)
    yield lake
    lake.close()


@pytest.fixture
def settings(hook: Endpoint, monkeypatch: pytest.MonkeyPatch) -> AlertSettings:
    monkeypatch.setenv("HOOK", hook.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("sparkwap.alerts.send._FIRST_WAIT", 0.02)
    route = {"name": "team", "type": "webhook", "url": "{{ env_var('HOOK') }}"}
    return parse({"routes": [route], "timeout": 5, "tries": 2})


def now(**more: Any) -> Event:
    return event(at=datetime.now(UTC), **more)


def test_an_event_is_sent_once_also_by_another_process(
    lake: Lake, settings: AlertSettings, hook: Endpoint, tmp_path: Path
) -> None:
    (done,) = notify(lake.ledger, [now()], settings, target="prod")
    assert (done.problem, len(hook.received)) == ("", 1)
    assert notify(lake.ledger, [now()], settings, target="prod") == []
    other = open_lake(tmp_path)
    news = [now(run_id="f" * 8, branch="wap_ffffffff"), now(subject="shop.totals")]
    (done,) = notify(other.ledger, news, settings, target="prod")
    assert [e.subject for e in done.message.events] == ["shop.totals"]
    assert len(hook.received) == 2
    other.close()


def test_a_message_that_was_not_delivered_is_sent_again(
    lake: Lake, settings: AlertSettings, hook: Endpoint
) -> None:
    hook.answers = [500, 500]
    (done,) = notify(lake.ledger, [now()], settings, target="prod")
    assert (done.problem, done.tries) == ("it answered 500", 2)
    assert lines_of([done]) == [
        "  alert not sent to team: 1 table rejected: it answered 500",
        "  To send it again: sparkwap alerts check",
    ]
    (done,) = notify(lake.ledger, [now()], settings, target="prod")
    assert lines_of([done]) == ["  alert sent to team: 1 table rejected"]
    rows = lake.ledger.rows("alerts")
    assert sorted((r["outcome"], r["tries"]) for r in rows) == [("failed", 2), ("sent", 1)]
    assert {(r["route"], r["kind"], r["subject"]) for r in rows} == {
        ("team", "rejected", "shop.orders")
    }


def test_the_ledger_has_no_secrets(
    lake: Lake, settings: AlertSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", dead_address())
    notify(lake.ledger, [now()], settings, target="prod")
    (row,) = lake.ledger.rows("alerts")
    assert row["message"] == "it cannot be reached"
    assert "SECRET" not in str(row)


def test_the_ledger_has_a_table_of_alerts_only_after_the_first_alert(
    lake: Lake, settings: AlertSettings
) -> None:
    lake.ledger.ensure_all()
    notify(lake.ledger, [], settings, target="")
    assert "alerts" not in lake.relations("wap_ledger")


def test_an_error_in_alerts_does_not_fail_the_run(settings: AlertSettings) -> None:
    class Broken:
        def delivered_since(self, _: object) -> None:
            raise OSError("disk full; password=hunter2hunter2")

    (line,) = safely(Broken(), [now()], settings, target="")  # type: ignore[arg-type]
    assert "OSError: disk full" in line
    assert "the run is not affected" in line
    assert "hunter2" not in line


def test_a_message_without_a_record_was_sent_and_may_come_twice(
    hook: Endpoint, settings: AlertSettings
) -> None:
    class Full:
        def delivered_since(self, _: object) -> list[Any]:
            return []

        def append(self, _: object) -> None:
            raise OSError("disk full; password=hunter2hunter2")

    (line,) = safely(Full(), [now()], settings, target="")  # type: ignore[arg-type]
    assert line.startswith("  alert sent to team: 1 table rejected: the ledger has no row of it")
    assert "sent again" in line and "hunter2" not in line
    assert len(hook.received) == 1


def test_an_endpoint_that_does_not_answer_costs_at_most_the_timeout(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, hook: Endpoint, settings: AlertSettings
) -> None:
    hook.answers = [-60] * 9
    lake.ledger.ensure({"alerts"})
    bounded = AlertSettings(routes=settings.routes, timeout=0.5)
    began = time.monotonic()
    (line, *_) = safely(lake.ledger, [now()], bounded, target="")
    # Either the timeout of the request or that of all messages comes first.
    assert "did not answer in time" in line or "not delivered within 0.5 s" in line
    assert time.monotonic() - began < 30


class TestLook:
    MANIFEST: Any = {  # noqa: RUF012
        "nodes": {
            "model.shop.orders": {
                "unique_id": "model.shop.orders",
                "resource_type": "model",
                "schema": "shop",
                "alias": "orders",
                "config": {"meta": {"owner": "jane"}},
            }
        }
    }

    def found(self, lake: Lake) -> list[Event]:
        project = of_manifest(self.MANIFEST)
        return look.everything(lake, AlertSettings(), self.MANIFEST, project, RUN)

    def test_an_empty_lake_has_no_events(self, lake: Lake) -> None:
        assert self.found(lake) == []

    def test_a_side_table_that_is_held_too_long_is_found(self, lake: Lake) -> None:
        self.put_on_branch(lake, "pr_7")
        assert self.held(lake, hours=25) == [("held", "shop.orders", ("jane",), "pr_7")]

    def test_a_branch_with_a_running_command_is_left_out(self, lake: Lake) -> None:
        from sparkwap.catalog import lease

        self.put_on_branch(lake, "pr_7")
        holding = lease.hold(lake.leases, run_id=RUN, branch="pr_7", command="build")
        assert self.held(lake, hours=25) == []
        holding.release()
        assert len(self.held(lake, hours=25)) == 1

    def held(self, lake: Lake, hours: float) -> list[tuple[Any, ...]]:
        lake.ledger.append(
            LedgerRows(
                "nodes",
                [
                    {
                        "run_id": RUN,
                        "branch": "pr_7",
                        "node_id": "model.shop.orders",
                        "schema": "shop",
                        "name": "orders",
                        "verdict": "held",
                        "reason": "a test did not run",
                        "built_at": datetime.now(UTC) - timedelta(hours=hours),
                    }
                ],
            )
        )
        return [(e.kind, e.subject, e.owners, e.branch) for e in self.found(lake)]

    @staticmethod
    def put_on_branch(lake: Lake, branch: str) -> None:
        import pyarrow as pa

        lake.ensure_schema(f"shop__{branch}", branch)
        schema = pa.schema({"id": pa.int64()})
        lake.catalog.create_table((f"shop__{branch}", "orders"), schema)

    def test_rollbacks_of_the_last_day_are_found(self, lake: Lake) -> None:
        def publish(action: str, run: str, hours: float, publish_id: str) -> dict[str, Any]:
            return {
                "publish_id": publish_id,
                "run_id": run,
                "branch": "wap_1a2b3c4d",
                "schema": "shop",
                "name": "orders",
                "how": "branch",
                "action": action,
                "published_at": datetime.now(UTC) - timedelta(hours=hours),
            }

        rows = [
            publish("publish", RUN, 30, "publish-1"),
            publish("rollback", "e" * 8, 1, "publish-1"),
            publish("publish", RUN, 90, "publish-2"),
            publish("rollback", "d" * 8, 80, "publish-2"),
            publish("publish", RUN, 1, "publish-3"),
        ]
        lake.ledger.append(LedgerRows("publishes", rows))
        (one,) = self.found(lake)
        assert (one.kind, one.subject, one.run_id, one.owners, one.key) == (
            "rolled_back",
            "shop.orders",
            "e" * 8,
            ("jane",),
            "publish-1",
        )


def test_without_alerts_nothing_was_delivered(lake: Lake) -> None:
    assert isinstance(lake.ledger, Ledger)
    assert lake.ledger.delivered_since(datetime.now(UTC)) == []
