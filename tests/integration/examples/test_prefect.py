"""`examples/prefect/flow.py`: what it calls, and when. Prefect, sparkwap and dbt are stand-ins.

With the real ones: `tests/functional/orchestration/test_prefect.py`.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from helpers.documents import ROOT, commands

from sparkwap.core.names import branch_problem
from sparkwap.runs import replay_moment

SCRIPT = "examples/prefect/flow.py"
# As far as the example asks for it: tries of a task, the state instead of an error, deployments.
PREFECT = """
import functools, json, logging, sys

def get_run_logger():
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    return logging.getLogger("prefect")

def task(function=None, *, retries=0, retry_delay_seconds=0, retry_jitter_factor=0):
    if function is None:
        return functools.partial(task, retries=retries)
    def called(*arguments, return_state=False):
        for left in range(retries, -1, -1):
            try:
                return function(*arguments)
            except Exception as error:
                if left:
                    continue
                if return_state:
                    return error
                raise
    return called

class Flow:
    def __init__(self, function):
        self.function = function
    def __call__(self, *arguments):
        return self.function(*arguments)
    def to_deployment(self, name, **more):
        return {"name": name, **more}

def flow(name):
    return Flow

def serve(*deployments):
    print(json.dumps(deployments))
"""
# It notes its call, and fails as often as the file `failures` says.
PROGRAM = """#!/bin/sh
echo "$(basename $0) $*" >> "$CALLS"
left=$(cat failures 2>/dev/null || echo 0)
if [ "$1" = build ] && [ "$left" -gt 0 ]; then echo $((left - 1)) > failures; exit 1; fi
"""


class Example:
    """The flow in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        (self.project / "landing").mkdir(parents=True)
        (folder / "prefect").mkdir()
        (folder / "prefect/__init__.py").write_text(PREFECT)
        waits = "def exponential_backoff(backoff_factor):\n    return backoff_factor\n"
        (folder / "prefect/tasks.py").write_text(waits)
        for name in ("sparkwap", "dbt"):
            (folder / name).write_text(PROGRAM)
            (folder / name).chmod(0o755)

    def __call__(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        given = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(self.folder),
            "CALLS": str(self.folder / "calls"),
            "PROJECT": str(self.project),
            "LANDING": "landing",
            "SPARKWAP": str(self.folder / "sparkwap"),
            "DBT": str(self.folder / "dbt"),
            "SETTLE": "0.05",
        }
        command = [sys.executable, str(ROOT / SCRIPT), *arguments]
        return subprocess.run(
            command, env={**given, **environment}, capture_output=True, text=True, check=False
        )

    def calls(self) -> list[str]:
        file = self.folder / "calls"
        found = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return found

    def fail(self, times: int) -> None:
        (self.project / "failures").write_text(str(times))

    def deliver(self, name: str) -> None:
        (self.project / "landing" / name).write_text("id\n1\n")


@pytest.fixture
def example(tmp_path: Path) -> Example:
    return Example(tmp_path)


def documented(name: str) -> tuple[str, ...]:
    """The command as `docs/orchestration.md` has it."""
    ((*_, words),) = [
        (one.words[2:],) for one in commands("python") if one.words[1:3] == (SCRIPT, name)
    ]
    return words


def test_a_run_builds_and_cleans_up(example: Example) -> None:
    ran = example(*documented("once"))
    assert (ran.returncode, ran.stdout) == (0, "published\n"), ran.stderr
    assert example.calls() == ["sparkwap build", "sparkwap sweep"]
    example(*documented("once"), ALERTS="1")
    assert example.calls() == ["sparkwap build", "sparkwap sweep", "sparkwap alerts check"]


def test_a_replay_has_a_branch_of_its_own_and_a_legal_moment(example: Example) -> None:
    ran = example(*documented("replay"), "--select", "fct_insured_value+")
    branch = ran.stdout.strip()
    assert branch_problem(branch) is None, ran.stderr
    (call,) = example.calls()
    told, _, text = call.partition(" --vars ")
    assert told == "dbt build --select fct_insured_value+"
    variables = json.loads(text)
    assert variables["wap_branch"] == branch
    assert variables["wap_publish"] == "never"
    moment = replay_moment.asked(variables["as_of"], datetime.now(UTC))
    assert isinstance(moment, replay_moment.Moment)


def test_it_serves_runs_by_schedule_and_by_arrival(example: Example) -> None:
    ran = example(*documented("serve"))
    deployments = {one.pop("name"): one for one in json.loads(ran.stdout)}
    assert deployments["schedule"] == {"interval": 3600}
    assert deployments["arrivals"]["interval"] > 0
    assert deployments["arrivals"]["concurrency_limit"] == 1
    assert example.calls() == []


def test_a_build_is_tried_again_and_cleaned_up_after_once(example: Example) -> None:
    example.fail(3)
    assert example("once").stdout == "published\n"
    assert example.calls() == ["sparkwap build"] * 4 + ["sparkwap sweep"]
    example.fail(4)
    ran = example("once")
    assert ran.returncode == 1
    assert "ended with code 1" in ran.stderr
    assert example.calls() == ["sparkwap build"] * 4 + ["sparkwap sweep"]


def test_new_files_are_built_once_also_when_that_fails(example: Example) -> None:
    example.deliver("a.csv")
    example.fail(4)
    assert example("arrivals").returncode == 1
    example.calls()
    assert example("arrivals").stdout == "nothing new\n"
    example.deliver(".b.csv")
    assert example("arrivals").stdout == "nothing new\n", "it is still being written"
    example.deliver("b.csv")
    assert example("arrivals").stdout == "published\n"
    assert example.calls() == ["sparkwap build", "sparkwap sweep"]


def test_only_one_run_is_at_work(example: Example) -> None:
    lock = example.project / "target/prefect_landing.lock"
    lock.parent.mkdir()
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert example("once").stdout == "another run is at work\n"
    assert example.calls() == []
