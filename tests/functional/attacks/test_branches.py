"""Branches and tags of users' own, by the names that runs and operations are told.

The class attacked: `wap_branch` names something that no run has made. It is not reset, discarded,
swept or read as an audit branch, and nothing is built beside it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from helpers.lake import Reader, SparkReader
from helpers.project import MakeProject, Outcome, Project

FILES = {
    "models/orders.sql": "{{ config(materialized='table') }} select id from range(1, 4)",
    "models/report.sql": """
        {{ config(materialized='table') }}
        select o.id from {{ ref('orders') }} as o join {{ source('raw', 'events') }} using (id)
    """,
    "models/sources.yml": """
        sources:
          - name: raw
            schema: "{{ target.schema }}"
            tables: [{name: events}]
    """,
}
ORDERS, EVENTS = "orders", "events"


@pytest.fixture(scope="module")
def project(make_project: MakeProject, reader: Reader) -> Iterator[Project]:
    project = make_project("branches", FILES)
    reader.catalog.create_namespace_if_not_exists(project.schema)
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
    reader.catalog.create_table((project.schema, EVENTS), rows.schema).append(rows)
    project.dbt("build").succeeded()
    return project


def refs(project: Project, reader: Reader, table: str) -> dict[str, tuple[str, int]]:
    found = reader.metadata(project.schema, table)["refs"]
    return {name: (ref["type"], ref["snapshot-id"]) for name, ref in found.items()}


def refused(done: Outcome, table: str, kind: str, name: str) -> None:
    done.failed()
    assert f".{table} has a {kind} named {name} that no run has opened" in done.text, done.text
    assert f"drop {kind} {name}" in done.text


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("table", "kind", "name"),
    [(ORDERS, "branch", "pr_7"), (ORDERS, "tag", "month_end"), (EVENTS, "branch", "wap_mine")],
)
def test_what_a_user_has_made_stays(
    project: Project, reader: Reader, spark: SparkReader, table: str, kind: str, name: str
) -> None:
    place = f"lake.{project.schema}.{table}"
    spark.run(f"alter table {place} create {kind} {name}")
    if kind == "branch":
        spark.run(f"insert into {place}.branch_{name} values (77)")
    before = {one: refs(project, reader, one) for one in (ORDERS, EVENTS, "report")}
    seen = reader.look(project.schema)
    refused(project.dbt("build", wap_branch=name), table, kind, name)
    refused(project.dbt("run", "--select", "report", wap_branch=name), table, kind, name)
    project.operation("wap_publish", branch=name).failed()
    project.operation("wap_publish", branch=name, mode="lineage").failed()
    project.operation("wap_discard", branch=name)
    project.operation("wap_sweep", older_than="1")
    project.dbt("build").succeeded()
    after = {one: refs(project, reader, one) for one in before}
    assert after[table][name] == before[table][name]
    assert {one.seen() for one in reader.look(project.schema).values()} == {
        one.seen() for one in seen.values()
    }
    assert not any(schema.endswith(f"__{name}") for (schema,) in reader.catalog.list_namespaces())
    spark.run(f"alter table {place} drop {kind} {name}")


def test_a_branch_that_a_run_has_made_is_its_own_again(project: Project, reader: Reader) -> None:
    project.dbt("run", "--select", ORDERS, wap_branch="pr_8", wap_publish="never").succeeded()
    assert "pr_8" in refs(project, reader, ORDERS)
    project.dbt("build", wap_branch="pr_8").succeeded()
    assert "pr_8" not in refs(project, reader, ORDERS)
