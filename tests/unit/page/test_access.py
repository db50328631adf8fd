"""The token of the page and its settings file."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from sparkwap.core.errors import ConfigError
from sparkwap.page import access
from sparkwap.page.access import SETTINGS, TOKEN, Settings, new_token, without_secrets

SECRET = "0123456789abcdef"


@pytest.mark.parametrize("given", ["", "0123456789abcde", SECRET + "0", SECRET.upper(), "é", " "])
def test_only_the_token_opens(given: str) -> None:
    assert Settings(SECRET).opened_by(SECRET)
    assert not Settings(SECRET).opened_by(given)


def test_a_page_without_a_token_stays_locked() -> None:
    assert not Settings("").opened_by("")


def test_a_new_token_cannot_be_guessed() -> None:
    made = {new_token({}) for _ in range(50)}
    assert len(made) == 50
    assert min(map(len, made)) >= 32


def test_a_short_token_is_refused() -> None:
    assert new_token({TOKEN: SECRET}) == SECRET
    with pytest.raises(ConfigError, match="has 15 characters and needs 16 or more"):
        new_token({TOKEN: SECRET[:-1]})


def test_only_the_owner_can_read_the_settings(tmp_path: Path) -> None:
    path = tmp_path / "page" / "settings.json"
    path.parent.mkdir()
    path.write_text("{}")
    path.chmod(0o644)
    Settings(SECRET, ("--target", "pr")).write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert access.read(path) == Settings(SECRET, ("--target", "pr"))


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"token": "x"}'])
def test_a_page_without_its_command_has_no_settings(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "settings.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match="Start it with: sparkwap page"):
        access.read(path)


def test_without_a_settings_file_the_page_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "page").write_text("a file where a folder should be")
    with pytest.raises(ConfigError, match="The page was not started"):
        Settings(SECRET).write(tmp_path / "page" / "settings.json")


def test_commands_get_no_token() -> None:
    assert without_secrets({TOKEN: SECRET, SETTINGS: "x", "HOME": "/"}) == {"HOME": "/"}
