"""A rewrite is published only if no row and no writer was in the way; PyIceberg plays Spark."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.bench import BRANCH, RUN, SIDE, compact, on_branch, values

from sparkwap.catalog import LedgerRows, PublishRefused, RollbackRefused
from sparkwap.catalog import lease as leasing
from sparkwap.catalog import metadata as md
from sparkwap.catalog.branches import REWRITTEN_BY
from sparkwap.catalog.content_equality import SAME_ROWS_AS, same_rows
from sparkwap.catalog.read_dependencies import moved
from sparkwap.core.errors import SparkwapError
from sparkwap.gate.settings import Limits, Upkeep
from sparkwap.maintenance import compaction, file_references, maintainer
from sparkwap.maintenance.maintainer import Maintainer
from sparkwap.maintenance.maintenance_report import Report, lines
from sparkwap.maintenance.rules import Rules
from sparkwap.maintenance.sweeper import Sweeper

pytestmark = pytest.mark.long

Bench = Any
NAME = ("s", "t")
MAINTENANCE = "5e5e5e5e-0000-4000-8000-000000000000"
Change = Callable[[Any], None]
ROWS = [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.fixture
def many(bench: Bench) -> Bench:
    """A table of the gate with a file for each row."""
    bench.table("t", **{"write.wap.enabled": "true"})
    for number in ROWS:
        bench.write(NAME, number, branch="main")
    return bench


def rewriting(bench: Bench, meanwhile: Change = lambda table: None) -> Callable[[str], list[Any]]:
    """What Spark does, by PyIceberg; ``meanwhile`` gets the clone after its rewrite."""

    def execute(statement: str) -> list[Any]:
        found = re.search(r"rewrite_data_files\(table => '`(\w+)`\.`(\w+)`'", statement)
        if found is not None:
            clone = bench.lake.catalog.load_table((found[1], found[2]))
            clone.overwrite(clone.scan().to_arrow())
            meanwhile(clone)
        if not statement.startswith("select count(*)"):
            return [(0,)]
        (schema,) = re.findall(r"from `lake`\.`(\w+)`", statement)
        return [(*bench.read("t", schema=schema),)]

    return execute


def maintain(bench: Bench, meanwhile: Change = lambda table: None, **more: Any) -> Report:
    rules = more.pop("rules", None)
    work = Maintainer(
        bench.lake,
        rewriting(bench, meanwhile),
        run_id=MAINTENANCE,
        upkeep=more.pop("upkeep", Upkeep()),
        rules=rules,
    )
    how = work.look if more.pop("explain", False) else work.maintain
    return how(more.pop("tables", ()), more.pop("budget", None), **{"everything": True, **more})


def document(bench: Bench) -> md.Document:
    row = bench.lake.store.backend.get(NAME)
    assert row is not None
    return bench.lake.store.load(row.location)


def files(bench: Bench) -> int:
    head = md.snapshot(document(bench), bench.head(NAME, "main"))
    return int((head or {})["summary"]["total-data-files"])


def of_table(report: Report) -> Any:
    (found,) = (one for one in report.tables if one.name == "s.t")
    return found


def nothing_is_left(bench: Bench) -> bool:
    return not bench.lake.side_schemas() and not bench.lake.leases.all()


def test_main_moves_to_the_rewritten_files(many: Bench) -> None:
    before, base = document(many), many.head(NAME, "main")
    report = maintain(many)
    assert of_table(report).done.files == (8, 1)
    assert many.read("t") == ROWS
    after = document(many)
    head = md.snapshot(after, many.head(NAME, "main")) or {}
    assert head["parent-snapshot-id"] == base
    summary = head["summary"]
    assert (summary["operation"], summary[SAME_ROWS_AS]) == ("replace", str(base))
    assert summary["wap_run"] == MAINTENANCE
    assert same_rows(after, base, head["snapshot-id"])
    # One snapshot more; the definition and all else are as before.
    assert len(after["snapshots"]) == len(before["snapshots"]) + 1
    assert md.definition(after) == md.definition(before)
    assert md.properties_of(after) == md.properties_of(before)
    assert set(md.refs_of(after)) == set(md.refs_of(before))
    assert nothing_is_left(many)
    (row,) = many.lake.ledger.rows("maintenance")
    assert (row["outcome"], row["files_before"], row["files_after"]) == ("done", 8, 1)
    assert "compacted 8 files into 1" in "\n".join(lines(report))


def test_a_preview_changes_nothing(many: Bench) -> None:
    before = document(many)
    report = maintain(many, explain=True)
    assert of_table(report).choice.compact
    assert document(many) == before
    assert "compact 8 files into 1" in "\n".join(lines(report))
    # Without a wish for everything, eight small files are not worth it.
    report = maintain(many, explain=True, everything=False)
    assert "does not pay off" in of_table(report).choice.reason


def append(bench: Bench, branch: str = "main") -> Change:
    return lambda clone: bench.lake.catalog.load_table(NAME).append(values(99), branch=branch)


def redefined(bench: Bench) -> Change:
    def change(clone: Any) -> None:
        with bench.lake.catalog.load_table(NAME).update_schema() as update:
            update.union_by_name(pa.schema({"more": pa.string()}))

    return change


def replaced(bench: Bench) -> Change:
    def change(clone: Any) -> None:
        bench.lake.catalog.drop_table(NAME)
        bench.table("t", 7, **{"write.wap.enabled": "true"})

    return change


def opened(bench: Bench) -> Change:
    return lambda clone: bench.candidate("t", 8)


@pytest.mark.parametrize(
    ("writer", "reason", "rows"),
    [
        (append, "main of s.t was moved", [*ROWS, 99]),
        (redefined, "definition of s.t was changed", ROWS),
        (replaced, "replaced by another table", [7]),
        (opened, "audit branch pr_1 has an unpublished change of it", ROWS),
    ],
)
def test_a_writer_that_was_faster_wins(
    many: Bench, writer: Callable[[Any], Change], reason: str, rows: list[int]
) -> None:
    report = maintain(many, writer(many))
    found = of_table(report)
    assert found.done is None and reason in found.problem
    assert not report.failed
    assert many.read("t") == rows
    assert files(many) > 1 or writer is replaced
    (row,) = many.lake.ledger.rows("maintenance")
    assert row["outcome"] == "dropped"
    assert "a writer was faster" in "\n".join(lines(report))


def lost(clone: Any) -> None:
    clone.refresh().delete("id = 3")


def doubled(clone: Any) -> None:
    clone.refresh().append(values(3))


@pytest.mark.parametrize("fault", [lost, doubled])
def test_a_rewrite_with_other_rows_is_dropped(
    many: Bench, fault: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = maintain(many, fault)
    assert of_table(report).done is None
    (problem,) = report.failed
    assert "does not have the same rows" in problem
    assert many.read("t") == ROWS
    assert files(many) == 8
    assert nothing_is_left(many)


def test_a_statement_that_fails_leaves_the_table_as_it_was(many: Bench) -> None:
    def fails(clone: Any) -> None:
        raise RuntimeError("Spark is gone\nmore")

    report = maintain(many, fails)
    assert report.failed == ["s.t: Spark is gone\nmore"]
    assert (many.read("t"), files(many)) == (ROWS, 8)
    assert nothing_is_left(many)


def test_a_table_at_work_is_left_alone(many: Bench) -> None:
    many.candidate("t", 8)
    report = maintain(many)
    assert "audit branch pr_1 has an unpublished change of it" in of_table(report).choice.reason
    assert many.lake.ledger.rows("maintenance") == []


def test_a_clone_with_a_change_is_work(many: Bench) -> None:
    many.lake.branches.clone(NAME, "s__pr_1")
    many.lake.catalog.load_table(("s__pr_1", "t")).append(values(9))
    assert "pr_1" in of_table(maintain(many)).choice.reason


def test_a_branch_that_was_never_written_to_is_no_work(many: Bench) -> None:
    many.lake.branches.open(NAME, "pr_2")
    assert of_table(maintain(many)).done.files == (8, 1)


def test_a_replacement_is_work(many: Bench) -> None:
    many.new("t", 4)
    assert "pr_1" in of_table(maintain(many)).choice.reason


def test_a_branch_of_a_user_that_is_ahead_of_main_is_work(many: Bench) -> None:
    table = many.lake.catalog.load_table(NAME)
    table.manage_snapshots().create_branch(many.head(NAME, "main"), "theirs").commit()
    assert of_table(maintain(many, explain=True)).choice.compact
    many.write(NAME, 9, branch="theirs")
    assert of_table(maintain(many)).choice.reason == "branch theirs is ahead of main"
    many.write(NAME, 10, branch="main")
    assert of_table(maintain(many)).done is not None


def test_a_living_run_counts_whatever_it_has_written(many: Bench) -> None:
    many.lake.branches.open(NAME, "pr_2")
    holding = leasing.hold(many.lake.leases, run_id=RUN, branch="pr_2", command="build")
    try:
        report = maintain(many)
    finally:
        holding.release()
    assert "in use by run 1a2b3c4d" in of_table(report).choice.reason


def test_an_append_built_before_a_compaction_is_refused(many: Bench) -> None:
    # The append has files that the compaction has replaced.
    def late(clone: Any) -> None:
        many.lake.branches.open(NAME, "pr_1")

    assert of_table(maintain(many, late)).done is not None
    many.write(NAME, 9)
    base = md.refs_of(document(many))["wap_base_pr_1"].snapshot_id
    item = on_branch(NAME, base, many.head(NAME, "pr_1"))
    with pytest.raises(PublishRefused):
        many.publish(item)


def test_a_publish_before_a_compaction_can_be_rolled_back(many: Bench) -> None:
    receipt = many.publish(many.candidate("t", 17))
    maintain(many)
    assert many.read("t") == [*ROWS, 17]
    undo = {"run_id": receipt.run_id, "publish_id": receipt.publish_id}
    many.lake.publishing.rollback(receipt.entries, **undo)
    assert many.read("t") == ROWS


def test_publishes_can_be_rolled_back_over_old_compactions_of_others(
    many: Bench, later: Callable[[float], None]
) -> None:
    receipts = []
    for number in (21, 22):
        receipts.append(publish(many, number))
        for _ in range(3):
            compact(many.lake, NAME)
    later(20)
    maintain(many, everything=False, tables=["s.t"])
    assert len(document(many)["snapshots"]) < 8 + 2 * 4
    for receipt in reversed(receipts):
        roll_back(many, receipt)
    assert many.read("t") == ROWS


def test_rows_written_after_a_publish_are_no_compaction(many: Bench) -> None:
    receipt = many.publish(many.candidate("t", 17))
    maintain(many)
    many.write(NAME, 8, branch="main")
    with pytest.raises(SparkwapError):
        many.lake.publishing.rollback(
            receipt.entries, run_id=receipt.run_id, publish_id=receipt.publish_id
        )
    assert 8 in many.read("t")


def test_what_a_dead_maintenance_left_goes_and_stops_no_other(many: Bench) -> None:
    def dies(clone: Any) -> None:
        raise KeyboardInterrupt

    drop, many.lake.drop_schema = many.lake.drop_schema, lambda *a, **k: None
    with pytest.raises(KeyboardInterrupt):
        maintain(many, dies)
    many.lake.drop_schema = drop
    many.lake.ensure_schema("s__wap_5a5a5a5a", "wap_5a5a5a5a")
    assert len(many.lake.side_schemas()) == 2
    many.new("held", 1)
    assert of_table(maintain(many)).done.files == (8, 1)
    assert set(many.lake.side_schemas()) == {"s__pr_1"}
    assert many.read("held", schema="s__pr_1") == [1]


@pytest.mark.parametrize("when", ["before the schemas", "before the commit"])
def test_the_side_schema_of_a_run_that_begins_meanwhile_stays(many: Bench, when: str) -> None:
    backend = many.lake.store.backend
    reads = backend.side_schemas if when == "before the schemas" else backend.members

    def begins(*names: str) -> Any:
        setattr(backend, reads.__name__, reads)
        found = reads(*names)
        leasing.hold(many.lake.leases, run_id=RUN, branch=BRANCH, command="build")
        many.lake.ensure_schema(SIDE, BRANCH)
        return reads(*names) if when == "before the schemas" else found

    if when == "before the commit":
        many.lake.ensure_schema(SIDE, BRANCH)
    setattr(backend, reads.__name__, begins)
    compaction.remove_leftovers(many.lake)
    assert SIDE in many.lake.schemas()


def test_a_rewrite_that_a_sweep_has_removed_meanwhile_is_not_published(
    many: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = compaction.same_by_files

    def asleep(*states: Any) -> bool:
        for lease in many.lake.leases.all():
            many.lake.leases.release(lease.run_id)
        sweep(many)
        return whole(*states)

    monkeypatch.setattr(compaction, "same_by_files", asleep)
    assert "was swept meanwhile" in str(of_table(maintain(many)).problem)
    assert many.read("t") == ROWS


def test_old_history_is_removed(many: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    now = many.lake.leases.now()
    monkeypatch.setattr(type(many.lake.leases), "now", lambda self: now + 8 * 86_400)
    look = of_table(maintain(many, explain=True))
    assert len(look.outdated.snapshots) == 7
    report = maintain(many)
    assert "removed 8 old snapshots" in "\n".join(lines(report))
    assert many.read("t") == ROWS
    rows = [row for row in many.lake.ledger.rows("maintenance") if row["action"] == "expire"]
    assert [row["snapshots"] for row in rows] == [8]


def publish(bench: Bench, number: int) -> Any:
    """A publish of another run, that overwrites the table."""
    run_id = f"{number:08d}-0000-4000-8000-000000000000"
    opened = bench.lake.branches.open(NAME, BRANCH)
    table = bench.lake.catalog.load_table(NAME)
    table.overwrite(values(number), branch=BRANCH, snapshot_properties={"wap_run": run_id})
    item = on_branch(NAME, opened.base, bench.head(NAME, BRANCH))
    return bench.publish(item, run_id=run_id, tag=f"wap_pub_{number:08d}")


def roll_back(bench: Bench, receipt: Any, *, force: bool = False) -> None:
    bench.lake.publishing.rollback(
        receipt.entries, run_id=RUN, publish_id=receipt.publish_id, force=force
    )


def sweep(bench: Bench) -> Any:
    for path in bench.folder.rglob("*"):
        if path.is_file() and path.suffix in (".parquet", ".avro", ".json"):
            os.utime(path, (0, 0))
    work = Sweeper(bench.lake, run_id=MAINTENANCE, limits=Limits(), retention_days=30)
    return work.sweep()


def test_the_state_before_a_compaction_stays_while_it_may_be_compared(
    many: Bench, later: Callable[[float], None]
) -> None:
    base = many.head(NAME, "main")
    (read,) = many.lake.read([NAME])
    later(30)
    maintain(many)
    after = document(many)
    assert same_rows(after, base, md.main_of(after))
    assert moved(read, many.lake.store.backend.get(NAME), many.lake.store.load) is None
    # However often it is compacted, and whatever has expired between.
    many.write(NAME, 9, branch="main")
    receipt = publish(many, 9)
    for days in (60, 90, 120):
        later(days)
        maintain(many)
    roll_back(many, receipt)
    assert many.read("t") == [*ROWS, 9]


def test_a_compaction_makes_no_source_fresh(many: Bench, later: Callable[[float], None]) -> None:
    changed = many.lake.last_change(NAME)
    later(30)
    for days in (30, 60):
        later(days)
        maintain(many)
    assert many.lake.last_change(NAME) == changed


def test_a_forced_rollback_of_what_has_expired_is_refused(
    many: Bench, later: Callable[[float], None]
) -> None:
    receipts = [publish(many, number) for number in range(10, 14)]
    later(30)
    maintain(many, upkeep=Upkeep(keep_publishes=1))
    assert "wap_pub_00000011" not in md.refs_of(document(many))
    assert sweep(many).found.count
    later(0)
    for drop in (False, True):
        if drop:
            many.lake.catalog.drop_table(NAME)
        with pytest.raises(RollbackRefused, match=r"expired|files are deleted"):
            roll_back(many, receipts[1], force=True)
    roll_back(many, receipts[3], force=True)
    assert many.read("t") == [12]
    # The restored table names no file that is gone.
    assert sweep(many).problems == []


def test_a_sweep_goes_on_beside_a_dead_compaction_of_the_ledger(many: Bench) -> None:
    many.lake.ledger.ensure_all()
    run = {"run_id": RUN, "branch": "b", "outcome": "published"}
    for _ in range(3):
        many.lake.ledger.append(LedgerRows("runs", [run]))
    many.lake.branches.clone(
        ("wap_ledger", "runs"), "wap_ledger__wap_5a5a5a5a", {REWRITTEN_BY: "x"}
    )
    for _ in range(12):
        many.lake.ledger.append(LedgerRows("runs", [run]))
    assert [one.branch for one in many.lake.branches.all()] == []
    assert file_references.reachable(many.lake)
    assert sweep(many).problems == []
    assert not many.lake.side_schemas()


def test_the_receipt_of_the_present_rows_stays(many: Bench, later: Callable[[float], None]) -> None:
    publish(many, 10)
    maintain(many)
    many.write(NAME, 11, branch="main")
    publish(many, 12)
    later(40)
    maintain(many, upkeep=Upkeep(keep_publishes=1))
    sweep(many)
    assert "wap_pub_00000012" in md.refs_of(document(many))


def test_a_build_takes_no_clone_of_a_maintenance_over(many: Bench) -> None:
    many.lake.branches.clone(NAME, "s__pr_1", {REWRITTEN_BY: "x"})
    many.lake.branches.clone(NAME, "s__pr_1")
    many.lake.catalog.load_table(("s__pr_1", "t")).append(values(9))
    assert "pr_1" in of_table(maintain(many)).choice.reason
    assert 9 in many.read("t", schema="s__pr_1")


def test_a_replay_keeps_the_history(many: Bench, later: Callable[[float], None]) -> None:
    later(30)
    holding = leasing.hold(many.lake.leases, run_id=RUN, branch="pr_9", command=leasing.REPLAY)
    try:
        assert of_table(maintain(many, explain=True)).outdated.snapshots == ()
    finally:
        holding.release()
    assert of_table(maintain(many, explain=True)).outdated.snapshots


def test_a_table_that_cannot_be_read_stops_no_other(many: Bench) -> None:
    many.table("broken", 1, **{"write.wap.enabled": "true"})
    row = many.lake.store.backend.get(("s", "broken"))
    main = md.snapshot(many.lake.store.load(row.location), many.head(("s", "broken"), "main"))
    Path(str((main or {})["manifest-list"]).removeprefix("file://")).unlink()
    report = maintain(many)
    assert of_table(report).done.files == (8, 1)
    gone = many.table("gone", 1, **{"write.wap.enabled": "true"})
    Path(many.state(gone).metadata_location.removeprefix("file://")).unlink()
    assert maintain(many).failed == []


def test_a_manifest_that_a_faster_writer_has_deleted_is_no_failure(many: Bench) -> None:
    def faster(clone: Any) -> None:
        many.write(NAME, 99, branch="main")
        head = md.snapshot(document(many), md.main_of(document(many)) or 0) or {}
        former = md.snapshot(document(many), head["parent-snapshot-id"]) or {}
        Path(str(former["manifest-list"]).removeprefix("file://")).unlink()

    report = maintain(many, faster)
    assert not report.failed
    assert "main of s.t was moved" in of_table(report).problem


def test_only_the_tables_of_the_project(many: Bench) -> None:
    many.table("theirs", 1, **{"write.wap.enabled": "true"})
    report = maintain(many, explain=True, rules={NAME: Rules()})
    assert {one.name for one in report.tables if not one.name.startswith("wap_ledger")} == {"s.t"}


def test_only_the_wanted_tables(many: Bench) -> None:
    many.table("other", 1, **{"write.wap.enabled": "true"})
    many.table("foreign", 1)
    assert {one.name for one in maintain(many, explain=True, tables=["s"]).tables} == {
        "s.t", "s.other"
    }  # fmt: skip
    assert [one.name for one in maintain(many, explain=True, tables=["s.t"]).tables] == ["s.t"]
    with pytest.raises(SparkwapError, match=r"no table or schema s\.foreign"):
        maintain(many, explain=True, tables=["s.foreign"])


def test_a_table_waits_for_the_budget_and_the_ledger_knows(many: Bench) -> None:
    report = maintain(many, budget=0)
    assert "needs 1.0 s, and 0.0 s are left" in of_table(report).choice.reason
    maintain(many, budget=0)
    (row,) = many.lake.ledger.rows("maintenance")
    assert row["outcome"] == "waits"


def test_no_compaction_where_the_config_says_so(many: Bench) -> None:
    report = maintain(many, rules={NAME: Rules(compact=False)})
    assert of_table(report).choice.reason == "wap_maintain is false in its config"
    assert files(many) == 8


def test_the_allowance_is_a_share_of_the_time_of_runs(many: Bench) -> None:
    def work(**more: Any) -> Maintainer:
        upkeep = Upkeep(**more)
        return Maintainer(many.lake, lambda s: [], run_id=RUN, upkeep=upkeep)

    now = datetime.fromtimestamp(many.lake.leases.now(), UTC)
    row = {"run_id": RUN, "started_at": now - timedelta(seconds=200), "ended_at": now}
    many.lake.ledger.append(LedgerRows("runs", [{**row, "outcome": "published"}]))
    spent = {"run_id": RUN, "at": now, "seconds": 5.0, "action": "compact", "outcome": "done"}
    many.lake.ledger.append(LedgerRows("maintenance", [spent]))
    assert work().allowance() == pytest.approx(15)
    assert work(share=0.01).allowance() == 0
    assert work(seconds=3.0).allowance() == 3


def test_a_rewrite_of_lost_history_is_refused(many: Bench) -> None:
    def elsewhere(clone: Any) -> None:
        name = clone.name()
        many.lake.catalog.drop_table(name)
        many.lake.catalog.create_table(name, values().schema).append(values(*ROWS))

    report = maintain(many, elsewhere)
    assert of_table(report).done is None
    assert many.read("t") == ROWS
    assert files(many) == 8


def test_a_failure_after_a_run_does_not_fail_it(
    many: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    upkeep = Upkeep("end_of_run", 60.0)

    def rules() -> dict[Any, Any]:
        return {NAME: Rules(readings_per_day=100_000)}

    done = maintainer.end_of_run(many.lake, rewriting(many), RUN, upkeep, rules)
    assert any("compacted 8 files into 1" in line for line in done)
    assert maintainer.end_of_run(many.lake, rewriting(many), RUN, upkeep, rules) == []
    none = maintainer.end_of_run(many.lake, rewriting(many), RUN, Upkeep("end_of_run", 0.5), rules)
    assert none == []

    def broken() -> Any:
        raise SparkwapError("wrong")

    (line,) = maintainer.end_of_run(many.lake, rewriting(many), RUN, upkeep, broken)
    assert "The maintenance after the run failed; readers of main see no change: wrong" in line
