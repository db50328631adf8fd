"""The example of a load without Spark: the script on a lake, with PyIceberg and DuckDB."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkwap.core.errors import SparkwapError
from sparkwap.gate.placement import Desired
from sparkwap.gate.settings import GateSettings
from sparkwap.publish.lake import Lake
from sparkwap.runs.operations import LakeOperations
from sparkwap.runs.run import Run
from sparkwap.runs.types import Invocation, NodeFact, TestFact, TestSeen

SCRIPT = Path(__file__).parents[3] / "examples/load/load.py"
EVENTS = ("web", "events")
AUDITS = """
    select * from candidate where id is null;
    select id from candidate group by id having count(*) > 1;
"""


class World:
    """A lake with a table of one row, and the script."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        self.place = [f"sqlite:///{folder}/catalog.db", f"file://{folder}/warehouse"]
        uri, warehouse = self.place
        self.lake = Lake("lake", {"type": "sql", "uri": uri, "warehouse": warehouse})
        self.lake.ensure_schema("web")
        self.lake.catalog.create_table(EVENTS, rows(1).schema).append(rows(1))
        (folder / "audits.sql").write_text(AUDITS)

    def load(self, content: pa.Table, *options: str, name: str = "drop") -> int:
        file = self.folder / f"{name}.parquet"
        pq.write_table(content, file)
        uri, warehouse = self.place
        words = ["--catalog", uri, "--warehouse", warehouse, *options]
        self._monkeypatch.setattr(sys, "argv", ["load.py", str(file), "web.events", *words])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(SCRIPT), run_name="__main__")
        return int(ended.value.code or 0)

    def publish(self, content: pa.Table, name: str = "drop") -> int:
        return self.load(
            content, "--audits", str(self.folder / "audits.sql"), "--publish", name=name
        )

    def live(self) -> list[object]:
        return sorted(self.lake.catalog.load_table(EVENTS).scan().to_arrow()["id"].to_pylist())

    def branches(self) -> list[str]:
        return [one.branch for one in self.lake.branches.all()]

    def operate(self, name: str, **arguments: str) -> str:
        operations = LakeOperations(
            self.lake,
            run_id="ffffffff-0000-0000-0000-000000000000",
            settings=GateSettings(),
            project="shop",
            target_name="dev",
            tests=list,
            known=frozenset,
        )
        return "\n".join(operations.call(name, arguments))


def rows(*ids: int | None, **more: pa.Array) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), **more})


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(tmp_path, monkeypatch)
    yield world
    world.lake.close()


def test_a_clean_file_is_published_once_whatever_its_name(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.publish(rows(2, 3)) == 0
    assert (world.live(), world.branches()) == ([1, 2, 3], [])
    assert "Published 1 table in one transaction" in capsys.readouterr().out
    assert world.publish(rows(2, 3), name="again") == 0
    assert "Already published: again.parquet" in capsys.readouterr().out
    assert world.live() == [1, 2, 3]
    # A publish that is undone is as if it had not been.
    (run,) = {row["run_id"] for row in world.lake.ledger.rows("publishes")}
    world.operate("wap_rollback", run=run[:8])
    assert world.live() == [1]
    assert world.publish(rows(2, 3)) == 0
    assert world.live() == [1, 2, 3]


@pytest.mark.parametrize("bad", [rows(2, None), rows(1)])
def test_what_an_audit_rejected_stays_so_whatever_a_command_says_later(
    world: World, bad: pa.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.publish(bad) == 2
    assert "rejected" in capsys.readouterr().out
    (branch,) = world.branches()
    with pytest.raises(SparkwapError):
        world.operate("wap_publish", branch=branch)
    rule = TestFact("test.rule", "rule", "data", frozenset({"load.web.events"}), "error")
    run = Run(
        world.lake,
        Invocation(
            run_id="1a2b3c4d-0000-0000-0000-000000000000",
            branch=branch,
            settings=GateSettings(),
            command="test",
            project="shop",
            target_name="dev",
        ),
    )
    run.candidates.load()
    assert run.close([], [rule], [TestSeen(rule.test_id, "pass", 0, None)]).published == 0
    assert world.live() == [1]


def test_without_publish_it_waits_on_its_branch(world: World) -> None:
    assert world.load(rows(2)) == 0
    assert world.live() == [1]
    (branch,) = world.branches()
    world.operate("wap_discard", branch=branch)
    assert world.branches() == []
    assert world.publish(rows(2)) == 0
    assert world.live() == [1, 2]


def test_what_does_not_fit_is_refused_before_anything_is_written(world: World) -> None:
    assert world.publish(rows(2, more=pa.array(["x"]))) == 1
    assert world.publish(pa.table({"id": ["x"]})) == 1
    assert world.load(rows(2), "--publish") == 2  # argparse: no audits
    assert world.live() == [1]


def test_a_table_that_a_project_builds_is_refused(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(
        world.lake,
        Invocation(
            run_id="1a2b3c4d-0000-0000-0000-000000000000",
            branch="pr_7",
            settings=GateSettings(),
            command="build",
            project="shop",
            target_name="dev",
        ),
    )
    run.candidates.load()
    run.begin("model.shop.events", EVENTS)
    run.candidates.place_table(EVENTS, Desired())
    world.lake.catalog.load_table(EVENTS).append(rows(5), branch="pr_7")
    run.built("model.shop.events", EVENTS, must_write=True)
    node = NodeFact("model.shop.events", EVENTS, "model", "success", None, frozenset())
    closing = run.close([node], [], [])
    assert closing.published == 1
    assert world.publish(rows(2)) == 1
    assert "is built by model.shop.events" in capsys.readouterr().err
    assert world.live() == [1, 5]
