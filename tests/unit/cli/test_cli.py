"""The command line: what it prints and how it ends."""

from __future__ import annotations

import argparse
import json
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from output_schema import RESULTS, schema

from sparkwap import cli
from sparkwap.cli.build import BuildResult
from sparkwap.core import command_end, dbt_cli
from sparkwap.core.command_end import EXIT_CODES, CommandEnd, Outcome, of_dbt, plain
from sparkwap.core.redaction import remember
from sparkwap.server import Endpoint, ServerStatus, process


def test_status_of_a_lake_without_a_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["server", "status", "--lake", str(tmp_path)]) == EXIT_CODES["stopped"]
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
    assert cli.main(["server", "logs", "--lake", str(tmp_path)]) == EXIT_CODES["failed"]
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


# ---------------------------------------------------------------- JSON


def document(printed: str) -> dict[str, Any]:
    """Return the one document on standard output, which has the schema."""
    (line,) = printed.splitlines()
    found: dict[str, Any] = json.loads(line)
    Draft202012Validator(schema()).validate(found)
    return found


def test_a_document_is_alone_on_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.main(["server", "status", "--lake", str(tmp_path), "--output", "json"])
    printed = capsys.readouterr()
    found = document(printed.out)
    assert (found["command"], found["outcome"], found["exit_code"]) == (
        "server status",
        "stopped",
        code,
    )
    assert found["result"]["state"] == "stopped"
    assert "not running" in printed.err, "text is for people"


@pytest.mark.parametrize(
    ("arguments", "command", "outcome"),
    [
        (["server", "logs", "--lake", "none"], "server logs", "failed"),
        (["plan", "--project-dir", "none"], "plan", "usage"),
        (["build", "--project-dir", "none"], "build", "usage"),
        (["stream", "--project-dir", "none"], "stream", "usage"),
    ],
)
def test_an_error_is_a_document_too(
    arguments: list[str], command: str, outcome: Outcome, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*arguments, "--output=json"]) == EXIT_CODES[outcome]
    printed = capsys.readouterr()
    found = document(printed.out)
    assert (found["command"], found["outcome"]) == (command, outcome)
    assert found["message"] in printed.err


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["plan", "--nonsense"], ["build", "--output", "x"]]
)
def test_wrong_arguments_are_a_document_too(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([*arguments, "--output", "json"])
    assert caught.value.code == EXIT_CODES["usage"]
    assert document(capsys.readouterr().out)["outcome"] == "usage"


def test_an_error_of_ours_is_a_document_and_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sparkwap.server.status", lambda _: 1 / 0)
    assert cli.main(["server", "status", "--output", "json"]) == EXIT_CODES["failed"]
    printed = capsys.readouterr()
    assert document(printed.out)["outcome"] == "failed"
    assert "ZeroDivisionError" in printed.err
    assert cli.main(["server", "status"]) == EXIT_CODES["failed"], "1 is that of a rejected run"


def test_a_document_that_nobody_gets_has_the_exit_code_of_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        given = ["server", "stop", "--lake", str(tmp_path), "--output", "json"]
        assert cli.main(given) == EXIT_CODES["failed"]
        assert "the document cannot be written" in capsys.readouterr().err


def test_every_command_has_the_option_and_a_result() -> None:
    found = {str(one.get_default("command")) for one in _leaves(cli._parser())}
    assert found == {one for one in RESULTS if not one.startswith("dbt ")}


@pytest.mark.parametrize(
    ("code", "outcome", "expected"),
    [
        (0, "published", "published"),
        (0, "held", "held"),
        (0, "done", "done"),
        (0, None, "done"),
        (1, None, "failed"),
        (2, None, "usage"),
        (-9, None, "failed"),
        (1, "rejected", "rejected"),
        (1, "failed", "failed"),
        (1, "held", "held"),
        (1, "published", "rejected"),
        (0, "failed", "failed"),
        (0, "of a later version", "failed"),
    ],
)
def test_the_outcome_of_dbt_is_never_better_than_its_exit_code(
    code: int, outcome: str | None, expected: Outcome
) -> None:
    assert of_dbt(code, None if outcome is None else {"outcome": outcome}) == expected


def test_the_schema_refuses_what_no_command_prints() -> None:
    validator = Draft202012Validator(schema())
    good = json.loads(CommandEnd("rejected", BuildResult()).document("build"))
    validator.validate(good)
    for wrong in ({"result": {"nonsense": 1}}, {"exit_code": 0}, {"outcome": "good"}):
        assert not validator.is_valid({**good, **wrong})


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_only_a_regular_file_is_replaced(make: Any, tmp_path: Path) -> None:
    make(tmp_path / "x")
    with pytest.raises(OSError, match="no regular file"):
        command_end.write(tmp_path / "x", "dbt build", CommandEnd())
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / f".y.{os.getpid()}").symlink_to(victim)
    command_end.write(tmp_path / "y", "dbt build", CommandEnd())
    assert victim.read_text() == "precious"
    assert stat.S_IMODE((tmp_path / "y").stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["victim", "x", "y"]


def test_a_document_has_no_secret() -> None:
    remember("hunter22")
    found = json.loads(
        CommandEnd("failed", {"a hunter22": ["x hunter22"]}, "hunter22").document("x")
    )
    assert "hunter22" not in str(found)


def test_a_document_is_ascii() -> None:
    text = CommandEnd("failed", {"nan": float("nan")}, "Zürich \udc80\n\u2028").document("x")
    assert text.isascii()
    assert len(text.splitlines()) == 1
    assert json.loads(text)["result"] == {"nan": None}


def test_values_are_as_json_knows_them() -> None:
    given = {
        "day": date(2026, 1, 31),
        "file": Path("a/b"),
        "set": frozenset({"b", "a"}),
        "no": None,
    }
    assert plain(given) == {"day": "2026-01-31", "file": "a/b", "set": ["a", "b"], "no": None}


def _leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for one in below:
        for each in one.choices.values():
            yield from _leaves(each)
    if not below:
        yield parser


def test_every_command_that_reads_a_profile_takes_the_same_options() -> None:
    """A command with some of dbt's options has all of them, by `add_dbt_options`."""
    for parser in _leaves(cli._parser()):
        given = {o for action in parser._actions for o in action.option_strings}
        if "--profiles-dir" in given or "--target" in given:
            assert {f"--{o}" for o in dbt_cli._DBT_OPTIONS} <= given, parser.prog


@pytest.mark.parametrize("command", [["build"], ["stream"], ["pr", "audit", "--branch", "pr_1"]])
def test_what_publishes_refuses_a_replay(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*command, "--vars", "as_of: 2024-01-31T18:00:00Z"]) == EXIT_CODES["usage"]
    assert "does not support as_of" in capsys.readouterr().err


class Child:
    """A dbt during which a signal comes, and that perhaps does not heed it in time."""

    def __init__(self, by: int, late: bool) -> None:
        self.signals: list[str] = []
        self.by = by
        self.waits = iter(["signal", "late" if late else "end"])

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None: ...

    def wait(self, seconds: float | None = None) -> int:
        match next(self.waits):
            case "signal":
                signal.raise_signal(self.by)
            case "late":
                raise subprocess.TimeoutExpired("dbt", seconds or 0)
        return 0

    def terminate(self) -> None:
        self.signals.append("terminate")

    def kill(self) -> None:
        self.signals.append("kill")


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("late", [False, True])
def test_a_signal_ends_dbt_too(
    by: int, late: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    child = Child(by, late)
    monkeypatch.setattr(dbt_cli.subprocess, "Popen", lambda *_, **__: child)
    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, signal.SIG_DFL),
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
    }
    try:
        assert cli.main(["status", "--output", "json"]) == EXIT_CODES["interrupted"]
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    assert child.signals == ["terminate", "kill"]
    assert json.loads(capsys.readouterr().out)["outcome"] == "interrupted"


def test_neither_progress_nor_a_traceback_has_a_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def status(_: Path) -> None:
        dbt_cli.say("$ dbt build --vars '{password: hunter2-abc}'")
        raise ValueError("postgresql://bob:hunter2-abc@db/lake")

    monkeypatch.setattr("sparkwap.server.status", status)
    assert cli.main(["server", "status"]) == EXIT_CODES["failed"]
    printed = capsys.readouterr().err
    assert "postgresql://bob:***@db/lake" in printed
    assert "$ dbt build --vars '{password: ***}'" in printed
