"""What a dbt command costs before it does anything: sparkwap's adapter beside dbt-spark's.

``dbt parse`` of one small project (ten models, two tests each), with the manifest of the last
command (warm) and without it (cold), on both adapters in turn (A B A B ...). No server is started.
The figures are those of the whole process; the ratio is taken pair by pair, of elapsed time and of
CPU time, which other work on the machine disturbs less.

    python benchmarks/start.py [--pairs 9]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import machine, spread, write_project

MODELS = 10
SIDES = {
    "dbt-spark": {"type": "spark", "method": "thrift", "host": "127.0.0.1", "schema": "s"},
    "sparkwap": {"type": "sparkwap", "schema": "s"},
}
STARTS = {"warm": [], "cold": ["--no-partial-parse"]}
LIMIT = 1.10
DBT = "from dbt.cli.main import cli; cli()"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=9)
    pairs = parser.parse_args().pairs
    print(f"Machine: {machine()}\n")
    print("| `dbt parse` | dbt-spark | sparkwap | ratio (min - median - max) | of CPU | limit |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="sparkwap-bench-") as home:
        projects = {side: _project(Path(home) / side, out) for side, out in SIDES.items()}
        for project in projects.values():
            _parse(project, [])
        for start, arguments in STARTS.items():
            figures: dict[str, list[tuple[float, float]]] = {side: [] for side in SIDES}
            for pair in range(pairs):
                for side in sorted(SIDES, reverse=pair % 2 == 1):
                    figures[side].append(_parse(projects[side], arguments))
            print(_row(start, *figures.values()), flush=True)


def _project(folder: Path, output: dict[str, str]) -> Path:
    tested = [
        f"{{name: m_{i}, columns: [{{name: id, data_tests: [unique, not_null]}}]}}"
        for i in range(MODELS)
    ]
    files = {
        "dbt_project.yml": "name: bench\nversion: '1.0'\nprofile: bench\n",
        "profiles.yml": json.dumps({"bench": {"target": "t", "outputs": {"t": output}}}),
        "models/schema.yml": f"models: [{', '.join(tested)}]",
        "models/m_0.sql": "select id from range(10)",
        **{
            f"models/m_{i}.sql": f"select id from {{{{ ref('m_{i - 1}') }}}}"
            for i in range(1, MODELS)
        },
    }
    return write_project(folder, files)


def _parse(project: Path, arguments: list[str]) -> tuple[float, float]:
    """Elapsed and CPU seconds of one ``dbt parse``, with the start of Python."""
    before, began = os.times(), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", DBT, "--quiet", "parse", *arguments],
        cwd=project,
        env={
            **os.environ,
            "DBT_PROFILES_DIR": str(project),
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
        },
        capture_output=True,
        text=True,
    )
    elapsed, after = time.perf_counter() - began, os.times()
    if done.returncode != 0:
        raise SystemExit(f"{project}: dbt parse failed\n{done.stdout}\n{done.stderr}")
    return elapsed, (
        after.children_user - before.children_user + after.children_system - before.children_system
    )


def _row(start: str, plain: list[tuple[float, float]], gated: list[tuple[float, float]]) -> str:
    def seconds(side: list[tuple[float, float]]) -> str:
        return f"{statistics.median(elapsed for elapsed, _ in side):.2f} s"

    wall, cpu = (
        spread([ours[i] / theirs[i] for theirs, ours in zip(plain, gated, strict=True)])
        for i in (0, 1)
    )
    return f"| {start} | {seconds(plain)} | {seconds(gated)} | {wall} | {cpu} | {LIMIT:.2f} |"


if __name__ == "__main__":
    main()
