"""The rebase of a run without Spark: the next build is another `Run` in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparkwap.core.errors import SparkwapError
from sparkwap.gate.placement import Desired
from sparkwap.gate.settings import GateSettings
from sparkwap.publish.lake import Lake
from sparkwap.publish.publishing import Publishing
from sparkwap.runs.rebase_loop import Ended, follow, format_rebase
from sparkwap.runs.run import Run
from sparkwap.runs.state import LastRun, require_unpublished
from sparkwap.runs.types import Invocation, NodeFact, RunEnd, TestFact, TestSeen

RUNS = [f"{number}a2b3c4d-0000-4000-8000-000000000000" for number in range(1, 6)]
LOG, TOTALS, NOTES, OTHER = (("shop", name) for name in ("log", "totals", "notes", "other"))
PARENTS = {LOG: (), TOTALS: ("model.log",), NOTES: (), OTHER: ()}
TEST = TestFact("test.log", "log_is_known", "data", frozenset({"model.log"}), "error")
PASSED = TestSeen("test.log", "pass", 0, None)
FAILED = TestSeen("test.log", "fail", 3, None)
KNOWN = frozenset(f"model.{name}" for _, name in PARENTS)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    lake = Lake("lake", {"type": "sql", "uri": uri, "warehouse": f"{tmp_path}/warehouse"})
    lake.ensure_schema("shop")
    for table in PARENTS:
        lake.catalog.create_table(table, rows(1).schema).append(rows(1))
    return lake


def fact(table: tuple[str, str]) -> NodeFact:
    return NodeFact(f"model.{table[1]}", table, "model", "success", None, frozenset(PARENTS[table]))


def a_run(lake: Lake, number: int, **more: Any) -> Run:
    settings = GateSettings(branch="dev", rebuild_wait=3.0, **more.pop("settings", {}))
    run = Run(
        lake,
        Invocation(
            run_id=RUNS[number],
            branch="dev",
            settings=settings,
            command="build",
            project="shop",
            target_name="dev",
            **more,
        ),
    )
    run.candidates.load()
    return run


def build(run: Run, *tables: tuple[str, str]) -> None:
    """Build tables as Spark would, each with one more row."""
    for table in tables:
        name = f"model.{table[1]}"
        run.begin(name, table)
        run.candidates.place_table(table, Desired())
        run.lake.catalog.load_table(table).append(rows(2), branch="dev")
        run.built(name, table, must_write=True)


def close(run: Run, *tables: tuple[str, str], seen: TestSeen = PASSED) -> RunEnd:
    facts = [fact(table) for table in tables]
    return run.close(facts, [TEST], [seen] if LOG in tables else [], KNOWN)


def write(lake: Lake, table: tuple[str, str], number: int) -> None:
    lake.catalog.load_table(table).append(rows(number))


def live(lake: Lake, table: tuple[str, str]) -> list[int]:
    return sorted(lake.catalog.load_table(table).scan().to_arrow()["id"].to_pylist())


def refused(lake: Lake, moved: tuple[str, str] = LOG, **more: Any) -> tuple[Run, RunEnd]:
    """Return a run that built three tables; main of one of them moves before the publish."""
    run = a_run(lake, 0, **more)
    build(run, LOG, TOTALS, NOTES)
    write(lake, moved, 9)
    return run, close(run, LOG, TOTALS, NOTES)


class Child:
    """The builds of rebases; ``meanwhile`` is called before each one is closed."""

    def __init__(self, lake: Lake, meanwhile: Callable[[int], None] = lambda tried: None) -> None:
        self.lake, self.meanwhile = lake, meanwhile
        self.asked: list[tuple[str, ...]] = []
        self.limits: list[float | None] = []
        self.seen = PASSED

    def __call__(self, nodes: tuple[str, ...], limit: float | None) -> Ended:
        self.asked.append(nodes)
        self.limits.append(limit)
        run = a_run(self.lake, len(self.asked), rebuild_of=RUNS[0])
        tables = [table for table in PARENTS if f"model.{table[1]}" in nodes]
        build(run, *tables)
        self.meanwhile(len(self.asked))
        assert close(run, *tables, seen=self.seen).rebase is None
        return Ended(run.run_id, "")


def followed(run: Run, closing: RunEnd, child: Any) -> tuple[RunEnd, list[float]]:
    waits: list[float] = []
    ended = follow(run, closing, child, lambda line: None, sleep=waits.append, draw=lambda: 0.5)
    return ended, waits


def test_a_rebase_builds_moved_and_downstream_nodes(lake: Lake) -> None:
    run, closing = refused(lake)
    child = Child(lake)
    ended, waits = followed(run, closing, child)
    assert child.asked == [("model.log", "model.totals")]
    assert (live(lake, LOG), live(lake, TOTALS), live(lake, NOTES)) == ([1, 2, 9], [1, 2], [1, 2])
    assert (ended.published, ended.refused, ended.rejected()) == (3, None, {})
    assert waits == [3.0]
    assert format_rebase(ended) == [
        "main moved: built 2 nodes again on main as it was then by run 2a2b3c4d; 1 try, "
        "waited 3.0 s"
    ]
    assert ended.decision.verdicts["model.log"].passed == 1
    (row,) = lake.ledger.of_run("runs", RUNS[0])
    (by,) = lake.ledger.of_run("runs", RUNS[1])
    assert (row["outcome"], row["tries"], row["waited_seconds"]) == ("published", 1, 3.0)
    assert row["publish_id"] == by["publish_id"]
    assert by["rebuild_of"] == RUNS[0]


def test_a_rebase_waits_longer_each_time_and_gives_up(lake: Lake) -> None:
    run, closing = refused(lake, settings={"rebuilds": 3})
    child = Child(lake, lambda tried: write(lake, TOTALS, 10 + tried))
    ended, waits = followed(run, closing, child)
    assert child.asked == [("model.log", "model.totals"), ("model.totals",), ("model.totals",)]
    assert waits == [3.0, 6.0, 12.0]
    assert ended.published == 0
    assert ended.refused is not None
    assert set(ended.rejected()) == {"model.log", "model.totals", "model.notes"}
    assert "moved again" in format_rebase(ended)[1]
    assert live(lake, LOG) == [1, 9]
    (row,) = lake.ledger.of_run("runs", RUNS[0])
    assert (row["outcome"], row["tries"], row["publish_id"]) == ("rejected", 3, None)
    assert "expected snapshot" in row["message"]


def test_a_rebuild_that_its_tests_reject_is_rejected(lake: Lake) -> None:
    run, closing = refused(lake)
    child = Child(lake)
    child.seen = FAILED
    ended, _ = followed(run, closing, child)
    assert ended.refused is None
    assert ended.rejected() == {
        "model.log": "test log_is_known failed (3 rows)",
        "model.totals": "it was built on shop.log, which was rejected",
    }
    assert ended.decision.failed
    assert live(lake, LOG) == [1, 9]
    (row,) = lake.ledger.of_run("runs", RUNS[0])
    assert row["outcome"] == "rejected"


def test_a_rebuild_that_dies_leaves_the_refusal(lake: Lake) -> None:
    run, closing = refused(lake)
    ended, _ = followed(
        run, closing, lambda nodes, limit: Ended(None, "dbt ended with exit code 2: boom")
    )
    assert ended.refused == closing.refused
    assert "did not end properly: dbt ended with exit code 2: boom" in format_rebase(ended)[1]
    assert live(lake, LOG) == [1, 9]
    (row,) = lake.ledger.of_run("runs", RUNS[0])
    assert (row["outcome"], row["tries"]) == ("rejected", 1)


def test_a_rebuild_that_died_after_its_publish_has_published(lake: Lake) -> None:
    run, closing = refused(lake)
    child = Child(lake)

    def dies(nodes: tuple[str, ...], limit: float | None) -> Ended:
        return replace(child(nodes, limit), words="dbt was still building, and was stopped")

    ended, _ = followed(run, closing, dies)
    assert (ended.published, ended.refused, ended.gave_up) == (3, None, "")
    assert live(lake, LOG) == [1, 2, 9]


def test_a_run_that_died_after_its_rebuild_has_published_is_not_retried(lake: Lake) -> None:
    last = LastRun(RUNS[0], "dev", "open")
    _, closing = refused(lake)
    assert closing.rebase is not None
    require_unpublished(lake.ledger, last)
    # The run was killed while it waited for the other one.
    Child(lake)(closing.rebase.nodes, None)
    assert live(lake, LOG) == [1, 2, 9]
    with pytest.raises(
        SparkwapError, match=r"has completed its publish of 3 tables.*run: 2a2b3c4d"
    ):
        require_unpublished(lake.ledger, last)
    (done,) = lake.ledger.publish(RUNS[1])
    lake.publishing.rollback(done.entries, run_id=RUNS[4], publish_id=done.publish_id)
    require_unpublished(lake.ledger, last)


def test_the_publish_of_a_dead_rebuild_is_recovered(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, closing = refused(lake)
    told: list[str] = []
    line = "Completed the publish of run 2a2b3c4d."
    monkeypatch.setattr(Publishing, "recover", lambda _: [line])
    dead = Ended(RUNS[1], "dbt was still building, and was stopped")
    follow(run, closing, lambda *_: dead, told.append, sleep=lambda _: None)
    assert told[1:] == [line]


@pytest.mark.parametrize(
    ("given", "limit"), [(None, 3600.0), (90.0, 90.0), (0.0, None)], ids=["default", "own", "none"]
)
def test_each_rebuild_has_a_limit(lake: Lake, given: float | None, limit: float | None) -> None:
    run, closing = refused(lake, settings={"rebuilds": 2, "rebuild_timeout": given})
    child = Child(lake, lambda tried: write(lake, TOTALS, 10 + tried))
    followed(run, closing, child)
    assert child.limits == [limit, limit]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"settings": {"rebuilds": 0}}, "rebuilds are off (wap_rebuilds: 0)"),
        # The run that a rebase belongs to repeats it.
        ({"rebuild_of": RUNS[4]}, ""),
    ],
)
def test_reasons_for_no_rebase(lake: Lake, more: dict[str, Any], reason: str) -> None:
    _, closing = refused(lake, **more)
    assert (closing.rebase, closing.gave_up) == (None, reason)
    assert closing.refused is not None
    (row,) = lake.ledger.of_run("runs", RUNS[0])
    assert row["outcome"] == "rejected"


def test_a_branch_that_somebody_moved_is_not_built_over(lake: Lake) -> None:
    run = a_run(lake, 0)
    build(run, NOTES)
    lake.catalog.load_table(NOTES).append(rows(66), branch="dev")
    closing = close(run, NOTES)
    assert closing.rebase is None
    assert "is no longer on the audit branch" in closing.gave_up
    assert live(lake, NOTES) == [1]


def test_nodes_of_an_earlier_run_are_not_rebuilt(lake: Lake) -> None:
    first = a_run(lake, 0)
    build(first, LOG)
    assert first.close([fact(LOG)], [TEST], []).published == 0
    write(lake, LOG, 9)
    tested = a_run(lake, 1).close([], [TEST], [PASSED], KNOWN)
    assert tested.rebase is None
    assert "shop.log was built by an earlier run" in tested.gave_up
    # A retry has that run's vars and flags.
    retried = a_run(lake, 2, repeats=True).close([], [TEST], [PASSED], KNOWN)
    assert retried.rebase is not None


def test_main_that_another_run_moved_during_the_build_is_left_to_the_publish(lake: Lake) -> None:
    run = a_run(lake, 0)
    run.begin("model.notes", NOTES)
    run.candidates.place_table(NOTES, Desired())
    notes = lake.catalog.load_table(NOTES)
    notes.append(rows(2), branch="dev", snapshot_properties={"wap_run": RUNS[0]})
    lake.catalog.load_table(NOTES).append(rows(9))
    run.built("model.notes", NOTES, must_write=False)
    closing = close(run, NOTES)
    assert closing.rebase is not None
    assert closing.refusals == {"model.notes": ("main",)}


def test_main_that_the_run_itself_moved_is_a_catalog_without_branches(lake: Lake) -> None:
    run = a_run(lake, 0)
    run.begin("model.notes", NOTES)
    run.candidates.place_table(NOTES, Desired())
    lake.catalog.load_table(NOTES).append(rows(2), snapshot_properties={"wap_run": RUNS[0]})
    with pytest.raises(Exception, match="does not isolate Iceberg branches"):
        run.built("model.notes", NOTES, must_write=False)
    assert close(run, NOTES).rebase is None


# -- reads ---------------------------------------------------------------------------------------


def reading(lake: Lake, mode: str, reader: str = "model.log") -> tuple[Run, RunEnd]:
    """A run that builds the log from `other`, whose main moves before the publish."""
    run = a_run(lake, 0, settings={"reads": mode})
    run.read(reader, [OTHER])
    run.read(reader, [OTHER])
    build(run, LOG, TOTALS)
    # This run builds it now, so it is not a read of main.
    run.read("model.totals", [LOG])
    write(lake, OTHER, 5)
    return run, close(run, LOG, TOTALS)


def test_changed_reads_are_ignored(lake: Lake) -> None:
    assert reading(lake, "ignore")[1].notices == {}


def test_changed_reads_are_reported(lake: Lake) -> None:
    _, closing = reading(lake, "warn")
    assert closing.published == 2
    (notice,) = closing.notices["model.log"]
    assert notice.startswith("shop.other was read at snapshot ")


@pytest.mark.parametrize("reader", ["model.log", "test.log"])
def test_changed_reads_are_refused_and_built_again(lake: Lake, reader: str) -> None:
    run, closing = reading(lake, "strict", reader)
    assert closing.refusals == {"model.log": ("read",)}
    child = Child(lake)
    ended, _ = followed(run, closing, child)
    assert child.asked == [("model.log", "model.totals")]
    assert ended.published == 2


def test_a_rebuild_also_checks_the_reads_of_other_nodes(lake: Lake) -> None:
    run = a_run(lake, 0, settings={"reads": "strict", "rebuilds": 1})
    run.read("model.notes", [OTHER])
    build(run, LOG, NOTES)
    write(lake, LOG, 9)
    closing = close(run, LOG, NOTES)

    class Strict(Child):
        def __call__(self, nodes: tuple[str, ...], limit: float | None) -> Ended:
            self.asked.append(nodes)
            again = a_run(self.lake, 1, rebuild_of=RUNS[0], settings={"reads": "strict"})
            build(again, LOG)
            write(self.lake, OTHER, 5)
            close(again, LOG)
            return Ended(again.run_id, "")

    ended, _ = followed(run, closing, Strict(lake))
    assert ended.published == 0
    assert ended.refusals == {"model.notes": ("read",)}
    assert live(lake, LOG) == [1, 9]
