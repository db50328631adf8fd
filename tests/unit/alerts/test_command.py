"""`sparkwap alerts test`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.endpoints import Endpoint, dead_address

from sparkwap.cli import main
from sparkwap.core.command_end import EXIT_CODES


@pytest.fixture
def project(tmp_path: Path, hook: Endpoint, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("GOOD", hook.url)
    monkeypatch.setenv("BAD", dead_address())
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("sparkwap.alerts.send._FIRST_WAIT", 0.02)

    def make(**alerts: Any) -> Any:
        content = {"name": "shop", "version": "1.0", "vars": {"wap_alerts": alerts}}
        (tmp_path / "dbt_project.yml").write_text(json.dumps(content))

        def call(*arguments: str) -> int:
            return main(["alerts", "test", *arguments, "--project-dir", str(tmp_path)])

        return call

    return make


def route(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "slack", "url": f"{{{{ env_var('{name.upper()}') }}}}", **more}


def test_each_route_gets_a_sample(project: Any, hook: Endpoint, capsys: Any) -> None:
    call = project(routes=[route("good"), route("bad", owners=["x"])])
    assert call() == EXIT_CODES["failed"]
    assert capsys.readouterr().out == "good: sent\nbad: not sent: it cannot be reached\n"
    (request,) = hook.received
    assert "this is a test of the route; nothing was rejected" in request.body.decode()
    assert call("good") == 0
    assert call("other") == EXIT_CODES["usage"]
    assert "No route is called 'other'" in capsys.readouterr().err


def test_a_note_if_some_events_reach_no_route(project: Any, capsys: Any) -> None:
    assert project(routes=[route("good", owners=["x"])])() == 0
    assert "a route without owners gets all events" in capsys.readouterr().out


def test_without_routes_the_error_names_the_document(project: Any, capsys: Any) -> None:
    assert project()() == EXIT_CODES["usage"]
    assert "There are no routes, so nothing was sent. See docs/alerts.md" in capsys.readouterr().err


def test_an_error_in_the_settings_is_reported_without_the_secret(project: Any, capsys: Any) -> None:
    in_clear = {"name": "x", "type": "slack", "url": "https://in.clear/SECRET"}
    assert project(routes=[in_clear])() == EXIT_CODES["usage"]
    error = capsys.readouterr().err
    assert "wap_alerts: routes[0].url: it is a secret" in error
    assert "SECRET" not in error
