"""What changes from call to call goes by another way than `--vars`, with which dbt parses anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dbt.adapters.factory import reset_adapters
from dbt.cli.main import dbtRunner

from sparkwap.gate.settings import of_one_call

PROJECT = {"name": "shop", "version": "1.0", "profile": "shop"}
OUTPUT = {"type": "sparkwap", "lake": ".lake", "schema": "shop", "threads": 1}
FILES = {
    "dbt_project.yml": json.dumps(PROJECT),
    "profiles.yml": json.dumps({"shop": {"target": "test", "outputs": {"test": OUTPUT}}}),
    "models/orders.sql": "select 1 as id",
    "models/totals.sql": "select * from {{ ref('orders') }}",
}
CALLS = (
    ("ls", {"SPARKWAP_BRANCH": "march"}),
    (
        "parse",
        {"SPARKWAP_BRANCH": "april", "SPARKWAP_PUBLISH": "never", "SPARKWAP_READS": "strict"},
    ),
    ("ls", {"SPARKWAP_WARNINGS": "publish", "SPARKWAP_DISABLED_TESTS": "publish"}),
    ("parse", {"SPARKWAP_LANDING_UNTIL": "2024-01-31", "SPARKWAP_LANDING_REPLAY": "true"}),
    ("ls", {}),
)


def parsing(folder: Path, *command: str) -> set[str]:
    """What dbt says of its parsing in one command, by the names of its events."""
    events: set[str] = set()
    place = ["--project-dir", folder, "--profiles-dir", folder, "--log-path", folder / "logs"]
    runner = dbtRunner(callbacks=[lambda event: events.add(event.info.name)])
    ended = runner.invoke(["--quiet", *command, *map(str, place)])
    reset_adapters()
    assert ended.success, ended.exception
    return events & {"UnableToPartialParse", "PartialParsingSkipParsing"}


def test_settings_of_one_call_make_dbt_parse_nothing_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert parsing(tmp_path, "parse") == {"UnableToPartialParse"}, "there is nothing to go on with"
    for command, settings in CALLS:
        assert of_one_call(settings) == settings, "each is a setting of one call"
        with monkeypatch.context() as patch:
            for name, value in settings.items():
                patch.setenv(name, value)
            assert parsing(tmp_path, command) == {"PartialParsingSkipParsing"}
    assert parsing(tmp_path, "ls", "--vars", "wap_branch: march") == {"UnableToPartialParse"}
