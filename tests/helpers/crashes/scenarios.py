"""What is done to a lake while something dies, without Spark: PyIceberg writes what Spark would.

A scenario prepares a lake, does one thing to it, and knows how a user goes on when that died.
Between them the scenarios reach every step of `sparkwap.core.checkpoints` that is not inside dbt.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from helpers.bench import compact
from sparkwap.catalog.pointers import Pointer, PointerUpdate
from sparkwap.core import checkpoints
from sparkwap.core.errors import ConfigError, SparkwapError
from sparkwap.gate.placement import Desired
from sparkwap.gate.settings import GateSettings, Upkeep
from sparkwap.ledger.manifests import Packed
from sparkwap.maintenance.expiry import expire
from sparkwap.maintenance.live_manifests import keep_live_files
from sparkwap.maintenance.maintainer import Maintainer
from sparkwap.publish.lake import Lake
from sparkwap.runs.operations import LakeOperations, NotPublished
from sparkwap.runs.run import Run
from sparkwap.runs.state import LastRun, require_unpublished
from sparkwap.runs.types import Invocation, NodeFact, TestFact, TestSeen

BRANCH = "pr_1"
SIDE = f"s__{BRANCH}"
ORDERS, TOTALS, FRESH, VIEW, COPY = (("s", n) for n in ("orders", "totals", "fresh", "v", "copy"))
DROPPED = "s2"
MANY = ("s3", "many")
FIRST, SECOND, THIRD = (f"{n}a2b3c4d-0000-4000-8000-000000000000" for n in "123")
KEPT = Desired()
WIDER = Desired(columns=(("id", "bigint", None, None), ("extra", "string", None, None)))
NODES = [
    NodeFact(f"model.shop.{name}", ("s", name), "model", "success", None, frozenset(parents))
    for name, parents in (
        ("orders", ()),
        ("totals", ("model.shop.orders",)),
        ("fresh", ("model.shop.orders",)),
        ("v", ()),
    )
]
TESTS = [
    TestFact(f"test.shop.{n.identifier[1]}", "ids", "data", frozenset({n.node_id}), "error")
    for n in NODES
]
PASSED = [TestSeen(test.test_id, "pass", 0, None) for test in TESTS]
CODE = Packed("1a2b", b"code")


def open_lake(folder: Path, properties: Mapping[str, str] | None = None) -> Lake:
    """The lake of a folder, laid out as that of the embedded server, or on another catalog."""
    uri = f"sqlite:///{folder}/catalog.db"
    own = {"type": "sql", "uri": uri, "warehouse": f"file://{folder}/warehouse"}
    return Lake("lake", properties or own)


def rows(*ids: int, extra: bool = False) -> pa.Table:
    table = pa.table({"id": pa.array(ids, pa.int64())})
    return table.append_column("extra", pa.array(["x"] * len(ids), pa.string())) if extra else table


# -- what runs do --------------------------------------------------------------------------------


def start(lake: Lake, run_id: str, publish: str = "run", branch: str = BRANCH) -> Run:
    run = Run(
        lake,
        Invocation(
            run_id=run_id,
            branch=branch,
            settings=GateSettings(publish=publish),  # type: ignore[arg-type]
            command="build",
            project="shop",
            target_name="dev",
        ),
        manifest=lambda: CODE,
    )
    run.candidates.load()
    return run


def build(run: Run) -> None:
    """Build all nodes: on a branch, on a clone, a new table, a new view."""
    for node in NODES:
        run.begin(node.node_id, node.identifier)
        {ORDERS: _on_branch, TOTALS: _on_clone, FRESH: _new, VIEW: _view}[node.identifier](run)
        run.built(node.node_id, node.identifier, must_write=True)


def build_and_close(lake: Lake, run_id: str, publish: str = "run") -> None:
    run = start(lake, run_id, publish)
    build(run)
    run.close(NODES, TESTS, PASSED)


def _stamp(run: Run) -> dict[str, str]:
    return {"wap_run": run.run_id}


def _on_branch(run: Run) -> None:
    assert run.candidates.place_table(ORDERS, KEPT).how == "branch"
    # Adds, so that whatever is done twice is seen twice.
    table = run.lake.catalog.load_table(ORDERS)
    table.append(rows(3), branch=run.branch, snapshot_properties=_stamp(run))


def _on_clone(run: Run) -> None:
    table = run.lake.catalog.load_table(run.candidates.place_table(TOTALS, WIDER).place)
    with table.update_schema() as update:
        update.union_by_name(rows(extra=True).schema)
    table.append(rows(3, extra=True), snapshot_properties=_stamp(run))


def _new(run: Run) -> None:
    place = run.candidates.place_beside(FRESH).place
    table = run.lake.catalog.create_table(
        place, rows().schema, location=run.candidates.location(FRESH)
    )
    table.append(rows(1), snapshot_properties=_stamp(run))


def _view(run: Run) -> None:
    side = run.candidates.place_beside(VIEW).place[0]
    location = f"{run.lake.properties['warehouse']}/{side}/{VIEW[1]}"
    file = f"{location}/metadata/00000-{uuid.uuid4()}.gz.metadata.json"
    run.lake.store.files.write(file, json.dumps(_view_document(location, side)).encode())
    run.lake.store.backend.apply(
        [PointerUpdate(None, Pointer((side, VIEW[1]), "view", file))], documents={}
    )


def _view_document(location: str, side: str) -> dict[str, Any]:
    version = {
        "version-id": 1,
        "timestamp-ms": 1,
        "schema-id": 0,
        "summary": {"engine-name": "spark"},
        "default-catalog": "lake",
        "default-namespace": [],
        "representations": [
            {"type": "sql", "sql": f"select id from {side}.fresh", "dialect": "spark"}
        ],
    }
    field = {"id": 0, "name": "id", "required": False, "type": "long"}
    return {
        "view-uuid": str(uuid.uuid4()),
        "format-version": 1,
        "location": location,
        "properties": {},
        "schemas": [{"type": "struct", "schema-id": 0, "fields": [field]}],
        "current-version-id": 1,
        "versions": [version],
        "version-log": [{"version-id": 1, "timestamp-ms": 1}],
    }


def operate(lake: Lake, name: str, last: LastRun | None = None, **arguments: str) -> str:
    """A run-operation; what it prints."""
    operations = LakeOperations(
        lake,
        run_id=THIRD,
        settings=GateSettings(),
        project="shop",
        target_name="dev",
        tests=lambda: TESTS,
        known=lambda: [node.node_id for node in NODES],
        unfinished=last,
    )
    return "\n".join(operations.call(name, arguments))


# -- scenarios -----------------------------------------------------------------------------------


def _base(lake: Lake) -> None:
    lake.ensure_schema("s")
    for identifier in (ORDERS, TOTALS):
        lake.catalog.create_table(identifier, rows().schema).append(rows(1, 2))


def _held(lake: Lake) -> None:
    _base(lake)
    build_and_close(lake, FIRST, publish="never")


def _published(lake: Lake) -> None:
    _base(lake)
    build_and_close(lake, FIRST)


def _with_dropped(lake: Lake) -> None:
    _base(lake)
    lake.ensure_schema(DROPPED)
    lake.catalog.create_table((DROPPED, "t"), rows().schema).append(rows(1))


def _build(lake: Lake) -> None:
    build_and_close(lake, SECOND)


def _build_compacted(lake: Lake) -> None:
    """Others compact main of a table before the publish."""
    run = start(lake, SECOND)
    build(run)
    compact(lake, ORDERS)
    run.close(NODES, TESTS, PASSED)


def _build_held(lake: Lake) -> None:
    build_and_close(lake, SECOND, publish="never")


def _refused(lake: Lake) -> None:
    run = start(lake, SECOND)
    build(run)
    lake.catalog.load_table(ORDERS).append(rows(66), branch=BRANCH)
    assert run.close(NODES, TESTS, PASSED).refused


def _clone(lake: Lake, run_id: str = SECOND) -> None:
    run = start(lake, run_id)
    run.begin("model.shop.copy", COPY)
    run.candidates.place_copy(COPY, ORDERS)
    run.built("model.shop.copy", COPY, must_write=False)
    run.close_copies()


def _cloned(lake: Lake) -> None:
    """A copy is there already, and what it is made of has moved on."""
    _base(lake)
    _clone(lake, FIRST)
    lake.catalog.load_table(ORDERS).append(rows(9))


def _replaced(lake: Lake) -> None:
    _cloned(lake)
    _clone(lake)


def _erase(lake: Lake) -> None:
    keep_live_files(lake, ORDERS, BRANCH, SECOND)
    expire(lake, TOTALS, SECOND)


def _retry(lake: Lake) -> None:
    """As `dbt retry` does after a run that died: look, then build all of it again."""
    lake.publishing.recover()
    try:
        require_unpublished(lake.ledger, LastRun(SECOND, BRANCH, "open"))
    except SparkwapError:
        return
    build_and_close(lake, THIRD)


def _retry_clone(lake: Lake) -> None:
    lake.publishing.recover()
    with suppress(SparkwapError):
        require_unpublished(lake.ledger, LastRun(SECOND, BRANCH, "open"))
        _clone(lake, THIRD)


def _discard(lake: Lake) -> None:
    operate(lake, "wap_discard", branch=BRANCH)


def _discard_if_open(lake: Lake) -> None:
    if any(one.branch == BRANCH for one in lake.branches.all()):
        _discard(lake)


def _publish(lake: Lake) -> None:
    operate(lake, "wap_publish", branch=BRANCH)


def _publish_again(lake: Lake) -> None:
    # Refused with what is to be done, if there is nothing that may be published.
    with suppress(ConfigError, NotPublished):
        _publish(lake)


def _rollback(lake: Lake) -> None:
    operate(lake, "wap_rollback", run=FIRST)


def _rollback_again(lake: Lake) -> None:
    with suppress(ConfigError):
        _rollback(lake)


def _rollback_replaced(lake: Lake) -> None:
    with suppress(ConfigError):
        operate(lake, "wap_rollback", run=SECOND)


@contextmanager
def _another_writer(lake: Lake) -> Iterator[None]:
    """Once a table of a sequential publish is moved, somebody writes to one that still waits."""

    def listen(step: checkpoints.Checkpoint, _facts: Mapping[str, Any]) -> None:
        if step is checkpoints.SEQUENTIAL_CHANGED:
            _write_once(lake)

    end = checkpoints.listen(listen)
    try:
        yield
    finally:
        end()


def _write_once(lake: Lake) -> None:
    table = lake.catalog.load_table(TOTALS)
    if 66 not in table.scan().to_arrow()["id"].to_pylist():
        table.append(rows(66))


def _publish_undone(lake: Lake) -> None:
    with _another_writer(lake):
        _publish_again(lake)


def _undo_again(lake: Lake) -> None:
    _write_once(lake)
    _publish_again(lake)


def _rolled_back(lake: Lake) -> None:
    _published(lake)
    _rollback(lake)


def _reopen(lake: Lake) -> None:
    operate(lake, "wap_rollback", run=FIRST, reopen="true")


def _reopen_again(lake: Lake) -> None:
    # The branch is open again, if it came so far.
    with suppress(ConfigError):
        _reopen(lake)


def _left_behind(lake: Lake) -> None:
    """A branch, a tag that is left of another one, and a file to which nothing refers."""
    _held(lake)
    table = lake.catalog.load_table(TOTALS)
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "wap_base_x").commit()
    file = Path(table.location().removeprefix("file://")) / "data/left.parquet"
    file.write_bytes(b"x")
    os.utime(file, (0, 0))


def _sweep(lake: Lake) -> None:
    operate(lake, "wap_sweep", older_than="0", named_older_than="0")


def _many_files(lake: Lake) -> None:
    """A table of many files, with an old snapshot; another one has an unpublished change."""
    _held(lake)
    lake.ensure_schema("s3")
    table = lake.catalog.create_table(MANY, rows().schema, properties={"write.wap.enabled": "true"})
    for number in range(6):
        table.append(rows(number))


def _maintain(lake: Lake) -> None:
    """PyIceberg rewrites the clone, in the place of Spark."""

    def execute(statement: str) -> list[tuple[int]]:
        found = re.search(r"table => '`(\w+)`\.`(\w+)`'", statement)
        if found is not None:
            clone = lake.catalog.load_table((found[1], found[2]))
            clone.overwrite(clone.scan().to_arrow())
        return [(0,)]

    later = time.time() + 10 * 86_400
    with mock.patch.object(type(lake.leases), "now", lambda _self: later):
        work = Maintainer(lake, execute, run_id=THIRD, upkeep=Upkeep())
        report = work.maintain(["s3"], everything=True)
    assert not report.failed


def _drop(lake: Lake) -> None:
    lake.drop_schema(DROPPED, purge=True)


@dataclass(frozen=True)
class Scenario:
    """Something that dies.

    Attributes:
        prepare: Makes the lake.
        act: What dies.
        go_on: What a user does then; it ends with what ``act`` would have ended with.
        again: What a user may do once more, and which then does nothing.
        publishes: Rows of publishes that the ledger has at the end, for each table.
        leaves: ``act`` is to leave something on the branch.
        passing: The scenario whose end readers may see of some tables on the way, besides their own
            states before and after.
    """

    prepare: Callable[[Lake], None]
    act: Callable[[Lake], None]
    go_on: Callable[[Lake], None]
    again: Callable[[Lake], None]
    publishes: int = 0
    leaves: bool = False
    passing: str = ""


SCENARIOS = {
    "build": Scenario(_base, _build, _retry, _publish_again, publishes=1),
    "compacted": Scenario(_base, _build_compacted, _retry, _publish_again, publishes=1),
    "rebuild": Scenario(_held, _build, _retry, _publish_again, publishes=1),
    "wap_maintain": Scenario(_many_files, _maintain, _maintain, _maintain, leaves=True),
    "build held": Scenario(_base, _build_held, _build_held, _build_held, leaves=True),
    "refused": Scenario(_base, _refused, _build_held, _build_held, leaves=True),
    "wap_publish": Scenario(_held, _publish, _publish_again, _publish_again, publishes=1),
    "wap_discard": Scenario(_held, _discard, _discard_if_open, _discard_if_open),
    "wap_rollback": Scenario(_published, _rollback, _rollback_again, _rollback_again, publishes=1),
    "reopen": Scenario(
        _rolled_back, _reopen, _reopen_again, _reopen_again, publishes=1, leaves=True
    ),
    "wap_sweep": Scenario(_left_behind, _sweep, _sweep, _sweep),
    "dbt clone": Scenario(_base, _clone, _retry_clone, _publish_again, publishes=1),
    "drop schema": Scenario(_with_dropped, _drop, _drop, _drop),
    "erasure": Scenario(_held, _erase, _erase, _erase, leaves=True),
}


JOURNALLED = {
    "sequential": Scenario(_held, _publish, _publish_again, _publish_again, publishes=1),
    "sequential retried": Scenario(_base, _build, _retry, _publish_again, publishes=1),
    "sequential back": Scenario(
        _published, _rollback, _rollback_again, _rollback_again, publishes=1
    ),
    "sequential replaces": Scenario(_cloned, _clone, _retry_clone, _publish_again, publishes=2),
    "sequential replaces back": Scenario(
        _replaced, _rollback_replaced, _rollback_replaced, _rollback_replaced, publishes=2
    ),
    "sequential undone": Scenario(
        _held, _publish_undone, _undo_again, _publish_again, leaves=True, passing="sequential"
    ),
}
"""On a catalog without transactions."""


def publishes(lake: Lake) -> Sequence[tuple[str, str]]:
    """Schema and table of each row of a publish that the ledger has."""
    found = lake.ledger.publishes()
    return [entry.identifier for publish in found for entry in publish.entries]
