"""The options of the commands that are run-operations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkwap import cli
from sparkwap.core.dbt_cli import DbtCall, DbtEnd


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """The run-operations that a command calls, with their arguments."""
    found = []

    def run(self: DbtCall, *command: str, **environment: str) -> DbtEnd:
        _, name, *rest = command
        # As dbt reads them.
        found.append((name, yaml.safe_load(rest[1]) if rest else {}))
        return DbtEnd(0)

    monkeypatch.setattr(DbtCall, "run", run)
    return found


def test_options_are_the_arguments_of_the_operation(
    called: list[tuple[str, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["status"]) == 0
    assert cli.main(["erase", "--subject", "person", "--keys", "42", "007", "--confirm"]) == 0
    values = ["--values", "email=a=b@c.example", "zip=01234", "--values", "name=\U00020bb7"]
    assert cli.main(["rectify", "--subject", "p", "--keys", "1", "--keys=-a", *values]) == 0
    assert cli.main(["diff", "--tables", "a", "b", "--sample", "0", "--file", "x/diff.md"]) == 0
    assert called == [
        ("wap_status", {}),
        ("wap_erase", {"subject": "person", "keys": ["42", "007"], "confirm": True}),
        (
            "wap_rectify",
            {
                "subject": "p",
                "keys": ["1", "-a"],
                "values": {"email": "a=b@c.example", "zip": "01234", "name": "\U00020bb7"},
            },
        ),
        ("wap_diff", {"tables": ["a", "b"], "sample": 0, "file": str(tmp_path / "x/diff.md")}),
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["erase", "--keys", "42"], "the following arguments are required: --subject"),
        (["erase", "--subject", "person"], "give either keys or keys_from"),
        (["rectify", "--subject", "p", "--keys", "1", "--values", "a"], "is not like email="),
        (["erase", "--subject", "p", "--keys", "42", "-tprod"], "unrecognized arguments: -tprod"),
        (["erase", "--subject", "p", "--keys", "42", "--con"], "unrecognized arguments: --con"),
        (["diff", "--sample", "1001"], "sample is '1001'; legal: 0 to 1000"),
    ],
)
def test_a_mistake_is_told_before_dbt_starts(
    called: list[tuple[str, dict[str, Any]]],
    capsys: pytest.CaptureFixture[str],
    given: list[str],
    said: str,
) -> None:
    try:
        code: Any = cli.main(given)
    except SystemExit as error:
        code = error.code
    assert (code, called) == (2, [])
    assert said in capsys.readouterr().err
