"""Batches of a microbatch model at the same time: the rows are those of one batch after another.

Each project has a model twice: `together` with `concurrent_batches`, and `in_turn` with batches one
after another, which tells what the rows must be.
"""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from helpers.lake import Reader, SparkReader
from helpers.project import MakeProject, Outcome, Project

from sparkwap.core import checkpoints

DAYS = 12
# The first two batches and two days between have no rows.
FIRST, END, EMPTY = "2025-12-30", f"2026-01-{DAYS - 1}", (3, 8)
WINDOW = ("--event-time-start", FIRST, "--event-time-end", END)

EVENTS = f"""
    {{{{ config(materialized='table', event_time='ts') }}}}
    select timestamp '2026-01-01' + interval 8 hours * id as ts,
        id, {{{{ env_var('N', '1') }}}} as n
    from range({3 * (DAYS - 2)}) where id div 3 + 1 not in {EMPTY}
"""
BATCHED = """
    {{{{ config(materialized='incremental', incremental_strategy='microbatch', event_time='ts',
               batch_size='day', begin='2025-12-30', lookback=3, unique_key='id'{config}) }}}}
    select * {more} from {{{{ ref('events') }}}} {where}
"""
TESTS = """
    models:
      - name: together
        columns: [{name: id, data_tests: [unique, not_null]}]
"""


def batched(more: str = "", where: str = "", **config: Any) -> str:
    texts = "".join(f", {key}={value!r}" for key, value in config.items())
    return BATCHED.format(config=texts, more=more, where=where)


def files(more: str = "", where: str = "", **config: Any) -> dict[str, str]:
    return {
        "models/events.sql": EVENTS,
        "models/together.sql": batched(more, where, **config, concurrent_batches=True),
        "models/in_turn.sql": batched(more, where, **config),
        "models/properties.yml": TESTS,
    }


def inserts_at_once(table: str) -> Any:
    """Record how many inserts of a table Spark had to do at the same time."""

    @contextmanager
    def recording() -> Iterator[list[int]]:
        at_work: set[int] = set()
        counts: list[int] = []
        lock = threading.Lock()

        def listen(step: checkpoints.Checkpoint, about: Mapping[str, Any]) -> None:
            with lock:
                if step is checkpoints.STATEMENT_DONE:
                    at_work.discard(threading.get_ident())
                elif step is checkpoints.STATEMENT_SENDING and re.search(
                    rf"insert into \S+\.{table}\b", about["sql"]
                ):
                    at_work.add(threading.get_ident())
                    counts.append(len(at_work))

        end = checkpoints.listen(listen)
        try:
            yield counts
        finally:
            end()

    return recording()


def make(make_project: MakeProject, name: str, project_files: dict[str, str]) -> Project:
    return make_project(name, project_files, output={"threads": 4})


def rows(project: Project, reader: Reader, table: str, *columns: str) -> list[Any]:
    return reader.table(project.schema, table).values(*(columns or ("ts", "id", "n")))


def seen(project: Project, reader: Reader) -> dict[str, Any]:
    return {name: look.seen() for name, look in reader.look(project.schema).items()}


def require_equal(project: Project, reader: Reader, n: int, outcome: Outcome) -> None:
    found = rows(project, reader, "together")
    assert found == rows(project, reader, "in_turn"), outcome.text
    assert [row[2] for row in found] == [n] * (3 * (DAYS - 2 - len(EMPTY)))


def test_batches_run_at_the_same_time_and_are_published_at_once(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make(make_project, "together", files(partition_by="days(ts)"))
    for number, more in ((1, ()), (2, ()), (3, ("--full-refresh",))):
        monkeypatch.setenv("N", str(number))
        with reader.polling(project.schema) as poller, inserts_at_once("together") as counts:
            built = project.dbt("build", *WINDOW, *more).succeeded()
        poller.only_move()
        assert len(counts) == DAYS - (number == 1)
        assert max(counts) > 1, counts
        require_equal(project, reader, number, built)
    with inserts_at_once("in_turn") as counts:
        project.dbt("run", "--select", "in_turn", *WINDOW).succeeded()
    assert max(counts) == 1
    (snapshots,) = [reader.metadata(project.schema, "together")["snapshots"]]
    named = {one["summary"].get("wap_batch") for one in snapshots}
    assert "2026-01-05T00:00:00+00:00" in named


@pytest.mark.parametrize("partition_by", ["months(ts)", None, "days(ts)"])
def test_batches_whose_rows_share_files_write_one_after_another(
    make_project: MakeProject,
    reader: Reader,
    spark: SparkReader,
    monkeypatch: pytest.MonkeyPatch,
    partition_by: str | None,
) -> None:
    given = {"partition_by": partition_by} if partition_by else {}
    project = make(make_project, "sharing", files(**given))
    with inserts_at_once("together") as counts:
        require_equal(project, reader, 1, project.dbt("build", *WINDOW).succeeded())
    # Nothing is in a new table that a batch would have to delete.
    assert max(counts) > 1
    for table in ("together", "in_turn"):
        whole = "options => map('rewrite-all', 'true')"
        spark.rows(
            f"call lake.system.rewrite_data_files(table => '{project.schema}.{table}', {whole})"
        )
    monkeypatch.setenv("N", "2")
    with inserts_at_once("together") as counts:
        require_equal(project, reader, 2, project.dbt("build", *WINDOW).succeeded())
    assert (max(counts) > 1) == (partition_by == "days(ts)")


def test_a_failed_batch_keeps_all_of_them_from_readers_until_its_retry(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = """
        {% if model.batch and model.batch.event_time_start.day == 5 %}
        where n < {{ env_var('BAD', '9') }}
        {% endif %}
    """
    project = make(make_project, "failing", files(where=bad, partition_by="days(ts)"))
    project.dbt("build", *WINDOW).succeeded()
    before = seen(project, reader)
    monkeypatch.setenv("N", "2")
    monkeypatch.setenv("BAD", "cast('x' as int)")
    failed = project.dbt("build", *WINDOW).failed()
    assert failed.statuses["together"] == "partial success"
    assert seen(project, reader) == before
    monkeypatch.delenv("BAD")
    require_equal(project, reader, 2, project.dbt("retry").succeeded())


def test_the_lookback_is_built_again(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make(make_project, "lookback", files(partition_by="days(ts)"))
    project.dbt("build", *WINDOW).succeeded()
    monkeypatch.setenv("N", "2")
    today = datetime(2026, 1, 10, 12, tzinfo=UTC)
    monkeypatch.setattr("dbt.task.run.get_invocation_started_at", lambda: today)
    built = project.dbt("build").succeeded()
    found = rows(project, reader, "together")
    assert found == rows(project, reader, "in_turn"), built.text
    assert {row[0].day for row in found if row[2] == 2} == {7, 9, 10}


def test_a_row_outside_the_batch_is_an_error_that_tells_the_way_on(
    make_project: MakeProject, reader: Reader
) -> None:
    late = batched(concurrent_batches=True).replace(
        "select *", "select ts + interval 1 day as ts, id, n"
    )
    project = make(make_project, "stray", {"models/events.sql": EVENTS, "models/late.sql": late})
    failed = project.dbt("build", *WINDOW).failed()
    assert "A batch of late returned a row outside its time range" in failed.text
    assert "late" not in reader.look(project.schema)
    in_turn = late.replace(", concurrent_batches=True", "")
    project.write({"models/late.sql": in_turn})
    project.dbt("build", *WINDOW).succeeded()
    assert "late" in reader.look(project.schema)


@pytest.mark.parametrize("exists", [False, True])
def test_a_column_that_comes_with_a_middle_batch(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    more = """
        {% if model.batch and 4 <= model.batch.event_time_start.day <= env_var('LAST', '0') | int %}
        , 7 as extra
        {% endif %}
    """
    config = {"partition_by": "days(ts)", "on_schema_change": "append_new_columns"}
    project = make(make_project, "evolving", files(more, **config))
    if exists:
        project.dbt("build", *WINDOW).succeeded()
    monkeypatch.setenv("LAST", "7")
    built = project.dbt("build", *WINDOW)
    if exists:
        # The first batches are on the branch, which cannot have columns of its own.
        assert "was already written on its branch by this run" in built.failed().text
        built = project.dbt("retry")
    built.succeeded()
    found = rows(project, reader, "together", "ts", "id", "extra")
    assert found == rows(project, reader, "in_turn", "ts", "id", "extra")
    assert {row[0].day for row in found if row[2] == 7} == {4, 5, 6, 7}


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_is_ended_amid_its_batches_goes_on_by_retry(
    make_project: MakeProject,
    reader: Reader,
    monkeypatch: pytest.MonkeyPatch,
    ended_by: signal.Signals,
) -> None:
    project = make(make_project, "killed", files(partition_by="days(ts)"))
    project.dbt("build", *WINDOW).succeeded()
    before = seen(project, reader)
    monkeypatch.setenv("N", "2")
    known = len(reader.metadata(project.schema, "together")["snapshots"])
    process = project.start("build", *WINDOW)
    deadline = time.monotonic() + 120
    while len(reader.metadata(project.schema, "together")["snapshots"]) < known + 7:
        assert process.poll() is None and time.monotonic() < deadline, project.errors.read_text()
        time.sleep(0.05)
    process.send_signal(ended_by)
    process.wait(timeout=120)
    assert seen(project, reader) == before
    # A statement that the server still carries out may reach the branch of the retry.
    for _ in range(3):
        retried = project.dbt("retry")
        if retried.ok:
            break
    require_equal(project, reader, 2, retried.succeeded())


def test_results_name_every_batch_once(make_project: MakeProject) -> None:
    project = make(make_project, "results", files(partition_by="days(ts)"))
    project.dbt("build", *WINDOW).succeeded()
    results = json.loads((project.folder / "target/run_results.json").read_text())["results"]
    (batches,) = [
        one["batch_results"] for one in results if one["unique_id"] == "model.shop.together"
    ]
    assert len(batches["successful"]) == DAYS and not batches["failed"]
