"""Many runs at once on one lake in PostgreSQL: gated, and by plain dbt-spark, in turn.

Each run is a `dbt build` of five tables of its own and ten tests. With ``--shared``, the gated runs
also append to one table of all, so that all but one of those that overlap have to build it again.

    python benchmarks/runs.py [--runs 20] [--rounds 3] [--shared]

Needs ``initdb`` and ``postgres`` on ``PATH``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import MEMORY, dbt_command, machine, spread, write_project
from sqlalchemy import text

from sparkwap.publish.lake import Lake
from sparkwap.server import ServerConfig, catalog_properties, ensure, stop

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from helpers.postgres import running_postgres

MOST_CONNECTIONS = 600
TABLES = 5
MODEL = "{{ config(materialized='table') }} select id, id % 7 as k from range(1000)"
SHARED = (
    "{{ config(materialized='incremental', schema='shared', alias='log') }} "
    "select '{{ invocation_id }}' as run, now() as at"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shared", action="store_true")
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="sparkwap-bench-"))
    with running_postgres(MOST_CONNECTIONS) as database:
        uri = database.uri
        config = ServerConfig(lake=home / ".lake", memory=MEMORY, catalog_uri=uri)
        try:
            endpoint = ensure(config, lambda line: print(f"  {line}", file=sys.stderr))
            projects = {
                side: [
                    _project(home, side, number, uri, endpoint.thrift_port, options.shared)
                    for number in range(options.runs)
                ]
                for side in ("plain", "gated")
            }
            _compare(Lake("lake", catalog_properties(config)), projects, options.rounds)
        finally:
            stop(config.lake)
            shutil.rmtree(home, ignore_errors=True)


def _compare(lake: Lake, projects: dict[str, list[Path]], rounds: int) -> None:
    """Build all projects of a side at once, the sides in turn."""
    for side in projects.values():
        _build(side[:1])
    walls: dict[str, list[float]] = {"plain": [], "gated": []}
    seconds: dict[str, list[float]] = {"plain": [], "gated": []}
    connections: dict[str, list[int]] = {"plain": [0], "gated": [0]}
    failed: list[str] = []
    known = {row["run_id"] for row in lake.ledger.rows("runs")}
    for number in range(rounds):
        for side in ("plain", "gated") if number % 2 == 0 else ("gated", "plain"):
            started = time.perf_counter()
            with _counting(lake, connections[side]):
                times, errors = _build(projects[side])
            walls[side].append(time.perf_counter() - started)
            seconds[side] += times
            failed += [f"{side}: {error}" for error in errors]
    print(f"{machine()}; {len(projects['gated'])} runs at once, {rounds} rounds")
    for side in ("plain", "gated"):
        took = sorted(seconds[side])
        print(
            f"{side}: {statistics.median(walls[side]):.0f} s for all; a run {took[0]:.0f} - "
            f"{statistics.median(took):.0f} - {took[-1]:.0f} s; "
            f"at most {max(connections[side])} connections to the database"
        )
    print("gated/plain, all runs: " + spread([g / p for p, g in zip(*walls.values(), strict=True)]))
    rows = [row for row in lake.ledger.rows("runs") if row["run_id"] not in known]
    rows = [row for row in rows if row["rebuild_of"] is None]
    outcomes = {one: sum(r["outcome"] == one for r in rows) for one in {r["outcome"] for r in rows}}
    tries = [row["tries"] or 0 for row in rows]
    waited = max(row["waited_seconds"] or 0 for row in rows)
    print(
        f"gated: {outcomes}; built again {sum(map(bool, tries))}, at most {max(tries)} times; "
        f"waited at most {waited:.0f} s; errors {len(failed)}"
    )
    for error in failed[:5]:
        print(error)


@contextmanager
def _counting(lake: Lake, counts: list[int]) -> Iterator[None]:
    """Sample the number of connections to the database."""
    done = threading.Event()

    def count() -> None:
        while not done.wait(1):
            with lake.store.backend.reading() as connection:
                counts.append(
                    connection.execute(text("select count(*) from pg_stat_activity")).scalar_one()
                )

    thread = threading.Thread(target=count)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _build(projects: list[Path]) -> tuple[list[float], list[str]]:
    """Seconds of each `dbt build`, by dbt, and the ends of the outputs of those that failed."""
    output: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    running = [subprocess.Popen(**dbt_command(project, "build"), **output) for project in projects]
    outputs = [one.communicate()[0] for one in running]
    errors = [
        output[-2000:] for one, output in zip(running, outputs, strict=True) if one.returncode
    ]
    results = [project / "target" / "run_results.json" for project in projects]
    return [json.loads(one.read_text())["elapsed_time"] for one in results if one.exists()], errors


def _project(home: Path, side: str, number: int, uri: str, port: int, shared: bool) -> Path:
    folder = home / side / str(number)
    common = {"schema": f"{side}_{number}", "threads": 2, "poll_interval": 1}
    plain = {"type": "spark", "method": "thrift", "host": "127.0.0.1", "port": port, "user": "b"}
    gated = {
        "type": "sparkwap",
        "lake": str(home / ".lake"),
        "memory": MEMORY,
        "catalog_uri": uri,
    }
    output = common | (plain if side == "plain" else gated)
    names = [f"t_{i}" for i in range(TABLES)]
    files = {
        "dbt_project.yml": f"name: p{number}\nversion: '1.0'\nprofile: bench\n"
        + ("models: {+file_format: iceberg}\n" if side == "plain" else ""),
        "profiles.yml": json.dumps({"bench": {"target": "t", "outputs": {"t": output}}}),
        "models/schema.yml": "models:\n"
        + "".join(
            f"  - {{name: {name}, columns: [{{name: id, data_tests: [not_null, unique]}}]}}\n"
            for name in names
        ),
        "macros/schema.sql": "{% macro generate_schema_name(name, node) %}"
        "{{ name or target.schema }}{% endmacro %}",
        **{f"models/{name}.sql": MODEL for name in names},
    }
    if shared and side == "gated":
        files["models/log.sql"] = SHARED
    return write_project(folder, files)


if __name__ == "__main__":
    main()
