"""The build that follows main is a process, which ends in time or is ended."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from dbt.adapters.sparkwap import rebase


def run(code: str, tmp_path: Path, limit: float | None) -> str:
    command = [sys.executable, "-c", f"import signal, subprocess, sys, time\n{code}"]
    return rebase.run_until(command, os.environ, tmp_path / "output", limit)


def test_a_build_that_ends_in_time_tells_its_exit_code(tmp_path: Path) -> None:
    assert run("print('said'); sys.exit(2)", tmp_path, 60) == "dbt ended with exit code 2"
    assert run("", tmp_path, None) == "dbt ended with exit code 0"
    assert (tmp_path / "output").read_text() == ""


@pytest.mark.parametrize("heeds", [True, False])
def test_a_build_that_hangs_is_ended_and_none_but_it(
    heeds: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebase, "_PATIENCE", 60.0 if heeds else 0.5)
    code = "\n".join(
        [
            *([] if heeds else ["signal.signal(signal.SIGTERM, signal.SIG_IGN)"]),
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
