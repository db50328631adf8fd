"""The command line: what it prints and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkwap import cli
from sparkwap.server import Endpoint, ServerStatus, process


def test_status_of_a_lake_without_a_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["server", "status", "--lake", str(tmp_path)]) == cli.EXIT_NOT_RUNNING
    assert "not running" in capsys.readouterr().out


def test_status_shows_a_running_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint = Endpoint("127.0.0.1", 10000, 15002, "secret", 42)
    found = ServerStatus(endpoint, True, 3700, 65, 400_000_000, 350, [7, 8])
    monkeypatch.setattr("sparkwap.server.status", lambda _lake: found)
    assert cli.main(["server", "status"]) == 0
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert rows == {
        "state": "running",
        "pid": "42",
        "thrift": "127.0.0.1:10000",
        "connect": "127.0.0.1:15002",
        "uptime": "1 h 01 min",
        "memory": "400 MB",
        "descriptors": "350",
        "idle": "1 min 05 s",
        "clients": "7 8",
    }


def test_stop_without_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["server", "stop", "--lake", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "not running\n"


def test_an_error_is_one_message_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["server", "logs", "--lake", str(tmp_path)]) == cli.EXIT_ERROR
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("sparkwap: There is no log at ")
    assert "sparkwap server start" in printed.err


def test_logs_prints_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = process.logs(tmp_path)
    path.parent.mkdir()
    path.write_text("one\ntwo\n")
    assert cli.main(["server", "logs", "--lake", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "one\ntwo\n"


def test_follow_continues_after_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("one\n")
    with path.open() as log:
        lines = cli._follow(log, path)
        assert next(lines) == "one\n"
        with path.open("a") as more:
            more.write("two\n")
        assert next(lines) == "two\n"
        path.rename(tmp_path / "server.log.1")
        path.write_text("a new start\n")
        assert next(lines) == "a new start\n"


@pytest.mark.parametrize("arguments", [[], ["server"], ["nonsense"]])
def test_without_a_command_the_usage_is_shown(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
