"""The commands of the buttons."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sparkwap.core.dbt_cli import parse_call
from sparkwap.core.errors import ConfigError
from sparkwap.core.redaction import remember
from sparkwap.page import actions
from sparkwap.page.access import SETTINGS, TOKEN


class Runner:
    """Replaces `subprocess.run`."""

    def __init__(self, code: int = 0, text: str = "Discarded pr_1\n") -> None:
        self.code, self.text = code, text
        self.calls: list[tuple[list[str], dict[str, Any]]] = []

    def __call__(self, command: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
        self.calls.append((command, more))
        return subprocess.CompletedProcess(command, self.code, self.text, None)


def perform(run: Runner, operation: str = "wap_discard", branch: str = "pr_1") -> actions.Done:
    call = parse_call(["--target", "pr", "--vars", "{a: 1}"])
    return actions.perform(call, operation, {"branch": branch}, open_branches=["pr_1"], run=run)


def test_an_operation_runs_dbt_without_a_shell() -> None:
    run = Runner()
    done = perform(run)
    ((command, more),) = run.calls
    at = command.index("run-operation")
    assert command[at + 1] == "wap_discard"
    assert json.loads(command[command.index("--args") + 1]) == {"branch": "pr_1"}
    assert command[command.index("--target") + 1] == "pr"
    assert json.loads(command[command.index("--vars") + 1]) == {"a": 1}
    assert not more.get("shell")
    assert more["stdin"] == subprocess.DEVNULL
    assert done == actions.Done(
        "dbt run-operation wap_discard --args '{branch: pr_1}' --target pr", True, "Discarded pr_1"
    )


def test_a_failed_command_is_not_ok() -> None:
    assert not perform(Runner(2, "refused")).ok


@pytest.mark.parametrize("operation", ["wap_rollback", "wap_erase", "wap_publish; rm"])
def test_the_page_has_no_other_operations(operation: str) -> None:
    run = Runner()
    with pytest.raises(ConfigError, match="Nothing was done"):
        perform(run, operation)
    assert run.calls == []


@pytest.mark.parametrize("branch", ["pr_2", "main", "pr_1}, force: true", ""])
def test_a_branch_that_is_not_open_is_refused(branch: str) -> None:
    run = Runner()
    with pytest.raises(ConfigError, match="is no longer open"):
        perform(run, branch=branch)
    assert run.calls == []


def test_the_command_has_no_token_and_its_output_has_no_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(TOKEN, "0123456789abcdef")
    monkeypatch.setenv(SETTINGS, "/settings.json")
    remember({"password": "hunter2000"})
    run = Runner(1, "cannot log in with hunter2000")
    done = perform(run)
    environment = run.calls[0][1]["env"]
    assert not {TOKEN, SETTINGS} & set(environment)
    assert environment["PATH"]
    assert done.text == "cannot log in with ***"


def test_a_comparison_is_stored_in_the_folder_of_the_page() -> None:
    folder = Path("/project/target/page")
    arguments = actions.diff_arguments(folder, "pr_1")
    assert arguments["file"] == str(actions.diff_file(folder, "pr_1"))
    assert (arguments["branch"], arguments["format"]) == ("pr_1", "json")


def test_a_comparison_can_be_read_by_the_owner_only_and_ends_with_its_branch(
    tmp_path: Path,
) -> None:
    arguments = actions.diff_arguments(tmp_path / "page", "pr_1")
    call = parse_call(["--target", "pr"])
    actions.perform(call, "wap_diff", arguments, open_branches=["pr_1"], run=Runner())
    file = Path(arguments["file"])
    assert file.stat().st_mode & 0o777 == 0o600
    actions.forget(file.parent, ["pr_1"])
    assert file.exists()
    actions.forget(file.parent, [])
    assert not file.exists()
