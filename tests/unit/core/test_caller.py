"""Who calls a command, by the environment of its process."""

from __future__ import annotations

import getpass
import os
import socket

import pytest

from sparkwap.core import caller
from sparkwap.core.caller import describe, this_actor, this_caller


@pytest.fixture(autouse=True)
def no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARKWAP_ACTOR", "GITHUB_ACTOR", "GITLAB_USER_LOGIN"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("environment", "actor"),
    [
        ({"SPARKWAP_ACTOR": "airflow", "GITHUB_ACTOR": "anna"}, "airflow"),
        ({"GITHUB_ACTOR": "anna", "GITLAB_USER_LOGIN": "bo"}, "anna"),
        ({"GITLAB_USER_LOGIN": "bo"}, "bo"),
        ({"SPARKWAP_ACTOR": " \n", "GITHUB_ACTOR": ""}, getpass.getuser()),
        ({"SPARKWAP_ACTOR": "two\nlines " + "x" * 300}, ("two lines " + "x" * 300)[:200]),
    ],
)
def test_the_first_name_that_is_given(
    environment: dict[str, str], actor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = this_caller("shop", "build")
    assert (found.actor, found.host) == (actor, socket.gethostname())
    assert (found.project, found.command, found.catalog_user) == ("shop", "build", None)


@pytest.mark.parametrize(
    ("told", "kept"),
    [("J\udcfcrgen", "J?rgen"), ("a\x1b[2Jb\u202e", "a[2Jb"), ("a" * 999, "a" * 200)],
)
def test_a_name_can_be_stored_and_shown(
    monkeypatch: pytest.MonkeyPatch, told: str, kept: str
) -> None:
    monkeypatch.setenv(caller.ACTOR, told)
    monkeypatch.setattr(socket, "gethostname", lambda: told)
    found = this_caller()
    assert (found.actor, found.host) == (kept, kept)


def test_a_user_of_the_system_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr(caller.getpass, "getuser", unknown)
    assert this_actor() == f"uid {os.getuid()}"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({}, ""),
        ({"project": "shop", "actor": None, "host": None}, "project shop"),
        ({"project": "shop", "actor": "anna", "host": "ci-7"}, "project shop, by anna on ci-7"),
        ({"actor": "anna"}, "by anna"),
    ],
)
def test_in_words(row: dict[str, str | None], words: str) -> None:
    assert describe(row) == words
