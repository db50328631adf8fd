"""What the gate does not reach: what docs/security.md lists as such, and what readers see then."""

from __future__ import annotations

import pytest
from helpers.lake import Reader
from helpers.project import MakeProject

TABLE = "{{ config(materialized='table') }} "
ROW = TABLE + "select cast({{ env_var('ID') }} as int) as id"
ABOVE_5 = "select id from {{ ref('t') }} where id > 5"
CLIENT = """
def model(dbt, session):
    dbt.config(materialized="table")
    frame = dbt.ref("t")
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog
    table = SqlCatalog("lake", **PROPERTIES).load_table("SCHEMA.t")
    table.append(pa.table({"id": pa.array([9], pa.int32())}))
    return frame
"""
DROP = "{% macro drop_it() %}{% do adapter.drop_schema(api.Relation.create(schema='SCHEMA')) %}{% endmacro %}"  # noqa: E501


def test_a_client_that_a_python_model_opens_itself(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ID", "1")
    project = make_project("client", {"models/t.sql": ROW})
    project.dbt("build").succeeded()
    code = CLIENT.replace("SCHEMA", project.schema)
    code = code.replace("PROPERTIES", repr(dict(reader.catalog.properties)))
    built = project.write({"models/m.py": code}).dbt("build", "--select", "m").succeeded()
    assert built.verdict("m") == "published"
    assert reader.table(project.schema, "t").values("id") == [1, 9]


def test_a_run_operation_that_drops_a_schema(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ID", "1")
    project = make_project("drops", {"models/t.sql": ROW})
    project.dbt("build").succeeded()
    project.write({"macros/drop_it.sql": DROP.replace("SCHEMA", project.schema)})
    project.dbt("run-operation", "drop_it").succeeded()
    assert reader.look(project.schema) == {}


def test_an_ephemeral_model_that_changes_between_run_and_test(
    make_project: MakeProject, reader: Reader
) -> None:
    ephemeral = "{{{{ config(materialized='ephemeral') }}}} select {} as id"
    files = {
        "models/e.sql": ephemeral.format(9),
        "models/t.sql": TABLE + "select id from {{ ref('e') }}",
        "tests/one.sql": "select e.id from {{ ref('e') }} e, {{ ref('t') }} where e.id > 5",
    }
    project = make_project("ephemeral", files)
    assert project.dbt("run").succeeded().verdict("t") == "held"
    project.write({"models/e.sql": ephemeral.format(1)})
    assert project.dbt("test").succeeded().verdict("t") == "published"
    assert reader.table(project.schema, "t").values("id") == [9]


def test_a_test_that_names_its_table_in_its_text_only(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ID", "9")
    test = "select id from {{ target.schema }}.t where id > 5"
    project = make_project("text", {"models/t.sql": ROW, "tests/one.sql": test})
    assert project.dbt("run").succeeded().verdict("t") == "published"
    assert reader.table(project.schema, "t").values("id") == [9]


def test_a_variable_in_the_view_through_which_a_test_looks(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ID", "1")
    view = "{{ config(materialized='view') }} select id from {{ ref('t') }} where id < {{ var('most', 100) }}"  # noqa: E501
    files = {
        "models/t.sql": ROW,
        "models/v.sql": view,
        "tests/one.sql": ABOVE_5.replace("'t'", "'v'"),
    }
    project = make_project("view", files)
    project.dbt("build").succeeded()
    monkeypatch.setenv("ID", "9")
    assert project.dbt("build").failed().verdict("t") == "rejected"
    assert project.dbt("build", most=5).succeeded().verdict("t") == "published"
    assert reader.table(project.schema, "t").values("id") == [9]
