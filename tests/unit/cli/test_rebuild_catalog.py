"""``sparkwap rebuild-catalog``: what it prints, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.bench import Bench

from sparkwap.catalog import Identifier
from sparkwap.cli import main
from sparkwap.core.command_end import EXIT_CODES
from sparkwap.core.dbt_cli import DbtCall, LakePlace
from sparkwap.publish.lake import Lake


@pytest.fixture
def empty(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A lake with two published tables, whose catalog is lost; the profile has an empty one."""
    bench.publish(bench.new("a", 1), bench.new("b", 2))
    properties = {**bench.properties, "uri": f"sqlite:///{bench.folder}/new.db"}
    place = LakePlace("lake", properties)
    monkeypatch.setattr(DbtCall, "lake", lambda self: place)
    return properties


def tables(properties: dict[str, str]) -> set[Identifier]:
    lake = Lake("lake", properties)
    try:
        return {row.identifier for row in lake.store.backend.members("s")}
    finally:
        lake.close()


def run(*arguments: str) -> int:
    return main(["rebuild-catalog", *arguments])


def test_a_dry_run_changes_nothing_and_a_run_registers_all(
    empty: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--dry-run") == 0
    assert tables(empty) == set()
    assert "Would register" in capsys.readouterr().out
    assert run() == 0
    assert tables(empty) == {("s", "a"), ("s", "b")}
    assert "table  s.a" in capsys.readouterr().out
    assert run() == EXIT_CODES["usage"]
    assert "Only an empty catalog is rebuilt" in capsys.readouterr().err


def test_with_a_table_missing_nothing_is_registered_until_it_is_left_out(
    empty: dict[str, str], bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(bench.pointers()[("s", "b")]).unlink()
    assert run("--output", "json") == EXIT_CODES["rejected"]
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert list(document["result"]["missing"]) == ["s.b"]
    assert document["result"]["registered"] is False
    assert tables(empty) == set()
    assert run() == EXIT_CODES["rejected"]
    assert "sparkwap rebuild-catalog --skip s.b" in capsys.readouterr().out
    assert run("--skip", "b") == EXIT_CODES["usage"]
    assert run("--skip", "s.b") == 0
    assert tables(empty) == {("s", "a")}
