"""The commands that messages recommend."""

from __future__ import annotations

import shlex

import pytest
import yaml
from helpers.documents import ROOT

from sparkwap.core import next_command
from sparkwap.core.dbt_cli import parse_call


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (next_command.operation("wap_sweep"), "dbt run-operation wap_sweep"),
        (
            next_command.operation("wap_discard", "march", force=True),
            "dbt run-operation wap_discard --args '{branch: march, force: true}'",
        ),
        (
            next_command.operation("wap_rollback", run="1a2b3c4d", reopen=False),
            "dbt run-operation wap_rollback --args '{run: 1a2b3c4d, reopen: false}'",
        ),
        (
            next_command.operation("wap_sweep", older_than=3),
            "dbt run-operation wap_sweep --args '{older_than: 3}'",
        ),
        (
            next_command.operation("wap_publish", "march", settings={"disabled_tests": "publish"}),
            "SPARKWAP_DISABLED_TESTS=publish dbt run-operation wap_publish "
            "--args '{branch: march}'",
        ),
    ],
)
def test_operations_are_written_with_their_arguments(command: str, text: str) -> None:
    assert command == text


@pytest.mark.parametrize(
    "text",
    [
        "01234567",
        "12345678",
        "on",
        "No",
        "null",
        "1_0",
        "a: b",
        "it's, {}",
        "...",
        "0x_",
        "2024-13-45",
        "<a>",
    ],
)
def test_yaml_reads_the_texts_of_a_command_as_they_are(text: str) -> None:
    command = next_command.operation("wap_discard", text, run=text, force=True)
    given = shlex.split(command)[-1]
    assert yaml.safe_load(given) == {"branch": text, "run": text, "force": True}


@pytest.mark.parametrize(
    ("names", "upstream", "text"),
    [
        ((), False, "dbt build"),
        (("model.shop.a", "model.shop.b.v2"), False, "dbt build --select a+ b.v2+"),
        (("model.shop.a",), True, "dbt build --select +a+"),
        (tuple(f"model.shop.{one}" for one in "abcd"), True, "dbt build"),
    ],
)
def test_a_build_names_its_nodes_if_they_are_few(
    names: tuple[str, ...], upstream: bool, text: str
) -> None:
    assert next_command.build(names, "march", upstream=upstream) == f"SPARKWAP_BRANCH=march {text}"


def test_all_commands_have_the_target_of_the_present_one(monkeypatch: pytest.MonkeyPatch) -> None:
    next_command.set_target("prod")
    assert (
        next_command.sparkwap("pr audit --branch a") == "sparkwap pr audit --branch a --target prod"
    )
    assert next_command.dbt("test", branch="a") == "SPARKWAP_BRANCH=a dbt test --target prod"
    next_command.set_target("prod", "a shop")
    assert next_command.sparkwap("build") == "sparkwap build --target prod --profile 'a shop'"
    # Such as in a comment or an alert, whose readers do not have the variable.
    monkeypatch.setenv("DBT_TARGET", "ci")
    parse_call([])
    assert next_command.dbt("test") == "dbt test --target ci"
    parse_call(["--target", "prod"])
    assert next_command.sparkwap("build") == "sparkwap build --target prod"


def test_sparkwap_is_installed_from_a_checkout_and_not_by_its_name() -> None:
    command = next_command.install("local")
    assert command == "pip install '<checkout of sparkwap>[local]'"
    assert command in (ROOT / "src/dbt/include/sparkwap/profile_template.yml").read_text()
    assert command in (ROOT / "scripts/dist").read_text()
    files = [file for file in (ROOT / "src").rglob("*.*") if file.suffix in (".py", ".yml", ".sql")]
    assert not [file for file in files if "dbt-sparkwap[" in file.read_text()]
