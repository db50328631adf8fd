"""What a data diff costs, against the full outer join that one would write by hand.

1 % of a table's rows differ on a branch, in four ways; both sides tell how many rows came, went and
changed, and in which columns, and they have to agree. They run in turn on one Spark server (A B A B
...), so that a slow moment of the machine meets both; the ratio is taken pair by pair, of the time
that passed and of the CPU time of the server, which other work on the machine changes less.

    python benchmarks/diff.py [--pairs 3] [--rows 10000000] [--only clustered deletes]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Session, machine, serving, spread

from sparkwap.diff.differ import Differ
from sparkwap.diff.model import TableDiff
from sparkwap.publish.lake import Lake
from sparkwap.server import catalog_properties

BRANCH = "pr_1"
GOAL = 0.3
GOALS = {"lineage": 0.5}
COLUMNS = ("name", "amount", "city", "day", "note")
FILES = 20
MERGE_ON_READ = "tblproperties ('write.update.mode'='merge-on-read', 'format-version'='{version}')"

ROWS = """
    select id, concat('name ', id % 100000) as name,
        cast(id * 17 % 1000000 / 100 as decimal(12, 2)) as amount,
        if(id % 4 = 0, null, concat('city ', id % 300)) as city,
        date_add(date'2020-01-01', cast(id % 1000 as int)) as day,
        concat('a note of some length on ', id) as note
    from range(0, {rows}, 1, {files})
"""
# How the rows that differ lie in the files: title, properties, which rows are updated.
SCENARIOS = {
    "clustered": ("the newest rows, copy-on-write", "", "id >= {rows} - {rows} div 100"),
    "deletes": ("all over, deletion vectors", MERGE_ON_READ.format(version=3), "id % 100 = 7"),
    "positions": ("all over, position deletes", MERGE_ON_READ.format(version=2), "id % 100 = 7"),
    "scattered": ("all over, copy-on-write", "", "id % 100 = 7"),
    "lineage": (
        "all over, copy-on-write, format version 3",
        "tblproperties ('format-version'='3')",
        "id % 100 = 7",
    ),
}


class Bench:
    """A table on ``main`` and on a branch."""

    def __init__(self, lake: Lake, session: Session, name: str, rows: int) -> None:
        self.lake, self.session, self.name = lake, session, name
        _, properties, condition = SCENARIOS[name]
        made = ROWS.format(rows=rows, files=FILES)
        session.sql(f"create table bench.{name} using iceberg {properties} as {made}")
        lake.branches.open(("bench", name), BRANCH)
        session.sql(f"set spark.wap.branch={BRANCH}")
        session.sql(
            f"update bench.{name} set amount = amount + 1, city = 'moved' "
            f"where {condition.format(rows=rows)}"
        )
        session.sql("reset spark.wap.branch")

    def ours(self) -> tuple[Any, ...]:
        """By sums of signs."""
        found = diff(self.lake, self.session, self.name)
        counts = [found.columns.get(column, 0) for column in COLUMNS]
        return (found.added, found.removed, found.changed, *counts)

    def join(self) -> tuple[Any, ...]:
        """By a full outer join."""
        paired = "a.id is not null and b.id is not null"
        differs = {column: f"not (a.{column} <=> b.{column})" for column in COLUMNS}
        counts = ", ".join(f"count_if({paired} and {one})" for one in differs.values())
        query = (
            f"select count_if(a.id is null), count_if(b.id is null), "
            f"count_if({paired} and ({' or '.join(differs.values())})), {counts} "
            f"from bench.{self.name} version as of 'main' as a full outer join "
            f"bench.{self.name} version as of '{BRANCH}' as b on a.id = b.id"
        )
        return tuple(self.session.sql(query)[0])


def diff(lake: Lake, session: Session, name: str) -> TableDiff:
    """The diff of one table, with samples."""
    keys = {("bench", name): ("id",)}
    (found,) = Differ(lake, session.sql, keys=keys, sample=10).compare(BRANCH, tables=[name]).tables
    if found.change == "failed":
        raise RuntimeError("; ".join(found.notes))
    return found


@dataclass(frozen=True)
class Spent:
    """Seconds that passed, and seconds of CPU that the server took."""

    wall: float
    cpu: float


def spent(work: Callable[[], Any], server: int) -> tuple[Spent, Any]:
    """What it costs, and its result."""
    wall, cpu = time.perf_counter(), cpu_seconds(server)
    result = work()
    return Spent(time.perf_counter() - wall, cpu_seconds(server) - cpu), result


def cpu_seconds(pid: int) -> float:
    """CPU time of a process by now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def compared(bench: Bench, title: str, pairs: int, server: int) -> str:
    """A line of the table."""
    sides = {"join": bench.join, "ours": bench.ours}
    took: dict[str, list[Spent]] = {side: [] for side in sides}
    for turn in range(pairs + 1):
        results = set()
        for side in sorted(sides, reverse=turn % 2 == 1):
            cost, result = spent(sides[side], server)
            print(f"  {bench.name} {side}: {cost}", file=sys.stderr)
            results.add(tuple(map(int, result)))
            if turn:  # the first pair warms up
                took[side].append(cost)
        if len(results) > 1:
            raise RuntimeError(f"{bench.name}: the two disagree: {results}")
    join, ours = (statistics.median(one.wall for one in took[side]) for side in sides)
    both = list(zip(took["join"], took["ours"], strict=True))
    goal = GOALS.get(bench.name, GOAL)
    return (
        f"| 1 % {title} | full outer join {join:.2f} s | {ours:.2f} s "
        f"| {spread([b.wall / a.wall for a, b in both])} "
        f"| {spread([b.cpu / a.cpu for a, b in both])} | {_load()} | {goal} |"
    )


def _load() -> str:
    return f"{os.getloadavg()[1]:.1f}"


def unchanged(lake: Lake, session: Session, rows: int, pairs: int) -> str:
    """A branch that is at another snapshot with the same files."""
    session.sql(f"create table bench.same using iceberg as {ROWS.format(rows=rows, files=FILES)}")
    lake.branches.open(("bench", "same"), BRANCH)
    session.sql(f"set spark.wap.branch={BRANCH}")
    session.sql("insert into bench.same select * from bench.same where false")
    session.sql("reset spark.wap.branch")
    took = []
    for _ in range(pairs):
        started = time.perf_counter()
        diff(lake, session, "same")
        took.append(time.perf_counter() - started)
    return f"| {rows:,} unchanged rows | | {statistics.median(took):.3f} s | | | {_load()} | 1 s |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--only", choices=SCENARIOS, nargs="+", default=list(SCENARIOS))
    chosen = parser.parse_args()
    with serving() as (config, endpoint):
        session = Session(endpoint.thrift_port)
        lake = Lake("lake", catalog_properties(config))
        lake.ensure_schema("bench")
        print(f"Machine: {machine()}\n\n{chosen.rows:,} rows, six columns\n")
        print("| what | against | ours | ratio (min - median - max) | of CPU time | load | goal |")
        print("|---|---|---|---|---|---|---|")
        for name in chosen.only:
            bench = Bench(lake, session, name, chosen.rows)
            print(compared(bench, SCENARIOS[name][0], chosen.pairs, endpoint.pid), flush=True)
            session.sql(f"drop table bench.{name} purge")
        print(unchanged(lake, session, chosen.rows, chosen.pairs), flush=True)


if __name__ == "__main__":
    main()
