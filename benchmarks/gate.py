"""What the gate costs: the same project through sparkwap and through plain dbt-spark.

Both write to the same Spark server, in the same run of this script, in turn (A B A B ...), so that
a slow moment of the machine meets both. The figure is dbt's own elapsed time, from its
run_results.json: hooks and the publish are in it, starting Python is not. The ratio is taken pair
by pair.

    python benchmarks/gate.py [--pairs 7] [--only small]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from harness import machine, serving, spread

from sparkwap.catalog import BranchItem
from sparkwap.publish.lake import Lake
from sparkwap.server import ServerConfig, catalog_properties

TABLES_PUBLISHED = 50


@dataclass(frozen=True)
class Scenario:
    """A project that both sides build.

    ``files`` are written into the project; ``before`` are dbt arguments of a first build that is
    not measured; the measured command is ``dbt build``.
    """

    name: str
    what: str
    limit: float
    files: dict[str, str]


def _small_models() -> dict[str, str]:
    files = {"seeds/regions.csv": "code,name\nn,North\ns,South\n"}
    for i in range(4):
        files[f"models/stg_{i}.sql"] = (
            "{{ config(materialized='table') }} "
            f"select id, id % 7 as k, id * {i + 1} as v from range(200)"
        )
    files["models/fct.sql"] = (
        "{{ config(materialized='incremental', incremental_strategy='merge', unique_key='id') }} "
        "select s.id, s.k, s.v + t.v as v from {{ ref('stg_0') }} s "
        "join {{ ref('stg_1') }} t on s.id = t.id"
    )
    files["models/dim.sql"] = (
        "{{ config(materialized='table') }} "
        "select k, sum(v) as v from {{ ref('stg_2') }} group by k"
    )
    files["models/out.sql"] = (
        "{{ config(materialized='table') }} select f.id, d.v from {{ ref('fct') }} f "
        "join {{ ref('dim') }} d on f.k = d.k join {{ ref('stg_3') }} s on s.id = f.id"
    )
    files["models/schema.yml"] = "\n".join(
        ["models:"]
        + [
            f"  - {{name: {name}, columns: [{{name: {column}, data_tests: [not_null]}}]}}"
            for name, column in (
                ("stg_0", "id"),
                ("stg_1", "id"),
                ("fct", "id"),
                ("dim", "k"),
                ("out", "id"),
            )
        ]
    )
    return files


LARGE = (
    "{{ config(materialized='table') }} select id, id % 1000 as k, rand(7) as x, rand(8) as y, "
    "cast(id as string) as t, sha2(cast(id as string), 256) as h, "
    "date_add(date'2024-01-01', cast(id % 365 as int)) as d from range(1000000)"
)
MERGED = (
    "{{ config(materialized='incremental', incremental_strategy='merge', unique_key='id') }} "
    "select id, id % 1000 as k, hash(id, {{ run_started_at.timestamp() }}) as x, "
    "cast(id as string) as t "
    "from range({% if is_incremental() %}10000{% else %}1000000{% endif %})"
)


def _big_models(sql: str, count: int = 4) -> dict[str, str]:
    names = [f"big_{i}" for i in range(count)]
    tested = [f"{{name: {n}, columns: [{{name: id, data_tests: [not_null]}}]}}" for n in names]
    return {
        **{f"models/{name}.sql": sql for name in names},
        "models/schema.yml": f"models: [{', '.join(tested)}]",
    }


SCENARIOS = [
    Scenario("small", "13 small nodes: 7 models, 1 seed, 5 tests", 1.25, _small_models()),
    Scenario("table", "4 table models of 1 M rows, 4 tests", 1.10, _big_models(LARGE)),
    Scenario("merge", "4 MERGEs of 10 k rows into 1 M, 4 tests", 1.10, _big_models(MERGED)),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--only", choices=[s.name for s in SCENARIOS] + ["publish"])
    chosen = parser.parse_args()
    with serving() as (config, endpoint):
        print(f"Machine: {machine()}\n")
        print("| what | plain dbt-spark | gated | ratio (min - median - max) | limit |")
        print("|---|---|---|---|---|")
        for scenario in SCENARIOS:
            if chosen.only in (None, scenario.name):
                plain, gated = _measure(
                    config.lake.parent, scenario, endpoint.thrift_port, chosen.pairs
                )
                print(_row(scenario, plain, gated), flush=True)
        if chosen.only in (None, "publish"):
            print(
                f"\nPublish of {TABLES_PUBLISHED} tables in one transaction: "
                + _seconds(_publish(config, chosen.pairs))
                + " (limit 2 s)"
            )


def _measure(
    home: Path, scenario: Scenario, port: int, pairs: int
) -> tuple[list[float], list[float]]:
    sides = {
        "plain": {
            "type": "spark",
            "method": "thrift",
            "host": "127.0.0.1",
            "port": port,
            "user": "bench",
            "schema": f"plain_{scenario.name}",
            "threads": 4,
            # Its default of 5 seconds would be added to every statement of more than 5.
            "poll_interval": 1,
        },
        "gated": {
            "type": "sparkwap",
            "lake": str(home / ".lake"),
            "schema": f"gated_{scenario.name}",
            "threads": 4,
            "poll_interval": 1,
            "memory": "4g",
        },
    }
    projects = {side: _project(home, scenario, side, out) for side, out in sides.items()}
    for project in projects.values():
        # Once to create, once more for what only a second build does.
        _build(project)
        _build(project)
    figures: dict[str, list[float]] = {"plain": [], "gated": []}
    for pair in range(pairs):
        for side in ("plain", "gated") if pair % 2 == 0 else ("gated", "plain"):
            figures[side].append(_build(projects[side]))
    return figures["plain"], figures["gated"]


def _project(home: Path, scenario: Scenario, side: str, output: dict[str, object]) -> Path:
    folder = home / scenario.name / side
    formats = (
        ""
        if side == "gated"
        else ("models: {+file_format: iceberg}\nseeds: {+file_format: iceberg}\n")
    )
    files = {
        "dbt_project.yml": f"name: bench\nversion: '1.0'\nprofile: bench\n{formats}",
        "profiles.yml": json.dumps({"bench": {"target": "t", "outputs": {"t": output}}}),
        **scenario.files,
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def _build(project: Path) -> float:
    """Seconds of one ``dbt build``, as dbt tells them."""
    done = subprocess.run(
        [sys.executable, "-c", "from dbt.cli.main import cli; cli()", "--quiet", "build"],
        cwd=project,
        env={**os.environ, "DBT_PROFILES_DIR": str(project)},
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise SystemExit(f"{project}: dbt build failed\n{done.stdout}\n{done.stderr}")
    return float(json.loads((project / "target" / "run_results.json").read_text())["elapsed_time"])


def _publish(config: ServerConfig, rounds: int) -> list[float]:
    """Seconds of publishing 50 tables that each wait on an audit branch."""
    lake = Lake("lake", catalog_properties(config))
    lake.ensure_schema("bench_publish")
    rows = pa.table({"id": pa.array(range(100), pa.int64())})
    names = [f"t{i}" for i in range(TABLES_PUBLISHED)]
    for name in names:
        table = lake.catalog.create_table(("bench_publish", name), rows.schema)
        table.append(rows)
    seconds = []
    for i in range(rounds):
        branch = f"wap_bench{i}"
        items = []
        for name in names:
            opened = lake.branches.open(("bench_publish", name), branch)
            table = lake.catalog.load_table(("bench_publish", name))
            table.append(rows, branch=branch)
            head = table.refresh().refs()[branch].snapshot_id
            items.append(BranchItem(("bench_publish", name), branch, opened.base, head))
        started = time.perf_counter()
        lake.publishing.publish(
            items,
            run_id=f"{i:08d}-0000-4000-8000-000000000000",
            tag=f"wap_pub_{i:08d}",
            tag_max_age_ms=None,
            branch=branch,
        )
        seconds.append(time.perf_counter() - started)
    return seconds


def _row(scenario: Scenario, plain: list[float], gated: list[float]) -> str:
    ratios = [g / p for p, g in zip(plain, gated, strict=True)]
    return (
        f"| {scenario.what} | {_seconds(plain)} | {_seconds(gated)} "
        f"| {spread(ratios)} | {scenario.limit:.2f} |"
    )


def _seconds(figures: list[float]) -> str:
    return f"{statistics.median(figures):.2f} s"


if __name__ == "__main__":
    main()
