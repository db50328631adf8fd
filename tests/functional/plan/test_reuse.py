"""`wap_reuse` leaves out of a build what has not changed since its last publish."""

from __future__ import annotations

import pyarrow as pa
import pytest
from dbt_common.events.base_types import EventMsg
from helpers.lake import Reader
from helpers.project import MakeProject, Outcome, Project
from helpers.sources import append, project_with_source

TABLE = "{{ config(materialized='table') }} "
FILES = {
    "models/stg.sql": "{{ config(materialized='view') }} select * from {{ source('out', 'raw') }}",
    "models/base.sql": TABLE + "select id from {{ ref('stg') }}",
    "models/eph.sql": "{{ config(materialized='ephemeral') }} select * from {{ ref('base') }}",
    "models/fct.sql": "{{ config(materialized='incremental', unique_key='id', "
    "incremental_strategy='merge') }} select * from {{ ref('eph') }}",
    "models/code.sql": TABLE + "select * from {{ ref('codes') }}",
    "snapshots/snap.yml": "snapshots: [{name: snap, relation: ref('base'), config: "
    "{strategy: check, unique_key: id, check_cols: all}}]",
    "seeds/codes.csv": "code\na\nb\n",
    "tests/few.sql": "select * from {{ ref('fct') }} where id > 100",
}
SCHEMA = """
sources:
  - {{name: out, schema: {schema}, tables: [{{name: raw}}]}}
models:
  - {{name: base, columns: [{{name: id, data_tests: [not_null, unique]}}]}}
  - {{name: fct, columns: [{{name: id, data_tests: [not_null]}}]}}
  - {{name: code, columns: [{{name: code, data_tests: [not_null]}}]}}
"""
NODES = {"stg", "base", "fct", "code", "snap", "codes"}


@pytest.fixture
def project(make_project: MakeProject, reader: Reader) -> Project:
    return project_with_source(make_project, reader, "reused", FILES, SCHEMA)


def statements(project: Project, *arguments: str, **variables: object) -> tuple[Outcome, list[str]]:
    """The outcome of a command, and the statements that it sent to Spark."""
    sent: list[str] = []

    def listen(event: EventMsg) -> None:
        if event.info.name == "SQLQuery":
            sent.append(event.data.sql)

    project.listeners.append(listen)
    try:
        return project.dbt(*arguments, **variables), sent
    finally:
        project.listeners.remove(listen)


def moved(reader: Reader, project: Project, before: dict[str, str]) -> set[str]:
    after = reader.pointers(project.schema)
    return {name for name in after if after[name] != before.get(name)}


def test_only_what_has_changed_is_built(project: Project, reader: Reader) -> None:
    first = project.dbt("build", wap_reuse=True).succeeded()
    assert "are reused" not in first.text
    before = reader.pointers(project.schema)
    again, sent = statements(project, "build", wap_reuse=True)
    again.succeeded()
    assert "6 nodes and 5 tests are reused" in again.text
    assert again.statuses == first.statuses
    assert sent == []
    assert moved(reader, project, before) == set()
    assert reader.ledger("nodes", run_id=again.run_id) == []

    project.write({"seeds/codes.csv": "code\na\nb\nc\n"})
    changed = project.dbt("build", wap_reuse=True).succeeded()
    assert "4 nodes and 4 tests are reused" in changed.text
    assert moved(reader, project, before) == {"codes", "code"}
    assert {row["test_name"] for row in reader.ledger("tests", run_id=changed.run_id)} == {
        "not_null_code_code"
    }
    assert sorted(reader.table(project.schema, "code").values("code")) == ["a", "b", "c"]

    append(reader, project, 2)
    before = reader.pointers(project.schema)
    grown = project.dbt("build", wap_reuse=True).succeeded()
    assert "2 nodes and 1 test are reused" in grown.text
    assert moved(reader, project, before) == {"stg", "base", "fct", "snap"}
    assert sorted(reader.table(project.schema, "fct").values("id")) == [1, 2]

    # Without the setting, all is built again.
    before = reader.pointers(project.schema)
    project.dbt("build").succeeded()
    assert moved(reader, project, before) == NODES


def test_a_bad_row_of_an_input_is_found(project: Project, reader: Reader) -> None:
    project.dbt("build", wap_reuse=True).succeeded()
    append(reader, project, 101)
    failed = project.dbt("build", wap_reuse=True).failed()
    assert failed.verdict("fct") == "rejected"
    assert failed.statuses["few"] == "fail"
    assert reader.table(project.schema, "fct").values("id") == [1]
    # What was rejected is no publish, so all that is not live is built again.
    again = project.dbt("build", wap_reuse=True).failed()
    assert again.verdict("fct") == "rejected"
    assert again.statuses["few"] == "fail"


def test_flags_and_branches_with_tables_build_all(project: Project, reader: Reader) -> None:
    project.dbt("build").succeeded()
    whole = project.dbt("build", "--full-refresh", wap_reuse=True).succeeded()
    assert "wap_reuse: everything runs (--full-refresh)" in whole.text
    asked = project.dbt("build", wap_reuse=True, landing_replay=True).succeeded()
    assert "wap_reuse: everything runs (landing_replay)" in asked.text
    held = project.dbt("build", "--select", "codes", wap_branch="mine", wap_publish="never")
    held.succeeded()
    more = project.dbt("build", "--select", "code", wap_branch="mine", wap_reuse=True).succeeded()
    assert "everything runs (the branch mine has nodes of earlier commands)" in more.text


def test_writes_past_the_gate_and_rollbacks_are_seen(project: Project, reader: Reader) -> None:
    project.dbt("build").succeeded()
    reader.catalog.load_table((project.schema, "base")).append(
        pa.table({"id": pa.array([7], pa.int64())})
    )
    before = reader.pointers(project.schema)
    found = project.dbt("build", wap_reuse=True).succeeded()
    assert moved(reader, project, before) == {"base", "fct", "snap"}
    assert reader.table(project.schema, "base").values("id") == [1]
    project.operation("wap_rollback", run=found.run_id[:8], force=True).succeeded()
    before = reader.pointers(project.schema)
    project.dbt("build", wap_reuse=True).succeeded()
    assert moved(reader, project, before) == {"base", "fct", "snap"}


def test_with_a_hook_that_may_write_nothing_is_reused(project: Project, reader: Reader) -> None:
    name = f"{project.schema}.raw"
    project.variables["wap_writes"] = [name]
    write = f"{{% if var('write', false) %}}insert into {name} values (5){{% endif %}}"
    project.settings["on-run-start"] = [write]
    project.__post_init__()
    project.dbt("build").succeeded()
    found = project.dbt("build", wap_reuse=True, write=True).succeeded()
    assert "are reused" not in found.text
    assert sorted(reader.table(project.schema, "fct").values("id")) == [1, 5]


def test_own_materializations_are_built(project: Project, reader: Reader) -> None:
    custom = """
    {% materialization mine, adapter='sparkwap' %}
        {%- set target = this.incorporate(type="table") -%}
        {%- do wap_build_table(target, model["compiled_code"]) -%}
        {%- do adapter.wap.built(model.unique_id, target) -%}
        {{ return({"relations": [target]}) }}
    {% endmaterialization %}
    """
    project.write(
        {
            "macros/mine.sql": custom,
            "models/own.sql": "{{ config(materialized='mine') }} select * from {{ ref('codes') }}",
            "models/below.sql": TABLE + "select * from {{ ref('own') }}",
        }
    )
    project.dbt("build").succeeded()
    before = reader.pointers(project.schema)
    built = project.dbt("build", wap_reuse=True).succeeded()
    assert moved(reader, project, before) == {"own", "below"}
    assert "6 nodes and 5 tests are reused" in built.text


def test_a_test_of_the_live_tables_is_answered_by_its_last_result(project: Project) -> None:
    project.dbt("build").succeeded()
    tested, sent = statements(project, "test", wap_reuse=True)
    tested.succeeded()
    assert "5 tests are reused" in tested.text
    assert {one for name, one in tested.statuses.items() if "sparkwap" not in name} == {"pass"}
    assert sent == []
    # Another severity, limit or text is another test.
    project.write({"tests/few.sql": FILES["tests/few.sql"].replace("100", "0")})
    failed = project.dbt("test", wap_reuse=True).failed()
    assert failed.statuses["few"] == "fail"
    assert "4 tests are reused" in failed.text
    # A failing test is not answered by its last result.
    assert project.dbt("test", wap_reuse=True).failed().statuses["few"] == "fail"


def test_other_settings_of_spark_build_all(project: Project, reader: Reader) -> None:
    project.dbt("build").succeeded()
    project.output["server_side_parameters"] = {"spark.sql.session.timeZone": "Asia/Tokyo"}
    project.__post_init__()
    before = reader.pointers(project.schema)
    project.dbt("build", wap_reuse=True).succeeded()
    assert moved(reader, project, before) == NODES
    assert "6 nodes and 5 tests are reused" in project.dbt("build", wap_reuse=True).text
