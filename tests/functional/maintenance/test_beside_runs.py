"""Two runs that build and publish without pause, and a maintenance without pause beside them.

No publish fails or is built again because of it, and all rows are there at the end.
"""

from __future__ import annotations

import os
import threading
import uuid
from contextlib import closing
from typing import Any

import pytest
from helpers.catalogs import RunningCatalog
from helpers.lake import Reader
from helpers.project import MakeProject, Project
from pyhive import hive

from sparkwap.gate.settings import Upkeep
from sparkwap.maintenance.maintainer import Maintainer
from sparkwap.publish.lake import Lake

BUILDS = 20 if os.environ.get("SOAK") else 3

ROWS = """
    {{{{ config(materialized='incremental', {how}) }}}}
    {{% if is_incremental() %}}
    select id, {{{{ env_var('BUILD') }}}} as build from range(40)
    where {{{{ env_var('BUILD') }}}} > 0 and id % 2 = 0
    {{% else %}}
    select id, 0 as build from range(40)
    {{% endif %}}
"""
MERGE = "incremental_strategy='merge', unique_key='id'"
ON_READ = f"{MERGE}, tblproperties={{'write.merge.mode': 'merge-on-read'}}"
FILES = {
    "models/merged.sql": ROWS.format(how=MERGE),
    "models/on_read.sql": ROWS.format(how=ON_READ),
    "models/added.sql": ROWS.format(how="incremental_strategy='append'"),
    "models/total.sql": """
        {{ config(materialized='table') }}
        select count(*) as n, max(build) as build from {{ ref('merged') }}
    """,
    "models/properties.yml": """
        models:
          - {name: merged, columns: [{name: id, data_tests: [unique]}]}
          - {name: on_read, columns: [{name: id, data_tests: [unique]}]}
    """,
}


def builds(project: Project, codes: list[int]) -> None:
    for number in range(1, BUILDS + 1):
        process = project.start("build", environment={"BUILD": str(number)})
        codes.append(process.wait(timeout=600))


def table(reader: Reader, project: Project, name: str) -> list[Any]:
    return sorted(reader.table(project.schema, name).values("id", "build"))


@pytest.fixture
def projects(make_project: MakeProject) -> list[Project]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BUILD", "0")
        made = [make_project(name, FILES, output={"threads": 1}) for name in ("one", "two")]
        for project in made:
            project.dbt("build").succeeded()
    return made


def test_no_publish_waits_for_a_maintenance(
    projects: list[Project], reader: Reader, running: RunningCatalog, config: Any
) -> None:
    codes: list[int] = []
    done: list[str] = []
    failed: list[str] = []
    end = threading.Event()
    lake = Lake("lake", dict(reader.catalog.properties))
    endpoint = running.endpoint(config)
    session = hive.connect(endpoint.host, endpoint.thrift_port, username="m", auth="NONE")

    def execute(statement: str) -> list[Any]:
        with closing(session.cursor()) as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def maintain() -> None:
        schemas = [project.schema for project in projects]
        while not end.is_set():
            work = Maintainer(lake, execute, run_id=str(uuid.uuid4()), upkeep=Upkeep())
            report = work.maintain(schemas, everything=True)
            failed.extend(report.failed)
            done.extend(one.name for one in report.tables if one.done is not None)

    threads = [threading.Thread(target=builds, args=(one, codes)) for one in projects]
    background = threading.Thread(target=maintain)
    for thread in (*threads, background):
        thread.start()
    for thread in threads:
        thread.join()
    end.set()
    background.join()
    session.close()
    lake.close()
    assert codes == [0] * (2 * BUILDS)
    assert failed == []
    print(f"{len(done)} compactions beside {2 * BUILDS} builds")
    assert done, "nothing was compacted"
    expected = [(n, BUILDS if n % 2 == 0 else 0) for n in range(40)]
    for project in projects:
        assert table(reader, project, "merged") == expected
        assert table(reader, project, "on_read") == expected
        rows = table(reader, project, "added")
        assert sorted(rows) == sorted(
            [(n, 0) for n in range(40)]
            + [(n, b) for b in range(1, BUILDS + 1) for n in range(0, 40, 2)]
        )
        ((total, build),) = reader.table(project.schema, "total").values("n", "build")
        assert (total, build) == (40, BUILDS)
    runs = [run for run in reader.ledger("runs") if run["outcome"] == "published"]
    assert not [run["run_id"] for run in runs if run["tries"]], "a run was built again"
