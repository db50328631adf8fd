"""Others compact the tables of a run before its publish: it is built again only where it has to."""

from __future__ import annotations

import pytest
from helpers.lake import Reader, SparkReader
from helpers.project import MakeProject, Project

from .conftest import when_built

ROWS = """
    {{{{ config(materialized='incremental', {how}) }}}}
    {{% if is_incremental() %}}
    select {{{{ env_var('N') }}}} as id, 'a' as part, {{{{ env_var('N') }}}} as n
    {{% else %}}
    select id, if(id < 4, 'a', 'b') as part, 0 as n from range(8)
    {{% endif %}}
"""
MERGE = "incremental_strategy='merge', unique_key='id', partition_by='part'"
ON_READ = "tblproperties={'write.merge.mode': 'merge-on-read'}"
TABLES = {
    "added": "incremental_strategy='append'",
    "merged": MERGE,
    "on_read": f"{MERGE}, {ON_READ}",
}
FILES = {
    **{f"models/{name}.sql": ROWS.format(how=how) for name, how in TABLES.items()},
    "models/last.sql": """
        {{ config(materialized='table') }}
        select (select sum(n) from {{ ref('added') }}) as added,
            (select sum(n) from {{ ref('merged') }}) as merged,
            (select sum(n) from {{ ref('on_read') }}) as on_read
    """,
    "models/properties.yml": """
        models:
          - {name: merged, columns: [{name: id, data_tests: [unique]}]}
    """,
}
MOVED = "main was compacted meanwhile, which changed no row"


@pytest.fixture(scope="module")
def project(make_project: MakeProject) -> Project:
    project = make_project("compacted", FILES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("N", "0")
        project.dbt("build").succeeded()
        # A second file for each part.
        for number in ("1", "2"):
            patch.setenv("N", number)
            project.dbt("build").succeeded()
    return project


def compact(project: Project, spark: SparkReader, table: str, part: str | None = None) -> None:
    where = f"where => 'part = \"{part}\"', " if part else ""
    spark.rows(
        f"call lake.system.rewrite_data_files(table => '{project.schema}.{table}', {where}"
        "options => map('rewrite-all', 'true'))"
    )


def rows(reader: Reader, project: Project, table: str) -> list[tuple[int, int]]:
    return sorted(reader.table(project.schema, table).values("id", "n"))  # type: ignore[arg-type]


def operations(reader: Reader, project: Project, table: str) -> list[str]:
    """The operations of the last two snapshots of main."""
    document = reader.metadata(project.schema, table)
    by_id = {one["snapshot-id"]: one for one in document["snapshots"]}
    last = by_id[document["refs"]["main"]["snapshot-id"]]
    return [one["summary"]["operation"] for one in (by_id[last["parent-snapshot-id"]], last)]


def test_a_change_beside_compacted_files_is_published_as_it_was_audited(
    project: Project, reader: Reader, spark: SparkReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {name: rows(reader, project, name) for name in TABLES}

    def others() -> None:
        compact(project, spark, "added")
        for name in ("merged", "on_read"):
            compact(project, spark, name, "b")

    monkeypatch.setenv("N", "3")
    with when_built(project, "last", others):
        outcome = project.dbt("build", wap_rebuilds=0).succeeded()
    assert outcome.text.count(MOVED) == 3
    assert rows(reader, project, "added") == sorted([*before["added"], (3, 3)])
    for name in ("merged", "on_read"):
        kept = [one for one in before[name] if one[0] != 3]
        assert rows(reader, project, name) == sorted([*kept, (3, 3)])
        assert operations(reader, project, name) == ["replace", "overwrite"]
    assert operations(reader, project, "added") == ["replace", "append"]
    assert reader.metadata(project.schema, "on_read")["properties"]["write.merge.mode"] == (
        "merge-on-read"
    )
    # Spark reads the same, and goes on from there.
    for name in TABLES:
        found = spark.rows(f"select id, n from lake.{project.schema}.{name}")
        assert sorted(map(tuple, found)) == rows(reader, project, name)
    ((last),) = reader.table(project.schema, "last").values("added", "merged", "on_read")
    assert tuple(last) == (6, 6, 6)
    monkeypatch.setenv("N", "4")
    project.dbt("build").succeeded()
    assert all((4, 4) in rows(reader, project, name) for name in TABLES)


def test_a_change_of_compacted_files_is_built_again(
    project: Project, reader: Reader, spark: SparkReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {name: dict(rows(reader, project, name)) for name in ("merged", "on_read")}

    def others() -> None:
        for name in before:
            compact(project, spark, name, "b")

    # Its row moves from part b to part a.
    monkeypatch.setenv("N", "5")
    with when_built(project, "last", others):
        outcome = project.dbt("build", wap_rebuild_wait=0.1).succeeded()
    assert "main moved: built" in outcome.text
    assert MOVED not in outcome.text
    for name, was in before.items():
        assert dict(rows(reader, project, name)) == {**was, 5: 5}


def test_a_changelog_reader_finds_what_was_published(
    project: Project, reader: Reader, spark: SparkReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = reader.metadata(project.schema, "added")["refs"]["main"]["snapshot-id"]
    monkeypatch.setenv("N", "6")
    with when_built(project, "last", lambda: compact(project, spark, "added")):
        outcome = project.dbt("build", wap_rebuilds=0).succeeded()
    assert outcome.text.count(MOVED) == 1
    spark.rows(
        f"call lake.system.create_changelog_view(table => '{project.schema}.added', "
        f"options => map('start-snapshot-id', '{start}'), changelog_view => 'added_changes')"
    )
    found = spark.rows("select id, n, _change_type from added_changes")
    assert sorted(map(tuple, found)) == [(6, 6, "INSERT")]
