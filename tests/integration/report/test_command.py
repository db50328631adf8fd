"""``sparkwap report``: another Python, with Elementary, makes the page."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sparkwap.catalog.model import LedgerRows
from sparkwap.cli import main
from sparkwap.core.command_end import EXIT_CODES
from sparkwap.core.dbt_cli import parse_call
from sparkwap.core.errors import SparkwapError
from sparkwap.ledger.schemas import SCHEMAS
from sparkwap.publish.lake import Lake
from sparkwap.report import command
from sparkwap.report.facts import ReportFacts

ORDERS = "model.shop.orders"
MANIFEST = {
    "metadata": {"project_name": "shop"},
    "nodes": {
        ORDERS: {
            "unique_id": ORDERS,
            "name": "orders",
            "alias": "orders",
            "schema": "s",
            "resource_type": "model",
            "package_name": "shop",
            "original_file_path": "models/orders.sql",
            "path": "orders.sql",
            "tags": [],
            "config": {"materialized": "table", "meta": {}},
            "depends_on": {"nodes": []},
        }
    },
    "sources": {},
    "exposures": {},
    "unit_tests": {},
}
PROFILE = """
shop:
  target: dev
  outputs: {dev: {type: sparkwap, method: embedded, lake: .lake, schema: shop}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "dbt_project.yml").write_text("{name: shop, version: '1', profile: shop}")
    (tmp_path / "profiles.yml").write_text(PROFILE)
    return tmp_path


def called(project: Path, *arguments: str) -> int:
    folder = ("--project-dir", str(project), "--profiles-dir", str(project))
    return main(["report", *folder, "--python", sys.executable, *arguments])


def test_without_a_lake_there_is_nothing_to_report(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(project) == EXIT_CODES["usage"]
    assert "There is no lake yet" in capsys.readouterr().err
    assert not (project / "target").exists()


def a_lake(project: Path, *rows: LedgerRows) -> Lake:
    folder = ["--project-dir", str(project), "--profiles-dir", str(project)]
    described = parse_call(folder).lake()
    Path(described.properties["warehouse"].removeprefix("file://")).mkdir(parents=True)
    lake = Lake(described.name, described.properties)
    lake.ledger.append(rows)
    return lake


def test_without_a_manifest_the_error_has_the_command(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_lake(project).close()
    assert called(project) == EXIT_CODES["usage"]
    assert "dbt parse" in capsys.readouterr().err


def stub(folder: Path, code: str) -> Path:
    """Return a program in the place of Python that runs this code instead."""
    script = folder / "python"
    script.write_text(f"#!{sys.executable}\nimport json, os, pathlib, sys\n{code}\n")
    script.chmod(0o755)
    return script


def test_an_error_of_elementary_is_shown(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_lake(project).close()
    (project / "target").mkdir()
    (project / "target/manifest.json").write_text(json.dumps(MANIFEST))
    broken = stub(project, "sys.exit('KeyError: get_news')")
    assert called(project, "--python", str(broken)) == EXIT_CODES["failed"]
    error = capsys.readouterr().err
    assert "could not make the report: KeyError: get_news" in error


def test_the_page_is_written_from_the_answers(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recent = {
        **dict.fromkeys(SCHEMAS["nodes"].names),
        "run_id": "r1",
        "node_id": ORDERS,
        "schema": "s",
        "verdict": "rejected",
        "built_at": datetime.now(UTC),
    }
    a_lake(project, LedgerRows("nodes", [recent])).close()
    (project / "target").mkdir()
    (project / "target/manifest.json").write_text(json.dumps(MANIFEST))
    keeps = stub(
        project,
        "given, page = map(pathlib.Path, sys.argv[2:4])\n"
        "page.write_text(json.loads(given.read_text())['answers']['get_models_runs'][0]['status'])",
    )
    wanted = project / "out"
    assert called(project, "--python", str(keeps), "--dir", str(wanted)) == 0
    assert capsys.readouterr().out.strip() == str(wanted / "index.html")
    assert (wanted / "index.html").read_text() == "error"
    assert [file.name for file in wanted.iterdir()] == ["index.html"]


def test_a_failed_report_is_an_error_of_sparkwap(tmp_path: Path) -> None:
    facts = ReportFacts(MANIFEST, (), (), (), (), "lake", datetime.now(UTC))
    with pytest.raises(SparkwapError, match="no message"):
        command.write(facts, tmp_path / "i.html", env="dev", python=stub(tmp_path, "sys.exit(1)"))
