"""The start of the page: on loopback, without a browser window and usage statistics."""

from __future__ import annotations

import argparse
import importlib.util
import socket
import stat
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sparkwap.cli import main
from sparkwap.core import dbt_cli
from sparkwap.core.command_end import EXIT_CODES, CommandEnd
from sparkwap.core.dbt_cli import DbtCall
from sparkwap.core.errors import ConfigError
from sparkwap.page import access, command
from sparkwap.page.access import TOKEN


def options(port: int = 1) -> dict[str, str]:
    given = command.command(port, f"http://127.0.0.1:{port}")
    return dict(zip(given[5::2], given[6::2], strict=True))


def test_streamlit_listens_on_loopback_and_reports_nothing() -> None:
    found = options(8600)
    assert found["--server.address"] == "127.0.0.1"
    assert found["--server.port"] == "8600"
    assert found["--server.headless"] == "true"
    assert found["--browser.gatherUsageStats"] == "false"
    assert found["--server.enableXsrfProtection"] == "true"
    assert found["--client.showErrorDetails"] == "none"


def test_only_known_names_are_answered() -> None:
    def hosts(public: str) -> list[str]:
        given = command.command(1, public)
        return [value for key, value in pairwise(given) if key == "--server.allowedHosts"]

    assert hosts("http://127.0.0.1:1") == ["127.0.0.1", "localhost"]
    public = "https://lake.example.com:8443/a/quality/"
    assert hosts(public) == ["127.0.0.1", "localhost", "lake.example.com"]
    given = command.command(1, public)
    found = dict(pairwise(given))
    assert found["--server.address"] == "127.0.0.1"
    assert found["--browser.serverAddress"] == "lake.example.com"
    assert found["--server.baseUrlPath"] == "a/quality"
    assert found["--server.enableCORS"] == "true"


@pytest.mark.parametrize("url", ["lake.example.com", "ftp://lake/", "https:///x", "https://a/?b"])
def test_an_address_that_is_none_starts_no_page(
    started: list[dict[str, Any]], tmp_path: Path, url: str
) -> None:
    with pytest.raises(ConfigError, match="is not the address of a page"):
        start(tmp_path, url=url)
    assert not started


def test_the_address_at_the_proxy_is_printed(
    started: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start(tmp_path, url="https://lake.example.com/quality") == CommandEnd()
    told = capsys.readouterr().out.splitlines()
    assert told[1].split()[-1] == "https://lake.example.com/quality/"
    assert told[3].endswith("/quality/")
    assert "http://127.0.0.1:" in told[3]


def test_a_wanted_port_in_use_is_an_error_and_the_default_port_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"Port {port} .* cannot be used"):
            command.free_port(port)
        monkeypatch.setattr(command, "PORT", port)
        assert command.free_port(None) != port


def test_without_streamlit_the_error_has_the_command_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["page"]) == EXIT_CODES["usage"]
    said = capsys.readouterr().err
    assert "make page" in said
    assert "pip install '<checkout of sparkwap>[page]'" in said


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The state while the page was served."""
    seen: list[dict[str, Any]] = []

    def serve(given: list[str], port: int, settings: Path, ready: Any) -> int:
        ready()
        mode = stat.S_IMODE(settings.stat().st_mode)
        seen.append({"command": given, "path": settings, "mode": mode, **vars_of(settings)})
        return 0

    def vars_of(settings: Path) -> dict[str, Any]:
        read = access.read(settings)
        return {"token": read.token, "arguments": read.arguments}

    monkeypatch.setattr(command, "serve", serve)
    monkeypatch.setattr(command, "_require_streamlit", lambda: None)
    monkeypatch.setattr(DbtCall, "lake", lambda self: None)
    return seen


def start(folder: Path, **more: Any) -> CommandEnd:
    names = [option.replace("-", "_") for option in dbt_cli._DBT_OPTIONS]
    given = {
        **dict.fromkeys(names),
        "port": None,
        "url": None,
        "project_dir": str(folder),
        "emit": print,
    }
    given |= more
    return command.page(argparse.Namespace(**given))


def test_the_token_is_printed_but_not_in_the_address_or_the_command(
    started: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    emitted: list[CommandEnd] = []
    assert start(tmp_path, target="pr", emit=emitted.append) == CommandEnd()
    assert emitted[0].result.url.startswith("http://127.0.0.1:")
    (seen,) = started
    told = capsys.readouterr().out.splitlines()
    assert seen["token"] in told[1]
    assert told[0].split()[-1].startswith("http://127.0.0.1:")
    assert seen["token"] not in told[0]
    assert seen["token"] not in " ".join(seen["command"])
    assert seen["mode"] == 0o600
    assert seen["arguments"] == ("--project-dir", str(tmp_path), "--target", "pr")
    assert not seen["path"].exists()


def test_a_given_token_is_not_printed(
    started: list[dict[str, Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(TOKEN, "a-token-of-my-own")
    assert start(tmp_path) == CommandEnd()
    assert started[0]["token"] == "a-token-of-my-own"
    assert "a-token-of-my-own" not in capsys.readouterr().out
