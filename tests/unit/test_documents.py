"""README and docs tell people to type what the programs take.

That a command does what is said of it is held elsewhere, on lakes. What fails here is a page that
was left behind: an option renamed, an argument that is gone, a time that a replay refuses.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from vocabulary.documents import PAGES, ROOT, Command, blocks, commands
from vocabulary.engines import engines

from sparkwap import cli, replay
from sparkwap.alerts import render
from sparkwap.build import parse_call
from sparkwap.diff import comment
from sparkwap.settings import GateSettings

OPERATIONS = ROOT / "macros/wap/operations/wap_operations.sql"
_MACRO = re.compile(r"macro (wap_\w+)\((.*?)\)", re.DOTALL)


def given(value: str | None) -> dict[str, Any]:
    found = yaml.safe_load(value or "{}")
    assert isinstance(found, dict), value
    return found


def require_legal(variables: Mapping[str, Any]) -> None:
    """The vars of a command are settings that there are, and a moment that can be replayed."""
    GateSettings.from_vars(variables)
    replay.asked(variables.get(replay.VARIABLE), datetime.now(UTC))


def leaf(words: Sequence[str]) -> tuple[argparse.ArgumentParser, list[str]]:
    """The parser of a (sub)command, and the words behind its name."""
    parser, rest = cli._parser(), list(words)
    while rest:
        choices: Mapping[str, argparse.ArgumentParser] = next(
            (a.choices for a in parser._actions if isinstance(a, argparse._SubParsersAction)), {}
        )
        if not choices:
            break
        assert rest[0] in choices, f"there is no {rest[0]}"
        parser = choices[rest.pop(0)]
    return parser, rest


def test_there_are_commands_to_look_at() -> None:
    """Or else all that follows looks at nothing."""
    found = {one.words for one in commands("sparkwap", "dbt", "python")}
    assert ("sparkwap", "pr", "audit", "--branch", "pr_123") in found
    assert ("sparkwap", "build", "--vars", "{wap_branch: march}") in found
    # Over two lines.
    assert any("--between" in words for words in found)
    assert not any("on" in words and "branch" in words for words in found), "a summary's first line"


@pytest.mark.parametrize("command", commands("sparkwap"), ids=str)
def test_a_sparkwap_command_is_one(command: Command) -> None:
    if command.inline:
        ended = next((n for n, w in enumerate(command.words) if w in "|[" or w[0] == "["), None)
        parser, rest = leaf(command.words[1:ended])
        options = [word for word in rest if word.startswith("--")]
        assert set(options) <= set(parser._option_string_actions)
        return
    parsed = cli._parser().parse_args(command.words[1:])
    more: Sequence[str] = getattr(parsed, "arguments", None) or ()
    require_legal(parse_call(list(more)).variables)


@pytest.mark.parametrize("command", commands("dbt"), ids=str)
def test_a_dbt_command_is_one(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dbt.cli.flags import args_to_context

    words = list(command.words[1:])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DBT_PROFILES_DIR", str(tmp_path))  # dbt wants some folder to be there
    (tmp_path / "elementary").mkdir()
    require_legal(given(command.option("--vars")))
    if words[0] != "run-operation":
        args_to_context(words)
        return
    macros = {
        name: {part.split("=")[0].strip() for part in parameters.split(",")}
        for name, parameters in _MACRO.findall(OPERATIONS.read_text())
    }
    assert words[1] in macros
    assert set(given(command.option("--args"))) <= macros[words[1]]
    if not command.inline:
        args_to_context(words)


@pytest.mark.parametrize("command", commands("make"), ids=str)
def test_a_target_of_make_is_one(command: Command) -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {word for word in command.words[1:] if "=" not in word} <= set(targets)


def test_what_make_calls_is_taken() -> None:
    recipes = re.findall(r"^\t@sparkwap (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert "report --python .venv-elementary/bin/python" in recipes
    for recipe in recipes:
        cli._parser().parse_args(recipe.split())


@pytest.mark.parametrize("command", commands("python"), ids=str)
def test_a_script_is_there_and_takes_its_arguments(command: Command) -> None:
    script, *arguments = command.words[1:]
    assert (ROOT / script).is_file()
    if script.startswith("analyses/readers/"):
        with engines() as found:
            assert found.module("lake").arguments(arguments).table == "insurance.dim_policies"


def test_the_operations_of_the_docs_are_all_that_there_are() -> None:
    told = {one.words[2] for one in commands("dbt") if one.words[1:2] == ("run-operation",)}
    text = "".join(page.read_text() for page in PAGES)
    for name, _ in _MACRO.findall(OPERATIONS.read_text()):
        assert name in told or f"`{name}`" in text, f"no page tells of {name}"


# What pages show as Python


def test_a_receiver_as_the_page_shows_it_knows_our_messages() -> None:
    (code,) = blocks(ROOT / "docs/alerts.md", "python")
    names: dict[str, Any] = {}
    exec(f"import hmac\n{code}", names)
    is_ours = names["is_ours"]
    header = render.signature(b"body", "key", 1_700_000_000)
    assert is_ours(b"body", header, "key", 1_700_000_010.0)
    assert not is_ours(b"another", header, "key", 1_700_000_010.0)
    assert not is_ours(b"body", header, "guessed", 1_700_000_010.0)
    assert not is_ours(b"body", header, "key", 1_700_000_301.0), "sent once more, later"


def test_the_comment_is_asked_for_as_the_page_shows_it() -> None:
    (code,) = blocks(ROOT / "docs/diff.md", "python")
    asked: list[inspect.BoundArguments] = []

    def stands_for(*arguments: Any, **named: Any) -> None:
        asked.append(inspect.signature(comment).bind(*arguments, **named))

    assert "from sparkwap.diff import comment" in code
    exec(code.replace("from sparkwap.diff import comment", ""), {"comment": stands_for})
    assert asked[0].arguments["branch"] == "pr_123"
