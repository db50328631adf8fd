"""A dbt command: its settings, and the next commands that its summary shows or hands over."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dbt.adapters.sparkwap.command import DbtCommand, next_to_tell, tells_next
from sparkwap.core import next_command

LINES = ["  Next: fix it   dbt retry", "        discard it"]


def test_without_the_variable_the_summary_shows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(next_command.VARIABLE, raising=False)
    assert tells_next()
    assert next_to_tell(LINES) == LINES


def test_a_caller_that_has_its_own_turns_them_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(next_command.VARIABLE, next_command.OFF)
    assert not tells_next()
    assert next_to_tell(LINES) == []


def test_a_file_gets_them_in_the_place_of_the_summary(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(next_command.VARIABLE, str(tmp_path / "next"))
    assert not tells_next()
    assert next_to_tell(LINES) == []
    assert (tmp_path / "next").read_text().splitlines() == LINES


@pytest.mark.parametrize(
    ("given", "publish"),
    [
        ({}, "lineage"),
        ({"as_of": "1a2b3c4d"}, "never"),
        ({"as_of": "1a2b3c4d", "wap_publish": "run"}, "run"),
    ],
)
def test_a_replay_publishes_only_if_its_own_vars_say_so(
    given: dict[str, Any], publish: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SimpleNamespace(vars=SimpleNamespace(to_dict=dict))
    monkeypatch.setenv("SPARKWAP_PUBLISH", "lineage")
    command = object.__new__(DbtCommand)
    command.config, command.is_retry = config, False
    command.project_name, command.given_vars = "shop", given
    assert command.settings.publish == publish
