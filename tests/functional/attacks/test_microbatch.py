"""A candidate that is built in parts: a retry that opens the branch anew has to build all of them.

The class attacked: whatever takes away the batches that had succeeded, between a run that failed in
part and its `dbt retry`: `main` that moved, rows or not, a branch that was discarded or swept.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from helpers.lake import Reader, SparkReader
from helpers.project import MakeProject, Project

YEAR = date.today().year
MODEL = f"""
    {{{{ config(materialized='incremental', incremental_strategy='microbatch',
               event_time='ts', batch_size='year', begin='{YEAR - 3}-01-01', lookback=1) }}}}
    select ts, year(ts) as y,
        cast(if(year(ts) = {YEAR} and '{{{{ env_var('BAD', '') }}}}' <> '', 'no number',
            '{{{{ env_var('N', '1') }}}}') as int) as n
    from (
        select make_timestamp(y, 2, 1, 0, 0, 0) as ts
        from (select explode(sequence({YEAR - 3}, {YEAR})) as y)
    )
    where ts >= timestamp '{{{{ model.batch.event_time_start }}}}'
        and ts < timestamp '{{{{ model.batch.event_time_end }}}}'
"""


def nothing(project: Project, reader: Reader, _: SparkReader) -> None:
    """Nobody touches anything: the batches that had succeeded are kept."""


def insert(project: Project, reader: Reader, _: SparkReader) -> None:
    table = reader.catalog.load_table((project.schema, "batched"))
    rows = table.scan().to_arrow().slice(0, 1)
    other = rows.set_column(rows.schema.get_field_index("n"), "n", pa.array([7], pa.int32()))
    table.append(other)


def discard(project: Project, reader: Reader, _: SparkReader) -> None:
    branch = branches(project, reader).pop()
    project.operation("wap_discard", branch=branch).succeeded()


def sweep(project: Project, reader: Reader, _: SparkReader) -> None:
    project.operation("wap_sweep", older_than=0).succeeded()
    assert branches(project, reader) == set()


def compact(project: Project, reader: Reader, spark: SparkReader) -> None:
    """What a maintenance job does: `main` moves, and not a row changes."""
    before = reader.metadata(project.schema, "batched")["current-snapshot-id"]
    table = f"table => '{project.schema}.batched', options => map('rewrite-all', 'true')"
    spark.rows(f"call lake.system.rewrite_data_files({table})")
    assert reader.metadata(project.schema, "batched")["current-snapshot-id"] != before


def branches(project: Project, reader: Reader) -> set[str]:
    refs = reader.metadata(project.schema, "batched")["refs"]
    return {name for name, ref in refs.items() if ref["type"] == "branch" and name != "main"}


@pytest.mark.parametrize(
    "meddle",
    [nothing, pytest.param(insert, marks=pytest.mark.smoke), discard, sweep, compact],
)
def test_a_retry_publishes_no_less_than_all_batches(
    make_project: MakeProject,
    reader: Reader,
    monkeypatch: pytest.MonkeyPatch,
    spark: SparkReader,
    meddle: Callable[[Project, Reader, SparkReader], None],
) -> None:
    project = make_project("batches", {"models/batched.sql": MODEL})
    project.dbt("build").succeeded()
    monkeypatch.setenv("N", "2")
    monkeypatch.setenv("BAD", "yes")
    failed = project.dbt("build").failed()
    assert failed.statuses["batched"] == "partial success", failed.text
    meddle(project, reader, spark)
    monkeypatch.delenv("BAD")
    project.dbt("retry").succeeded()
    seen: Any = reader.table(project.schema, "batched").rows
    # With a lookback of one batch, the last two are built anew.
    assert {(row["y"], row["n"]) for row in seen if row["n"] != 7} == {
        (YEAR - 3, 1),
        (YEAR - 2, 1),
        (YEAR - 1, 2),
        (YEAR, 2),
    }


COMMAND = re.compile(r"build --select \S+ --event-time-start \S+ --event-time-end \S+")


def test_batches_that_main_lacks_are_told_with_the_command_that_builds_them(
    make_project: MakeProject, reader: Reader
) -> None:
    def years() -> set[int]:
        return set(reader.table(project.schema, "batched").values("y"))

    project = make_project("gap", {"models/batched.sql": MODEL})
    ends = (f"--event-time-start={YEAR - 3}-01-01", f"--event-time-end={YEAR - 2}-01-01")
    project.dbt("build", *ends).succeeded()
    assert years() == {YEAR - 3}
    # The lookback goes one batch back from now, and nothing that fails or is held tells of the gap.
    later = project.dbt("build").succeeded()
    assert years() == {YEAR - 3, YEAR - 1, YEAR}
    assert f"from {YEAR - 2}-01-01T00:00:00 to {YEAR - 1}-01-01T00:00:00" in later.text
    told = COMMAND.search(later.text)
    assert told is not None, later.text
    filled = project.dbt(*told[0].split()).succeeded()
    assert years() == {YEAR - 3, YEAR - 2, YEAR - 1, YEAR}
    assert "main lacks" not in filled.text + project.dbt("build").succeeded().text
