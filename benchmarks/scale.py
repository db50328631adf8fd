"""How commands grow with the lake: the same run of 20 tables in a small and in a large one.

Both lakes have the project of the run, built through the gate, and other tables: each of 100 data
files, published twice, with rows in the ledger as a run leaves them. The files of the other tables
are hard links to one file, because no command here reads them. Each command runs in the small and
in the large lake in turn (A B A B ...); the ratio is taken pair by pair.

    python benchmarks/scale.py [--tables 200 2000] [--pairs 5]
    python benchmarks/scale.py --runs 10 2000

With ``--runs``, the lakes have no other tables; the ledger has former runs of the project, a
quarter of an hour apart.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from harness import machine, spread, write_project
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import DataFile

from sparkwap.catalog import Candidate
from sparkwap.catalog.model import LedgerRows
from sparkwap.publish.lake import Lake
from sparkwap.server import ServerConfig, catalog_properties, ensure, stop

RUN_TABLES = 20
TESTS_PER_TABLE = 3
FILES_PER_TABLE = 100
TABLES_PER_SCHEMA = 100
TABLES_PER_PUBLISH = 500
LIMIT = 1.2

COMMANDS = {
    "build": ["dbt.cli.main", "build"],
    **{name: ["sparkwap.cli", name] for name in ("status", "sweep", "plan", "metrics")},
}
"""Command -> the module to run, and its arguments."""


@dataclass
class BenchLake:
    """A lake with its server, and a project of 20 tables in it."""

    home: Path
    tables: int
    runs: int = 0
    publish_seconds: list[float] = field(default_factory=list)
    config: ServerConfig = field(init=False)

    def __post_init__(self) -> None:
        self.config = ServerConfig(lake=self.home / ".lake", memory="1g")

    def open(self) -> Lake:
        return Lake("lake", catalog_properties(self.config))

    def run(self, command: list[str]) -> tuple[float, float]:
        """Wall and CPU seconds of a command in the project; the server's are not in the latter."""
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=self.home,
            env={**os.environ, "DBT_PROFILES_DIR": str(self.home)},
            capture_output=True,
            text=True,
        )
        wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed\n{done.stdout}\n{done.stderr}")
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return wall, cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, nargs=2, default=[200, 2000])
    parser.add_argument("--runs", type=int, nargs=2)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", choices=[*COMMANDS], action="append")
    parser.add_argument(
        "--keep", type=Path, help="a folder for the lakes; used again if it is there"
    )
    options = parser.parse_args()
    home = options.keep or Path(tempfile.mkdtemp(prefix="sparkwap-bench-"))
    lakes = [BenchLake(home / str(tables), tables) for tables in options.tables]
    if options.runs:
        lakes = [BenchLake(home / f"runs-{runs}", RUN_TABLES, runs) for runs in options.runs]
    try:
        for lake in lakes:
            ensure(lake.config, lambda line: print(f"  {line}", file=sys.stderr))
            if not (lake.home / "made").exists():
                _make(lake)
        _measure(lakes, options.only or list(COMMANDS), options.pairs)
    finally:
        for lake in lakes:
            stop(lake.config.lake)
        if options.keep is None:
            shutil.rmtree(home, ignore_errors=True)


def _measure(lakes: list[BenchLake], which: list[str], pairs: int) -> None:
    print(machine())
    sizes = [f"{one.runs} runs" if one.runs else f"{one.tables} tables" for one in lakes]
    print(f"| command | {sizes[0]} | {sizes[1]} | ratio | of CPU | limit |")
    print("|---|---|---|---|---|---|")
    for name in which:
        figures = [[lake.run(COMMANDS[name]) for lake in lakes] for _ in range(pairs)]
        walls = [(a[0], b[0]) for a, b in figures]
        cpus = [b[1] / a[1] for a, b in figures]
        ratios = [b / a for a, b in walls]
        middle = sorted(walls)[len(walls) // 2]
        print(
            f"| {name} | {middle[0]:.2f} s | {middle[1]:.2f} s | {spread(ratios)} "
            f"| {spread(cpus)} | {LIMIT} |",
            flush=True,
        )


def _make(lake: BenchLake) -> None:
    """Build the run's tables through the gate, and make the others."""
    files = {
        "dbt_project.yml": "name: shop\nversion: '1.0'\nprofile: shop\n",
        "profiles.yml": json.dumps(
            {
                "shop": {
                    "target": "t",
                    "outputs": {
                        "t": {
                            "type": "sparkwap",
                            "lake": str(lake.config.lake),
                            "schema": "shop",
                            "threads": 4,
                            "memory": "1g",
                        }
                    },
                }
            }
        ),
        "models/schema.yml": "models:\n"
        + "".join(
            f"  - {{name: t_{i}, columns: [{{name: id, data_tests: [not_null, unique]}}, "
            "{name: k, data_tests: [not_null]}]}\n"
            for i in range(RUN_TABLES)
        ),
        **{
            f"models/t_{i}.sql": "{{ config(materialized='table') }} select id, id % 7 as k from "
            + ("range(1000)" if i < 5 else f"{{{{ ref('t_{i - 5}') }}}}")
            for i in range(RUN_TABLES)
        },
    }
    write_project(lake.home, files)
    lake.run(COMMANDS["build"])
    started = time.perf_counter()
    _others(lake)
    _history(lake)
    print(f"  {lake.home.name} made in {time.perf_counter() - started:.0f} s", file=sys.stderr)
    lake.run(COMMANDS["build"])
    (lake.home / "made").touch()


def _others(bench: BenchLake) -> None:
    lake = bench.open()
    rows = pa.table({"id": pa.array(range(10), pa.int64()), "k": pa.array(range(10), pa.int64())})
    source = bench.home / "rows.parquet"
    template = None
    names = [
        (f"s{i // TABLES_PER_SCHEMA:03}", f"t{i:05}") for i in range(bench.tables - RUN_TABLES)
    ]
    runs = _LedgerRows(lake)
    for start in range(0, len(names), TABLES_PER_PUBLISH):
        chunk = names[start : start + TABLES_PER_PUBLISH]
        for schema in {schema for schema, _ in chunk}:
            lake.ensure_schema(schema)
        for name in chunk:
            table = lake.catalog.create_table(name, rows.schema)
            if template is None:
                pq.write_table(rows, source)
                template = parquet_file_to_data_file(table.io, table.metadata, str(source))
            _append(table, template, source, FILES_PER_TABLE // 2, None)
        for _ in range(2):
            run_id = str(uuid.uuid4())
            branch, items = f"wap_{run_id[:8]}", []
            for name in chunk:
                opened = lake.branches.open(name, branch)
                table = lake.catalog.load_table(name)
                _append(table, template, source, FILES_PER_TABLE // 4, branch)
                head = table.refresh().refs()[branch].snapshot_id
                items.append(Candidate(name, branch, "branch", opened.base, token=str(head)))
            began = time.perf_counter()
            lake.publishing.publish(
                items,
                run_id=run_id,
                tag=f"wap_pub_{run_id[:8]}",
                tag_max_age_ms=None,
                branch=branch,
                appends=runs.of(run_id, branch, items),
            )
            bench.publish_seconds.append(time.perf_counter() - began)
        print(
            f"  {start + len(chunk)} tables, publish {bench.publish_seconds[-1]:.2f} s",
            file=sys.stderr,
        )
    lake.close()


def _history(bench: BenchLake) -> None:
    """Append the rows of the last run again and again, with other ids and times."""
    lake = bench.open()
    last = lake.ledger.runs(limit=1)[0]
    tables = ("runs", "nodes", "tests", "publishes")
    of_last = {name: lake.ledger.of_run(name, last["run_id"]) for name in tables}
    for number in range(bench.runs):
        before = timedelta(minutes=15 * (bench.runs - number))
        run_id, publish_id = str(uuid.uuid4()), str(uuid.uuid4())
        own = {"run_id": run_id, "branch": f"wap_{run_id[:8]}", "publish_id": publish_id}
        lake.ledger.append(
            [
                LedgerRows(name, [_earlier(row, before, own) for row in rows])
                for name, rows in of_last.items()
            ]
        )
    lake.close()


def _earlier(row: dict[str, Any], by: timedelta, own: dict[str, str]) -> dict[str, Any]:
    return {
        key: own.get(key, value - by if isinstance(value, datetime) else value)
        for key, value in row.items()
    }


def _append(table: Any, template: DataFile, source: Path, count: int, branch: str | None) -> None:
    """Append data files that are hard links to one file."""
    folder = Path(table.location().removeprefix("file:")) / "data"
    folder.mkdir(parents=True, exist_ok=True)
    options = {} if branch is None else {"branch": branch}
    with table.transaction() as change, change.update_snapshot(**options).fast_append() as append:
        for _ in range(count):
            path = folder / f"{uuid.uuid4()}.parquet"
            try:
                os.link(source, path)
            except OSError:  # the file has as many links as the file system allows
                shutil.copy(source, source.with_suffix(".copy"))
                source.with_suffix(".copy").replace(source)
                os.link(source, path)
            append.append_data_file(_renamed(template, str(path)))


def _renamed(file: DataFile, path: str) -> DataFile:
    named = copy(file)
    named._data = list(file._data)
    named[1] = path
    named.spec_id = 0
    return named


class _LedgerRows:
    """Rows of runs, nodes and tests as a run of the project leaves them, with other names."""

    def __init__(self, lake: Lake) -> None:
        ledger = lake.ledger
        self._run = ledger.rows("runs")[-1]
        self._node = ledger.rows("nodes")[-1]
        self._tests = ledger.rows("tests")[:TESTS_PER_TABLE]

    def of(self, run_id: str, branch: str, items: list[Candidate]) -> list[LedgerRows]:
        of_run = {"run_id": run_id, "branch": branch}
        nodes, tests = [], []
        for item in items:
            schema, name = item.identifier
            node = f"model.other.{name}"
            nodes.append(
                {
                    **self._node,
                    **of_run,
                    "node_id": node,
                    "schema": schema,
                    "name": name,
                    "candidate_snapshot": int(item.token),
                    "base_snapshot": item.base,
                    "parents": [],
                    "built_on": {},
                }
            )
            for i, test in enumerate(self._tests):
                tests.append(
                    {
                        **test,
                        **of_run,
                        "test_id": f"test.other.{i}_{name}",
                        "test_name": f"{i}_{name}",
                        "audited": {node: item.token},
                    }
                )
        run = {**self._run, **of_run, "project": "other"}
        return [LedgerRows("runs", [run]), LedgerRows("nodes", nodes), LedgerRows("tests", tests)]


if __name__ == "__main__":
    main()
