"""Commands of ``sparkwap`` find project and profile as dbt does, wherever they are called.

Without --profiles-dir and DBT_PROFILES_DIR, with a profile that reads ``env_var``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from helpers.project import MakeProject, Project

RAW = """
from sparkwap import landing


def model(dbt, session):
    dbt.config(materialized="incremental")
    return landing.model(dbt, session)
"""
ENTRY = {
    "entity": "things",
    "kind": "extract",
    "key": ["id"],
    "columns": {"id": "bigint"},
    "files": [{"match": "*.csv"}],
}
COMMANDS = ("doctor", "build", "quarantine list", "sweep --dry-run")


@pytest.fixture(scope="module")
def shop(make_project: MakeProject) -> Project:
    project = make_project("anyfolder", {"models/raw_things.py": RAW})
    drop = {"root": "landing"}
    config = {"meta": {"landing": ENTRY, "drop": drop}, "incremental_strategy": "append"}
    models = {"models": [{"name": "raw_things", "config": config}]}
    project.write({"models/models.yml": json.dumps(models)})
    landed = project.folder / "landing/things/load_date=2024-01-01/a.csv"
    landed.parent.mkdir(parents=True)
    landed.write_text("id\n1\n")
    project.dbt("build").succeeded()
    profile = json.loads((project.folder / "profiles.yml").read_text())
    profile["shop"]["target"] = "{{ env_var('SHOP_TARGET') }}"
    (project.folder / "profiles.yml").unlink()
    project.write({"home/.dbt/profiles.yml": json.dumps(profile)})
    return project


def call(shop: Project, command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOME": str(shop.folder / "home"), "SHOP_TARGET": "test"}
    words = [sys.executable, "-m", "sparkwap.cli", *command.split()]
    return subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_runs_in_a_folder_of_the_project(shop: Project, command: str) -> None:
    done = call(shop, command, shop.folder / "models")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.smoke
@pytest.mark.parametrize("command", ["doctor", "build"])
def test_a_command_runs_elsewhere_by_its_options(
    shop: Project, command: str, tmp_path: Path
) -> None:
    done = call(shop, f"{command} --project-dir {shop.folder}", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_profile_that_is_nowhere_is_told(shop: Project, tmp_path: Path) -> None:
    done = call(shop, f"doctor --project-dir {shop.folder} --profiles-dir {tmp_path}", tmp_path)
    assert done.returncode == 1
    assert f"the profiles folder {tmp_path}" in done.stderr
    assert "Traceback" not in done.stderr
