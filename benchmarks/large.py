"""A table of 100 M rows: memory and time of what the gate, a diff and an erasure do with it.

The table is TPC-H's ``lineitem`` (17 times the scale factor 1), of which a second build merges the
newest 1 %. The same is done with a hundredth of the rows: what does not grow with the rows, such as
the memory of dbt's process, has the ratio 1. The heap of the server is the setting ``memory``.

    python benchmarks/large.py [--scale 17] [--small 0.17] [--memory 4g]

Needs ``tpchgen-cli`` (`pip install tpchgen-cli`), and 20 GB of disk.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import dbt_command, machine, write_project

from sparkwap.publish.lake import Lake
from sparkwap.server import ServerConfig, catalog_properties, ensure, stop

MODEL = """
{{{{ config(materialized='incremental', incremental_strategy='merge',
    unique_key=['l_orderkey', 'l_linenumber']) }}}}
select *, concat('order-', l_orderkey, '@example.org') as contact from parquet.`{path}`
{{% if is_incremental() %}}
where l_orderkey > {newest}
{{% endif %}}
"""
SCHEMA = """
models:
  - name: lineitem
    data_tests:
      - is_unique_by: {arguments: {columns: [l_orderkey, l_linenumber]}}
    columns:
      - {name: l_orderkey, config: {meta: {subject: order}}, data_tests: [not_null]}
      - {name: contact, config: {meta: {personal: order}}, data_tests: [not_null]}
      - name: l_returnflag
        data_tests: [accepted_values: {arguments: {values: [A, N, R]}}]
"""
TEST = """
{% test is_unique_by(model, columns) %}
select {{ columns | join(', ') }} from {{ model }}
group by {{ columns | join(', ') }} having count(*) > 1
{% endtest %}
"""
ORDERS = 6_000_000
"""The largest key of an order at the scale factor 1."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=17)
    parser.add_argument("--small", type=float, default=0.17)
    parser.add_argument("--memory", default="4g")
    parser.add_argument("--home", type=Path, help="a folder for the lakes")
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="sparkwap-bench-", dir=options.home))
    try:
        print(f"{machine()}; heap {options.memory}")
        print("| what | rows | seconds | dbt's memory | the server's |\n|---|---|---|---|---|")
        for scale in (options.small, options.scale):
            _measure(home / str(scale), scale, options.memory)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _measure(home: Path, scale: float, memory: str) -> None:
    data = home / "data"
    subprocess.run(
        ["tpchgen-cli", "parquet", "-s", str(scale), "--tables=lineitem", f"--output-dir={data}"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    config = ServerConfig(lake=home / ".lake", memory=memory)
    newest = int(ORDERS * scale * 0.99)
    output = {"type": "sparkwap", "lake": str(config.lake), "schema": "tpch", "memory": memory}
    files = {
        "dbt_project.yml": "name: large\nversion: '1.0'\nprofile: large\n",
        "profiles.yml": json.dumps({"large": {"target": "t", "outputs": {"t": output}}}),
        "models/lineitem.sql": MODEL.format(path=data / "lineitem.parquet", newest=newest),
        "models/schema.yml": SCHEMA,
        "tests/generic/is_unique_by.sql": TEST,
    }
    write_project(home, files)
    try:
        server = ensure(config, lambda line: print(f"  {line}", file=sys.stderr)).pid
        for what in ("build of all rows", "MERGE of 1 %"):
            _tell(what, home, server, "build")
            if what.startswith("build"):
                tag = _tag(config)
                rows = _rows(config)
        diff = json.dumps({"branch": "main", "against": tag, "format": "json"})
        _tell("diff of the two", home, server, "run-operation", "wap_diff", "--args", diff)
        erase = json.dumps({"subject": "order", "keys": [str(newest // 2 // 32 * 32 + 1)]})
        _tell("plan of an erasure", home, server, "run-operation", "wap_erase", "--args", erase)
        erase = erase[:-1] + ', "confirm": true}'
        _tell("erasure with proof", home, server, "run-operation", "wap_erase", "--args", erase)
        print(f"  {rows:,} rows before, {_rows(config):,} after", file=sys.stderr)
    finally:
        stop(config.lake)


def _tell(what: str, home: Path, server: int, *command: str) -> None:
    """Run a dbt command, and print what it took."""
    Path(f"/proc/{server}/clear_refs").write_text("5")  # the peak begins anew
    started = time.perf_counter()
    with (home / "out.log").open("w") as out:
        running = subprocess.Popen(
            **dbt_command(home, *command), stdout=out, stderr=subprocess.STDOUT
        )
        _, status, used = os.wait4(running.pid, 0)
    seconds = time.perf_counter() - started
    if status:
        raise SystemExit((home / "out.log").read_text()[-5000:])
    peaks = Path(f"/proc/{server}/status").read_text()
    server_peak = next(line for line in peaks.splitlines() if line.startswith("VmHWM")).split()[1]
    print(
        f"| {what} | {home.name} | {seconds:.0f} | {used.ru_maxrss / 1024:.0f} MB "
        f"| {int(server_peak) / 1024:.0f} MB |",
        flush=True,
    )


def _tag(config: ServerConfig) -> str:
    lake = Lake("lake", catalog_properties(config))
    refs = lake.catalog.load_table(("tpch", "lineitem")).refs()
    lake.close()
    return next(name for name in refs if name.startswith("wap_pub_"))


def _rows(config: ServerConfig) -> int:
    lake = Lake("lake", catalog_properties(config))
    table = lake.catalog.load_table(("tpch", "lineitem"))
    lake.close()
    return int(table.current_snapshot().summary["total-records"])


if __name__ == "__main__":
    main()
