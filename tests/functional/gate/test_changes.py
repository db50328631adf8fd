"""Changes of a table's columns, layout or kind: readers see none of them until the publish."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.catalogs import TRANSACTIONS, VIEW, VIEWS
from helpers.lake import Poller, Reader, SparkReader
from helpers.project import MakeProject, Outcome, Project

TABLE = "{{ config(materialized='table') }} "
INCREMENTAL = "{{ config(materialized='incremental', on_schema_change='sync_all_columns') }} "
BEFORE = {
    "columns": TABLE + "select 1 as a, 2 as b, 'x' as c",
    "types": TABLE + "select 1 as a, 2 as b",
    "layout": TABLE + "select id, 'x' as kind from range(3)",
    "documented": "{{ config(persist_docs={'relation': true, 'columns': true}) }}"
    + TABLE
    + "select 1 as a",
    "to_view": TABLE + "select 1 as a",
    "to_table": f"{{{{ config(materialized='{VIEW}') }}}} select 1 as a",
    "synced": INCREMENTAL + "select 1 as a, 2 as b",
    "refreshed": INCREMENTAL + "select 1 as a, 2 as b",
}
AFTER = {
    "columns": TABLE + "select 'x' as c, 3 as d, 1 as a",
    "types": TABLE + "select cast(1 as bigint) as a, 'two' as b",
    "layout": """
        {{ config(materialized='table', partition_by='kind', sort_by='id desc',
                  tblproperties={'owner.team': 'sales'}) }}
        select id, 'y' as kind from range(3)
    """,
    "documented": "{{ config(persist_docs={'relation': true, 'columns': true}) }}"
    + TABLE
    + "select 1 as a",
    "to_view": "{{ config(materialized='view') }} select 7 as a",
    "to_table": TABLE + "select 7 as a",
    "synced": INCREMENTAL + "select cast(3 as bigint) as a, 4 as c",
    "refreshed": INCREMENTAL + "select 'new' as z",
}
KINDS_CHANGE = ("to_view", "to_table")
if not TRANSACTIONS:
    # Refused there, see below.
    for name in KINDS_CHANGE:
        AFTER[name] = BEFORE[name].replace("1 as a", "7 as a")
NAMES = tuple(BEFORE)


def files(models: dict[str, str], description: str) -> dict[str, str]:
    properties = f"""
        models:
          - name: documented
            description: {description} table
            columns: [{{name: a, description: {description} column}}]
    """
    sql = {f"models/{name}.sql": text for name, text in models.items()}
    return {**sql, "models/properties.yml": properties}


class Told:
    """A project is built, changed, built again and published; and what a reader saw of it."""

    def __init__(self, project: Project, reader: Reader, spark: SparkReader) -> None:
        self.reader, self.schema, self.spark = reader, project.schema, spark
        project.dbt("build").succeeded()
        self.before = self._look()
        project.write(files(AFTER, "new"))
        self.build = project.dbt(
            "build", "--exclude", "refreshed", wap_branch="changes_9", wap_publish="never"
        ).succeeded()
        self.refresh: Outcome = project.dbt(
            "build",
            "--select",
            "refreshed",
            "--full-refresh",
            wap_branch="changes_9",
            wap_publish="never",
        ).succeeded()
        self.held = self._look()
        with reader.polling(project.schema) as self.poller:
            project.operation("wap_publish", branch="changes_9").succeeded()
        self.published = self._look()
        self.poller: Poller

    def comment(self, name: str) -> str | None:
        return self.reader.metadata(self.schema, name)["properties"].get("comment")

    def _look(self) -> dict[str, Any]:
        state = self.reader.look(self.schema)
        layout = {
            name: None
            if look.kind == "view"
            else {"comment": self.comment(name)}
            | {
                key: self.reader.metadata(self.schema, name)[key]
                for key in (
                    "schemas",
                    "current-schema-id",
                    "default-spec-id",
                    "partition-specs",
                )
            }
            for name, look in state.items()
        }
        rows = {name: self.spark.rows(f"select * from {self.schema}.{name}") for name in state}
        return {name: (state[name].kind, rows[name], layout[name]) for name in state}


@pytest.fixture(scope="module")
def told(make_project: MakeProject, reader: Reader, spark: SparkReader) -> Told:
    return Told(make_project("changes", files(BEFORE, "old")), reader, spark)


@pytest.mark.parametrize("name", NAMES)
def test_change_is_invisible_until_the_publish(told: Told, name: str) -> None:
    assert told.held[name] == told.before[name]


@pytest.mark.smoke
def test_changes_are_published_at_once(told: Told) -> None:
    _, new = told.poller.only_move()
    assert set(new) == set(NAMES)


@pytest.mark.smoke
def test_what_is_published(told: Told) -> None:
    look = told.reader.look(told.schema)
    assert look["columns"].columns == ("c", "d", "a")
    assert look["columns"].rows == ({"c": "x", "d": 3, "a": 1},)
    assert look["types"].rows == ({"a": 1, "b": "two"},)
    assert look["layout"].values("kind") == ["y"] * 3
    properties = told.reader.metadata(told.schema, "layout")["properties"]
    assert properties["owner.team"] == "sales"
    kinds = ["view", "table"] if TRANSACTIONS else ["table", VIEW]
    assert [look[n].kind for n in KINDS_CHANGE] == kinds
    assert told.published["to_view"][1] == told.published["to_table"][1] == [(7,)]
    assert look["synced"].columns == ("a", "c")
    assert look["synced"].values("a", "c") == [(1, None), (3, 4)]
    assert told.before["documented"][2]["comment"] == "old table"
    assert told.published["documented"][2]["comment"] == "new table"
    assert "new column" in str(told.published["documented"][2]["schemas"])
    assert look["refreshed"].rows == ({"z": "new"},)


def test_partitions_are_those_of_the_config(told: Told) -> None:
    metadata = told.reader.metadata(told.schema, "layout")
    spec = next(
        s for s in metadata["partition-specs"] if s["spec-id"] == metadata["default-spec-id"]
    )
    assert [field["name"] for field in spec["fields"]] == ["kind"]


@pytest.mark.parametrize("name", ["columns", "types", "layout", "synced"])
def test_history_survives_a_change(told: Told, name: str) -> None:
    # The table is the same, so the state before the change can still be read.
    metadata = told.reader.metadata(told.schema, name)
    first = metadata["snapshot-log"][0]["snapshot-id"]
    assert len(metadata["snapshot-log"]) >= 2
    old = told.spark.rows(f"select * from {told.schema}.{name} version as of {first}")
    assert old == told.before[name][1]


@pytest.mark.smoke
@pytest.mark.skipif(TRANSACTIONS, reason="in a transaction a table can become a view")
@pytest.mark.skipif(not VIEWS, reason="the catalog has no views")
def test_a_change_of_kind_is_refused_before_anything_is_built(
    make_project: MakeProject, reader: Reader
) -> None:
    before = {f"models/{name}.sql": BEFORE[name] for name in KINDS_CHANGE}
    project = make_project("kinds", before)
    project.dbt("build").succeeded()
    seen = {name: look.seen() for name, look in reader.look(project.schema).items()}
    to_view = {"models/to_view.sql": "{{ config(materialized='view') }} select 7 as a"}
    project.write({**to_view, "models/to_table.sql": TABLE + "select 7 as a"})
    refused = project.dbt("build").failed()
    for name, words in zip(KINDS_CHANGE, ("a table", "a view"), strict=True):
        assert f"{name} is {words} and would become" in refused.text
    assert {name: look.seen() for name, look in reader.look(project.schema).items()} == seen
