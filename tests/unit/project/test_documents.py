"""README and docs tell people to type what the programs take.

That a command does what is said of it is held elsewhere, on lakes. What fails here is a page that
was left behind: an option renamed, an argument that is gone, a time that a replay refuses.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.documents import PAGES, ROOT, Command, blocks, commands
from helpers.engines import engines

from dbt.adapters.sparkwap.credentials import SparkWapCredentials
from sparkwap import cli
from sparkwap.alerts import render
from sparkwap.cli.build import AGAIN, STALE
from sparkwap.core.dbt_cli import parse_call
from sparkwap.diff import comment
from sparkwap.gate.settings import GateSettings
from sparkwap.ledger import schemas
from sparkwap.runs import replay_moment


def _script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"scripts/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


operations = _script("operations")
OPERATIONS = {one.name: {name for name, _ in one.legal()} for one in operations.ALL}


def given(value: str | None) -> dict[str, Any]:
    found = yaml.safe_load(value or "{}")
    assert isinstance(found, dict), value
    return found


def require_legal(variables: Mapping[str, Any]) -> None:
    """The vars of a command are settings that there are, and a moment that can be replayed."""
    GateSettings.from_vars(variables)
    replay_moment.asked(variables.get(replay_moment.VARIABLE), datetime.now(UTC))


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
    assert ("sparkwap", "build") in found
    # Over two lines.
    assert any("--indirect-selection" in words and "--vars" in words for words in found)
    assert not any("on" in words and "branch" in words for words in found), "a summary's first line"


@pytest.mark.parametrize("command", commands("sparkwap"), ids=str)
def test_a_sparkwap_command_is_one(command: Command) -> None:
    if command.inline:
        ended = next((n for n, w in enumerate(command.words) if w in "|[" or w[0] == "["), None)
        parser, rest = leaf(command.words[1:ended])
        options = [word for word in rest if word.startswith("--")]
        # `sparkwap build` hands all others on to dbt.
        own = (
            {AGAIN, STALE}
            if parser.prog == "sparkwap build"
            else set(parser._option_string_actions)
        )
        assert set(options) <= own
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
    assert words[1] in OPERATIONS
    assert set(given(command.option("--args"))) <= OPERATIONS[words[1]]
    if not command.inline:
        args_to_context(words)


@pytest.mark.parametrize("command", commands("make"), ids=str)
def test_a_target_of_make_is_one(command: Command) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {word for word in command.words[1:] if "=" not in word} <= set(targets)


def test_what_make_calls_is_taken() -> None:
    recipes = re.findall(r"^\t@sparkwap (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert "report --all-schemas --python .venv-elementary/bin/python" in recipes
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
    for name in OPERATIONS:
        assert name in told or f"`{name}`" in text, f"no page tells of {name}"


def test_macros_and_pages_say_of_the_operations_what_their_dataclasses_say() -> None:
    written = "run: python scripts/operations.py"
    assert operations.MACROS.read_text() == operations.macros(), written
    assert operations.MACRO_DOCS.read_text() == operations.macro_docs(), written
    page = operations.REFERENCE.read_text()
    assert page == operations.reference_page(page), written


@pytest.mark.parametrize("part", ["dim_customers", "examples/sensors"])
def test_the_walk_through_types_what_the_demo_shows(part: str) -> None:
    (shown,) = (b for b in blocks(ROOT / "docs/demo.md", "sh") if part in b)
    typed = (ROOT / "scripts/walkthrough").read_text().splitlines()
    lines = [line.removeprefix("run ") for line in typed if not line.startswith("has ")]
    after = iter(lines)
    for line in re.sub(" +# .*", "", shown).splitlines():
        assert line in after, f"the walk-through does not run: {line}"


# What pages list


def test_each_page_is_linked_from_the_readme_or_a_page_that_is() -> None:
    seen, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        seen.add(page)
        links = re.findall(r"\]\(([^)#:]+\.md)", page.read_text())
        waiting += [
            to for to in ((page.parent / link).resolve() for link in links) if to not in seen
        ]
    assert set(PAGES) <= seen


def test_the_ledger_is_described_table_by_table() -> None:
    text = (ROOT / "docs/ledger.md").read_text()
    told = {
        part.split("\n", 1)[0]: set(re.findall(r"`(\w+)`", "".join(_first_cells(part))))
        for part in text.split("\n## ")[1:]
    }
    assert told == {name: set(schema.names) for name, schema in schemas.SCHEMAS.items()}


def _first_cells(text: str) -> list[str]:
    return [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]


def test_the_fields_of_a_profile_are_described() -> None:
    told = set(
        re.findall(r"`(\w+)`", "".join(_first_cells((ROOT / "docs/profile.md").read_text())))
    )
    own = set(SparkWapCredentials.__annotations__)
    assert "catalog_uri" in own
    assert own <= told
    assert told - own <= {f.name for f in fields(SparkWapCredentials)} | {"threads"}


def test_the_layers_of_a_project_are_those_of_the_demo() -> None:
    shown = next(b for b in blocks(ROOT / "docs/landing.md", "yaml") if b.startswith("models:"))
    told = yaml.safe_load(shown)["models"]["shop"]
    demo = yaml.safe_load((ROOT / "dbt_project.yml").read_text())["models"]["sparkwap_demo"]
    demo["raw"]["+meta"]["drop"]["root"] = told["raw"]["+meta"]["drop"]["root"]
    for layer, settings in told.items():
        assert settings == {k: v for k, v in demo[layer].items() if k.startswith("+")}


def test_each_command_says_what_it_is_for() -> None:
    waiting = [cli._parser()]
    while waiting:
        parser = waiting.pop()
        assert parser.description, f"{parser.prog} --help has no line about it"
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                waiting += action.choices.values()
            else:
                assert action.help or parser.prog == "sparkwap build", f"{parser.prog} {action}"


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
