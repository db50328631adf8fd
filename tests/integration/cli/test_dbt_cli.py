"""A command parses the project in its own process, as dbt does in its, and ends its dbt."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dbt.artifacts.schemas import base

from sparkwap.core.command_end import EXIT_CODES
from sparkwap.core.dbt_cli import VARIABLES, parse_call

PROFILE = """
shop: {target: one, outputs: {one: {type: sparkwap, lake: .lake, schema: s}}}
"""
DBT = """
import pathlib, time

def cli(**_):
    pathlib.Path("began").touch()
    try:
        time.sleep(60)
    finally:
        time.sleep(0.5)
        pathlib.Path("released").touch()
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
    found = call.manifest()
    assert found["nodes"]["model.shop.m"]["alias"] == "given"
    assert "NAME" not in os.environ
    file = tmp_path / "target/manifest.json"
    assert json.loads(file.read_text()) == {k: v for k, v in found.items() if k != VARIABLES}

    def half(path: str, _: object) -> None:
        """Write what is there while another dbt writes the same file."""
        Path(path).write_text('{"nodes": {"model.sh')

    monkeypatch.setattr(base, "write_json", half)
    assert call.manifest().keys() == found.keys()
    assert file.read_text() == '{"nodes": {"model.sh'
    assert call.lake().target == "one"


@pytest.mark.parametrize("to", [os.kill, os.killpg])
@pytest.mark.parametrize("interrupts", ["default_int_handler", "SIG_IGN"])
def test_sigterm_interrupts_dbt_once(tmp_path: Path, to: Any, interrupts: str) -> None:
    """As of a container, or of `timeout` and systemd; a background job ignores interrupts."""
    (tmp_path / "dbt/cli").mkdir(parents=True)
    (tmp_path / "dbt/__init__.py").touch()
    (tmp_path / "dbt/cli/main.py").write_text(DBT)
    code = f"import signal, sys; signal.signal(signal.SIGINT, signal.{interrupts})"
    code += "; from sparkwap.cli import main; sys.exit(main(['status']))"
    command = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "began").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        to(command.pid, signal.SIGTERM)
        assert command.wait(30) == EXIT_CODES["interrupted"]
        assert (tmp_path / "released").exists()
    finally:
        command.kill()
