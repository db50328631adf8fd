"""Names, schemas and files of live tables that something else takes or reads.

- the stored failures of a test have the name of a table, and take its place;
- a test that has passed is another one by the time of the publish;
- a macro drops the schema of live tables in a command that opens no run;
- a child reads a rejected parent by what is not in the lake's catalog, or by its files.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.lake import Reader, SparkReader
from helpers.project import MakeProject

TABLE = "{{ config(materialized='table') }} "
ROW = TABLE + "select cast({{ env_var('ID') }} as int) as id"
STORED = "{{ config(store_failures=true) }} select id from {{ ref('NAME') }} where id > 5"
# As many projects have it: one schema for all, whatever the config says.
ONE_SCHEMA = "{% macro generate_schema_name(name, node) %}SCHEMA{% endmacro %}"


def test_stored_failures_with_the_name_of_another_project_s_table(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Within one project dbt refuses it while it parses.
    project = make_project("stored", {"models/orders.sql": ROW})
    monkeypatch.setenv("ID", "1")
    project.dbt("build").succeeded()
    other = make_project(
        "another",
        {
            "macros/one.sql": ONE_SCHEMA.replace("SCHEMA", project.schema),
            "models/lines.sql": ROW,
            "tests/orders.sql": STORED.replace("NAME", "lines"),
        },
        settings={"name": "another"},
    )
    assert other.dbt("build").failed().statuses["orders"] == "error"
    assert reader.table(project.schema, "orders").values("id") == [1]


def test_a_test_that_is_changed_after_it_has_passed(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = "select id from {{ ref('t') }} where id > "
    files = {"models/t.sql": ROW, "tests/one.sql": most + "100", "tests/two.sql": most + "200"}
    project = make_project("changed", files)
    monkeypatch.setenv("ID", "9")
    project.dbt("run").succeeded()
    assert project.dbt("test", "--select", "one").succeeded().verdict("t") == "held"
    project.write({"tests/one.sql": most + "5"})
    tested = project.dbt("test", "--select", "two").succeeded()
    assert tested.verdict("t") == "held"
    assert "test one changed since the last pass" in tested.reason("t")
    assert "t" not in reader.look(project.schema)
    # What has passed with the text that it has now counts, in whichever command.
    project.write({"tests/one.sql": most + "50"})
    assert project.dbt("test", "--select", "one").succeeded().verdict("t") == "published"


DROP = "adapter.drop_schema(ref('t'))"


def test_a_schema_is_dropped_by_no_command_that_compiles_a_macro(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project("dropped", {"models/t.sql": ROW})
    monkeypatch.setenv("ID", "1")
    project.dbt("build").succeeded()
    drops = f"{{% if execute %}}{{% do {DROP} %}}{{% endif %}} select 1 as x"
    project.write({"models/u.sql": f"-- {{{{ ref('t') }}}}\n{drops}"})
    for command in (["compile"], ["show", "--select", "u"], ["docs", "generate"], ["build"]):
        assert "The guard refused to drop schema" in project.dbt(*command).failed().text
        assert reader.table(project.schema, "t").values("id") == [1]
    project.write(
        {"models/u.sql": f"{drops.replace(DROP, 'wap_rollback()')} -- {{{{ ref('t') }}}}"}
    )
    for command in (["compile"], ["build"]):
        assert "wap_rollback was called by" in project.dbt(*command).failed().text
        assert reader.table(project.schema, "t").values("id") == [1]


CHILDREN = {
    "by_global_view": "select v from global_temp.SCHEMA_kept",
    "by_other_catalog": "select v from spark_catalog.default.SCHEMA_kept",
    "by_file": "select v from parquet.`{{ var('files') }}`",
    "by_quotes": 'select v from "SCHEMA"."parent"',
}
HEADER = "{{ config(sql_header='set spark.sql.ansi.doubleQuotedIdentifiers = true') }} "
FILES = """
    def model(dbt, session):
        dbt.config(materialized="table")
        return session.read.parquet(dbt.config.get("files")).select("v")
"""


def test_a_child_that_reads_its_parent_outside_of_the_catalog(
    make_project: MakeProject,
    reader: Reader,
    spark: SparkReader,
    lake_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    value = TABLE + "select cast({{ env_var('VALUE') }} as int) as v"
    project = make_project("outside", {"models/parent.sql": value, "models/other.sql": value})
    monkeypatch.setenv("VALUE", "1")
    project.dbt("build").succeeded()
    parent = f"lake.{project.schema}.parent"
    spark.run(f"create global temporary view {project.schema}_kept as select v from {parent}")
    spark.run(f"create view spark_catalog.default.{project.schema}_kept as select v from {parent}")
    files = f"file://{lake_dir}/warehouse/{project.schema}/parent-*/data"
    project.write(
        {
            f"models/{name}.sql": TABLE
            + HEADER * (name == "by_quotes")
            + sql.replace("SCHEMA", project.schema)
            for name, sql in CHILDREN.items()
        }
        | {
            "models/by_reader.py": FILES,
            "models/all.yml": "models: [{name: by_reader, config: "
            "{files: \"{{ var('files') }}\"}}]",
            "tests/parent_is_small.sql": "select v from {{ ref('parent') }} where v > 5",
        }
    )
    monkeypatch.setenv("VALUE", "7")
    project.dbt("run", "--select", "parent", files=files).succeeded()
    children = [*CHILDREN, "by_reader"]
    built = project.dbt(
        "build", "--select", *children, "parent_is_small", wap_publish="lineage", files=files
    ).failed()
    assert built.verdict("parent") == "rejected"
    assert {name: built.verdict(name) for name in children} == dict.fromkeys(children, "held")
    look = reader.look(project.schema)
    assert set(look) == {"parent", "other"}
    assert look["parent"].values("v") == [1]
