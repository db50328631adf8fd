"""Tables that are written to again and again, with maintenance and without.

A log of commits is replayed on five kinds of tables, in two copies: one is maintained after each
round of commits, within a tenth of the time that the commits have taken; the other is left alone.
Both have to have the same rows. At the end, both are scanned in turn with a copy of the first that
is compacted as a whole (A B C A B C ...); ratios are taken round by round. Then candidates are
published whose `main` Iceberg's own procedure has compacted in the meantime.

    python benchmarks/maintenance.py [--commits 240] [--rounds 24] [--rows 4000] [--pairs 5]
        [--publishes 20]
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable

from harness import Session, counted, machine, maintain, serving, spread

from sparkwap.catalog import Candidate
from sparkwap.gate.settings import Upkeep
from sparkwap.maintenance.file_choice import target_size
from sparkwap.maintenance.maintainer import Maintainer
from sparkwap.maintenance.rules import Rules
from sparkwap.publish.lake import Lake
from sparkwap.server import catalog_properties

MERGE_ON_READ = {f"write.{what}.mode": "merge-on-read" for what in ("delete", "update", "merge")}
SCHEMA, PLAIN = "kept", "plain"
READINGS = 500  # a day
SHARE = 0.1

NEW = (
    "select id, cast(id % 97 as string) as name, double(id * 17 % 1009) / 7 as amount, "
    "{n} as version from range({start}, {end}, 1, 2)"
)
MERGE = (
    "merge into {t} t using ({rows}) s on t.id = s.id "
    "when matched then update set * when not matched then insert *"
)


def append(n: int, rows: int) -> str:
    return f"insert into {{t}} {NEW.format(n=n, start=n * rows, end=(n + 1) * rows)}"


def upsert_all_over(n: int, rows: int) -> str:
    step = max(1, n)
    some = NEW.format(n=n, start=0, end=(n + 1) * rows) + f" where id % {step} = {n % step}"
    return MERGE.format(t="{t}", rows=some)


def upsert_newest(n: int, rows: int) -> str:
    start = max(0, n * rows - rows // 2)
    return MERGE.format(t="{t}", rows=NEW.format(n=n, start=start, end=(n + 1) * rows))


def overwrite(n: int, rows: int) -> str:
    return f"insert overwrite {{t}} {NEW.format(n=n, start=0, end=rows * 4)}"


def append_or_delete(n: int, rows: int) -> str:
    return append(n, rows) if n % 3 < 2 else f"delete from {{t}} where id % 101 = {n % 101}"


KINDS: dict[str, tuple[Callable[[int, int], str], dict[str, str]]] = {
    "appends": (append, {}),
    "upserts all over": (upsert_all_over, MERGE_ON_READ),
    "upserts of the newest": (upsert_newest, MERGE_ON_READ),
    "whole overwrites": (overwrite, {}),
    "deletes": (append_or_delete, MERGE_ON_READ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--commits", type=int, default=240)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--publishes", type=int, default=20)
    given = parser.parse_args()
    with serving() as (config, endpoint):
        session = Session(endpoint.thrift_port)
        lake = Lake("lake", catalog_properties(config))
        try:
            replay(lake, session, given)
            publish_over_compactions(lake, session, given)
        finally:
            lake.close()


def replay(lake: Lake, session: Session, given: argparse.Namespace) -> None:
    names = {kind: kind.replace(" ", "_") for kind in KINDS}
    for schema in (SCHEMA, PLAIN):
        session.sql(f"create namespace lake.{schema}")
        for kind, (_, properties) in KINDS.items():
            listed = {**properties, "write.wap.enabled": "true"}
            options = ", ".join(f"'{key}'='{value}'" for key, value in listed.items())
            session.sql(
                f"create table {schema}.{names[kind]} (id bigint, name string, amount double, "
                f"version int) using iceberg tblproperties ({options})"
            )
    rules = {(SCHEMA, name): Rules(readings_per_day=READINGS) for name in names.values()}
    spent = {SCHEMA: 0.0, PLAIN: 0.0}
    maintained = 0.0
    ingested: Counter[str] = Counter()
    each = given.commits // given.rounds
    for round_ in range(given.rounds):
        for n in range(round_ * each, (round_ + 1) * each):
            for schema in (SCHEMA, PLAIN):
                began = time.monotonic()
                for kind, (statement, _) in KINDS.items():
                    session.sql(statement(n, given.rows).format(t=f"{schema}.{names[kind]}"))
                spent[schema] += time.monotonic() - began
        began = time.monotonic()
        work = Maintainer(lake, session.sql, run_id=str(uuid.uuid4()), upkeep=Upkeep(), rules=rules)
        budget = SHARE * spent[SCHEMA] - maintained
        if budget > 1:
            report = work.maintain([SCHEMA], budget)
            if report.failed:
                raise RuntimeError("; ".join(report.failed))
        maintained += time.monotonic() - began
        print(f"  round {round_ + 1} of {given.rounds}", file=sys.stderr)
    rewritten = Counter[str]()
    for row in lake.ledger.rows("maintenance"):
        rewritten[row["name"]] += row["bytes"] or 0
    for kind, name in names.items():
        query = f"select coalesce(sum(bigint(summary['added-files-size'])), 0) from {PLAIN}.{name}"
        ingested[kind] = int(session.sql(f"{query}.snapshots")[0][0])
        rows = [
            session.sql(f"select count(*), sum(id), sum(version) from {schema}.{name}")[0]
            for schema in (SCHEMA, PLAIN)
        ]
        if rows[0] != rows[1]:
            raise RuntimeError(f"{kind}: {rows[0]} rows maintained, {rows[1]} left alone")
    print(f"{machine()}; {given.commits} commits of {given.rows} rows to each table\n")
    print(
        "| table | files (deletes) left alone | maintained | ideal | written / ingested | "
        "scan / freshly compacted | scan left alone / maintained |"
    )
    print("|---|---|---|---|---|---|---|")
    for kind, name in names.items():
        tell(lake, session, kind, name, rewritten[name] / max(1, ingested[kind]), given.pairs)
    print(
        f"\nMaintenance took {maintained:.0f} s, {maintained / spent[SCHEMA]:.1%} of the "
        f"{spent[SCHEMA]:.0f} s of the commits; commits of the tables left alone took "
        f"{spent[PLAIN]:.0f} s."
    )


def tell(lake: Lake, session: Session, kind: str, name: str, written: float, pairs: int) -> None:
    """Print a line of the table."""
    files = {schema: counted(session, f"{schema}.{name}") for schema in (SCHEMA, PLAIN)}
    fresh = f"kept_fresh.{name}"
    session.sql("create namespace if not exists lake.kept_fresh")
    session.sql(
        f"create table {fresh} using iceberg tblproperties ('write.wap.enabled'='true') as "
        f"select * from {SCHEMA}.{name}"
    )
    total = int(session.sql(f"select sum(file_size_in_bytes) from {fresh}.files")[0][0])
    ideal = math.ceil(total / target_size(total, os.cpu_count() or 1, Rules(), None))
    maintain(lake, session, fresh)
    times = {f"{schema}.{name}": list[float]() for schema in (SCHEMA, PLAIN)} | {fresh: []}
    for _ in range(pairs + 1):
        for table, found in times.items():
            began = time.monotonic()
            session.sql(f"select count(name), sum(amount), max(version) from {table}")
            found.append(time.monotonic() - began)
    kept, plain, best = (found[1:] for found in times.values())
    against_best = [a / b for a, b in zip(kept, best, strict=True)]
    against_plain = [a / b for a, b in zip(plain, kept, strict=True)]
    cells = [
        kind,
        "{} ({})".format(*files[PLAIN]),
        "{} ({})".format(*files[SCHEMA]),
        str(ideal),
        f"{written:.1f}",
        spread(against_best),
        spread(against_plain),
    ]
    print(f"| {' | '.join(cells)} |", flush=True)


VECTORS = {"format-version": "3", **MERGE_ON_READ}
MOVED: dict[str, tuple[Callable[[int, int], str], dict[str, str]]] = {
    "appends": (append, {}),
    "merges into the newest partition": (upsert_newest, {}),
    "merges all over": (upsert_all_over, {}),
    "merges all over by deletion vectors": (upsert_all_over, VECTORS),
}


def publish_over_compactions(lake: Lake, session: Session, given: argparse.Namespace) -> None:
    """Publish candidates after a compaction of `main`, and print how many need no rebuild.

    Each table is partitioned by blocks of ids, and rewritten by copy-on-write but for the last.
    Before each run, its first partition gets two small files; the compaction rewrites each
    partition that has two files or more.
    """
    session.sql("create namespace lake.moved")
    print("\n| candidates | published without a rebuild | seconds: median (greatest) |")
    print("|---|---|---|")
    for kind, (statement, more) in MOVED.items():
        name = kind.replace(" ", "_")
        properties = {"write.wap.enabled": "true", **more}
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        session.sql(
            f"create table moved.{name} (id bigint, name string, amount double, version int) using "
            f"iceberg partitioned by (truncate({2 * given.rows}, id)) "
            f"tblproperties ({listed})"
        )
        for n in range(4):
            session.sql(append(n, given.rows).format(t=f"moved.{name}"))
        seconds = []
        for n in range(4, 4 + given.publishes):
            found = published_over_a_compaction(
                lake, session, ("moved", name), statement(n, given.rows)
            )
            seconds += [found] if found is not None else []
        cells = [kind, f"{len(seconds)} of {given.publishes}"]
        cells.append(
            f"{statistics.median(seconds):.2f} ({max(seconds):.2f})" if seconds else "none"
        )
        print(f"| {' | '.join(cells)} |", flush=True)


def published_over_a_compaction(
    lake: Lake, session: Session, table: tuple[str, str], statement: str
) -> float | None:
    """Return the seconds of a publish; None if it would be built again."""
    for _ in range(2):
        few = NEW.format(n=0, start=0, end=10)
        session.sql(f"insert into {'.'.join(table)} {few}")
    run_id = str(uuid.uuid4())
    branch = f"wap_{run_id[:8]}"
    base = lake.branches.open(table, branch).base
    session.sql(f"set spark.wap.branch={branch}")
    session.sql(statement.format(t=".".join(table)))
    session.sql("reset spark.wap.branch")
    session.sql(
        f"call lake.system.rewrite_data_files(table => '{'.'.join(table)}', "
        "options => map('min-input-files', '2'))"
    )
    state = lake.state(table)
    assert state is not None
    head = state.refs[branch].snapshot_id
    candidate = Candidate(table, branch, "branch", base, token=str(head))
    if state.main == base:
        raise RuntimeError(f"nothing was compacted: {table}")
    began = time.monotonic()
    moved = lake.branches.cherry_pick(candidate)
    if moved is not None:
        lake.publishing.publish(
            [moved],
            run_id=run_id,
            tag=f"wap_pub_{run_id[:8]}",
            tag_max_age_ms=None,
            branch=branch,
        )
    else:
        lake.branches.discard(branch)
    return time.monotonic() - began if moved is not None else None


if __name__ == "__main__":
    main()
