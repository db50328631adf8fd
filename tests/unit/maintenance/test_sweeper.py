"""A sweep of a lake removes and keeps the right objects, and no reader sees a change."""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.bench import on_branch
from hypothesis import given
from hypothesis import strategies as st

from sparkwap.catalog import LedgerRows, PublishReceipt, PublishRefused, RollbackRefused
from sparkwap.catalog import lease as leasing
from sparkwap.catalog import metadata as md
from sparkwap.catalog.change import MetadataChange
from sparkwap.catalog.files import StoredFile, WarehouseFiles
from sparkwap.catalog.model import PublishedEntry
from sparkwap.catalog.pointers import Pointer, PointerUpdate
from sparkwap.catalog.snapshot_files import Snapshot
from sparkwap.core.errors import CatalogError
from sparkwap.gate.settings import GateSettings, Limits
from sparkwap.ledger.records import KeptManifest, LedgerPublish
from sparkwap.maintenance import orphans, removal
from sparkwap.maintenance import sweeper as sweeper_module
from sparkwap.maintenance.decision import decide
from sparkwap.maintenance.survey import manifest_facts, take_survey
from sparkwap.maintenance.sweeper import Sweeper, SweepReport, end_of_run, lines
from sparkwap.pr import base
from sparkwap.publish.lake import Lake

pytestmark = pytest.mark.long

BRANCH, SIDE, TAG = "pr_1", "s__pr_1", "wap_pub_1a2b3c4d"
RUN = "1a2b3c4d-0000-4000-8000-000000000000"
SWEEP = "5e5e5e5e-0000-4000-8000-000000000000"
DAY = 86_400
DIFF = "wap_diff-" + "0123456789abcdef" * 2
Bench = Any


def sweeper(bench: Bench, *, retention: int | None = 90, **limits: int) -> Sweeper:
    return Sweeper(
        bench.lake, run_id=SWEEP, limits=replace(Limits(), **limits), retention_days=retention
    )


def sweep(bench: Bench, **options: Any) -> SweepReport:
    report = sweeper(bench, **options).sweep()
    assert report.problems == []
    return report


def write(bench: Bench, identifier: tuple[str, str], *ids: int, branch: str = BRANCH) -> int:
    """Write as a run does: the summary of the snapshot has its id."""
    bench.lake.branches.open(identifier, branch)
    table = bench.lake.catalog.load_table(identifier)
    rows = pa.table({"id": pa.array(ids, pa.int64())})
    table.append(rows, branch=branch, snapshot_properties={"wap_run": RUN})
    head: int = bench.head(identifier, branch)
    return head


def swept(report: SweepReport) -> list[str]:
    return [branch.name for branch in report.plan.branches]


def everything_readable(bench: Bench) -> dict[tuple[str, str], list[int]]:
    """Return the number of rows of each table; read the files of every snapshot."""
    found = {}
    for row in bench.lake.store.backend.all():
        if row.kind == "table" and row.identifier[0] != "wap_ledger":
            table = bench.lake.catalog.load_table(row.identifier)
            found[row.identifier] = table.scan().to_arrow().num_rows
            for snapshot in table.snapshots():
                table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
    return found


# -- branches ------------------------------------------------------------------------------------


def test_an_old_branch_is_removed_with_everything_that_only_it_has(
    bench: Bench, later: Callable[[float], None]
) -> None:
    for name in "ac":
        bench.table(name, 1)
    head = write(bench, ("s", "a"), 2)
    bench.changed("c", 3)
    bench.new("n", 4)
    bench.view("v", "select 1")
    later(31)
    look = sweeper(bench).look()
    files, pointers = bench.files(), bench.pointers()
    report = sweep(bench)
    assert swept(look) == swept(report) == [BRANCH]
    assert bench.pointers().keys() == {("s", "a"), ("s", "c")}
    assert bench.lake.branches.all() == []
    assert bench.lake.schemas() == {"s", "wap_ledger"}
    assert [bench.read(name) for name in "ac"] == [[1], [1]]
    state = bench.lake.catalog.load_table(("s", "a"))
    assert head not in {snapshot.snapshot_id for snapshot in state.snapshots()}
    # The preview listed exactly the deleted files.
    previewed = {file.path for folder in look.found.folders for file in folder.files}
    assert previewed == files - bench.files()
    assert look.found.count == report.found.count > 0
    assert pointers.keys() - bench.pointers().keys() == {(SIDE, n) for n in ("c", "n", "v")}
    # No file of the new table is left.
    assert not (bench.folder / "warehouse/s/n-1a2b3c4d").exists()
    everything_readable(bench)
    assert sweep(bench).anything is False


def test_the_ledger_records_what_was_swept(bench: Bench, later: Callable[[float], None]) -> None:
    bench.table("a", 1)
    write(bench, ("s", "a"), 2)
    bench.new("n", 4)
    bench.lake.ledger.append(
        LedgerRows("nodes", [{"branch": BRANCH, "node_id": "model.a", "run_id": RUN}])
    )
    later(31)
    sweep(bench)
    (run,) = bench.lake.ledger.runs(BRANCH)
    assert (run["command"], run["outcome"]) == ("wap_sweep", "discarded")
    rows = bench.lake.ledger.rows("sweeps")
    objects = {(r["schema"], r["name"]) for r in rows if r["what"] == "branch"}
    assert objects == {("s", "a"), (SIDE, "n")}
    (files,) = [r for r in rows if r["what"] == "files" and r["folder"].endswith("n-1a2b3c4d")]
    assert files["count"] >= 4 and files["bytes"] > 0
    assert {r["run_id"] for r in rows} == {SWEEP}


def test_a_branch_that_is_young_or_in_use_stays(
    bench: Bench, later: Callable[[float], None]
) -> None:
    bench.table("a", 1)
    write(bench, ("s", "a"), 2)
    write(bench, ("s", "a"), 3, branch="wap_11111111")
    write(bench, ("s", "a"), 4, branch="wap_22222222")
    later(8)
    holding = leasing.hold(bench.lake.leases, run_id=RUN, branch="wap_22222222", command="build")
    report = sweep(bench)
    assert swept(report) == ["wap_11111111"]
    kept = {one.name: one.reason for one in report.plan.kept}
    assert kept[BRANCH] == "8 days old; the limit is 30 days"
    assert kept["wap_22222222"].startswith(f"in use by run 1a2b3c4d, process {os.getpid()}")
    holding.release()
    assert swept(sweep(bench)) == ["wap_22222222"]
    assert bench.read("a", BRANCH) == [1, 2]


def test_a_branch_of_a_run_that_begins_before_the_removal_stays(bench: Bench) -> None:
    bench.table("a", 1)
    write(bench, ("s", "a"), 2)
    holding = leasing.hold(bench.lake.leases, run_id=RUN, branch=BRANCH, command="build")
    before, files = bench.pointers(), bench.files()
    with pytest.raises(removal.InUse, match="in use by run 1a2b3c4d"):
        removal.sweep_branch(
            bench.lake,
            BRANCH,
            run_id=SWEEP,
            reason="x",
            older_than=take_survey(bench.lake).now,
        )
    holding.release()
    assert (bench.pointers(), bench.files()) == (before, files)


@pytest.mark.parametrize("what", ["written", "written beside", "ended"])
def test_a_branch_that_was_used_after_the_survey_stays(
    bench: Bench, later: Callable[[float], None], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    bench.table("a", 1)
    write(bench, ("s", "a"), 2)
    later(31)
    whole = removal.sweep_branch

    def used(lake: Lake, branch: str, **options: Any) -> Any:
        if what == "written":
            write(bench, ("s", "a"), 7)
        elif what == "written beside":
            bench.new("n", 7)
        else:
            ended = {"run_id": RUN, "branch": BRANCH, "outcome": "held", "ended_at": _now(bench)}
            lake.ledger.append(LedgerRows("runs", [ended]))
        return whole(lake, branch, **options)

    monkeypatch.setattr(removal, "sweep_branch", used)
    report = sweeper(bench).sweep()
    used_meanwhile = "A run has used pr_1 meanwhile. The branch was not changed."
    assert report.problems == [f"branch pr_1: {used_meanwhile}"]
    assert 2 in bench.read("a", BRANCH)


def test_branches_of_one_table_that_were_never_written_are_all_removed(
    bench: Bench, later: Callable[[float], None]
) -> None:
    bench.table("a", 1)
    for branch in ("pr_1", "pr_2"):
        bench.lake.branches.open(("s", "a"), branch)
    later(31)
    assert swept(sweep(bench)) == ["pr_1", "pr_2"]
    assert bench.lake.branches.all() == []


def test_a_run_that_died_counts_as_dead_once_its_lease_expires(
    bench: Bench, later: Callable[[float], None]
) -> None:
    bench.table("a", 1)
    write(bench, ("s", "a"), 2, branch="wap_1a2b3c4d")
    lost = leasing.Lease(RUN, "wap_1a2b3c4d", "build", 1, 0.0, "x", "far away")
    bench.lake.leases.take(lost)
    limits = {"run_days": 0, "named_days": 0}
    assert swept(sweep(bench, **limits)) == []
    later(1 / 24)
    report = sweep(bench, **limits)
    assert swept(report) == ["wap_1a2b3c4d"]
    assert "is dead; it was last heard of at" in report.dead[0]
    assert bench.lake.leases.all() == []
    outcomes = {run["outcome"]: run["run_id"] for run in bench.lake.ledger.runs("wap_1a2b3c4d")}
    assert outcomes == {"died": RUN, "discarded": SWEEP}


@pytest.mark.parametrize("what", ["written", "written beside", "heard of"])
def test_the_age_of_a_branch_counts_from_its_last_activity(bench: Bench, what: str) -> None:
    """Its last run on record ended long ago; a later run died without a record."""
    bench.table("a", 1)
    ended = _now(bench) - timedelta(days=40)
    bench.lake.ledger.append(LedgerRows("runs", [{"branch": BRANCH, "ended_at": ended}]))
    if what == "written":
        write(bench, ("s", "a"), 2)
    elif what == "written beside":
        bench.new("n", 2)
    else:
        bench.lake.branches.open(("s", "a"), BRANCH)
        lost = leasing.Lease(RUN, BRANCH, "build", 1, 0.0, "x", "far away", ttl=-1.0)
        bench.lake.leases.take(lost)
    report = sweep(bench)
    assert swept(report) == []
    assert report.plan.kept[0].reason.endswith("old; the limit is 30 days")


def test_only_the_side_objects_of_the_branch_are_removed(bench: Bench) -> None:
    bench.new("n", 1)
    bench.lake.ensure_schema("s__pr_2", "pr_2")
    other = bench.table("n", 5, schema="s__pr_2")
    removal.sweep_branch(bench.lake, BRANCH, run_id=SWEEP, reason="x", older_than=_now(bench))
    assert (SIDE, "n") not in bench.pointers()
    assert bench.read("n", schema=other[0]) == [5]
    assert bench.lake.schemas() == {"s", "s__pr_2", "wap_ledger"}


def test_branches_and_tags_of_others_stay(bench: Bench, later: Callable[[float], None]) -> None:
    for name in "ab":
        bench.table(name, 1)
    write(bench, ("s", "a"), 2)
    for table, branch in ((("s", "b"), BRANCH), (("s", "a"), "wap_1234567890"), (("s", "a"), "x")):
        loaded = bench.lake.catalog.load_table(table)
        loaded.manage_snapshots().create_branch(bench.state(table).main, branch).commit()
    loaded = bench.lake.catalog.load_table(("s", "a"))
    loaded.manage_snapshots().create_tag(bench.state(("s", "a")).main, "release").commit()
    bench.lake.ensure_schema("s__mine")
    before = bench.pointers()
    later(999)
    report = sweep(bench)
    kept = [(one.name, one.reason) for one in report.plan.kept]
    assert kept == [("wap_1234567890", "it was not opened by sparkwap")]
    assert swept(report) == [BRANCH]
    assert bench.pointers()["s", "b"] == before["s", "b"]
    assert set(bench.state(("s", "a")).refs) == {"main", "wap_1234567890", "x", "release"}
    assert "s__mine" in bench.lake.schemas()


def test_a_publish_is_refused_when_its_branch_was_swept_and_written_again(
    bench: Bench, later: Callable[[float], None]
) -> None:
    bench.table("a", 1)
    base = bench.state(("s", "a")).main
    write(bench, ("s", "a"), 2)
    later(31)
    sweep(bench)
    # As Spark does, which creates a missing branch.
    table = bench.lake.catalog.load_table(("s", "a"))
    table.manage_snapshots().create_branch(base, BRANCH).commit()
    head = bench.write(("s", "a"), 3)
    with pytest.raises(PublishRefused, match="base of audit branch"):
        bench.publish(on_branch(("s", "a"), base, head))
    assert bench.read("a") == [1]


# -- tags and snapshots --------------------------------------------------------------------------


@pytest.mark.parametrize("lives", [True, False])
def test_the_base_tag_of_a_branch_that_is_opened_after_the_survey_stays(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, lives: bool
) -> None:
    table = bench.table("a", 1)
    write(bench, table, 2)
    bench.lake.catalog.load_table(table).manage_snapshots().remove_branch(BRANCH).commit()
    whole, opened = removal.sweep_table, []

    def slow(lake: Lake, identifier: tuple[str, str], *arguments: Any, **options: Any) -> Any:
        if identifier == table:
            holding = leasing.hold(lake.leases, run_id=RUN, branch=BRANCH, command="build")
            opened.append(bench.candidate("a", 7))
            if not lives:
                holding.release()
        return whole(lake, identifier, *arguments, **options)

    monkeypatch.setattr(removal, "sweep_table", slow)
    sweep(bench)
    bench.publish(*opened)
    assert bench.read("a") == [1, 7]


def test_the_receipt_to_which_main_is_rolled_back_after_the_survey_stays(
    bench: Bench, later: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = bench.table("a", 1)
    receipts = [
        bench.publish(bench.candidate("a", number), tag=tag, run_id=tag[8:], tag_max_age_ms=1)
        for number, tag in ((2, TAG), (3, "wap_pub_2a2b3c4d"))
    ]
    later(31)
    whole = removal.sweep_table

    def slow(lake: Lake, identifier: tuple[str, str], *arguments: Any, **options: Any) -> Any:
        if identifier == table:
            last = receipts[1]
            lake.publishing.rollback(last.entries, run_id="x", publish_id=last.publish_id)
        return whole(lake, identifier, *arguments, **options)

    monkeypatch.setattr(removal, "sweep_table", slow)
    sweep(bench)
    assert TAG in bench.state(table).refs


@pytest.mark.parametrize("begins", ["before the survey", "after the survey"])
def test_a_replay_keeps_the_states_of_tables(
    bench: Bench, later: Callable[[float], None], monkeypatch: pytest.MonkeyPatch, begins: str
) -> None:
    tables = [bench.table(name, 1) for name in "ab"]
    receipt = bench.publish(bench.candidate("a", 2), tag_max_age_ms=1)
    heads = {("s", "a"): bench.head(tables[0], "main"), ("s", "b"): write(bench, tables[1], 2)}
    bench.lake.publishing.rollback(receipt.entries, run_id="x", publish_id=receipt.publish_id)
    old = bench.table("r", 1)
    former = bench.state(old)
    bench.new("r", 2)
    bench.publish(bench.side("r", former.metadata_location))
    _age_all(bench)
    later(91)
    holdings: list[leasing.Holding] = []

    def begin() -> None:
        name = "wap_99999999"
        lake = bench.lake
        run = {"run_id": RUN, "branch": name, "command": leasing.REPLAY}
        holdings.append(leasing.hold(lake.leases, **run))

    if begins == "before the survey":
        begin()
        assert not [tag for tag in sweeper(bench).look().plan.tags if tag.name == TAG]
        assert sweeper(bench).look().snapshots == 0
    else:
        decided = sweeper_module.decide

        def decide_and_begin(*arguments: Any) -> Any:
            found = decided(*arguments)
            begin()
            return found

        monkeypatch.setattr(sweeper_module, "decide", decide_and_begin)
    sweep(bench)
    for table, head in heads.items():
        rows = bench.lake.catalog.load_table(table).scan(snapshot_id=head).to_arrow()
        assert rows["id"].to_pylist() in ([1, 2], [2, 1])
    assert Path(former.metadata_location).exists()
    assert len(holdings) == 1
    holdings[0].release()


def test_old_receipts_are_removed_except_that_of_the_present_snapshot(
    bench: Bench, later: Callable[[float], None]
) -> None:
    bench.table("a", 1)
    month = 30 * DAY * 1000
    for number, tag in enumerate(("wap_pub_1a2b3c4d", "wap_pub_2a2b3c4d")):
        run = tag.removeprefix("wap_pub_") + RUN[8:]
        item = bench.candidate("a", number)
        bench.publish(item, tag=tag, run_id=run, tag_max_age_ms=month)
    later(29)
    assert sweep(bench).plan.tags == ()
    later(31)
    assert [tag.name for tag in sweep(bench).plan.tags] == ["wap_pub_1a2b3c4d"]
    assert set(bench.state(("s", "a")).refs) == {"main", "wap_pub_2a2b3c4d"}
    assert bench.read("a") == [0, 1, 1]
    (row,) = [r for r in bench.lake.ledger.rows("sweeps") if r["what"] == "tag"]
    assert (row["name"], row["object"]) == ("a", "wap_pub_1a2b3c4d")


def test_tags_of_others_stay(bench: Bench, later: Callable[[float], None]) -> None:
    """A tag of another owner stays, even past the age that Iceberg has for it."""
    table = bench.table("a", 1)
    loaded = bench.lake.catalog.load_table(table)
    first = bench.state(table).main
    loaded.manage_snapshots().create_tag(first, "release", max_ref_age_ms=DAY).commit()
    bench.write(table, 2, branch="main")
    later(99)
    assert sweep(bench).plan.tags == ()
    assert bench.read("a", "release") == [1]


@pytest.mark.parametrize("left", ["whole", "without its branch"])
def test_the_base_tag_of_a_branch_in_use_stays(
    bench: Bench, later: Callable[[float], None], left: str
) -> None:
    table = bench.table("a", 1)
    holding = leasing.hold(bench.lake.leases, run_id=RUN, branch=BRANCH, command="build")
    base = bench.lake.branches.open(table, BRANCH).base
    if left == "whole":
        holding.release()
    else:
        # Somebody drops the branch in Spark; the run will write it again.
        bench.lake.catalog.load_table(table).manage_snapshots().remove_branch(BRANCH).commit()
    later(1 / 1000)
    report = sweep(bench)
    holding.release()
    assert report.plan.tags == ()
    assert bench.head(table, f"wap_base_{BRANCH}") == base


def test_a_table_in_use_is_not_touched(bench: Bench, later: Callable[[float], None]) -> None:
    table = bench.table("a", 1)
    write(bench, table, 2)
    bench.lake.branches.discard(BRANCH)
    bench.lake.branches.open(table, "wap_1a2b3c4d")
    later(31)
    holding = leasing.hold(bench.lake.leases, run_id=RUN, branch="wap_1a2b3c4d", command="build")
    before = bench.pointers()
    assert sweep(bench).snapshots == 0
    assert bench.pointers() == before
    assert [lease.run_id for lease in bench.lake.leases.all()] == [RUN]
    holding.release()
    assert sweep(bench).snapshots == 1


def test_the_history_of_main_stays(bench: Bench, later: Callable[[float], None]) -> None:
    """Readers can still read former snapshots of main."""
    table = bench.table("a", 1)
    for number, tag in enumerate(("wap_pub_1a2b3c4d", "wap_pub_2a2b3c4d")):
        base = bench.state(table).main
        head = write(bench, table, number + 2)
        bench.publish(on_branch(table, base, head), tag=tag, tag_max_age_ms=DAY)
    before = bench.lake.catalog.load_table(table).history()
    later(99)
    sweep(bench)
    loaded = bench.lake.catalog.load_table(table)
    assert loaded.history() == before
    rows = [
        sorted(loaded.scan(snapshot_id=entry.snapshot_id).to_arrow()["id"].to_pylist())
        for entry in before
    ]
    assert rows == [[1], [1, 2], [1, 2, 3]]


def test_young_snapshots_stay(bench: Bench) -> None:
    """A job without a record may still refer to them."""
    table = bench.table("a", 1)
    head = write(bench, table, 2)
    bench.lake.branches.discard(BRANCH)
    assert sweep(bench).snapshots == 0
    loaded = bench.lake.catalog.load_table(table)
    assert loaded.scan(snapshot_id=head).to_arrow().num_rows == 2


def test_snapshots_left_by_a_discard_are_removed_and_those_of_others_stay(
    bench: Bench, later: Callable[[float], None]
) -> None:
    bench.table("a", 1)
    ours = write(bench, ("s", "a"), 2)
    bench.lake.branches.discard(BRANCH)
    loaded = bench.lake.catalog.load_table(("s", "a"))
    loaded.manage_snapshots().create_branch(bench.state(("s", "a")).main, "theirs").commit()
    staged = bench.write(("s", "a"), 7, branch="theirs")
    loaded = bench.lake.catalog.load_table(("s", "a"))
    loaded.manage_snapshots().remove_branch("theirs").commit()
    later(8)
    report = sweep(bench)
    left = {one.snapshot_id for one in bench.lake.catalog.load_table(("s", "a")).snapshots()}
    assert (report.snapshots, ours in left, staged in left) == (1, False, True)
    everything_readable(bench)


def test_a_rolled_back_snapshot_is_removed_with_its_receipt(
    bench: Bench, later: Callable[[float], None]
) -> None:
    bench.table("a", 1)
    head = write(bench, ("s", "a"), 2)
    base = bench.state(("s", "a")).main
    receipt = bench.publish(on_branch(("s", "a"), base, head), tag_max_age_ms=30 * DAY * 1000)
    bench.lake.publishing.rollback(receipt.entries, run_id="back", publish_id=receipt.publish_id)
    kept = bench.read("a", TAG)
    later(29)
    sweep(bench)
    assert bench.read("a", TAG) == kept == [1, 2]
    later(31)
    report = sweep(bench)
    assert report.snapshots == 1
    table = bench.lake.catalog.load_table(("s", "a"))
    assert [one.snapshot_id for one in table.snapshots()] == [base]
    # The history may end at the removed snapshot.
    assert [entry.snapshot_id for entry in table.history()] in ([base], [])
    assert bench.read("a") == [1]


def test_snapshots_of_shared_files_stay(bench: Bench, later: Callable[[float], None]) -> None:
    bench.table("a", 1, **{"gc.enabled": "false"})
    ours = write(bench, ("s", "a"), 2)
    bench.lake.branches.discard(BRANCH)
    stray(bench, "s/a/data/of-another-table.parquet")
    files = bench.files()
    later(99)
    sweep(bench)
    left = {one.snapshot_id for one in bench.lake.catalog.load_table(("s", "a")).snapshots()}
    assert ours in left
    assert bench.files() == files


# -- files ---------------------------------------------------------------------------------------


def stray(bench: Bench, path: str, *, days: float = 5) -> Path:
    """A file to which nothing refers, written some days ago."""
    file: Path = bench.folder / "warehouse" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"x" * 10)
    then = time.time() - days * DAY
    os.utime(file, (then, then))
    return file


@pytest.mark.parametrize(
    ("path", "days", "goes"),
    [
        ("s/a/data/00000-stray.parquet", 5, True),
        ("s/a/data/day=1/.00000-stray.parquet.crc", 5, True),
        ("s/a/metadata/stray-m0.avro", 5, True),
        ("s/a/data/00000-young.parquet", 2, False),
        ("s/a/export.csv", 5, False),
        ("s/a/elsewhere/x.parquet", 5, False),
        ("s/unknown/data/x.parquet", 5, False),
        ("data/x.parquet", 5, False),
        ("x.parquet", 5, False),
        ("../outside/data/x.parquet", 5, False),
        ("s/t-1a2b3c4d/data/x.parquet", 5, True),
        ("s/t-99999999/data/x.parquet", 5, False),
        ("other/t-1a2b3c4d/data/x.parquet", 5, False),
        (f"{DIFF}/data/x.parquet", 5, True),
        (f"{DIFF}/data/x.parquet", 2, False),
        (f"{DIFF}/x.parquet", 5, False),
        (f"s/{DIFF}/data/x.parquet", 5, False),
        ("wap_diff-mine/data/x.parquet", 5, False),
    ],
)
def test_only_old_unreferenced_files_in_known_folders_are_deleted(
    bench: Bench, path: str, days: float, goes: bool
) -> None:
    bench.table("a", 1)
    bench.lake.ledger.append(LedgerRows("runs", [{"run_id": RUN, "outcome": "died"}]))
    file = stray(bench, path, days=days)
    before = bench.files()
    report = sweep(bench)
    assert file.exists() is not goes
    assert before - bench.files() == ({str(file)} if goes else set())
    assert report.found.count == goes
    assert report.found.size == 10 * goes


def test_the_folder_of_a_comparison_that_died_is_deleted(bench: Bench) -> None:
    bench.table("a", 1)
    # Its metadata has a table that no catalog has.
    metadata = Path(bench.state(("s", "a")).metadata_location)
    left = stray(bench, f"{DIFF}/metadata/00000-x.metadata.json")
    document = json.loads(metadata.read_text()) | {"table-uuid": str(uuid.uuid4())}
    left.write_text(json.dumps(document))
    stray(bench, f"{DIFF}/data/x.parquet")
    then = time.time() - 5 * DAY
    os.utime(left, (then, then))
    assert sweep(bench).found.count == 2
    assert not (bench.folder / "warehouse" / DIFF).exists()


def test_a_file_behind_a_link_stays(bench: Bench) -> None:
    bench.table("a", 1)
    file = stray(bench, "../elsewhere/data/x.parquet")
    (bench.folder / "warehouse/s/a/data/link").symlink_to(file.parent, target_is_directory=True)
    sweep(bench)
    assert file.exists()


def test_files_written_since_a_running_command_began_stay(
    bench: Bench, later: Callable[[float], None]
) -> None:
    bench.table("a", 1)
    old, young = stray(bench, "s/a/data/old.parquet"), stray(bench, "s/a/data/y.parquet", days=-1)
    holding = leasing.hold(bench.lake.leases, run_id=RUN, branch=BRANCH, command="build")
    clock = bench.lake.leases.now()
    lease = replace(bench.lake.leases.all()[0], renewed=clock + 9 * DAY)
    later(9)
    bench.lake.leases.renew(lease)
    sweep(bench)
    holding.release()
    assert (old.exists(), young.exists()) == (False, True)
    sweep(bench)
    assert not young.exists()


def test_files_of_branches_tags_clones_copies_and_views_stay(bench: Bench) -> None:
    for name in "abcd":
        bench.table(name, 1)
    bench.view("v", "select 1", schema="s")
    write(bench, ("s", "a"), 2)
    bench.changed("b", 3)
    bench.new("n", 4)
    bench.lake.branches.copy(("s", "c"), ("s", "copy"), f"{bench.folder}/warehouse/s/copy")
    bench.lake.catalog.drop_table(("s", "c"))
    loaded = bench.lake.catalog.load_table(("s", "d"))
    loaded.manage_snapshots().create_tag(bench.state(("s", "d")).main, "keep").commit()
    bench.lake.catalog.load_table(("s", "d")).overwrite(pa.table({"id": pa.array([9], pa.int64())}))
    _age_all(bench)
    before, rows = bench.files(), everything_readable(bench)
    sweep(bench)
    assert (bench.files(), everything_readable(bench)) == (before, rows)
    assert bench.read("copy") == [1]


def test_tables_of_another_catalog_in_the_same_database_stay(bench: Bench) -> None:
    table = bench.table("a", 1)
    row = bench.lake.store.backend.get(table)
    other = Lake("other", bench.properties)
    other.ensure_schema("s")
    other.store.backend.apply([PointerUpdate(None, row)])
    bench.lake.catalog.load_table(table).overwrite(pa.table({"id": pa.array([9], pa.int64())}))
    document = bench.lake.store.load(bench.state(table).metadata_location)
    # This catalog expires snapshots that the other catalog still reads.
    main = md.main_of(document)
    gone = {one["snapshot-id"] for one in document["snapshots"]} - {main}
    less = {
        **MetadataChange(document).remove_snapshots(gone).document(None),
        "metadata-log": [],
    }
    location = md.next_location(less, bench.state(table).metadata_location)
    bench.lake.store.write({location: less})
    now = bench.lake.store.backend.get(table)
    bench.lake.store.backend.apply([PointerUpdate(now, Pointer(table, "table", location))])
    _age_all(bench)
    folders = sweeper(bench).look().found.folders
    found = {file.path for folder in folders for file in folder.files}
    assert not [path for path in found if path.endswith(".parquet")]
    sweep(bench)
    assert sorted(other.catalog.load_table(table).scan().to_arrow()["id"].to_pylist()) == [1]
    other.close()


def test_a_folder_that_another_catalog_also_uses_is_left_alone(
    bench: Bench, tmp_path: Path
) -> None:
    table = bench.table("a", 1)
    far = type(bench)(tmp_path / "far")
    far.table("a", 5)
    theirs = Path(far.state(table).metadata_location)
    here = bench.folder / "warehouse/s/a/metadata"
    shutil.copy(theirs, here / theirs.name)
    file = stray(bench, "s/a/data/theirs.parquet")
    _age_all(bench)
    report = sweep(bench)
    assert file.exists()
    ((folder, why),) = report.found.left_alone.items()
    assert folder.endswith("/s/a")
    assert "a table that this catalog does not know" in why
    assert any(why in line for line in lines(report, ""))
    far.lake.close()


def test_what_a_killed_comparison_left_in_a_folder_is_deleted(bench: Bench) -> None:
    table = bench.table("a", 1)
    document = bench.lake.store.load(bench.state(table).metadata_location)
    whole = bench.files()
    snapshot = Snapshot(bench.lake.store, document, document["snapshots"][0])
    snapshot.part({one.path for one in snapshot.files().data})
    stray(bench, "s/a/data/x.parquet")
    _age_all(bench)
    assert sweep(bench).found.left_alone == {}
    assert bench.files() <= whole
    assert bench.read("a") == [1]


def test_files_that_are_listed_in_another_spelling_stay(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.table("a", 1)
    _age_all(bench)
    whole, files = WarehouseFiles.listing, bench.files()

    def spelled(stored: WarehouseFiles, folder: str) -> list[StoredFile]:
        parts = [(one, Path(one.path)) for one in whole(stored, folder)]
        return [
            replace(one, path=f"{path.parent}/../{path.parent.name}/{path.name}")
            for one, path in parts
        ]

    monkeypatch.setattr(WarehouseFiles, "listing", spelled)
    report = sweep(bench)
    (why,) = report.found.left_alone.values()
    assert why == "the listing has its files under other names than the catalog"
    assert bench.files() == files


@pytest.mark.parametrize("held", [False, True])
def test_tables_stay_if_the_warehouse_is_spelled_otherwise_than_when_they_were_built(
    bench: Bench, tmp_path: Path, held: bool
) -> None:
    (tmp_path / "link").symlink_to(bench.folder)
    linked = {**bench.properties, "warehouse": f"{tmp_path}/link/warehouse"}
    built = type(bench)(tmp_path / "link", properties=linked)
    new = built.new("n", 1, 2)
    if not held:
        built.publish(new)
    bench.lake.ledger.append(LedgerRows("runs", [{"run_id": RUN, "outcome": "published"}]))
    _age_all(bench)
    files = bench.files()
    report = sweep(bench)
    assert bench.files() == files
    ((folder, why),) = report.found.left_alone.items()
    assert folder == f"{bench.folder}/warehouse/s/n-1a2b3c4d"
    assert why == "the listing has its files under other names than the catalog"
    built.lake.close()


def test_a_folder_with_metadata_that_cannot_be_read_stays(bench: Bench) -> None:
    bench.table("a", 1)
    stray(bench, "s/a/metadata/00009-theirs.metadata.json")
    file = stray(bench, "s/a/data/theirs.parquet")
    report = sweep(bench)
    assert file.exists()
    assert "cannot be read" in next(iter(report.found.left_alone.values()))


def test_former_metadata_that_cannot_be_read_stops_all_deletion(bench: Bench) -> None:
    bench.table("r", 1)
    old = bench.state(("s", "r"))
    bench.new("r", 2)
    bench.publish(bench.side("r", old.metadata_location))
    file = stray(bench, "s/r-1a2b3c4d/data/x.parquet")
    _age_all(bench)
    files = bench.files()
    Path(old.metadata_location).write_bytes(b"garbage")
    lake = Lake("lake", bench.properties)
    work = Sweeper(lake, run_id=SWEEP, limits=Limits(), retention_days=90)
    with pytest.raises(CatalogError):
        work.sweep()
    lake.close()
    assert file.exists()
    assert bench.files() == files


def test_a_manifest_that_cannot_be_read_stops_all_deletion(bench: Bench) -> None:
    bench.table("a", 1)
    bench.table("b", 1)
    file = stray(bench, "s/b/data/x.parquet")
    snapshot = bench.lake.catalog.load_table(("s", "a")).current_snapshot()
    Path(snapshot.manifest_list).write_bytes(b"garbage")
    with pytest.raises(CatalogError, match="none was deleted"):
        sweeper(bench).sweep()
    assert file.exists()


def test_files_of_a_snapshot_with_inline_manifests_stay(bench: Bench) -> None:
    table = bench.table("a", 1, 2)
    loaded = bench.lake.catalog.load_table(table)
    manifests = loaded.current_snapshot().manifests(loaded.io)
    row = bench.lake.store.backend.get(table)
    document = dict(bench.lake.store.load(row.location))
    (snapshot,) = document["snapshots"]
    former = snapshot.pop("manifest-list")
    snapshot["manifests"] = [one.manifest_path for one in manifests]
    document |= {"format-version": 1, "metadata-log": []}
    location = md.next_location(document, row.location)
    bench.lake.store.write({location: document})
    swap = PointerUpdate(row, Pointer(table, "table", location))
    bench.lake.store.backend.apply([swap])
    _age_all(bench)
    files = bench.files()
    sweep(bench)
    assert files - bench.files() == {*_metadata_of(files, table) - {location}, former}


def _replaced(bench: Bench) -> tuple[Any, PublishReceipt]:
    """Publish another table in place of `s.r`; return its former state, and the receipt."""
    bench.table("r", 1)
    old = bench.state(("s", "r"))
    bench.new("r", 2)
    receipt = bench.publish(bench.side("r", old.metadata_location))
    _age_all(bench)
    return old, receipt


def test_a_replaced_table_stays_while_the_publish_can_be_rolled_back(
    bench: Bench, later: Callable[[float], None]
) -> None:
    old, receipt = _replaced(bench)
    later(89)
    sweep(bench)
    bench.lake.publishing.rollback(receipt.entries, run_id="x", publish_id=receipt.publish_id)
    assert bench.read("r") == [1]
    bench.new("r", 3)
    bench.publish(bench.side("r", bench.state(("s", "r")).metadata_location))
    later(91)
    assert Path(old.location).exists()
    report = sweep(bench)
    assert not Path(old.location).exists()
    assert report.found.count > 0
    assert bench.read("r") == [3]
    everything_readable(bench)


@pytest.mark.parametrize("stays", ["x.parquet", "metadata.json"])
def test_only_files_that_were_deleted_are_reported(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, stays: str
) -> None:
    for name in "ab":
        bench.table(name, 1)
        stray(bench, f"s/{name}/data/email=a%40b.de/x.parquet")
        stray(bench, f"s/{name}/data/y.parquet")
    theirs = bench.lake.store.backend.get(("s", "a"))
    document = bench.lake.store.load(theirs.location)
    bench.lake.store.write({md.next_location(document, theirs.location): document})
    _age_all(bench)
    files, delete = bench.files(), bench.lake.store.files.delete
    monkeypatch.setattr(
        bench.lake.store.files,
        "delete",
        lambda path: not (path.endswith(stays) and "/s/a/" in path) and delete(path),
    )
    report = sweeper(bench).sweep()
    (problem,) = report.problems
    assert "to which nothing refers could not be deleted" in problem
    assert "a%40b.de" not in problem
    reported = {file.path for folder in report.found.folders for file in folder.files}
    assert reported == files - bench.files()
    assert len([path for path in reported if "/s/b/data/" in path]) == 2
    recorded = [row for row in bench.lake.ledger.rows("sweeps") if row["what"] == "files"]
    assert sum(row["count"] for row in recorded) == len(reported)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("deleted", range(4))
def test_a_replaced_table_is_restored_whole_or_not_after_a_sweep_was_killed(
    bench: Bench,
    later: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
    deleted: int,
) -> None:
    old, receipt = _replaced(bench)
    later(91)
    left, delete = [deleted], bench.lake.store.files.delete

    def killed(path: str) -> bool:
        if path.startswith(old.location):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
        return delete(path)

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(bench.lake.store.files, "delete", killed)
        sweep(bench)
    try:
        bench.lake.publishing.rollback(receipt.entries, run_id="x", publish_id=receipt.publish_id)
    except RollbackRefused:
        assert bench.read("r") == [2]
        sweep(bench)
        assert not Path(old.location).exists()
    else:
        assert bench.read("r") == [1]


@pytest.mark.parametrize("when", ["before its folder", "during its folder"])
def test_a_rollback_during_a_sweep_restores_a_whole_table_or_none(
    bench: Bench, later: Callable[[float], None], monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    bench.table("r", 1)
    bench.table("a", 1)
    old = bench.state(("s", "r"))
    bench.new("r", 2)
    receipt = bench.publish(bench.side("r", old.metadata_location))
    file = stray(bench, "s/a/data/x.parquet")
    _age_all(bench)
    later(91)
    delete = bench.lake.store.delete
    place = "/s/a/data" if when == "before its folder" else f"{old.location}/data"
    refused = []

    def slow(paths: Iterable[str]) -> list[str]:
        paths = list(paths)
        if any(place in path for path in paths):
            try:
                bench.lake.publishing.rollback(
                    receipt.entries, run_id="x", publish_id=receipt.publish_id
                )
            except RollbackRefused as error:
                refused.append(str(error))
        return delete(paths)

    monkeypatch.setattr(bench.lake.store, "delete", slow)
    sweep(bench)
    assert not file.exists()
    assert bool(refused) == (when == "during its folder")
    assert bench.read("r") == ([2] if refused else [1])


def test_without_a_retention_a_replaced_table_stays(
    bench: Bench, later: Callable[[float], None]
) -> None:
    bench.table("r", 1)
    old = bench.state(("s", "r"))
    bench.new("r", 2)
    bench.publish(bench.side("r", old.metadata_location))
    later(9999)
    sweep(bench, retention=None)
    assert Path(old.metadata_location).exists()


def test_a_table_that_was_dropped_by_hand_is_left_alone(
    bench: Bench, later: Callable[[float], None]
) -> None:
    bench.lake.ledger.append(LedgerRows("runs", [{"run_id": RUN, "outcome": "published"}]))
    bench.new("n", 1)
    bench.publish(bench.side("n"))
    location = Path(bench.state(("s", "n")).metadata_location)
    bench.lake.catalog.drop_table(("s", "n"))
    later(999)
    sweep(bench)
    assert location.exists()
    bench.lake.catalog.register_table(("s", "n"), str(location))
    assert bench.read("n") == [1]


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_table_with_its_metadata_elsewhere_stays_if_it_was_dropped_by_hand(
    bench: Bench, later: Callable[[float], None], by_hand: bool
) -> None:
    bench.lake.ledger.append(LedgerRows("runs", [{"run_id": RUN, "outcome": "published"}]))
    bench.lake.ensure_schema(SIDE, BRANCH)
    elsewhere = {"write.metadata.path": f"{bench.folder}/warehouse/meta/n"}
    folder = f"{bench.folder}/warehouse/s/n-1a2b3c4d"
    schema = pa.schema({"id": pa.int64()})
    table = bench.lake.catalog.create_table((SIDE, "n"), schema, folder, properties=elsewhere)
    table.append(pa.table({"id": [1]}))
    receipt = bench.publish(bench.side("n"))
    location = bench.state(("s", "n")).metadata_location
    if by_hand:
        bench.lake.catalog.drop_table(("s", "n"))
    else:
        publishing = bench.lake.publishing
        publishing.rollback(receipt.entries, run_id="x", publish_id=receipt.publish_id)
    _age_all(bench)
    later(999)
    sweep(bench)
    assert Path(folder).exists() == by_hand
    if by_hand:
        bench.lake.catalog.register_table(("s", "n"), location)
        assert bench.read("n") == [1]


@pytest.mark.parametrize("published_again", [True, False])
def test_a_table_that_a_rollback_brought_back_and_someone_dropped_is_left_alone(
    bench: Bench, later: Callable[[float], None], published_again: bool
) -> None:
    bench.table("r", 1)
    bench.new("r", 2)
    receipt = bench.publish(bench.side("r", bench.state(("s", "r")).metadata_location))
    bench.lake.publishing.rollback(receipt.entries, run_id="x", publish_id=receipt.publish_id)
    if published_again:
        later(0.01)
        bench.publish(bench.candidate("r", 3), publish_id="again")
    rows, location = bench.read("r"), bench.state(("s", "r")).metadata_location
    bench.lake.catalog.drop_table(("s", "r"))
    later(999)
    sweep(bench)
    bench.lake.catalog.register_table(("s", "r"), location)
    assert bench.read("r") == rows


def test_a_file_that_is_referenced_again_before_the_deletion_stays(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = bench.table("a", 1)
    first = bench.state(table).metadata_location
    bench.lake.catalog.load_table(table).overwrite(pa.table({"id": pa.array([9], pa.int64())}))
    document = bench.lake.store.load(bench.state(table).metadata_location)
    gone = {one["snapshot-id"] for one in document["snapshots"]} - {md.main_of(document)}
    less = {
        **MetadataChange(document).remove_snapshots(gone).document(None),
        "metadata-log": [],
    }
    location = md.next_location(less, bench.state(table).metadata_location)
    bench.lake.store.write({location: less})
    bench.lake.store.backend.apply(
        [PointerUpdate(bench.lake.store.backend.get(table), Pointer(table, "table", location))]
    )
    _age_all(bench)
    whole = orphans.delete

    def delete(*arguments: Any) -> Any:
        now = bench.lake.store.backend.get(table)
        bench.lake.store.backend.apply([PointerUpdate(now, Pointer(table, "table", first))])
        return whole(*arguments)

    monkeypatch.setattr(orphans, "delete", delete)
    sweep(bench)
    assert bench.read("a") == [1]


def test_a_preview_lists_what_a_sweep_would_remove(
    bench: Bench, later: Callable[[float], None]
) -> None:
    bench.table("a", 1)
    write(bench, ("s", "a"), 2)
    write(bench, ("s", "a"), 2, branch="pr_2")
    stray(bench, "s/a/data/x.parquet")
    bench.lake.ledger.append(
        LedgerRows("runs", [{"branch": "pr_2", "ended_at": _now(bench) + timedelta(days=30)}])
    )
    later(40)
    told = lines(sweeper(bench).look(), "dbt run-operation wap_sweep")
    assert told[0] == "A sweep would remove (nothing was changed):"
    assert told[1] == "  branch   pr_1   1 table   no activity for 40 days"
    assert any("to which nothing refers" in line for line in told)
    assert "  kept     pr_2   10 days old; the limit is 30 days" in told
    assert told[-1] == "  Next: sweep   dbt run-operation wap_sweep"


def _now(bench: Bench) -> Any:
    return take_survey(bench.lake).now


def _metadata_of(files: set[str], table: tuple[str, str]) -> set[str]:
    folder = f"/{'/'.join(table)}/metadata/"
    return {path for path in files if folder in path and path.endswith(".metadata.json")}


def _age_all(bench: Bench) -> None:
    then = time.time() - 5 * DAY
    for path in bench.files():
        os.utime(path, (then, then))


def test_a_publish_that_sparkwap_has_not_recorded_stops_no_sweep(bench: Bench) -> None:
    row = {"publish_id": "p1", "run_id": "nightly", "branch": "b", "how": "branch"}
    row |= {"action": "publish", "published_at": datetime.now(UTC), "schema": "s", "name": "t"}
    bench.lake.ledger.append(LedgerRows("publishes", [row]))
    assert take_survey(bench.lake).tags == ()


# -- manifests -----------------------------------------------------------------------------------


def keep(bench: Bench, code: str, days: float, *, branch: str | None = None) -> None:
    """Store a manifest and a run on a branch that used it, some days ago."""
    at = datetime.now(UTC) - timedelta(days=days)
    content = {"content": code.encode() * 50_000}
    rows = [{"hash": code, "project": "shop", "stored_at": at, **content}]
    bench.lake.ledger.append(LedgerRows("manifests", rows))
    run = {"run_id": RUN, "branch": branch, "manifest_hash": code, "ended_at": at}
    bench.lake.ledger.append(LedgerRows("runs", [run]))


def publish(bench: Bench, number: int, code: str, days: float, *tables: str) -> None:
    at = datetime.now(UTC) - timedelta(days=days)
    common = {"publish_id": f"p{number}", "run_id": RUN, "branch": "b", "how": "branch"}
    common |= {"action": "publish", "manifest_hash": code, "published_at": at}
    rows = [{**common, "schema": "s", "name": name} for name in tables]
    bench.lake.ledger.append(LedgerRows("publishes", rows))


def kept(bench: Bench) -> list[str]:
    return sorted(bench.lake.ledger.manifest_projects())


def test_manifests_that_are_unused_for_long_are_deleted(bench: Bench) -> None:
    for code in "abc":
        keep(bench, code, 200)
        publish(bench, 200 - ord(code), code, 300 - ord(code), "t")
    keep(bench, "young", 1)
    keep(bench, "open", 200, branch=BRANCH)
    bench.table("u", 1)
    write(bench, ("s", "u"), 2)
    look = sweeper(bench, named_days=999).look()
    # `c` replaced `b` 201 days ago.
    assert list(look.plan.manifests) == ["a", "b"]
    assert "  code     2 manifests that no open branch and" in "\n".join(lines(look, ""))
    assert kept(bench) == ["a", "b", "c", "open", "young"]
    assert list(sweep(bench, named_days=999).plan.manifests) == ["a", "b"]
    assert kept(bench) == ["c", "open", "young"]
    assert bench.lake.ledger.rows("manifests")[0]["content"]
    (row,) = (row for row in bench.lake.ledger.rows("sweeps") if row["what"] == "manifests")
    assert (row["count"], row["reason"]) == (2, "no use for 90 days")
    assert sweep(bench, named_days=999).plan.manifests == ()


def test_the_files_of_deleted_manifests_are_deleted(
    bench: Bench, later: Callable[[float], None]
) -> None:
    for code in "ab":
        keep(bench, code, 200)
    folder = bench.folder / "warehouse/wap_ledger/manifests/data"
    before = {file.name for file in folder.iterdir()}
    sweep(bench)
    assert kept(bench) == []
    for number in range(10):
        keep(bench, f"later {number}", 1)
    later(4)
    sweep(bench)
    assert before and before.isdisjoint(file.name for file in folder.iterdir())
    assert len(kept(bench)) == 10


tables = st.sets(st.sampled_from("tuv"), min_size=1)
published = st.tuples(st.sampled_from("abcd"), tables, st.booleans(), st.integers(0, 300))


@given(st.lists(published, max_size=12), st.sampled_from("tuv"))
def test_the_manifest_that_a_pull_request_is_compared_with_stays(
    made: list[tuple[str, set[str], bool, int]], table: str
) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    publishes = []
    for number, (code, names, rolled_back, days) in enumerate(sorted(made, key=lambda m: m[3])):
        at = now - timedelta(days=days)
        entries = tuple(PublishedEntry(("s", n), "branch", 1, "", 2, "") for n in sorted(names))
        left = () if rolled_back else entries
        publishes.append(LedgerPublish(f"p{number}", RUN, "b", at, entries, left, code))
    stored = [KeptManifest(code, "shop", now - timedelta(days=400)) for code in "abcd"]
    facts = manifest_facts(stored, [], publishes, ())
    gone = decide([], [], Limits(), now, facts).manifests
    left = {code: "shop" for code in "abcd" if code not in gone}

    def compared_with(found: list[LedgerPublish], known: dict[str, str]) -> Any:
        return base.choose(found, known, "shop", {("s", table)})

    everything = dict.fromkeys("abcd", "shop")
    assert compared_with(publishes, left) == compared_with(publishes, everything)
    # A publish of the last 90 days, and all later ones, are rolled back.
    recent = [one for one in publishes if now - one.published_at < timedelta(days=90)]
    for one in recent:
        before = publishes[publishes.index(one) + 1 :]
        assert compared_with(before, left) == compared_with(before, everything)


# -- at the end of a run -------------------------------------------------------------------------


def test_a_sweep_after_a_run_looks_for_files_once_a_day(
    bench: Bench, later: Callable[[float], None]
) -> None:
    settings = GateSettings.from_vars({"wap_sweep": "end_of_run"})
    bench.table("a", 1)
    assert end_of_run(bench.lake, SWEEP, settings) == []
    file = stray(bench, "s/a/data/x.parquet")
    assert end_of_run(bench.lake, SWEEP, settings) == []
    assert file.exists()
    later(1.1)
    printed = end_of_run(bench.lake, SWEEP, settings)
    assert printed[0] == "Swept; readers of main see no change:"
    assert not file.exists()


def test_a_failed_sweep_is_reported_and_does_not_fail_the_run(bench: Bench) -> None:
    bench.table("a", 1)
    snapshot = bench.lake.catalog.load_table(("s", "a")).current_snapshot()
    Path(snapshot.manifest_list).write_bytes(b"garbage")
    (line,) = end_of_run(bench.lake, SWEEP, GateSettings())
    assert "The sweep after the run failed" in line and "none was deleted" in line


def test_a_branch_that_cannot_be_removed_is_reported_and_others_are_removed(
    bench: Bench, later: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.table("a", 1)
    for branch in ("pr_1", "pr_2"):
        write(bench, ("s", "a"), 2, branch=branch)
    later(31)
    whole = removal.sweep_branch

    def sweep_branch(lake: Lake, branch: str, **options: Any) -> Any:
        if branch == "pr_1":
            raise CatalogError("Other writers were faster.")
        return whole(lake, branch, **options)

    monkeypatch.setattr(removal, "sweep_branch", sweep_branch)
    report = sweeper(bench).sweep()
    assert report.problems == ["branch pr_1: Other writers were faster."]
    assert [one.branch for one in bench.lake.branches.all()] == ["pr_1"]
    told = lines(report, "dbt run-operation wap_sweep")
    assert "  not done branch pr_1: Other writers were faster." in told
    assert told[-1] == "  Next: sweep again; the other removals are done"
    after_run = lines(report, "")
    assert after_run[-1] == "  The next sweep tries again; the other removals are done"
    assert after_run[:-1] == told[:-1]
