"""Incremental loads: how the layout and the write mode of a table decide on their time.

Six tables have the same rows: without order, sorted by day, or partitioned by day; each with
copy-on-write and with merge-on-read. In each round, all of them get the same statements, one table
after the other. Then they are read, compacted, and read again. At last, one table gets 1,440
commits in three copies, of which two are maintained: how its metadata grows.

    python benchmarks/loads.py [--rows 1000000] [--rounds 3] [--commits 1440] [--plots docs/images]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import altair as alt
from harness import Session, counted, machine, maintain, serving

from sparkwap.catalog.files import plain_location
from sparkwap.maintenance import inspection
from sparkwap.publish.lake import Lake
from sparkwap.server import catalog_properties

SCHEMA, DAYS = "loads", 50
MODES = ("copy-on-write", "merge-on-read")
LAYOUTS = {"no order": "", "sorted": "", "partitioned": "partitioned by (day)"}
ROWS = "select id, int(id % {days}) as day, double(id * 17 % 1009) / 7 as amount, {n} as version"
STATEMENTS = {
    "append 1 %": "insert into {t} {new}",
    "UPDATE 1 %, all over": "update {t} set version = {n} where id % 101 = {n}",
    "UPDATE 1 %, one day": "update {t} set version = {n} where day = {n} and id div 50 % 2 = 0",
    "DELETE 1 %, all over": "delete from {t} where id % 103 = {n}",
    "DELETE one day": "delete from {t} where day = {n} + 10",
    "MERGE 1 %, all over": "merge into {t} t using ({some}) s on t.id = s.id "
    "when matched then update set * when not matched then insert *",
    "MERGE 1 %, one day": "merge into {t} t using ({of_day}) s on t.id = s.id and t.day = s.day "
    "when matched then update set * when not matched then insert *",
}
QUERIES = {
    "select, all rows": "select count(*), sum(amount), max(version) from {t}",
    "select, one day": "select count(*), sum(amount), max(version) from {t} where day = 7",
}
Times = dict[str, dict[str, list[float]]]
"""What was measured -> table -> seconds, one for each round."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--commits", type=int, default=1440)
    parser.add_argument("--plots", type=Path)
    given = parser.parse_args()
    with serving() as (config, endpoint):
        session = Session(endpoint.thrift_port)
        lake = Lake("lake", catalog_properties(config))
        try:
            print(f"{machine()}; {given.rows:,} rows\n")
            tables = create(session, given.rows)
            times = loads(session, tables, given.rows, given.rounds)
            before = queries(session, tables, "", given.rounds)
            files = {name: counted(session, name) for name in tables}
            maintain(lake, session, SCHEMA)
            after = queries(session, tables, " compacted", given.rounds)
            tell(tables, {**times, **before, **after}, files)
            if given.plots:
                plot_loads(tables, {**times, **before, **after}).save(given.plots / "loads.svg")
            grown = growth(lake, session, given.commits)
            tell_growth(grown)
            if given.plots:
                plot_growth(grown).save(given.plots / "metadata-growth.svg")
        finally:
            lake.close()


def create(session: Session, rows: int) -> dict[str, tuple[str, str]]:
    """Return table -> layout and mode."""
    session.sql(f"create namespace lake.{SCHEMA}")
    found = {}
    for layout, partitioned in LAYOUTS.items():
        for mode in MODES:
            name = f"{SCHEMA}.{layout}_{mode}".replace(" ", "_").replace("-", "_")
            modes = ", ".join(
                f"'write.{what}.mode'='{mode}'" for what in ("update", "delete", "merge")
            )
            session.sql(
                f"create table {name} (id bigint, day int, amount double, version int) using "
                f"iceberg {partitioned} tblproperties ('write.wap.enabled'='true', {modes}, "
                "'write.target-file-size-bytes'='1048576')"
            )
            if layout != "no order":
                session.sql(f"alter table {name} write ordered by day, id")
            new = ROWS.format(days=DAYS, n=0)
            session.sql(f"insert into {name} {new} from range(0, {rows}, 1, 8)")
            found[name] = (layout, mode)
    return found


def loads(session: Session, tables: Collection[str], rows: int, rounds: int) -> Times:
    """Send each statement to each table in turn; the first round warms up and does not count."""
    times: Times = defaultdict(lambda: defaultdict(list))
    some = rows // 100
    for n in range(rounds + 1):
        of = ROWS.format(days=DAYS, n=n + 1)
        parts = {
            "new": f"{of} from range({rows + n * some}, {rows + (n + 1) * some}, 1, 2)",
            "some": f"{of} from range(0, {rows}) where id % 107 = {n}",
            "of_day": f"{of} from range(0, {rows}) "
            f"where id % {DAYS} = {n + 20} and id div {DAYS} % 2 = 1",
        }
        for what, statement in STATEMENTS.items():
            for table in tables:
                began = time.monotonic()
                session.sql(statement.format(t=table, n=n + 1, **parts))
                if n:
                    times[what][table].append(time.monotonic() - began)
        print(f"  round {n} of {rounds}", file=sys.stderr)
    return times


def queries(session: Session, tables: Collection[str], words: str, rounds: int) -> Times:
    times: Times = defaultdict(lambda: defaultdict(list))
    answers: dict[str, set[Any]] = defaultdict(set)
    for n in range(2 * rounds + 1):
        for what, query in QUERIES.items():
            for table in tables:
                began = time.monotonic()
                ((count, amount, version),) = session.sql(query.format(t=table))
                answers[what].add((count, round(amount), version))
                if n:
                    times[what + words][table].append(time.monotonic() - began)
    if any(len(found) > 1 for found in answers.values()):
        raise RuntimeError(f"the tables differ: {dict(answers)}")
    return times


def tell(
    tables: Mapping[str, tuple[str, str]], times: Times, files: Mapping[str, tuple[int, int]]
) -> None:
    """Print the medians in seconds, and the times of copy-on-write / merge-on-read."""
    heads = [f"{layout}: {words}" for layout in LAYOUTS for words in ("copy", "merge", "ratio")]
    print(f"| | {' | '.join(heads)} |\n|{'---|' * (len(heads) + 1)}")
    for what, of_table in times.items():
        cells = []
        for layout in LAYOUTS:
            copied, merged = (
                of_table[next(name for name, of in tables.items() if of == (layout, mode))]
                for mode in MODES
            )
            ratio = statistics.median(a / b for a, b in zip(copied, merged, strict=True))
            cells += [f"{statistics.median(one):.2f}" for one in (copied, merged)]
            cells.append(f"**{ratio:.2f}**")
        print(f"| {what} | {' | '.join(cells)} |")
    cells = [f"{data} ({deletes})" for data, deletes in files.values()]
    columns = [" | ".join([*cells[i : i + 2], ""]) for i in range(0, len(cells), 2)]
    print(f"| files (deletes) before the compaction | {' | '.join(columns)} |\n")


Grown = list[dict[str, Any]]


GROWING = {
    "left alone": ("alone", {}),
    "maintained": ("kept", {}),
    "maintained, small metadata": (
        "small",
        {
            "write.metadata.compression-codec": "gzip",
            "write.metadata.delete-after-commit.enabled": "true",
        },
    ),
}
"""Table -> schema and properties."""


def growth(lake: Lake, session: Session, commits: int, tables: Collection[str] = GROWING) -> Grown:
    """Append to tables again and again; two are maintained after each 120 commits.

    A day passes in minutes, so that the hour's margin for old metadata files is left out.
    """
    inspection.METADATA_MARGIN_MS = 0
    schemas = {words: GROWING[words][0] for words in tables}
    for words, schema in schemas.items():
        properties = {"write.wap.enabled": "true", **GROWING[words][1]}
        listed = ", ".join(f"'{key}'='{value}'" for key, value in properties.items())
        session.sql(f"create namespace lake.{schema}")
        session.sql(
            f"create table {schema}.log (id bigint, day int) using iceberg tblproperties ({listed})"
        )
    found: Grown = []
    for n in range(1, commits + 1):
        for schema in schemas.values():
            session.sql(f"insert into {schema}.log select id, {n} from range(100)")
        if n % 120:
            continue
        for words, schema in schemas.items():
            if words != "left alone":
                maintain(lake, session, schema)
            state = lake.state((schema, "log"))
            assert state is not None
            document = Path(plain_location(state.metadata_location))
            folder = document.parent
            seconds = []
            for _ in range(5):
                began = time.monotonic()
                session.sql(f"select count(*) from {schema}.log where day = 1")
                seconds.append(time.monotonic() - began)
            found.append(
                {
                    "table": words,
                    "commits": n,
                    "metadata file (KB)": document.stat().st_size / 1000,
                    "all metadata (MB)": sum(f.stat().st_size for f in folder.iterdir()) / 1e6,
                    "data files": counted(session, f"{schema}.log")[0],
                    "select (ms)": 1000 * statistics.median(seconds),
                }
            )
        print(f"  {n} of {commits} commits", file=sys.stderr)
    return found


def tell_growth(grown: Grown) -> None:
    """Print the last state of the tables."""
    names = list(grown[0])
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    for row in grown[-len(GROWING) :]:
        cells = [f"{v:,.1f}" if isinstance(v, float) else str(v) for v in row.values()]
        print(f"| {' | '.join(cells)} |")


def plot_loads(tables: Mapping[str, tuple[str, str]], times: Times) -> Any:
    """Return points of the median seconds, by statement and layout, on a logarithmic scale."""
    rows = [
        {
            "statement": what,
            "layout": tables[table][0],
            "mode": tables[table][1],
            "seconds": statistics.median(seconds),
        }
        for what, of_table in times.items()
        for table, seconds in of_table.items()
    ]
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_point(filled=True, size=70, opacity=0.9)
        .encode(
            x=alt.X("seconds:Q", scale=alt.Scale(type="log", domain=[0.1, 20])),
            y=alt.Y("statement:N", title=None, sort=list(times)),
            color=alt.Color("mode:N", title=None, legend=alt.Legend(orient="top")),
            column=alt.Column("layout:N", title=None, sort=list(LAYOUTS)),
        )
        .properties(width=170, height=230)
        .configure(background="white")
    )


def plot_growth(grown: Grown) -> alt.HConcatChart:
    """Return lines of what grows with the commits."""
    measures = [name for name in grown[0] if name not in ("table", "commits")]
    charts = [
        alt.Chart(alt.Data(values=grown))
        .mark_line(point=True)
        .encode(
            x=alt.X("commits:Q"),
            y=alt.Y(f"{name}:Q", title=name),
            color=alt.Color(
                "table:N", title=None, legend=alt.Legend(orient="top"), sort=list(GROWING)
            ),
        )
        .properties(width=200, height=160)
        for name in measures
    ]
    return alt.hconcat(*charts).configure(background="white")


if __name__ == "__main__":
    main()
