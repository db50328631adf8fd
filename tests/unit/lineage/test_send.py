"""Events are sent within a time limit; what fails is one line, and never an exception."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.endpoints import dead_address, endpoint
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState

from sparkwap.core.errors import ConfigError
from sparkwap.lineage.send import end_of_run, require_client

EVENTS = [
    RunEvent(
        eventTime="2026-01-31T06:00:00+00:00",
        run=Run("0b1f5a52-6a7e-4a37-9c1b-0d8f3f1f7a11"),
        job=Job("dbt", "orders"),
        eventType=state,
    )
    for state in (RunState.START, RunState.COMPLETE)
]


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No settings of the machine; the client itself adds variables, which are removed again."""
    before = {key for key in os.environ if key.startswith("OPENLINEAGE")}
    for name in before:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.chdir(tmp_path)
    yield
    for name in [key for key in os.environ if key.startswith("OPENLINEAGE")]:
        del os.environ[name]


class Client:
    """A client whose transport waits, fails, or keeps the events."""

    def __init__(self, *, kind: str = "http", fails_at: int = 99, waits: float = 0) -> None:
        self.transport = SimpleNamespace(kind=kind)
        self.emitted: list[Any] = []
        self.fails_at = fails_at
        self.waits = waits
        self.waiting = threading.Event()

    def emit(self, event: Any) -> None:
        self.waiting.wait(self.waits)
        if len(self.emitted) == self.fails_at:
            raise ConnectionError("https://user:hunter2@lineage:5000 refuses\nmore")
        self.emitted.append(event)


def send(client: Any, seconds: float = 5) -> list[str]:
    return end_of_run(lambda: EVENTS, connect=lambda: client, seconds=seconds)


def test_all_events_are_sent_in_order() -> None:
    client = Client()
    assert send(client) == ["  OpenLineage: 2 events sent"]
    assert client.emitted == EVENTS


def test_an_error_is_one_line_without_secrets() -> None:
    (line,) = send(Client(fails_at=1))
    assert line.startswith("  OpenLineage: not sent: ConnectionError: https://user:***@lineage")
    assert "(1 of 2 events sent)" in line
    assert "The run is not affected" in line


def test_a_slow_receiver_ends_at_the_limit() -> None:
    client = Client(waits=60)
    began = time.monotonic()
    (line,) = send(client, seconds=0.1)
    assert time.monotonic() - began < 5
    assert "not sent: 0 of 2 events sent within 0.2 s" in line
    client.waiting.set()


def test_events_that_cannot_be_made_are_one_line() -> None:
    def broken() -> list[RunEvent]:
        raise KeyError("model.shop.orders")

    (line,) = end_of_run(broken)
    assert "not sent: KeyError: 'model.shop.orders'" in line


def test_no_transport_is_said() -> None:
    (line,) = end_of_run(lambda: EVENTS)
    assert "no transport is configured: set OPENLINEAGE_URL" in line


def test_a_disabled_client_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    assert end_of_run(lambda: EVENTS) == []


def test_a_file_of_the_client_configures_it(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    transport = {"type": "file", "log_file_path": str(log), "append": True}
    (tmp_path / "openlineage.yml").write_text(json.dumps({"transport": transport}))
    assert end_of_run(lambda: EVENTS) == ["  OpenLineage: 2 events sent"]
    sent = [json.loads(line) for line in log.read_text().splitlines()]
    assert [one["eventType"] for one in sent] == ["START", "COMPLETE"]


def test_the_address_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with endpoint() as receiver:
        monkeypatch.setenv("OPENLINEAGE_URL", receiver.url.partition("/services")[0])
        monkeypatch.setenv("OPENLINEAGE_API_KEY", "correct-horse")
        assert end_of_run(lambda: EVENTS) == ["  OpenLineage: 2 events sent"]
        first, _ = receiver.received
        assert first.path == "/api/v1/lineage"
        assert first.headers["Authorization"] == "Bearer correct-horse"


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", dead_address().partition("/services")[0])
    (line,) = end_of_run(lambda: EVENTS, seconds=1)
    assert "OpenLineage: not sent:" in line


@pytest.mark.parametrize("missing", ["openlineage.client", "openlineage"])
def test_a_missing_client_is_an_error(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    require_client()
    for name in [one for one in sys.modules if f"{one}.".startswith(f"{missing}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ConfigError, match=r"pip install '<checkout of sparkwap>\[openlineage\]'"):
        require_client()
