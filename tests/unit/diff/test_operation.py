"""The arguments of ``wap_diff`` and its output."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sparkwap.core.errors import ConfigError
from sparkwap.diff.model import RunDiff, TableDiff
from sparkwap.diff.operation import Diff, NotCompared, deliver
from sparkwap.gate.settings import GateSettings

AT = datetime(2026, 1, 2, tzinfo=UTC)


def test_missing_arguments_have_defaults() -> None:
    found = Diff.of({"branch": "pr_1", "tables": None})
    assert (found.against, found.tables, found.format, found.sample) == ("main", (), "text", 10)
    assert Diff.of({"branch": "b", "tables": "t"}).tables == ("t",)


@pytest.mark.parametrize(
    "given",
    [
        {"branch": "b", "fromat": "json"},
        {"branch": "b", "format": "pdf"},
        {"branch": "b", "sample": -1},
        {"branch": "b", "sample": "many"},
        {"branch": "b", "sample": True},
        {"branch": "b", "limit": 10},
    ],
)
def test_an_error_names_all_legal_arguments(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as raised:
        Diff.of(given)
    for name, _ in Diff.legal():
        assert f"  {name}: " in str(raised.value)
    assert "Nothing was compared" in str(raised.value)


def test_a_result_is_written_to_a_file_in_new_folders(tmp_path: Path) -> None:
    output = tmp_path / "a/b.json"
    diff = RunDiff("pr_1", "main", AT, (TableDiff(("s", "t"), "table", "unchanged"),))
    (line,) = deliver(diff, Diff(branch="pr_1", format="json", file=output))
    assert "0 of 1 tables" in line and str(output) in line
    assert '"branch": "pr_1"' in output.read_text()


def test_a_failed_table_fails_the_operation_after_the_result_is_written(
    tmp_path: Path,
) -> None:
    output = tmp_path / "diff.md"
    diff = RunDiff("pr_1", "main", AT, (TableDiff(("s", "t"), "table", "failed", notes=("x",)),))
    with pytest.raises(NotCompared, match=r"s\.t"):
        deliver(diff, Diff(branch="pr_1", format="markdown", file=output))
    assert "not compared" in output.read_text()


def test_a_setting_hides_columns() -> None:
    assert GateSettings.from_vars({"wap_diff_hide": ["email", "t.*"]}).diff_hide == ("email", "t.*")
    assert GateSettings.from_vars({"wap_diff_hide": "email, t.x"}).diff_hide == ("email", "t.x")
    assert GateSettings.from_vars({}).diff_hide == ()
    with pytest.raises(ConfigError, match="wap_diff_hide"):
        GateSettings.from_vars({"wap_diff_hide": {"a": 1}})
