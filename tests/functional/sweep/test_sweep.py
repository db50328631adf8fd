"""A sweep removes what dead runs left, and nothing of living runs; readers see no change."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.lake import Reader, SparkReader
from helpers.project import MakeProject, Outcome, Project

FILES = {
    "models/orders.sql": """
        {{ config(materialized='table') }}
        select id, {{ env_var('SWEEP_V') }} as v from range(1, 4)
    """,
    "models/totals.sql": """
        {{ config(materialized='table') }}
        select sum(v) as total from {{ ref('orders') }}
    """,
    "models/fresh.sql": """
        {{ config(materialized='table', enabled=env_var('SWEEP_V') != '1') }}
        select id, v from {{ ref('orders') }}
    """,
    "models/properties.yml": """
        models:
          - name: orders
            columns: [{name: id, data_tests: [{unique: {name: orders_are_unique}}]}]
          - name: totals
            columns: [{name: total, data_tests: [{not_null: {name: totals_are_known}}]}]
    """,
}
WAITS = """
    import time

    def model(dbt, session):
        dbt.config(materialized="table")
        frame = dbt.ref("totals")
        time.sleep(300)
        return frame
"""
NOW = {"older_than": 0, "named_older_than": 0}


def files(lake_dir: Path, schema: str) -> set[Path]:
    """Return all files of a schema and its side schemas."""
    folders = (lake_dir / "warehouse").glob(f"{schema}*")
    return {path for folder in folders for path in folder.rglob("*") if path.is_file()}


def age(lake_dir: Path, schema: str, days: float = 5) -> None:
    """Make the files of a schema some days old."""
    then = time.time() - days * 86_400
    for path in files(lake_dir, schema):
        os.utime(path, (then, then))


def refs(reader: Reader, project: Project, name: str) -> set[str]:
    return set(reader.metadata(project.schema, name)["refs"])


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert condition()


@pytest.fixture(scope="module")
def project(make_project: MakeProject) -> Iterator[Project]:
    project = make_project("sweep", FILES)
    # Not a var, because other vars make dbt parse the whole project again.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SWEEP_V", "1")
        project.dbt("build").succeeded()
        yield project


def test_a_sweep_removes_the_branch_and_the_files_of_a_run(
    project: Project,
    reader: Reader,
    spark: SparkReader,
    lake_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schema = project.schema
    monkeypatch.setenv("SWEEP_V", "2")
    held = project.dbt("run").succeeded()
    assert held.branch in refs(reader, project, "orders")
    assert set(reader.pointers(f"{schema}__{held.branch}")) == {"fresh"}
    age(lake_dir, schema)
    before, seen = files(lake_dir, schema), reader.look(schema)

    look = project.operation("wap_sweep", **NOW, dry_run=True).succeeded()
    assert "A sweep would remove (nothing was changed):" in look.text
    assert f"branch   {held.branch}   3 tables" in look.text
    assert (files(lake_dir, schema), reader.look(schema)) == (before, seen)

    with reader.polling(schema) as poller:
        swept = project.operation("wap_sweep", **NOW).succeeded()
    assert "Swept; readers of main see no change:" in swept.text
    assert len(poller.states) == 1
    assert {name: table.seen() for name, table in reader.look(schema).items()} == {
        name: table.seen() for name, table in seen.items()
    }
    for name in ("orders", "totals"):
        assert not {ref for ref in refs(reader, project, name) if held.branch in ref}
    assert reader.pointers(f"{schema}__{held.branch}") == {}
    left = files(lake_dir, schema)
    assert not [path for path in left if "/fresh-" in str(path)]
    data = {path for path in before - left if path.suffix == ".parquet"}
    assert len(data) >= 3
    # Spark still reads and builds the remaining tables.
    assert spark.rows(f"select v from {schema}.orders") == [(1,), (1,), (1,)]
    rows = reader.ledger("sweeps", object=held.branch)
    assert {(row["schema"], row["name"]) for row in rows} == {
        (schema, "orders"),
        (schema, "totals"),
        (f"{schema}__{held.branch}", "fresh"),
    }
    project.dbt("build").succeeded()
    assert spark.rows(f"select total from {schema}.totals") == [(6,)]


def test_the_branch_of_a_running_command_stays_and_that_of_a_killed_one_does_not(
    project: Project, reader: Reader
) -> None:
    project.write({"models/waits.py": WAITS})
    own = refs(reader, project, "totals")
    running = project.start("build")
    wait_until(lambda: running.poll() is not None or len(refs(reader, project, "totals") - own) > 1)
    (branch,) = {ref for ref in refs(reader, project, "totals") - own if "base" not in ref}
    in_use = f"in use by run {branch.removeprefix('wap_')}, process {running.pid} on host"
    assert in_use in project.operation("wap_status").succeeded().text
    assert in_use in project.operation("wap_sweep", **NOW).succeeded().text
    assert branch in refs(reader, project, "totals")
    assert in_use in project.operation("wap_discard", branch=branch).failed().text

    running.kill()
    running.wait()
    dead = project.operation("wap_status").succeeded()
    assert f"process {running.pid} on host" in dead.text and "is dead" in dead.text
    assert "no activity for" in command(project, "--older-than", "0").stdout
    assert not refs(reader, project, "totals") - own
    (run,) = reader.ledger("runs", branch=branch, outcome="died")
    assert run["run_id"].startswith(branch.removeprefix("wap_"))
    project.clear("models").write(FILES)


def test_a_run_sweeps_after_its_end(project: Project, reader: Reader) -> None:
    held = project.dbt("run", "--select", "orders").succeeded()
    table = reader.catalog.load_table((project.schema, "totals"))
    left_over = (table.current_snapshot().snapshot_id, "wap_base_pr_9")
    table.manage_snapshots().create_tag(*left_over).commit()
    done = project.dbt("build", "--select", "totals", wap_sweep="end_of_run").succeeded()
    assert "it marks the base of a branch that no longer exists" in done.text
    assert "wap_base_pr_9" not in refs(reader, project, "totals")
    # Not old enough to be removed.
    assert held.branch in refs(reader, project, "orders")
    (row,) = reader.ledger("sweeps", run_id=done.run_id, what="tag")
    assert (row["name"], row["object"]) == ("totals", "wap_base_pr_9")
    project.operation("wap_discard", branch=held.branch).succeeded()


def test_a_rolled_back_publish_is_audited_again(
    project: Project, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEP_V", "10")
    schema = project.schema

    def total() -> list[Any]:
        return reader.table(schema, "totals").values("total")

    (before,) = total()
    first = project.dbt("build").succeeded()
    second = project.dbt("build", "--select", "totals").succeeded()
    refused = project.operation("wap_rollback", run=first.run_id).failed()
    assert f"then came the publish of run {second.run_id[:8]}" in refused.text
    assert total() == [30]
    with reader.polling(schema) as poller:
        forced = project.operation("wap_rollback", run=first.run_id, force=True).succeeded()
    assert f"undone with it: the publish of run {second.run_id[:8]}" in forced.text
    assert len(poller.states) == 2
    assert total() == [before]

    reopened = project.operation("wap_rollback", run=first.run_id, reopen=True).succeeded()
    assert f"Opened {first.branch} again with 3 tables, as published" in reopened.text
    assert total() == [before]
    audited: Outcome = project.dbt("test", wap_branch=first.branch).succeeded()
    assert audited.verdict("totals") == "published"
    assert total() == [30]
    assert first.branch not in refs(reader, project, "orders")


def command(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command `sparkwap sweep` in a process."""
    folder = str(project.folder)
    call = [sys.executable, "-m", "sparkwap.cli", "sweep", *arguments]
    call += ["--project-dir", folder, "--profiles-dir", folder]
    return subprocess.run(call, check=True, capture_output=True, text=True)
