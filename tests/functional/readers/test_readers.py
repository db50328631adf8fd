"""What dbt has built on Spark, read by other engines: published, and on the branch of a PR.

These are the facts of the table in ``docs/readers.md`` for which Spark is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers.catalogs import TRANSACTIONS
from helpers.engines import ENGINES, Engines
from helpers.engines import engines as all_engines
from helpers.lake import Reader, SparkReader
from helpers.project import MakeProject, Outcome, Project
from pyiceberg.exceptions import NoSuchTableError

pytestmark = pytest.mark.skipif(not TRANSACTIONS, reason="the scripts read an embedded lake")

MERGED = """
    {{{{ config(
        materialized='incremental', incremental_strategy='merge', unique_key='id',
        format_version={version},
        tblproperties={{'write.merge.mode': 'merge-on-read'}}
    ) }}}}
    select id, cast({{{{ env_var('READERS_V') }}}} as bigint) as v from range(1, 4)
    {{% if is_incremental() %}} where id = 2 {{% endif %}}
"""
FILES = {
    "models/format2.sql": MERGED.format(version=2),
    "models/format3.sql": MERGED.format(version=3),
    "models/newest.sql": "{{ config(materialized='view') }} select id from {{ ref('format2') }}",
}
NEW = "{{ config(materialized='table') }} select cast(7 as bigint) as id"


@dataclass(frozen=True)
class Built:
    """Two publishes, and a branch that is not published."""

    project: Project
    lake: Path
    first: Outcome

    def named(self, name: str) -> str:
        return f"{self.project.schema}.{name}"


@pytest.fixture(scope="module")
def engines() -> Iterator[Engines]:
    with all_engines() as found:
        yield found


@pytest.fixture(scope="module")
def built(make_project: MakeProject, lake_dir: Path) -> Built:
    project = make_project("readers", FILES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("READERS_V", "1")
        first = project.dbt("build").succeeded()
        patch.setenv("READERS_V", "2")
        project.dbt("build").succeeded()
        patch.setenv("READERS_V", "3")
        project.write({"models/fresh.sql": NEW})
        audited = ("--select", "format2", "format3", "fresh")
        project.dbt("build", *audited, wap_branch="pr_9", wap_publish="never").succeeded()
    return Built(project, lake_dir, first)


def rows(second: int) -> list[dict[str, int]]:
    return [{"id": 1, "v": 1}, {"id": 2, "v": second}, {"id": 3, "v": 1}]


def test_rows_were_deleted_in_place(built: Built, reader: Reader) -> None:
    for name in ("format2", "format3"):
        metadata = reader.metadata(built.project.schema, name)
        main = metadata["refs"]["main"]["snapshot-id"]
        found = next(s for s in metadata["snapshots"] if s["snapshot-id"] == main)
        assert int(found["summary"]["total-delete-files"]) == 1, name
        assert f"format{metadata['format-version']}" == name


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["format2", "format3"])
def test_published_and_audited_rows(built: Built, engines: Engines, engine: str, name: str) -> None:
    table = built.named(name)
    tag = f"wap_pub_{built.first.run_id[:8]}"
    for arguments, second in (([], 2), (["--tag", tag], 1), (["--branch", "pr_9"], 3)):
        found = engines.rows(engine, *engines.find(built.lake, table, *arguments))
        assert found == rows(second), (arguments, name)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_new_table_of_a_branch(built: Built, engines: Engines, engine: str) -> None:
    found = engines.find(built.lake, built.named("fresh"), "--branch", "pr_9")
    assert engines.rows(engine, *found) == [{"id": 7}]


def test_views_are_sparks_alone(built: Built, reader: Reader, spark: SparkReader) -> None:
    assert spark.rows(f"select * from {built.named('newest')}") == [(1,), (2,), (3,)]
    with pytest.raises(NoSuchTableError):
        reader.catalog.load_table(built.named("newest"))
