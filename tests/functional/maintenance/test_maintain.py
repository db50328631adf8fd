"""Maintenance rewrites files and removes history; readers see the same rows all the time."""

from __future__ import annotations

import json
import signal
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from helpers.catalogs import SPARK
from helpers.lake import Reader, SparkReader
from helpers.project import MakeProject, Outcome, Project

from sparkwap.catalog.model import LedgerRows
from sparkwap.gate.settings import Upkeep
from sparkwap.maintenance.maintainer import Maintainer
from sparkwap.publish.lake import Lake

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FILES = {
    "models/log.sql": """
        {{ config(materialized='incremental', incremental_strategy='append') }}
        select id, cast(id as string) as v from range(10)
    """,
    "models/events.sql": """
        {{ config(
            materialized='incremental', incremental_strategy='merge', unique_key='id',
            tblproperties={'write.merge.mode': 'merge-on-read', 'write.delete.mode':
                           'merge-on-read', 'write.update.mode': 'merge-on-read'},
            wap_maintain={'readings_per_day': 1000}
        ) }}
        select id, cast(id as string) as v from range(100)
    """,
    "models/totals.sql": """
        {{ config(materialized='table') }}
        select count(*) as n from {{ ref('events') }}
    """,
    "models/properties.yml": """
        models:
          - name: events
            columns: [{name: id, data_tests: [unique]}]
    """,
}


@pytest.fixture
def project(make_project: MakeProject, spark: SparkReader) -> Iterator[Project]:
    project = make_project("maintain", FILES)
    project.dbt("build").succeeded()
    for name in ("log", "events"):
        for number in range(9):
            spark.run(
                f"insert into {project.schema}.{name} "
                f"select id + 1000 * {number + 1}, 'x' from range(50)"
            )
    for number in (7, 11):
        spark.run(f"delete from {project.schema}.events where id % {number} = 0 and id > 1000")
    yield project


def rows(reader: Reader, project: Project) -> dict[str, Any]:
    return {name: table.seen()[2] for name, table in reader.look(project.schema).items()}


def main(reader: Reader, project: Project, name: str) -> dict[str, Any]:
    """The summary of main's snapshot."""
    document = reader.metadata(project.schema, name)
    (found,) = (
        one
        for one in document["snapshots"]
        if one["snapshot-id"] == document["current-snapshot-id"]
    )
    return {**found["summary"], "parent": found.get("parent-snapshot-id")}


def beside(reader: Reader, project: Project) -> list[str]:
    """The side schemas of the project's schema."""
    names = [one[0] for one in reader.catalog.list_namespaces()]
    return [name for name in names if name.startswith(f"{project.schema}__")]


def maintain(project: Project, **arguments: Any) -> Outcome:
    return project.operation("wap_maintain", tables=[project.schema], **arguments)


@pytest.mark.smoke
def test_files_are_merged_and_no_reader_sees_another_row(
    project: Project, reader: Reader, spark: SparkReader
) -> None:
    schema = project.schema
    before, pointers = rows(reader, project), reader.pointers(schema)
    counted = spark.rows(f"select count(*), sum(id) from {schema}.events")
    old = main(reader, project, "events")
    assert int(old["total-data-files"]) > 9 and int(old["total-delete-files"]) > 3

    explained = maintain(project, explain=True).succeeded()
    assert "A maintenance would do this (nothing was changed):" in explained.text
    assert f"{schema}.events" in explained.text
    assert "saves" in explained.text
    assert reader.pointers(schema) == pointers

    with reader.polling(schema) as poller:
        done = maintain(project).succeeded()
    assert "compacted" in done.text
    new = main(reader, project, "events")
    assert new["total-data-files"] == "1"
    # Iceberg before 1.12 leaves delete files on the branch, which delete nothing any more.
    if SPARK != "4.0":
        assert new["total-delete-files"] == "0"
    assert new["operation"] == "replace"
    assert int(new["wap_same_rows_as"]) == new["parent"]
    assert new["wap_run"] == done.run_id
    assert rows(reader, project) == before
    assert all(one["events"] is not None for one in poller.states)
    assert spark.rows(f"select count(*), sum(id) from {schema}.events") == counted
    # Whether it pays off to merge the other depends on how fast the machine reads.
    (row,) = reader.ledger("maintenance", run_id=done.run_id, name="events")
    assert (row["action"], row["outcome"]) == ("compact", "done")
    assert row["files_after"] == 1
    assert not beside(reader, project)

    everything = maintain(project, everything=True).succeeded()
    assert int(main(reader, project, "log")["total-data-files"]) == 1, everything.text
    assert rows(reader, project) == before
    assert "There is nothing to maintain." in maintain(project).succeeded().text


def test_builds_and_rollbacks_go_on_after_a_compaction(project: Project, reader: Reader) -> None:
    first = project.dbt("build").succeeded()
    before = rows(reader, project)
    maintain(project, everything=True).succeeded()
    # What was published before the compaction can still be rolled back.
    back = project.operation("wap_rollback", run=first.run_id).succeeded()
    assert "Rolled back" in back.text
    assert rows(reader, project) != before
    project.dbt("build").succeeded()
    assert rows(reader, project) == before


def test_a_maintenance_that_is_killed_leaves_the_tables_as_they_were(
    project: Project, reader: Reader
) -> None:
    before, pointers = rows(reader, project), reader.pointers(project.schema)
    given = json.dumps({"tables": [project.schema], "everything": True})
    process = project.start("run-operation", "wap_maintain", "--args", given)
    while process.poll() is None and not beside(reader, project):
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert (rows(reader, project), reader.pointers(project.schema)) == (before, pointers)
    assert beside(reader, project)
    # Its clone is no unpublished work, and the next maintenance drops it.
    maintain(project, everything=True).succeeded()
    assert int(main(reader, project, "events")["total-data-files"]) == 1
    assert rows(reader, project) == before
    assert not beside(reader, project)


def test_a_table_with_an_unpublished_change_is_left_alone(
    project: Project, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARKWAP_BRANCH", "pr_1")
    project.dbt("run", "--select", "events", "totals").succeeded()
    monkeypatch.delenv("SPARKWAP_BRANCH")
    before = main(reader, project, "events")
    done = maintain(project, everything=True).succeeded()
    assert "audit branch pr_1 has an unpublished change of it" in done.text
    assert main(reader, project, "events") == before
    assert int(main(reader, project, "log")["total-data-files"]) == 1
    monkeypatch.setenv("SPARKWAP_BRANCH", "pr_1")
    project.dbt("test").succeeded()
    monkeypatch.delenv("SPARKWAP_BRANCH")
    maintain(project, everything=True).succeeded()
    assert int(main(reader, project, "events")["total-data-files"]) == 1


@pytest.mark.parametrize("version", [2, 3])
def test_rows_are_compared_where_deletes_cannot_be_counted_by_file(
    version: int, project: Project, reader: Reader, spark: SparkReader
) -> None:
    """Position deletes of several files, and columns that were renamed and added since."""
    name = f"{project.schema}.evolved_{version}"
    properties = {
        "write.wap.enabled": "true",
        "format-version": str(version),
        "write.delete.mode": "merge-on-read",
        "write.delete.granularity": "partition",
    }
    listed = ", ".join(f"'{key}'='{value}'" for key, value in properties.items())
    spark.run(f"create table {name} (id bigint, v string) using iceberg tblproperties ({listed})")
    for number in range(4):
        spark.run(f"insert into {name} select id + {number} * 10, 'x' from range(10)")
    spark.run(f"delete from {name} where id % 3 = 0")
    spark.run(f"alter table {name} rename column v to w")
    spark.run(f"alter table {name} add column more int")
    query = f"select * from {name}"
    if version == 3:
        query = f"select *, _row_id, _last_updated_sequence_number from {name}"
    before = spark.rows(query)
    lake = Lake("lake", dict(reader.catalog.properties))
    work = Maintainer(lake, spark.rows, run_id=str(uuid.uuid4()), upkeep=Upkeep())
    report = work.maintain([name], everything=True)
    lake.close()
    assert report.failed == []
    assert main(reader, project, f"evolved_{version}")["total-data-files"] == "1"
    assert spark.rows(query) == before


def test_a_run_maintains_its_tables_at_its_end(project: Project, reader: Reader) -> None:
    before = rows(reader, project)["events"]
    given = {"wap_maintain": "end_of_run", "wap_maintain_budget": 60}
    held = project.dbt("run", "--select", "events", **given).succeeded()
    assert "Maintained:" not in held.text
    built = project.dbt("build", **given).succeeded()
    assert "Maintained:" in built.text
    assert f"{project.schema}.events" in built.text.partition("Maintained:")[2]
    summary = main(reader, project, "events")
    assert (summary["total-data-files"], summary["wap_run"]) == ("1", built.run_id)
    assert rows(reader, project)["events"] == before
    assert not beside(reader, project)


def test_the_ledger_merges_its_files(project: Project, reader: Reader, spark: SparkReader) -> None:
    """Spark reads the merged files, and may rewrite or delete rows in between."""
    run_ids = [f"merged-{number:02}" for number in range(60)]
    one_by_one = "select run_id from wap_ledger.runs where run_id like 'merged-%'"
    lake = Lake("lake", dict(reader.catalog.properties))

    def append(ids: list[str]) -> None:
        for run_id in ids:
            lake.ledger.append(LedgerRows("runs", [{"run_id": run_id, "started_at": NOW}]))

    append(run_ids[:20])
    assert spark.rows(one_by_one) == [(run_id,) for run_id in run_ids[:20]]
    assert spark.rows("select count(*) < 20 from wap_ledger.runs.files") == [(True,)]
    spark.run(
        "call lake.system.rewrite_data_files(table => 'wap_ledger.runs', "
        "options => map('rewrite-all', 'true'))"
    )
    append(run_ids[20:40])
    assert spark.rows(one_by_one) == [(run_id,) for run_id in run_ids[:40]]
    spark.run(
        "alter table wap_ledger.runs set tblproperties ('write.delete.mode' = 'merge-on-read')"
    )
    spark.run("delete from wap_ledger.runs where run_id in ('merged-07', 'merged-38')")
    append(run_ids[40:])
    expected = [run_id for run_id in run_ids if run_id not in ("merged-07", "merged-38")]
    assert spark.rows(one_by_one) == [(run_id,) for run_id in expected]
    found = [row["run_id"] for row in lake.ledger.runs() if row["run_id"].startswith("merged-")]
    assert sorted(found) == expected
    lake.close()
