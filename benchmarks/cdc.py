"""What states from change logs cost: whole, against a bare window; from new loads, against whole.

All runs are on one Spark server. Sides that are compared run in turn (A B A B ...), so that a slow
moment of the machine meets both; the ratio is taken pair by pair.

    python benchmarks/cdc.py [--pairs 5] [--rows 5000000] [--only full]
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

os.environ.setdefault("SPARK_CONNECT_MODE_ENABLED", "1")

import psutil
from harness import machine, serving, spread

from sparkwap import cdc
from sparkwap.server import Endpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY = ["id"]
EVENTS_PER_KEY = 5
SHARE = 100  # a load brings 1/100 of the history
SCENARIOS = ("full", "increment", "history")
OWN = ["id", "name", "amount", "city", "day"]
EVENT = ["_op", "_sequence", "_event_time", "_load_date", "_file_path", "_row", "_part", "_batch"]

# Keys come again and again in any order; a fifth of the events are deletes.
ROWS = [
    "cast(pmod(xxhash64(id), {keys}) as string) as id",
    "concat('name ', id % 1000) as name",
    "cast(id * 17 % 100000 / 100 as string) as amount",
    "if(id % 4 = 0, null, concat('city ', id % 300)) as city",
    "cast(date_add(date'2020-01-01', cast(id % 1000 as int)) as string) as day",
    "case when id % 5 = 0 then 'delete' when id % 7 = 0 then 'insert' else 'update' end as _op",
    "lpad(cast(id as string), 20, '0') as _sequence",
    "timestamp_seconds(1700000000 + id div 10) as _event_time",
    "cast(null as array<string>) as _absent",
    "date'2024-01-01' as _load_date",
    "concat('t/load_date=2024-01-01/changes_', lpad(id div 100000, 6, '0'), '.csv') as _file_path",
    "id % 100000 + 1 as _row",
    "0 as _part",
    "cast({batch} as bigint) as _batch",
    "'row' as _kind",
    "cast(null as string) as _error",
    "'changes' as _load",
]
PROPERTIES = {f"write.{what}.mode": "merge-on-read" for what in ("merge", "update", "delete")}


class Log:
    """A raw table with a history of changes; ``load`` appends a new load to it."""

    def __init__(self, spark: SparkSession, name: str, rows: int) -> None:
        self.spark, self.name, self.keys = spark, name, rows // EVENTS_PER_KEY
        self.rows, self.batch = 0, 0
        self.load(rows)

    def load(self, rows: int) -> None:
        self.batch += 1
        columns = [c.format(keys=self.keys, batch=self.batch) for c in ROWS]
        made = self.spark.range(self.rows, self.rows + rows, 1, 4 if self.rows == 0 else 1)
        writer = made.selectExpr(*columns).writeTo(self.name)
        if self.rows:
            writer.append()
        else:
            writer.using("iceberg").create()
        self.rows += rows

    def table(self) -> DataFrame:
        return self.spark.table(self.name)


def bare(log: DataFrame) -> DataFrame:
    """What one would write by hand: the last row of each key, with the same columns."""
    place = "_sequence desc, _file_path desc, _row desc, _part desc"
    return (
        log.where("_kind = 'row'")
        .selectExpr(*OWN, *EVENT, f"row_number() over (partition by id order by {place}) as _rank")
        .where("_rank = 1")
        .selectExpr(*OWN, *EVENT, f"{cdc.row_hash(OWN)} as row_hash")
    )


def whole(log: DataFrame) -> DataFrame:
    return cdc.state(log, KEY, truncates=False)


def read(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def build(spark: SparkSession, log: Log, state: str) -> None:
    """The whole state as a table."""
    writer = whole(log.table()).writeTo(state).using("iceberg")
    for key, value in PROPERTIES.items():
        writer = writer.tableProperty(key, value)
    writer.createOrReplace()


def news(spark: SparkSession, log: Log, state: str) -> DataFrame:
    """What the loads that a state does not know change in it."""
    return cdc.increment(log.table(), spark.table(state), KEY, truncates=False)


def merge(spark: SparkSession, log: Log, state: str) -> None:
    """What dbt's merge does with the increment."""
    news(spark, log, state).createOrReplaceTempView("increment")
    spark.sql(
        f"merge into {state} as t using increment as s on s.id = t.id "
        "when matched then update set * when not matched then insert *"
    ).collect()


def seconds(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


# ---------------------------------------------------------------- the scenarios


def full(spark: SparkSession, rows: int, pairs: int) -> str:
    log = Log(spark, "bench.log_full", rows)
    sides = {"bare": bare, "ours": whole}
    took: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(pairs + 1):
        for side in sorted(sides, reverse=turn % 2 == 1):
            spent = seconds(lambda side=side: read(sides[side](log.table())))  # type: ignore[misc]
            if turn:  # the first pair warms up
                took[side].append(spent)
    return _row(f"state of {rows:,} changes, whole", "bare window", took["bare"], took["ours"], 1.1)


def increment(spark: SparkSession, rows: int, pairs: int) -> list[str]:
    log, state = Log(spark, "bench.log_inc", rows), "bench.state_inc"
    build(spark, log, state)
    works: dict[str, Callable[[], None]] = {
        "found": lambda: read(news(spark, log, state)),
        "all": lambda: read(whole(log.table())),
        "merged": lambda: merge(spark, log, state),
        "built": lambda: build(spark, log, "bench.state_whole"),
    }
    took: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(pairs + 1):
        log.load(rows // SHARE)
        for name, work in works.items():
            spent = seconds(work)
            if turn:  # the first round warms up
                took[name].append(spent)
    changes = f"{rows // SHARE:,} new changes"
    return [
        _row(f"rows changed by {changes}", "whole state", took["all"], took["found"], 0.1),
        _row(f"merge of {changes}", "table built anew", took["built"], took["merged"], 0.1),
    ]


def history(spark: SparkSession, rows: int, pairs: int, endpoint: Endpoint) -> list[str]:
    """The same load on the same number of keys, after histories of other lengths."""
    lines, base = [], None
    news = rows // 4 // SHARE
    for times in (1, 4, 16):
        name = f"bench.log_{times}"
        log = Log(spark, name, rows // 4)
        for _ in range(times - 1):
            log.load(rows // 4)
        state = f"bench.state_{times}"
        build(spark, log, state)
        took = []
        for _ in range(pairs + 1):
            log.load(news)
            took.append(seconds(lambda: merge(spark, log, state)))  # noqa: B023
        median = statistics.median(took[1:])
        base = base or median
        lines.append(
            f"| merge of {news:,} after {log.rows:,} changes | | {median:.2f} s "
            f"| **{median / base:.2f}** of the first | 1.30 |"
        )
        lines.append(f"| memory then: {_memory(endpoint)} | | | | |")
    return lines


def _row(what: str, name: str, others: list[float], ours: list[float], goal: float) -> str:
    ratios = [b / a for a, b in zip(others, ours, strict=True)]
    return (
        f"| {what} | {name} {statistics.median(others):.2f} s | {statistics.median(ours):.2f} s "
        f"| {spread(ratios)} | {goal:.2f} |"
    )


def _memory(endpoint: Endpoint) -> str:
    client = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    server = psutil.Process(endpoint.pid).memory_info().rss >> 20
    return f"{client} MiB at most in Python, {server} MiB in the server"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--only", choices=SCENARIOS)
    chosen = parser.parse_args()
    with serving() as (_, endpoint):
        spark = _session(endpoint)
        spark.sql("create namespace if not exists bench").collect()
        print(f"Machine: {machine()}\n")
        print("| what | against | ours | ratio (min - median - max) | goal |")
        print("|---|---|---|---|---|")
        for name in SCENARIOS if chosen.only is None else (chosen.only,):
            if name == "full":
                lines = [full(spark, chosen.rows, chosen.pairs)]
            elif name == "increment":
                lines = increment(spark, chosen.rows, chosen.pairs)
            else:
                lines = history(spark, chosen.rows, chosen.pairs, endpoint)
            print("\n".join(lines), flush=True)


def _session(endpoint: Endpoint) -> SparkSession:
    from pyspark.sql import SparkSession

    return SparkSession.builder.remote(endpoint.connect_url).create()


if __name__ == "__main__":
    main()
