"""Zero-copy copies of tables, and when a table last changed."""

from __future__ import annotations

import time
from typing import Any

import pytest
from helpers.bench import BRANCH, SIDE

from sparkwap.catalog.pointers import PointerUpdate
from sparkwap.core.errors import CatalogError
from sparkwap.publish.lake import Lake

Bench = Any


def test_a_copy_starts_with_the_rows_of_main_and_no_own_file(bench: Bench) -> None:
    bench.table("t", 1, 2)
    bench.table("t2")
    before = bench.files()
    copy = bench.lake.branches.copy(
        ("s", "t"), ("s", "c"), f"{bench.folder}/warehouse/s/c-1a2b3c4d"
    )
    assert bench.read("c") == [1, 2]
    assert {path for path in bench.files() - before if not path.endswith(".json")} == set()
    assert copy.uuid != bench.state(("s", "t")).uuid
    assert copy.properties["gc.enabled"] == "false"
    assert copy.location.endswith("/s/c-1a2b3c4d")


def test_writes_to_a_copy_and_its_source_are_separate(bench: Bench) -> None:
    bench.table("t", 1)
    bench.lake.branches.copy(("s", "t"), ("s", "c"), f"{bench.folder}/warehouse/s/c")
    bench.write(("s", "c"), 2, branch="main")
    bench.write(("s", "t"), 3, branch="main")
    assert bench.read("c") == [1, 2]
    assert bench.read("t") == [1, 3]
    assert not [path for path in bench.files() if "/s/c/data" in path and "/s/t" in path]


def test_a_copy_has_no_audit_branches_and_no_history(bench: Bench) -> None:
    bench.table("t", 1)
    bench.write(("s", "t"), 2, branch="main")
    bench.candidate("t", 3)
    copy = bench.lake.branches.copy(("s", "t"), ("s", "c"), f"{bench.folder}/warehouse/s/c")
    assert set(copy.refs) == {"main"}
    assert "write.wap.enabled" not in copy.properties
    assert len(bench.lake.catalog.load_table(("s", "c")).metadata.snapshots) == 1


def test_a_copy_of_an_empty_table_is_empty(bench: Bench) -> None:
    bench.table("t")
    bench.lake.branches.copy(("s", "t"), ("s", "c"), f"{bench.folder}/warehouse/s/c")
    assert bench.read("c") == []


def test_a_view_cannot_be_copied(bench: Bench) -> None:
    bench.view("v", "select 1", schema="s")
    with pytest.raises(CatalogError, match="is a view"):
        bench.lake.branches.copy(("s", "v"), ("s", "c"), f"{bench.folder}/warehouse/s/c")


def test_last_change_is_the_time_of_the_snapshot_on_main(bench: Bench) -> None:
    bench.table("t")
    assert bench.lake.last_change(("s", "t")) is None
    started = time.time()
    bench.write(("s", "t"), 1, branch="main")
    changed = bench.lake.last_change(("s", "t"))
    assert changed is not None and abs(changed.timestamp() - started) < 60
    bench.candidate("t", 2)
    assert bench.lake.last_change(("s", "t")) == changed


@pytest.mark.parametrize("how", ["discarded", "reopened and discarded", "forgotten", "dropped"])
def test_a_copy_can_be_read_after_its_source_is_gone(bench: Bench, how: str) -> None:
    new = bench.new("n", 1, 2)
    source = (SIDE, "n")
    if how == "reopened and discarded":
        receipt, source = bench.publish(new), ("s", "n")
    bench.lake.ensure_schema("dev")
    bench.lake.branches.copy(source, ("dev", "n"), f"{bench.folder}/warehouse/dev/n")
    if how == "reopened and discarded":
        publishing = bench.lake.publishing
        publishing.rollback(receipt.entries, run_id="x", publish_id=receipt.publish_id)
        publishing.reopen(receipt.entries, branch=BRANCH, record=lambda found: ())
    if how == "forgotten":
        bench.lake.branches.forget(("s", "n"), BRANCH)
    elif how == "dropped":
        bench.lake.drop_schema(SIDE, purge=True)
    else:
        bench.lake.branches.discard(BRANCH)
    assert bench.lake.state((SIDE, "n")) is None
    assert bench.read("n", schema="dev") == [1, 2]


def test_a_table_of_another_catalog_can_be_read_after_its_schema_is_dropped(bench: Bench) -> None:
    row = bench.lake.store.backend.get(bench.table("a", 1, 2))
    other = Lake("other", bench.properties)
    other.ensure_schema("s")
    other.store.backend.apply([PointerUpdate(None, row)])
    bench.lake.drop_schema("s", purge=True)
    assert other.catalog.load_table(("s", "a")).scan().to_arrow().num_rows == 2
    other.close()
