"""The process of the page: what it gets from the command that starts it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparkwap.page import command
from sparkwap.page.access import SETTINGS, TOKEN


@pytest.mark.smoke
def test_streamlit_gets_only_the_path_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN, "a-token-of-my-own")
    written = tmp_path / "environment"
    shell = ["sh", "-c", f"env > {written}"]
    told: list[str] = []
    port = command.free_port(None)
    assert command.serve(shell, port, tmp_path / "settings.json", lambda: told.append("")) == 0
    assert told == [], "the page was told of, and never answered"
    environment = written.read_text()
    assert f"{SETTINGS}={tmp_path / 'settings.json'}" in environment
    assert "a-token-of-my-own" not in environment
    assert os.environ[TOKEN] == "a-token-of-my-own"
