"""The command line of the build that follows main."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from dbt.adapters.sparkwap import again

TARGET = Path("/t/rebuild")
GIVEN = {
    "which": "run",
    "select": ["mine"],
    "exclude": ["other"],
    "full_refresh": True,
    "vars": {"n": None, "text": "it's {{ x }}"},
    "threads": 3,
    "project_dir": "/p",
    "target_path": "target",
    "fail_fast": True,
    "warn_error_options": {"warn": [], "error": ["X"], "silence": []},
    "resource_types": [],
}


def test_flags_and_vars_are_those_of_the_run() -> None:
    command = again.arguments(GIVEN, ["fqn:p.a", "fqn:p.b"], TARGET)
    before, after = command[: command.index("build")], command[command.index("build") + 1 :]
    assert "--select=fqn:p.a fqn:p.b" in after
    assert {"--full-refresh", "--threads=3", "--project-dir=/p", f"--target-path={TARGET}"} <= set(
        after
    )
    (variables,) = (part for part in after if part.startswith("--vars="))
    assert json.loads(variables.removeprefix("--vars=")) == GIVEN["vars"]
    assert not any(part.startswith(("--exclude", "--fail-fast")) for part in command)
    (options,) = (part for part in before if part.startswith("--warn-error-options="))
    assert json.loads(options.partition("=")[2])["error"] == ["X"]


def test_a_sample_is_the_same_sample() -> None:
    window = SimpleNamespace(start="2026-01-01", end="2026-02-01")
    command = again.arguments({**GIVEN, "sample": window}, ["a"], TARGET)
    (sample,) = (part for part in command if part.startswith("--sample="))
    assert json.loads(sample.partition("=")[2]) == {"start": "2026-01-01", "end": "2026-02-01"}


def test_a_selection_that_is_too_long_is_that_of_the_run() -> None:
    command = again.arguments(GIVEN, [f"fqn:p.model_{n:05}" for n in range(9000)], TARGET)
    assert "--select=mine" in command
    assert "--exclude=other" in command


def run(code: str, tmp_path: Path, limit: float | None) -> str:
    command = [sys.executable, "-c", f"import signal, subprocess, sys, time\n{code}"]
    return again.run_until(command, os.environ, tmp_path / "output", limit)


def test_a_build_that_ends_in_time_tells_its_exit_code(tmp_path: Path) -> None:
    assert run("print('said'); sys.exit(2)", tmp_path, 60) == "dbt ended with exit code 2"
    assert run("", tmp_path, None) == "dbt ended with exit code 0"
    assert (tmp_path / "output").read_text() == ""


@pytest.mark.parametrize("heeds", ["KeyboardInterrupt", "SystemExit", "nothing"])
def test_a_build_that_hangs_is_ended_and_none_but_it(
    heeds: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endings = [(ending, patience and 0.5) for ending, patience in again._ENDINGS]
    monkeypatch.setattr(again, "_ENDINGS", endings)
    ignored = {"KeyboardInterrupt": [], "SystemExit": ["INT"], "nothing": ["INT", "TERM"]}[heeds]
    code = "\n".join(
        [
            # As Python has it, unless whoever started it ignores interrupts.
            "signal.signal(signal.SIGINT, signal.default_int_handler)",
            *(f"signal.signal(signal.SIG{name}, signal.SIG_IGN)" for name in ignored),
            # As the server that a build may start.
            "other = subprocess.Popen(['sleep', '60'], start_new_session=True)",
            "print(other.pid, flush=True)",
            "time.sleep(60)",
        ]
    )
    before = time.monotonic()
    said = run(code, tmp_path, 1)
    assert time.monotonic() - before < 30
    assert said.startswith("dbt was still building after 1 s and was stopped; `dbt retry`")
    other = psutil.Process(int((tmp_path / "output").read_text().splitlines()[0]))
    assert other.is_running()
    other.kill()


def test_a_build_in_the_background_is_not_asked_by_what_it_ignores(tmp_path: Path) -> None:
    heeded = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        before = time.monotonic()
        run("time.sleep(60)", tmp_path, 0.5)
        assert time.monotonic() - before < 20
    finally:
        signal.signal(signal.SIGINT, heeded)


def test_only_a_rebuild_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert again.rebuilt_branch() is None
    monkeypatch.setenv(again.BRANCH_VARIABLE, "dev")
    assert again.rebuilt_branch() is None
    monkeypatch.setenv(again.RUN_VARIABLE, "1a2b")
    assert again.rebuilt_branch() == ("dev", "1a2b")
