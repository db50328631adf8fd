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
V3 = "format_version=3"
TABLES = {
    "added": "incremental_strategy='append'",
    "merged": MERGE,
    "on_read": f"{MERGE}, {ON_READ}",
    "added_v3": f"incremental_strategy='append', {V3}",
    "merged_v3": f"{MERGE}, {V3}",
    "on_read_v3": f"{MERGE}, {ON_READ}, {V3}",
}
SUMS = ", ".join(f"(select sum(n) from {{{{ ref('{name}') }}}}) as {name}" for name in TABLES)
FILES = {
    **{f"models/{name}.sql": ROWS.format(how=how) for name, how in TABLES.items()},
    "models/last.sql": f"{{{{ config(materialized='table') }}}} select {SUMS}",
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


def row_ids(spark: SparkReader, project: Project, table: str) -> dict[tuple[int, int], int]:
    """The ids of rows on main (format version 3), by ``id`` and ``n``."""
    found = spark.rows(f"select id, n, _row_id from lake.{project.schema}.{table}")
    return {(one[0], one[1]): one[2] for one in found}


def is_added(table: str) -> bool:
    return table.startswith("added")


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

    ids = {name: row_ids(spark, project, name) for name in TABLES if name.endswith("v3")}

    def others() -> None:
        for name in TABLES:
            compact(project, spark, name, None if is_added(name) else "b")

    monkeypatch.setenv("N", "3")
    with when_built(project, "last", others):
        outcome = project.dbt("build", wap_rebuilds=0).succeeded()
    assert outcome.text.count(MOVED) == len(TABLES)
    for name in TABLES:
        kept = [one for one in before[name] if is_added(name) or one[0] != 3]
        assert rows(reader, project, name) == sorted([*kept, (3, 3)])
        change = "append" if is_added(name) else "overwrite"
        assert operations(reader, project, name) == ["replace", change]
    assert reader.metadata(project.schema, "on_read")["properties"]["write.merge.mode"] == (
        "merge-on-read"
    )
    # Spark reads the same, and goes on from there.
    for name in TABLES:
        found = spark.rows(f"select id, n from lake.{project.schema}.{name}")
        assert sorted(map(tuple, found)) == rows(reader, project, name)
    ((last),) = reader.table(project.schema, "last").values(*TABLES)
    assert set(last) == {6}
    # Rows keep their ids, and no two have the same.
    for name, known in ids.items():
        found = row_ids(spark, project, name)
        assert len(set(found.values())) == len(found) == len(rows(reader, project, name))
        unchanged = known if is_added(name) else {one: n for one, n in known.items() if one[0] != 3}
        assert unchanged.items() <= found.items()
    monkeypatch.setenv("N", "4")
    project.dbt("build").succeeded()
    assert all((4, 4) in rows(reader, project, name) for name in TABLES)


def test_a_change_of_compacted_files_is_built_again(
    project: Project, reader: Reader, spark: SparkReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = [name for name in TABLES if not is_added(name)]
    before = {name: dict(rows(reader, project, name)) for name in changed}

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


def test_deleted_rows_are_found_in_compacted_files(
    project: Project, reader: Reader, spark: SparkReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dict(rows(reader, project, "on_read_v3"))
    changed = max(before)
    monkeypatch.setenv("N", str(changed))
    with when_built(project, "last", lambda: compact(project, spark, "on_read_v3")):
        outcome = project.dbt("build", "-s", "on_read_v3", "last", wap_rebuilds=0).succeeded()
    assert outcome.text.count(MOVED) == 1
    assert dict(rows(reader, project, "on_read_v3")) == {**before, changed: changed}
    assert operations(reader, project, "on_read_v3") == ["replace", "overwrite"]


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
