"""TPC-H's 22 queries over tables kept by sparkwap, tables of plain dbt-spark, and Parquet files.

All three have the same rows and are read by the same Spark server. First freshly built; then after
``orders`` and ``lineitem`` were updated many times, each time 0.5 % of the orders, all over the
table and merge-on-read. Both projects make the same updates. Then sparkwap's tables are maintained
(`sparkwap maintain`), and those of the other project stay as they are. The queries run on the sides
in turn; each figure is the sum of the medians of the 22 queries. All sides have to answer alike.

    python benchmarks/tpch.py [--scale 1] [--rounds 3] [--updates 20]

Needs ``tpchgen-cli`` (`pip install tpchgen-cli`).
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from harness import Session, dbt, machine, serving, spread, write_project

TABLES = (
    "customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier",
)  # fmt: skip
KEYS = {"lineitem": ["l_orderkey", "l_linenumber"], "orders": ["o_orderkey"]}
SQL = (Path(__file__).parent / "tpch.sql").read_text()
UPDATED = """
{{{{ config(materialized='incremental', incremental_strategy='merge', unique_key={key},
    tblproperties={properties}) }}}}
{{% if is_incremental() %}}
select * from {{{{ this }}}} where pmod(hash({first}, {{{{ var('round') }}}}), 200) = 0
{{% else %}}
select * from parquet.`{path}`
{{% endif %}}
"""
PROPERTIES = {f"write.{what}.mode": "merge-on-read" for what in ("merge", "update", "delete")} | {
    "format-version": "2"
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=20)
    options = parser.parse_args()
    queries = _queries(options.scale)
    with serving() as (config, endpoint):
        home = config.lake.parent
        data = home / "data"
        subprocess.run(
            ["tpchgen-cli", "parquet", "-s", str(options.scale), f"--output-dir={data}"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        projects = {
            "plain": _project(home, "plain", data, endpoint.thrift_port),
            "gated": _project(home, "gated", data, endpoint.thrift_port),
        }
        sides = {side: _side(side, data, endpoint.thrift_port) for side in ("parquet", *projects)}
        print(f"{machine()}; scale factor {options.scale:g}, {options.rounds} rounds\n")
        print(
            "| tables | Parquet | plain dbt-spark | sparkwap | sparkwap/plain | sparkwap/Parquet |"
        )
        print("|---|---|---|---|---|---|")
        for project in projects.values():
            dbt(project, "build")
        _measure("freshly built", sides, queries, options.rounds)
        for number in range(options.updates):
            for project in projects.values():
                args = json.dumps({"round": number + 1})
                dbt(project, "build", "--select", *KEYS, "--vars", args)
        _measure(f"after {options.updates} updates", sides, queries, options.rounds)
        dbt(projects["gated"], "run-operation", "wap_maintain", "--args", "{budget: 3600}")
        _measure("sparkwap's maintained", sides, queries, options.rounds)


def _queries(scale: float) -> dict[str, str]:
    parts = re.split(r"^-- (\d+)\n", SQL, flags=re.MULTILINE)[1:]
    fraction = f"{0.0001 / scale:.12f}"
    return {
        number: text.strip().replace("{fraction}", fraction)
        for number, text in zip(parts[::2], parts[1::2], strict=True)
    }


def _side(side: str, data: Path, port: int) -> Session:
    """A session that finds the tables of a side under their plain names."""
    session = Session(port)
    for table in TABLES:
        if side == "parquet":
            session.sql(
                f"create temporary view {table} as select * from parquet.`{data}/{table}.parquet`"
            )
    if side != "parquet":
        session.sql(f"create schema if not exists tpch_{side}")
        session.sql(f"use tpch_{side}")
    return session


def _measure(what: str, sides: dict[str, Session], queries: dict[str, str], rounds: int) -> None:
    seconds: dict[str, dict[str, list[float]]] = {
        side: {number: [] for number in queries} for side in sides
    }
    for turn in range(rounds + 1):
        for number, query in queries.items():
            answers = {}
            for side in sides if turn % 2 else reversed(list(sides)):
                started = time.perf_counter()
                answers[side] = sides[side].sql(query)
                if turn:  # the first round warms up
                    seconds[side][number].append(time.perf_counter() - started)
            for side, rows in answers.items():
                if not _alike(rows, answers["parquet"]):
                    raise SystemExit(f"query {number}: {side} answers otherwise than parquet")
    middle = {
        side: {number: statistics.median(all_) for number, all_ in found.items()}
        for side, found in seconds.items()
    }
    sums = [f"{sum(middle[side].values()):.1f} s" for side in sides]
    ratios = [
        spread([middle["gated"][number] / middle[other][number] for number in queries])
        for other in ("plain", "parquet")
    ]
    print(f"| {what} | {' | '.join(sums)} | {' | '.join(ratios)} |", flush=True)


def _alike(rows: Any, others: Any) -> bool:
    """Whether two answers are the same, but for the last digits of floating-point numbers."""
    if len(rows) != len(others):
        return False
    return all(
        math.isclose(a, b, rel_tol=1e-9) if isinstance(a, float) else a == b
        for row, other in zip(rows, others, strict=True)
        for a, b in zip(row, other, strict=True)
    )


def _project(home: Path, side: str, data: Path, port: int) -> Path:
    folder = home / side
    common = {"schema": f"tpch_{side}", "threads": 2, "poll_interval": 1}
    plain = {"type": "spark", "method": "thrift", "host": "127.0.0.1", "port": port, "user": "b"}
    gated = {"type": "sparkwap", "lake": str(home / ".lake"), "memory": "4g"}
    output = common | (plain if side == "plain" else gated)
    models = {}
    for table in TABLES:
        path = data / f"{table}.parquet"
        models[f"models/{table}.sql"] = (
            UPDATED.format(key=KEYS[table], first=KEYS[table][0], path=path, properties=PROPERTIES)
            if table in KEYS
            else f"{{{{ config(materialized='table') }}}} select * from parquet.`{path}`"
        )
    files = {
        "dbt_project.yml": "name: tpch\nversion: '1.0'\nprofile: tpch\n"
        + ("models: {+file_format: iceberg}\n" if side == "plain" else ""),
        "profiles.yml": json.dumps({"tpch": {"target": "t", "outputs": {"t": output}}}),
        **models,
    }
    return write_project(folder, files)


if __name__ == "__main__":
    main()
