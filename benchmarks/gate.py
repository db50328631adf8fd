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
import statistics
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from harness import dbt, machine, serving, spread, write_project

from sparkwap.catalog import Candidate
from sparkwap.publish.lake import Lake
from sparkwap.server import ServerConfig, catalog_properties, ensure, stop

TABLES_PUBLISHED = 50
NAMES = ["small", "table", "merge", "audits", "newest", "everywhere", "publish"]


@dataclass(frozen=True)
class Scenario:
    """A project that both sides build.

    ``files`` are written into the project; ``limits`` are the highest ratios that are wanted, by
    the dbt command that is measured, ``build`` or ``test``. It is built twice before. ``before`` is
    a command that runs before each measured one.
    """

    name: str
    what: str
    limits: dict[str, float]
    files: dict[str, str]
    before: str | None = None


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


TESTED = """  - name: t_{i}
    data_tests: [no_row_is_negative]
    columns:
      - {{name: id, data_tests: [not_null, unique]}}
      - {{name: code, data_tests: [not_null, unique]}}
      - name: kind
        data_tests:
          - not_null
          - accepted_values: {{arguments: {{values: [k0, k1, k2, k3, k4]}}}}
      - name: parent
        data_tests:
          - not_null
          - relationships: {{arguments: {{to: ref('t_0'), field: id}}}}
      - name: x
        data_tests:
          - accepted_values: {{arguments: {{values: [0, 1, 2], quote: false}}}}
"""


def _tested_models(count: int) -> dict[str, str]:
    """Tables of 1,000 rows with ten tests each."""
    model = (
        "{{ config(materialized='table') }} select id, concat('c', id) as code, "
        "concat('k', id % 5) as kind, (id * 7) % 1000 as parent, id % 3 as x from range(1000)"
    )
    return {
        **{f"models/t_{i}.sql": model for i in range(count)},
        "models/schema.yml": "models:\n" + "".join(TESTED.format(i=i) for i in range(count)),
        "tests/generic/no_row_is_negative.sql": (
            "{% test no_row_is_negative(model) %}select * from {{ model }} where x < 0{% endtest %}"
        ),
    }


def _changed_model(rows: int, changed: str) -> dict[str, str]:
    """A table with 8 tests, of whose rows each run updates 1 %."""
    properties = {
        "format-version": "3",
        **{f"write.{what}.mode": "merge-on-read" for what in ("merge", "update", "delete")},
    }
    columns = (
        "id, cast(id % 5 as string) as kind, "
        "hash(id, {{ run_started_at.timestamp() }}) % 1000 as x, sha2(cast(id as string), 256) as h"
    )
    return {
        "models/t.sql": (
            "{{ config(materialized='incremental', incremental_strategy='merge', unique_key='id', "
            f"tblproperties={properties}) }}}} select {columns} from "
            f"{{% if is_incremental() %}}{changed}{{% else %}}range({rows}){{% endif %}}"
        ),
        "models/t.yml": """
models:
  - name: t
    data_tests: [no_row_is_wrong]
    columns:
      - {name: id, data_tests: [not_null, unique]}
      - name: kind
        data_tests: [not_null, accepted_values: {arguments: {values: ['0', '1', '2', '3', '4']}}]
      - {name: x, data_tests: [not_null, no_value_is_large]}
      - {name: h, data_tests: [not_null]}
""",
        "tests/generic/rows.sql": (
            "{% test no_row_is_wrong(model) %}"
            "select * from {{ model }} where x > 2000 or length(h) <> 64{% endtest %}"
            "{% test no_value_is_large(model, column_name) %}"
            "select * from {{ model }} where abs({{ column_name }}) > 1000{% endtest %}"
        ),
    }


def _scenarios(tables: int, rows: int) -> list[Scenario]:
    newest = f"range({rows - rows // 100}, {rows})"
    everywhere = f"(select id * 100 as id from range({rows // 100}))"
    return [
        Scenario(
            "small", "13 small nodes: 7 models, 1 seed, 5 tests", {"build": 0.9}, _small_models()
        ),
        Scenario(
            "table", "4 table models of 1 M rows, 4 tests", {"build": 1.1}, _big_models(LARGE)
        ),
        Scenario(
            "merge", "4 MERGEs of 10 k rows into 1 M, 4 tests", {"build": 1.1}, _big_models(MERGED)
        ),
        Scenario(
            "audits",
            f"{tables} tables of 1,000 rows, {tables * 10:,} tests",
            {"test": 0.2, "build": 0.4},
            _tested_models(tables),
        ),
        *(
            Scenario(
                name,
                f"8 tests after a MERGE of 1 % of {rows:,} rows, {which}",
                {"test": 0.2},
                _changed_model(rows, changed),
                before="run",
            )
            for name, which, changed in (
                ("newest", "the newest", newest),
                ("everywhere", "all over", everywhere),
            )
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--only", choices=NAMES)
    parser.add_argument("--tables", type=int, default=130, help="of the scenario `audits`")
    parser.add_argument(
        "--rows", type=int, default=10_000_000, help="of the scenarios `newest` and `everywhere`"
    )
    chosen = parser.parse_args()
    with serving() as (config, endpoint):
        print(f"Machine: {machine()}\n")
        print("| what | plain dbt-spark | gated | ratio (min - median - max) | limit |")
        print("|---|---|---|---|---|")
        for scenario in _scenarios(chosen.tables, chosen.rows):
            if chosen.only in (None, scenario.name):
                projects = _projects(config.lake.parent, scenario, endpoint.thrift_port)
                for number, (command, limit) in enumerate(scenario.limits.items()):
                    if number:
                        _restart(config, endpoint.thrift_port, projects, command)
                    plain, gated = _measure(projects, scenario.before, command, chosen.pairs)
                    what = f"{scenario.what}: `dbt {command}`"
                    print(_row(what, plain, gated, limit), flush=True)
        if chosen.only in (None, "publish"):
            print(
                f"\nPublish of {TABLES_PUBLISHED} tables in one transaction: "
                + _seconds(_publish(config, chosen.pairs))
                + " (limit 2 s)"
            )


def _projects(home: Path, scenario: Scenario, port: int) -> dict[str, Path]:
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
        _dbt(project, "build")
        _dbt(project, "build")
    return projects


def _restart(config: ServerConfig, port: int, projects: dict[str, Path], command: str) -> None:
    """Restart the server, and run the command once on each side.

    dbt-spark leaves a session for each node, with a connection to the catalog's database: after
    ten commands of 1,430 nodes, the server has no more file descriptors.
    """
    stop(config.lake)
    ensure(replace(config, thrift_port=port), lambda line: print(f"  {line}", file=sys.stderr))
    for project in projects.values():
        _dbt(project, command)


def _measure(
    projects: dict[str, Path], before: str | None, command: str, pairs: int
) -> tuple[list[float], list[float]]:
    figures: dict[str, list[float]] = {"plain": [], "gated": []}
    for pair in range(pairs):
        for side in ("plain", "gated") if pair % 2 == 0 else ("gated", "plain"):
            if before:
                _dbt(projects[side], before)
            figures[side].append(_dbt(projects[side], command))
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
    return write_project(folder, files)


def _dbt(project: Path, command: str) -> float:
    """Seconds of one dbt command, as dbt tells them."""
    dbt(project, command)
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
            table = ("bench_publish", name)
            items.append(Candidate(table, branch, "branch", opened.base, token=str(head)))
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


def _row(what: str, plain: list[float], gated: list[float], limit: float) -> str:
    ratios = [g / p for p, g in zip(plain, gated, strict=True)]
    return f"| {what} | {_seconds(plain)} | {_seconds(gated)} | {spread(ratios)} | {limit:.2f} |"


def _seconds(figures: list[float]) -> str:
    return f"{statistics.median(figures):.2f} s"


if __name__ == "__main__":
    main()
