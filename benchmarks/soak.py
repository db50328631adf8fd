"""One server under a long run: its open file descriptors have to stay where they are.

Each Thrift session leaves a database connection open in the server, so a run that opened a session
for every node would use up the server's descriptors. This builds one project of many small nodes
(a tenth of them tables, the rest tests) through the gate and samples the server meanwhile.

    python benchmarks/soak.py [--nodes 2000]
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import dbt_command, write_project

from sparkwap.server import ServerConfig, ServerStatus, ensure, status, stop

THREADS = 4
SAMPLE_SECONDS = 2
TELL_SECONDS = 30
# What is opened at first use (a session for each thread, jars, native libraries) is so by then.
WARM_UP_SHARE = 0.1
MOST_GROWTH = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=2000)
    nodes = parser.parse_args().nodes
    home = Path(tempfile.mkdtemp(prefix="sparkwap-soak-"))
    lake = home / ".lake"
    try:
        ensure(ServerConfig(lake=lake), lambda line: print(f"  {line}", file=sys.stderr))
        _write_project(home, nodes)
        samples = _build(home, lake, nodes)
    finally:
        stop(lake)
        shutil.rmtree(home, ignore_errors=True)
    _judge(nodes, samples)


def _write_project(home: Path, nodes: int) -> None:
    output = {"type": "sparkwap", "lake": ".lake", "schema": "soak", "threads": THREADS}
    files = {
        "dbt_project.yml": "name: soak\nversion: '1.0'\nprofile: soak\n",
        "profiles.yml": json.dumps({"soak": {"target": "t", "outputs": {"t": output}}}),
    }
    tables = max(1, nodes // 10)
    for table in range(tables):
        files[f"models/m_{table}.sql"] = (
            "{{ config(materialized='table') }} select id from range(10)"
        )
    for test in range(nodes - tables):
        files[f"tests/t_{test}.sql"] = (
            f"select * from {{{{ ref('m_{test % tables}') }}}} where id < -{test}"
        )
    write_project(home, files)


def _build(home: Path, lake: Path, nodes: int) -> list[ServerStatus]:
    """Run ``dbt build`` and return the server's figures, sampled after the warm-up."""
    log = home / "build.log"
    with log.open("w") as sink:
        command = dbt_command(home, "--no-use-colors", "build")
        build = subprocess.Popen(**command, stdout=sink, stderr=subprocess.STDOUT)
        samples = _sample(build, log, lake, nodes)
    if build.wait() != 0:
        raise SystemExit(f"The build failed:\n{''.join(log.open().readlines()[-30:])}")
    return samples


def _sample(
    build: subprocess.Popen[bytes], log: Path, lake: Path, nodes: int
) -> list[ServerStatus]:
    samples: list[ServerStatus] = []
    started = told = time.monotonic()
    while build.poll() is None:
        time.sleep(SAMPLE_SECONDS)
        found = status(lake)
        if found is None:
            break
        done = sum(" of " in line and "START" not in line for line in log.open())
        if done > nodes * WARM_UP_SHARE:
            samples.append(found)
        now = time.monotonic()
        if now - told > TELL_SECONDS:
            told = now
            print(f"  {now - started:.0f} s: {done} nodes, {_figures(found)}", file=sys.stderr)
    return samples


def _judge(nodes: int, samples: list[ServerStatus]) -> None:
    if not samples:
        raise SystemExit(f"{nodes} nodes end within the warm-up: take more.")
    first, last = samples[0], samples[-1]
    most = max(sample.descriptors for sample in samples)
    print(f"{nodes} nodes on {THREADS} threads. After the warm-up: {_figures(first)}")
    print(f"At the end: {_figures(last)}; at most {most} descriptors")
    if most - first.descriptors > MOST_GROWTH:
        raise SystemExit(f"Descriptors grew by {most - first.descriptors}, limit {MOST_GROWTH}.")


def _figures(sample: ServerStatus) -> str:
    return f"{sample.descriptors} descriptors, {sample.rss / 1e6:.0f} MB"


if __name__ == "__main__":
    main()
