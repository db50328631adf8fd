"""Commands of ``sparkwap`` find project and profile as dbt does, wherever they are called.

Without --profiles-dir and DBT_PROFILES_DIR, with a profile that reads ``env_var``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from helpers.endpoints import endpoint

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
# Without Elementary: a program that writes nothing is the Python that has it.
REPORT = f"report --python {shutil.which('true')}"
COMMANDS = (
    "doctor", "build", "quarantine list", "quarantine replay", "sweep --dry-run", REPORT,
    "alerts test", "alerts check", "pr state --dir state", "pr audit --branch pr_any",
    "pr comment --branch pr_any", "pr publish --branch pr_any", "pr close --branch pr_any",
)  # fmt: skip
ALERTS = {"routes": [{"name": "team", "type": "webhook", "url": "{{ env_var('HOOK') }}"}]}
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def hook() -> Iterator[None]:
    """The endpoint of the project's alerts."""
    with endpoint() as found, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOOK", found.url)
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield


@pytest.fixture(scope="module")
def shop(make_project: MakeProject, hook: None) -> Project:
    settings = {"vars": {"wap_alerts": ALERTS}}
    project = make_project("anyfolder", {"models/raw_things.py": RAW}, settings=settings)
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


def environment(shop: Project) -> dict[str, str]:
    return {**os.environ, "HOME": str(shop.folder / "home"), "SHOP_TARGET": "test"}


def call(shop: Project, command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "sparkwap.cli", *command.split()]
    return subprocess.run(
        words, cwd=folder, env=environment(shop), capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_runs_in_a_folder_of_the_project(shop: Project, command: str) -> None:
    done = call(shop, command, shop.folder / "models")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("doctor", marks=pytest.mark.smoke),
        pytest.param("build", marks=pytest.mark.smoke),
        REPORT,
        "alerts check",
        "pr state --dir state",
    ],
)
def test_a_command_runs_elsewhere_by_its_options(
    shop: Project, command: str, tmp_path: Path
) -> None:
    done = call(shop, f"{command} --project-dir {shop.folder}", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_is_served_in_a_folder_of_the_project(shop: Project) -> None:
    if importlib.util.find_spec("streamlit") is None:
        subprocess.run(["scripts/page"], cwd=ROOT, check=True)
    served = subprocess.Popen(
        [sys.executable, "-m", "sparkwap.cli", "page"],
        cwd=shop.folder / "models",
        env=environment(shop),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert served.stdout is not None
    try:
        assert "http://127.0.0.1:" in served.stdout.readline()
    finally:
        served.send_signal(signal.SIGTERM)
        served.wait(30)


def test_a_profile_that_is_nowhere_is_told(shop: Project, tmp_path: Path) -> None:
    done = call(shop, f"doctor --project-dir {shop.folder} --profiles-dir {tmp_path}", tmp_path)
    assert done.returncode == 2
    assert f"the profiles folder {tmp_path}" in done.stderr
    assert "Traceback" not in done.stderr
