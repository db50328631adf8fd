"""Those who write at the same time: runs, a writer that knows no gate, a compaction, a killer."""

from __future__ import annotations

import random
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, ValidationException
from sqlalchemy.exc import OperationalError

from sparkwap.catalog import metadata as md
from sparkwap.catalog.pointers import Conflict, Pointer, PointerUpdate
from sparkwap.core.errors import SparkwapError
from sparkwap.gate.placement import Desired
from sparkwap.gate.settings import GateSettings
from sparkwap.publish.lake import Lake
from sparkwap.runs.run import Run
from sparkwap.runs.types import Invocation, NodeFact, TestFact, TestSeen

SCHEMA = "s"
TABLES = ("a", "b", "c")
NODES = [
    NodeFact(f"model.shop.{t}", (SCHEMA, t), "model", "success", None, frozenset()) for t in TABLES
]
TESTS = [
    TestFact(f"test.shop.{n.identifier[1]}", "ok", "data", frozenset({n.node_id}), "error")
    for n in NODES
]
OVERTAKEN = (CommitFailedException, ValidationException, OperationalError, ValueError)
"""What PyIceberg raises where another writer was faster; ValueError for a sequence number."""
_BAD = 0.25
_COLUMNS = pa.schema({"by": pa.string(), "number": pa.int64(), "ok": pa.bool_()})


def open_lake(folder: Path) -> Lake:
    uri = f"sqlite:///{folder}/catalog.db"
    return Lake("lake", {"type": "sql", "uri": uri, "warehouse": f"file://{folder}/warehouse"})


def create(folder: Path) -> None:
    """A lake with the tables, each with one row of noise."""
    lake = open_lake(folder)
    lake.ensure_schema(SCHEMA)
    for name in TABLES:
        lake.catalog.create_table((SCHEMA, name), _COLUMNS).append(_row("noise-0", 0, True))
    lake.close()


def _row(by: str, number: int, ok: bool) -> pa.Table:
    return pa.Table.from_pylist([{"by": by, "number": number, "ok": ok}], schema=_COLUMNS)


def runs(folder: str, branch: str, seed: int) -> None:
    """Run after run on one branch, until killed; each adds a row to all tables, or a bad one."""
    lake, chance = open_lake(Path(folder)), random.Random(seed)
    while True:
        # What was refused or lost is tried again: as another run, from main as it is then.
        with suppress(SparkwapError, *OVERTAKEN):
            _one_run(lake, Path(folder), branch, chance)


def _one_run(lake: Lake, folder: Path, branch: str, chance: random.Random) -> None:
    run = Run(
        lake,
        Invocation(
            run_id=str(uuid.UUID(int=chance.getrandbits(128))),
            branch=branch,
            settings=GateSettings(),
            command="build",
            project="shop",
            target_name="dev",
        ),
    )
    run.candidates.load()
    ok = chance.random() > _BAD
    for node in NODES:
        run.begin(node.node_id, node.identifier)
        run.candidates.place_table(node.identifier, Desired())
        table = lake.catalog.load_table(node.identifier)
        number = max(r["number"] for r in _on_branch(table, branch)) + 1
        row = _row(run.run_id, number, ok or node is not NODES[-1])
        table.append(row, branch=branch, snapshot_properties={"wap_run": run.run_id})
        run.built(node.node_id, node.identifier, must_write=True)
    seen = []
    for test, node in zip(TESTS, NODES, strict=True):
        rows = _on_branch(lake.catalog.load_table(node.identifier), branch)
        bad = [row for row in rows if not row["ok"]]
        seen.append(TestSeen(test.test_id, "fail" if bad else "pass", len(bad), None))
    if run.close(NODES, TESTS, seen).published:
        with (folder / f"told-{branch}").open("a") as log:
            log.write(f"{run.run_id}\n")


def _on_branch(table: Any, branch: str) -> list[dict[str, Any]]:
    head = table.metadata.refs[branch].snapshot_id
    rows: list[dict[str, Any]] = table.scan(snapshot_id=head).to_arrow().to_pylist()
    return rows


def noise(folder: str, seed: int, pause: float) -> None:
    """Rows straight to ``main``, and compactions of it, until killed."""
    lake, chance = open_lake(Path(folder)), random.Random(seed)
    for number in range(1, 1_000_000):
        time.sleep(chance.uniform(0.5, 1.5) * pause)
        name = chance.choice(TABLES)
        with suppress(Conflict, *OVERTAKEN):
            if chance.random() < 0.5:
                table = lake.catalog.load_table((SCHEMA, name))
                table.append(_row(f"noise-{number}", 0, True))
            else:
                _compact(lake, name)


def _compact(lake: Lake, name: str) -> None:
    """All rows into one file, as one snapshot of the operation ``replace``."""
    table = lake.catalog.load_table((SCHEMA, name))
    base = table.metadata.current_snapshot_id
    count = len(table.scan().to_arrow())
    with table.transaction() as transaction:
        transaction.overwrite(table.scan().to_arrow())
    row = lake.store.backend.find([(SCHEMA, name)])[(SCHEMA, name)]
    document = lake.store.load(row.location)
    # PyIceberg writes a delete and an append; a compaction is one snapshot of both.
    summary = {"added-records": count, "deleted-records": count, "total-records": count}
    entries = [
        {
            **entry,
            "parent-snapshot-id": base,
            "summary": {"operation": "replace", **{k: str(v) for k, v in summary.items()}},
        }
        if entry["snapshot-id"] == md.main_of(document)
        else entry
        for entry in document["snapshots"]
    ]
    document = {**document, "snapshots": entries}
    location = md.next_location(document, row.location)
    lake.store.write({location: document})
    lake.store.backend.apply(
        [PointerUpdate(row, Pointer(row.identifier, "table", location))], documents={}
    )
