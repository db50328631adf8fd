"""What a history costs: 1 % changes by `scd2`, by dbt's snapshot, and by building it anew.

One log of changes over a fixed number of keys, of 1, 4 and 16 times the length. Each round brings
changes of 1 % of the keys, one in ten of them a new key; all three sides take them in turn, on one
Spark server. Seconds are those of the node, as dbt tells them; rows written are those of Iceberg's
snapshot summary. dbt's snapshot reads the present state, which is made before, not measured.

    python benchmarks/scd2.py [--keys 50000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from harness import dbt, machine, serving, write_project
from pyhive import hive

GROWTH = (1, 4, 16)
EVENTS_PER_KEY = 3
SHARE = 100

# `number` counts all events; their keys, values and times follow from it.
EVENTS = """
    select cast({key} as string) as id, concat('name ', number % 1000) as name,
        cast(number * 17 % 100000 as string) as amount,
        if(number % 4 = 0, null, concat('city ', number % 300)) as city,
        'update' as _op, lpad(cast(number as string), 20, '0') as _sequence,
        timestamp_seconds(1700000000 + number) as _event_time,
        cast(null as array<string>) as _absent, date '2024-01-01' as _load_date,
        'changes.csv' as _file_path, number as _row, 0 as _part,
        cast({batch} as bigint) as _batch, 'row' as _kind, 'changes' as _load
    from (select id as number from range({first}, {last}, 1, 4))
"""
STATE = """
    create or replace table bench.state_{n} using iceberg as
    select id, name, amount, city, _event_time from (
        select *, row_number() over (partition by id order by _sequence desc) as rank
        from bench.log_{n}
    ) where rank = 1
"""
MODEL = (
    "{{{{ config(materialized='scd2', unique_key='id') }}}} "
    "{{{{ change_events('bench.log_{n}', columns={columns}, partial=false) }}}}"
)
SNAPSHOT = (
    "{{% snapshot snapshot_{n} %}} {{{{ config(strategy='timestamp', unique_key='id', "
    "updated_at='_event_time') }}}} select * from bench.state_{n} {{% endsnapshot %}}"
)
SIDES = {"scd2": "history", "snapshot": "snapshot", "anew": "history"}


@dataclass
class Figures:
    """Of one length of the log: seconds and rows written by side."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {s: [] for s in SIDES})
    rows: dict[str, list[int]] = field(default_factory=lambda: {s: [] for s in SIDES})


class Bench:
    """A project and a Spark session on one server."""

    def __init__(self, home: Path, keys: int, port: int) -> None:
        self.home, self.keys, self.port = home, keys, port
        self.events: dict[int, int] = {}
        columns = {c: c for c in ("id", "name", "amount", "city")}
        output = {"type": "sparkwap", "lake": str(home / ".lake"), "schema": "bench",
                  "memory": "4g", "threads": 1, "poll_interval": 1}  # fmt: skip
        files = {
            "dbt_project.yml": "name: bench\nversion: '1.0'\nprofile: bench\n",
            "profiles.yml": json.dumps({"bench": {"target": "t", "outputs": {"t": output}}}),
        }
        for n in GROWTH:
            files[f"models/history_{n}.sql"] = MODEL.format(n=n, columns=columns)
            files[f"snapshots/snapshot_{n}.sql"] = SNAPSHOT.format(n=n)
        write_project(home / "project", files)

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        with closing(hive.connect("127.0.0.1", self.port, username="bench", auth="NONE")) as one:
            cursor = one.cursor()
            cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def load(self, n: int, batch: int, count: int) -> None:
        """Append ``count`` events to a log; of a later batch one in ten has a new key."""
        first = self.events.get(n, 0)
        self.events[n] = first + count
        key = f"number % {self.keys}"
        if batch > 1:
            key = f"if(number % 10 = 0, {self.keys} + number, {key})"
        rows = EVENTS.format(key=key, batch=batch, first=first, last=first + count)
        verb = f"insert into bench.log_{n}" if first else (
            f"create table bench.log_{n} using iceberg as"
        )  # fmt: skip
        self.sql(f"{verb} {rows}")
        self.sql(STATE.format(n=n))

    def build(self, name: str, *arguments: str) -> tuple[float, int]:
        """Seconds of building one node, and the rows that it wrote."""
        project = self.home / "project"
        dbt(project, "build", "-s", name, *arguments)
        results = json.loads((project / "target" / "run_results.json").read_text())["results"]
        found = self.sql(
            f"select cast(summary['added-records'] as bigint) from bench.{name}.snapshots "
            "order by committed_at desc limit 1"
        )
        took = next(r["execution_time"] for r in results if name in r["unique_id"])
        return float(took), int(str(found[0][0] or 0))

    def measure(self, n: int, rounds: int) -> Figures:
        self.sql("create schema if not exists bench")
        self.load(n, 1, self.keys * EVENTS_PER_KEY * n)
        for name in (f"history_{n}", f"snapshot_{n}"):
            self.build(name)
        figures = Figures()
        for turn in range(rounds + 1):
            self.load(n, 2 + turn, self.keys // SHARE)
            for side, table in SIDES.items():
                arguments = ["--full-refresh"] if side == "anew" else []
                took, rows = self.build(f"{table}_{n}", *arguments)
                if turn:  # the first round warms up
                    figures.seconds[side].append(took)
                    figures.rows[side].append(rows)
        return figures


def lines(figures: dict[int, Figures], keys: int) -> Iterator[str]:
    """The table, as docs/benchmarks.md has it."""
    yield "| log of | scd2 | dbt snapshot | built anew | scd2 against the shortest log |"
    yield "|---|---|---|---|---|"
    shortest = statistics.median(figures[GROWTH[0]].seconds["scd2"])
    for n, one in figures.items():
        told = [
            f"{statistics.median(one.seconds[side]):.1f} s, {one.rows[side][-1]:,} rows"
            for side in SIDES
        ]
        ratio = statistics.median(one.seconds["scd2"]) / shortest
        yield f"| {keys * EVENTS_PER_KEY * n:,} changes | {' | '.join(told)} | {ratio:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    with serving() as (config, endpoint):
        print(f"Machine: {machine()}\n")
        bench = Bench(config.lake.parent, chosen.keys, endpoint.thrift_port)
        figures = {n: bench.measure(n, chosen.rounds) for n in GROWTH}
        print("\n".join(lines(figures, chosen.keys)))


if __name__ == "__main__":
    main()
