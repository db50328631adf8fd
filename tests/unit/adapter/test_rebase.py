"""The command line of a rebuild."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from dbt.adapters.sparkwap import rebase

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


def test_the_rebuild_has_the_flags_and_vars_of_the_run() -> None:
    command = rebase.arguments(GIVEN, ["fqn:p.a", "fqn:p.b"], TARGET)
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


def test_the_rebuild_has_the_sample_of_the_run() -> None:
    window = SimpleNamespace(start="2026-01-01", end="2026-02-01")
    command = rebase.arguments({**GIVEN, "sample": window}, ["a"], TARGET)
    (sample,) = (part for part in command if part.startswith("--sample="))
    assert json.loads(sample.partition("=")[2]) == {"start": "2026-01-01", "end": "2026-02-01"}


def test_a_rebuild_with_too_many_nodes_has_the_selection_of_the_run() -> None:
    command = rebase.arguments(GIVEN, [f"fqn:p.model_{n:05}" for n in range(9000)], TARGET)
    assert "--select=mine" in command
    assert "--exclude=other" in command


def test_a_rebuild_is_recognized_by_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rebase.rebuilt_branch() is None
    monkeypatch.setenv(rebase.BRANCH_VARIABLE, "dev")
    assert rebase.rebuilt_branch() is None
    monkeypatch.setenv(rebase.RUN_VARIABLE, "1a2b")
    assert rebase.rebuilt_branch() == ("dev", "1a2b")
