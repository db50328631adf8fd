"""A project is parsed once, and what comes after it goes on with that: dbt's own events tell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from .test_any_folder import ENTRY, RAW

if TYPE_CHECKING:
    from helpers.lake import Reader
    from helpers.project import MakeProject, Project

DBT = ("-c", "from dbt.cli.main import cli; cli()")
SPARKWAP = ("-m", "sparkwap.cli")
ORDERS = """
    {{ config(materialized='table') }}
    select cast(id as int) as id, 'Anna''s' as name from {{ ref('raw_things') }}
    where _kind = 'row'
"""
DROP = {"root": "landing", "until": "{{ var('landing_until', '') | string | as_text }}"}


@pytest.fixture
def project(make_project: MakeProject) -> Project:
    config = {"meta": {"landing": ENTRY, "drop": DROP}, "incremental_strategy": "append"}
    tested = [{"name": "id", "data_tests": ["not_null"]}]
    models = [{"name": "raw_things", "config": config}, {"name": "orders", "columns": tested}]
    return make_project(
        "parsing",
        {
            "models/raw_things.py": RAW,
            "models/orders.sql": ORDERS.replace("cast(id as int)", "cast(null as int)"),
            "models/models.yml": json.dumps({"models": models}),
            "landing/things/load_date=2024-01-01/a.csv": "id\n1\n",
            "landing/things/load_date=2024-01-02/b.csv": "id\n1\n2\n",
        },
    )


def events(project: Project, *call: str, **environment: str) -> tuple[int, list[str]]:
    """The exit code of a command, and the names of its events in dbt's log."""
    log = project.folder / "logs/dbt.log"
    log.unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, *call],
        cwd=project.folder,
        env={**os.environ, "DBT_LOG_FORMAT_FILE": "json", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    written = [json.loads(line) for line in log.read_text().splitlines() if line[:1] == "{"]
    names = [str(one["info"]["name"]) for one in written]
    assert "MainReportVersion" in names, done.stdout + done.stderr
    return done.returncode, names


def test_a_session_of_commands_parses_once(project: Project, reader: Reader) -> None:
    ended, names = events(project, *SPARKWAP, "build")
    assert ended != 0
    assert names.count("UnableToPartialParse") == 1

    def goes_on(*call: str, **environment: Any) -> int:
        ended, names = events(project, *call, **environment)
        assert "UnableToPartialParse" not in names, call
        assert "MainReportArgs" in names
        return ended

    project.write({"models/orders.sql": ORDERS})
    look = ("show", "--inline", "select id from {{ ref('orders') }}")
    assert goes_on(*DBT, "run-operation", "wap_status") == 0
    assert goes_on(*DBT, "retry") == 0
    assert goes_on(*DBT, *look) == 0
    assert goes_on(*SPARKWAP, "build") == 0
    assert goes_on(*DBT, "run", "--select", "orders", SPARKWAP_BRANCH="march") == 0
    assert goes_on(*DBT, *look, SPARKWAP_BRANCH="march") == 0
    assert goes_on(*SPARKWAP, "build", "--again") == 0
    assert reader.table(project.schema, "orders").values("id") == [1, 1, 2]
