"""Tables that a build extends: what was there before is kept, also if the model has changed."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from helpers.lake import Reader
from helpers.project import MakeProject, Project

STEP = "env_var('STEP')"


def feed(*steps: str) -> str:
    """Return a model with other rows in each step."""
    texts = [f"{{% if {STEP} == '{n}' %}} {sql} {{% endif %}}" for n, sql in enumerate(steps, 1)]
    return " ".join(["{{ config(materialized='table') }}", *texts])


def values(*rows: str) -> str:
    return f"select * from values {', '.join(rows)} as t(id, ts)"


def incremental(sql: str, **config: Any) -> str:
    texts = "".join(f", {key}={value!r}" for key, value in config.items())
    return f"{{{{ config(materialized='incremental'{texts}) }}}}\n{sql}"


def rows(project: Project, reader: Reader, table: str, *columns: str) -> list[Any]:
    found: list[Any] = reader.table(project.schema, table).values(*columns)
    return found


SNAPSHOT = """
{{% snapshot {name} %}}
{{{{ config(unique_key='id', strategy='timestamp', updated_at='ts', hard_deletes='{deletes}') }}}}
select id, cast(ts as timestamp) as ts from {{{{ ref('keys') }}}}
{{% endsnapshot %}}
"""
SNAPSHOTS = {
    "models/keys.sql": feed(
        values("(1, '2026-01-01')", "(2, '2026-01-01')"),
        values("(1, '2026-01-01')"),
        values("(1, '2026-01-01')", "(2, '2026-01-01')"),
        values("(1, '2026-01-01')"),
        values("(1, '2026-01-01')", "(2, '2026-01-01')"),
        values("(1, '2026-01-01')", "(2, '2100-01-01')"),
    ),
    "snapshots/closed.sql": SNAPSHOT.format(name="closed", deletes="invalidate"),
    "snapshots/recorded.sql": SNAPSHOT.format(name="recorded", deletes="new_record"),
}


def test_a_key_that_returns_to_a_snapshot_as_it_was_is_current_again(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project("returned", SNAPSHOTS)
    for step in range(1, 7):
        monkeypatch.setenv("STEP", str(step))
        project.dbt("build").succeeded()
        times = ("id", "dbt_valid_from", "dbt_valid_to", "dbt_scd_id")
        for table, more in (("closed", ()), ("recorded", ("dbt_is_deleted",))):
            versions = [one for one in rows(project, reader, table, *times, *more) if one[0] == 2]
            versions.sort(key=lambda one: one[1])
            assert len({one[3] for one in versions}) == len(versions)
            for former, later in itertools.pairwise(versions):
                assert former[2] is not None and former[1] < former[2] <= later[1], versions
            is_there = step not in (2, 4)
            last = versions[-1]
            if more:
                assert (last[2], last[4]) == (None, str(not is_there)), versions
            else:
                assert (last[2] is None) == is_there, versions
    assert len(rows(project, reader, "closed", "id")) == 1 + 4
    assert len(rows(project, reader, "recorded", "id")) == 1 + 6


NEW_ROWS = """
select * {more} from (select explode(sequence(1, {{{{ env_var('STEP') }}}})) as id)
{{% if is_incremental() %}} where id > (select max(id) from {{{{ this }}}}) {{% endif %}}
"""
TESTED = """
models:
  - name: grown
    columns: [{name: id, data_tests: [unique]}]
"""


def test_rows_that_a_command_has_left_on_the_branch_stay_when_columns_come(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown = {"on_schema_change": "append_new_columns"}
    project = make_project(
        "grown",
        {
            "models/grown.sql": incremental(NEW_ROWS.format(more=""), **grown),
            "models/properties.yml": TESTED,
        },
    )
    monkeypatch.setenv("STEP", "1")
    project.dbt("build").succeeded()
    monkeypatch.setenv("STEP", "2")
    project.dbt("run").succeeded()
    monkeypatch.setenv("STEP", "3")
    project.write({"models/grown.sql": incremental(NEW_ROWS.format(more=", 7 as n"), **grown)})
    project.dbt("run").succeeded()
    assert rows(project, reader, "grown", "id") == [1]
    project.dbt("test").succeeded()
    assert rows(project, reader, "grown", "id", "n") == [(1, None), (2, None), (3, 7)]


EXTENDED = {
    "models/feed.sql": feed(
        values("(1, 1)", "(2, 2)", "(3, 3)"),
        *[values("(1, 1)", "(2, 2)", "(3, 3)", "(4, 4)")] * 2,
    ),
    # After a delete of id 3, the query would return id 2, too.
    "models/replaced.sql": incremental(
        "select * from {{ ref('feed') }} {% if is_incremental() %}"
        " where ts >= (select max(ts) from {{ this }}) {% endif %}",
        incremental_strategy="delete+insert",
        unique_key="id",
        pre_hook={
            "sql": "create or replace temporary view a_hook as select 1",
            "transaction": False,
        },
        post_hook="select * from a_hook",
    ),
    "models/kept.sql": incremental(
        "select id, if('{{ env_var('STEP') }}' = '1', id, null) as v from {{ ref('feed') }}",
        contract={"enforced": True},
        on_schema_change="append_new_columns",
        persist_docs={"columns": True},
    ),
    "models/wide.sql": incremental(
        "select cast(1.25 as {{ 'decimal(10,2)' if env_var('STEP') == '1' else 'decimal(12,2)' }})"
        " as p",
        on_schema_change="append_new_columns",
    ),
    "models/narrow.sql": incremental(
        "select cast(1.25 as {{ 'decimal(10,1)' if env_var('STEP') == '1' else 'decimal(10,2)' }})"
        " as p"
    ),
    "models/parts.sql": incremental(
        "select * from {{ ref('feed') }}", incremental_strategy="insert_overwrite"
    ),
}
CONTRACT = """
models:
  - name: kept
    columns:
      - {{name: id, data_type: int}}
      - {{name: v, data_type: int, description: "{doc}"{more}}}
"""


def test_a_table_is_extended_as_its_model_says(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = CONTRACT.format(doc="old", more=", constraints: [{type: not_null}]")
    project = make_project("extended", {**EXTENDED, "models/properties.yml": strict})
    monkeypatch.setenv("STEP", "1")
    project.dbt("build").succeeded()
    monkeypatch.setenv("STEP", "2")
    project.write({"models/properties.yml": CONTRACT.format(doc="", more="")})
    text = project.dbt("build").succeeded().text
    assert rows(project, reader, "replaced", "id") == [1, 2, 3, 4]
    assert "p from decimal(10,2) to decimal(10,1)" in " ".join(text.split())
    schema = reader.catalog.load_table((project.schema, "kept")).schema()
    assert (schema.find_field("v").required, schema.find_field("v").doc or "") == (False, "")
    wide = reader.catalog.load_table((project.schema, "wide")).schema()
    assert str(wide.find_field("p").field_type) == "decimal(12, 2)"
    # Nothing differs any more.
    monkeypatch.setenv("STEP", "3")
    project.dbt("build", "--select", "kept").succeeded()
    parts = EXTENDED["models/parts.sql"].replace("config(", "config(partition_by='id', ", 1)
    project.write({"models/parts.sql": parts})
    assert "Rows that the increment does not have would be lost" in (
        project.dbt("build", "--select", "parts").failed().text
    )
    kept = EXTENDED["models/kept.sql"].replace("as v from", "as v, 1 as more from")
    project.write({"models/kept.sql": kept})
    assert "more" in project.dbt("build", "--select", "kept").failed().text
    assert len(rows(project, reader, "parts", "id")) == 4
