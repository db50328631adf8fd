"""`sparkwap plan` and `sparkwap build --stale` on a real lake."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from helpers.lake import Reader
from helpers.project import MakeProject, Project
from helpers.sources import append, project_with_source

from sparkwap.cli import main

TABLE = "{{ config(materialized='table') }} "
FILES = {
    "models/stg.sql": "{{ config(materialized='view') }} select * from {{ source('out', 'raw') }}",
    "models/base.sql": TABLE + "select id, {{ twice('id') }} as k from {{ ref('stg') }}",
    "models/eph.sql": "{{ config(materialized='ephemeral') }} select * from {{ ref('base') }}",
    "models/fct.sql": "{{ config(materialized='incremental', unique_key='id', "
    "incremental_strategy='merge') }} select * from {{ ref('eph') }}",
    "models/other.sql": TABLE + "select 1 as id",
    "models/clock.sql": TABLE + "select current_date as at",
    "macros/twice.sql": "{% macro twice(x) %}2 * {{ x }}{% endmacro %}",
}
SCHEMA = """
sources:
  - {{name: out, schema: {schema}, tables: [{{name: raw}}]}}
models:
  - {{name: base, columns: [{{name: id, data_tests: [not_null]}}]}}
  - {{name: other, columns: [{{name: id, data_tests: [not_null]}}]}}
"""


@pytest.fixture
def project(make_project: MakeProject, reader: Reader) -> Project:
    return project_with_source(make_project, reader, "planned", FILES, SCHEMA)


def sparkwap(project: Project, *arguments: str) -> int:
    folders = ("--project-dir", str(project.folder), "--profiles-dir", str(project.folder))
    return main([*arguments, *folders])


def reasons(project: Project, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """What a plan would build, with the reasons."""
    capsys.readouterr()
    assert sparkwap(project, "plan", "--output", "json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)["result"]
    steps = [*found["nodes"], *found["tests"]]
    return {
        step["unique_id"].split(".")[2]: "; ".join(step["reasons"])
        for step in steps
        if step["action"] == "build"
    }


CLOCK = {"clock": "it uses current_date"}


@pytest.mark.smoke
def test_only_what_has_changed_is_built(
    project: Project, reader: Reader, capsys: pytest.CaptureFixture[str]
) -> None:
    first = reasons(project, capsys)
    assert {first[name] for name in ("other", "clock")} == {"it was never published"}
    assert first["fct"] == "it was never published; it reads base, which is built"
    project.dbt("build").succeeded()
    assert reasons(project, capsys) == CLOCK

    append(reader, project, 2)
    changed = reasons(project, capsys)
    assert changed["stg"] == f"{project.schema}.raw has changed"
    assert set(changed) == {"stg", "base", "fct", "not_null_base_id", "clock"}
    before = reader.pointers(project.schema)
    assert sparkwap(project, "build", "--stale") == 0
    after = reader.pointers(project.schema)
    moved = {name for name in after if after[name] != before[name]}
    assert moved == {"stg", "base", "fct", "clock"}
    assert sorted(reader.table(project.schema, "fct").values("id")) == [1, 2]
    assert reasons(project, capsys) == CLOCK


def test_code_rollback_and_writes_past_the_gate(
    project: Project, reader: Reader, capsys: pytest.CaptureFixture[str]
) -> None:
    project.dbt("build", "--exclude", "clock").succeeded()
    project.write({"macros/twice.sql": "{% macro twice(x) %}{{ x }} + {{ x }}{% endmacro %}"})
    found = reasons(project, capsys)
    assert found["base"] == "its code has changed: macro macro.shop.twice"
    assert found["fct"] == "it reads base, which is built"
    second = project.dbt("build", "--exclude", "clock").succeeded()
    assert set(reasons(project, capsys)) == {"clock"}

    project.write({"models/eph.sql": FILES["models/eph.sql"] + " where id > 0"})
    assert reasons(project, capsys)["fct"] == "its code has changed: text of eph"
    project.write({"models/eph.sql": FILES["models/eph.sql"]})
    assert set(reasons(project, capsys)) == {"clock"}

    table = reader.catalog.load_table((project.schema, "other"))
    table.append(pa.table({"id": pa.array([5], pa.int32())}))
    assert reasons(project, capsys)["other"] == "it has changed since its last publish"
    project.operation("wap_rollback", run=second.run_id[:8], force=True)
    assert "its last publish was rolled back" in reasons(project, capsys)["base"]


def test_a_build_by_another_code_than_the_publish(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    # The candidate is built by the first text, and published by a command that knows the second.
    project.dbt("run", "--select", "other").succeeded()
    project.write({"models/other.sql": TABLE + "select 2 as id"})
    project.dbt("test", "--select", "other").succeeded()
    found = reasons(project, capsys)["other"]
    assert found in ("its code has changed: text", "the code of its last build is not stored")
