"""A lost catalog is rebuilt with what readers have seen, and with nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.bench import BRANCH, RUN, SIDE, Bench, compact

from sparkwap.core.errors import CatalogError, ConfigError
from sparkwap.publish import catalog_rebuild


class Lost(Exception):
    """The process dies."""


def rebuilt(bench: Bench) -> tuple[Bench, catalog_rebuild.Found]:
    """A lake with an empty catalog on the same warehouse, after its rebuild."""
    properties = {**bench.properties, "uri": f"sqlite:///{bench.folder}/new.db"}
    Path(f"{bench.folder}/new.db").unlink(missing_ok=True)
    new = Bench(bench.folder, properties=properties)
    found = catalog_rebuild.find(new.lake)
    catalog_rebuild.register(new.lake, found.pointers)
    return new, found


def published(bench: Bench) -> None:
    """Tables of each kind of publish: moved, changed, new, a view."""
    bench.table("a", 1)
    bench.table("c", 1, 2)
    bench.view("w", "select 1")
    tables = bench.candidate("a", 2), bench.changed("c", 3), bench.new("n", 4)
    bench.publish(*tables, bench.side("w"))


def test_the_pointers_are_as_they_were(bench: Bench) -> None:
    published(bench)
    before = bench.pointers()
    new, found = rebuilt(bench)
    assert new.pointers() == before
    assert (found.missing, found.later) == ({}, {})
    assert new.lake.ledger.rows("publishes") == bench.lake.ledger.rows("publishes")
    assert (new.read("a"), new.read("c"), new.read("n")) == ([1, 2], [3], [4])
    assert "default" in new.lake.schemas()


def test_candidates_of_open_branches_are_not_on_main(bench: Bench) -> None:
    published(bench)
    before = bench.pointers()
    bench.candidate("a", 99)
    bench.changed("c", 99)
    bench.new("m", 99)
    new, _ = rebuilt(bench)
    assert (new.read("a"), new.read("c"), new.read("n")) == ([1, 2], [3], [4])
    assert set(new.pointers()) == set(before)
    assert new.read("a", BRANCH) == [1, 2, 99]


def test_a_clone_without_a_change_does_not_take_the_place_of_its_table(bench: Bench) -> None:
    """Its rows are those of the table, but the gate is off in it."""
    published(bench)
    before = bench.pointers()
    bench.lake.branches.clone(("s", "a"), SIDE)
    new, _ = rebuilt(bench)
    assert new.pointers() == before
    assert new.state(("s", "a")).properties["write.wap.enabled"] == "true"


def test_columns_that_were_changed_past_the_gate_are_left_out_and_named(bench: Bench) -> None:
    published(bench)
    with bench.lake.catalog.load_table(("s", "a")).update_schema() as update:
        update.rename_column("id", "key")
    new, found = rebuilt(bench)
    assert new.read("a") == [1, 2]
    assert found.later == {("s", "a"): bench.pointers()[("s", "a")]}


def test_a_publish_that_was_rolled_back_is_not_there(bench: Bench) -> None:
    bench.table("a", 1)
    bench.table("c", 1)
    receipt = bench.publish(bench.candidate("a", 2), bench.changed("c", 3), bench.new("n", 4))
    bench.lake.publishing.rollback(
        receipt.entries, run_id="back", publish_id=receipt.publish_id, branch=BRANCH
    )
    new, _ = rebuilt(bench)
    assert (new.read("a"), new.read("c")) == ([1], [1])
    assert [one.name for one in new.state(("s", "c")).columns] == ["id"]
    assert set(new.pointers()) == {("s", "a"), ("s", "c")}


def test_rows_past_the_gate_are_left_out_and_named(bench: Bench) -> None:
    published(bench)
    bench.write(("s", "a"), 99, branch="main")
    new, found = rebuilt(bench)
    assert new.read("a") == [1, 2]
    assert found.later == {("s", "a"): bench.pointers()[("s", "a")]}


def test_a_compaction_since_the_publish_stays(bench: Bench) -> None:
    published(bench)
    head = compact(bench.lake, ("s", "a"))
    new, found = rebuilt(bench)
    assert new.head(("s", "a"), "main") == head
    assert new.read("a") == [1, 2]
    assert not found.later


def test_of_states_with_the_same_rows_one_is_taken_whose_files_are_there(bench: Bench) -> None:
    published(bench)
    before = bench.head(("s", "a"), "main")
    compact(bench.lake, ("s", "a"))
    compacted = bench.lake.catalog.load_table(("s", "a")).current_snapshot()
    assert compacted is not None
    Path(compacted.manifest_list.removeprefix("file://")).unlink()
    new, _ = rebuilt(bench)
    assert new.head(("s", "a"), "main") == before
    assert new.read("a") == [1, 2]


def test_a_commit_that_was_never_made_is_not_on_main(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are the newest ones of the tables; another publish has come since."""
    published(bench)
    bench.table("b", 1)
    item = bench.candidate("a", 99)
    die(bench, monkeypatch, item)
    bench.lake.branches.discard(BRANCH, run_id=RUN)
    bench.publish(bench.candidate("b", 2), run_id="2a2b3c4d", tag="wap_pub_2a2b3c4d")
    new, _ = rebuilt(bench)
    assert (new.read("a"), new.read("b")) == ([1, 2], [1, 2])


def test_the_last_commit_if_it_was_never_made_is_made_as_a_whole(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(bench)
    bench.table("b", 1)
    items = [bench.candidate("a", 5), bench.candidate("b", 6)]
    die(bench, monkeypatch, *items)
    assert (bench.read("a"), bench.read("b")) == ([1, 2], [1])
    new, _ = rebuilt(bench)
    assert (new.read("a"), new.read("b")) == ([1, 2, 5], [1, 6])


def die(bench: Bench, monkeypatch: pytest.MonkeyPatch, *items: Any) -> None:
    """Publish, and die when all files are written and the transaction has not begun."""
    store = type(bench.lake.store)
    with monkeypatch.context() as patch:
        patch.setattr(store, "_apply", _dies)
        patch.setattr(store, "_stopped", lambda *_: None)  # a dead process cleans nothing up
        with pytest.raises(Lost):
            bench.publish(*items, run_id="3a2b3c4d", tag="wap_pub_3a2b3c4d")


def _dies(*_: Any) -> None:
    raise Lost


def test_half_a_metadata_file_is_no_state(bench: Bench) -> None:
    published(bench)
    before = bench.pointers()
    whole = Path(before[("s", "a")])
    whole.with_name("00099-half.metadata.json").write_bytes(whole.read_bytes()[:200])
    assert rebuilt(bench)[0].pointers() == before


def test_a_lost_file_stops_the_rebuild_until_its_table_is_left_out(bench: Bench) -> None:
    published(bench)
    (row,) = [one for one in bench.lake.ledger.rows("publishes") if one["name"] == "c"]
    Path(row["published_metadata"]).unlink()
    new = Bench(bench.folder, properties={**bench.properties, "uri": f"sqlite:///{bench.folder}/n"})
    found = catalog_rebuild.find(new.lake)
    assert set(found.missing) == {("s", "c")}
    found = catalog_rebuild.find(new.lake, [("s", "c")])
    assert not found.missing
    catalog_rebuild.register(new.lake, found.pointers)
    assert ("s", "c") not in new.pointers()
    assert new.read("a") == [1, 2]


def test_only_an_empty_sql_catalog_with_a_ledger_is_rebuilt(bench: Bench) -> None:
    with pytest.raises(CatalogError, match="no metadata file of the table publishes"):
        catalog_rebuild.find(bench.lake)
    published(bench)
    before = bench.pointers()
    for refused in (
        lambda: catalog_rebuild.find(bench.lake),
        lambda: catalog_rebuild.register(bench.lake, ()),
    ):
        with pytest.raises(ConfigError, match="Only an empty catalog is rebuilt"):
            refused()
    assert bench.pointers() == before
    assert SIDE not in bench.lake.schemas()
