"""Load a Parquet file through the gate without Spark: branch, append, audit by DuckDB, publish.

    python load.py drop.parquet web.events --catalog sqlite:///$PWD/.lake/catalog.db \
        --warehouse file://$PWD/.lake/warehouse --audits audits.sql --publish

Each statement of the audits is a query on the view `candidate`: all rows that readers would see,
those of the file among them. A row that a query returns is a failure.

Exit code 0: published, left on its branch as asked, or published before; 1: nothing was written;
2: the file is on its branch, rejected or held.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import uuid
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
from pyiceberg.table.snapshots import ancestors_of

from sparkwap.catalog import Identifier, lease
from sparkwap.core.errors import SparkwapError
from sparkwap.core.names import audit_branch
from sparkwap.gate.placement import Desired
from sparkwap.gate.settings import GateSettings
from sparkwap.publish.lake import Lake
from sparkwap.runs import summary
from sparkwap.runs.run import Run
from sparkwap.runs.types import Invocation, NodeFact, RunEnd, TestFact, TestSeen

SHA256 = "load_sha256"
"""The property of a snapshot by which a file is known that was loaded."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Load a Parquet file through the gate.")
    parser.add_argument("file", type=Path)
    parser.add_argument("table", help="schema.table")
    parser.add_argument("--catalog", required=True, help="URI of the SQL catalog")
    parser.add_argument("--warehouse", required=True, help="URI of the warehouse")
    parser.add_argument("--name", default="lake", help="the catalog's name in Spark")
    parser.add_argument("--audits", type=Path, help="a file of queries, see above")
    parser.add_argument("--publish", action="store_true", help="else it stays on its branch")
    given = parser.parse_args()
    schema, _, name = given.table.partition(".")
    audits = duckdb.extract_statements(given.audits.read_text()) if given.audits else []
    if given.publish and not audits:
        parser.error("--publish wants --audits: what no audit has looked at is not published")
    place = {"type": "sql", "uri": given.catalog, "warehouse": given.warehouse}
    lake = Lake(given.name, place)
    try:
        queries = [one.query.strip() for one in audits]
        return load(lake, given.file, (schema, name), queries, publish=given.publish)
    except (SparkwapError, ValueError) as error:
        print(f"{error}\nNothing of {given.file} is on main.", file=sys.stderr)
        return 1
    finally:
        lake.close()


def load(lake: Lake, file: Path, table: Identifier, audits: list[str], *, publish: bool) -> int:
    """Append a file to a table behind the gate; returns the exit code.

    Raises:
        ValueError: The file does not fit the table, or a dbt project builds it.
        SparkwapError: The catalog failed; main is as it was, unless the message says otherwise.
    """
    for line in lake.publishing.recover():  # what a publish that was killed has left to do
        print(line)
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    main = lake.catalog.load_table(table)
    builder = lake.ledger.builder(table)
    if builder is not None:
        raise ValueError(f"{'.'.join(table)} is built by {builder[0]}, which would lose the rows")
    for snapshot in ancestors_of(main.current_snapshot(), main.metadata):
        if snapshot.summary and snapshot.summary.additional_properties.get(SHA256) == sha256:
            print(f"Already published: {file.name}, by snapshot {snapshot.snapshot_id}")
            return 0
    invocation = Invocation(
        run_id=str(uuid.uuid4()),
        branch=audit_branch(sha256, None),  # the same file finds what a load that died has left
        settings=GateSettings(publish="run" if publish else "never"),
        command="load",
        project="",
        target_name="",
    )
    run = Run(lake, invocation)
    holding = lease.hold(lake.leases, run_id=run.run_id, branch=run.branch, command="load")
    try:
        closing = write_audit_publish(run, file, table, sha256, audits)
    finally:
        holding.release()
    print("\n".join(summary.lines(closing, run_id=run.run_id, branch=run.branch)))
    return 0 if not publish or closing.published else 2


def write_audit_publish(
    run: Run, file: Path, table: Identifier, sha256: str, audits: list[str]
) -> RunEnd:
    node = f"load.{'.'.join(table)}"  # the ledger knows by `load.` that no dbt project builds it
    run.candidates.load()
    run.watch_main([table])  # the net: a move of main that is not the publish is put back
    run.begin(node, table)
    run.candidates.place_table(table, Desired())  # the branch, at the head of main
    stamp = {"wap_run": run.run_id, SHA256: sha256}
    written = run.lake.catalog.load_table(table)
    written.append(pq.read_table(file), branch=run.branch, snapshot_properties=stamp)
    run.built(node, table, must_write=True)

    tests, seen = [], []
    with written.scan().use_ref(run.branch).to_duckdb("candidate") as candidate:
        for number, query in enumerate(audits, start=1):
            test = TestFact(f"{node}.{number}", query, "audit", frozenset({node}), "error")
            failures = len(candidate.execute(query).fetchall())
            tests.append(test)
            seen.append(TestSeen(test.test_id, "fail" if failures else "pass", failures, None))
    failed = [test.name for test, one in zip(tests, seen, strict=True) if one.failures]
    if failed:
        # No project has these audits, so nothing else would keep it from a later `wap_publish`.
        run.candidates.fault(table, f"failed: {'; '.join(failed)}")
    return run.close([NodeFact(node, table, "load", "success", None, frozenset())], tests, seen)


if __name__ == "__main__":
    sys.exit(main())
