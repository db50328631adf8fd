"""A command parses the project in its own process, as dbt does in its."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from sparkwap.core.dbt_cli import parse_call

PROFILE = """
shop: {target: one, outputs: {one: {type: sparkwap, lake: .lake, schema: s}}}
"""


def test_a_project_is_parsed_with_the_environment_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dbt_project.yml").write_text("{name: shop, profile: shop}")
    (tmp_path / "profiles.yml").write_text(PROFILE)
    (tmp_path / "models").mkdir()
    (tmp_path / "models/m.sql").write_text("{{ config(alias=env_var('NAME')) }} select 1 as a")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DBT_PROFILES_DIR", raising=False)
    call = replace(parse_call([]), environment={"NAME": "given"})
    assert call.manifest()["nodes"]["model.shop.m"]["alias"] == "given"
    assert "NAME" not in os.environ
    assert call.lake().target == "one"
