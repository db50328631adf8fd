"""The changes that a check of `main` finds, and the restored state."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from helpers.bench import BRANCH, RUN, Bench, values

from sparkwap.catalog.files import local_path
from sparkwap.catalog.model import Identifier
from sparkwap.catalog.planning import Differs
from sparkwap.catalog.sql_backend import SqlBackend
from sparkwap.gate.net import GONE, MAIN, NEW, REPLACED
from sparkwap.runs.watched import MainWatch
from sparkwap.runs.watching import Watch

GATED = {"write.wap.enabled": "true"}
PREY = ("s", "prey")


@pytest.fixture
def prey(bench: Bench) -> Identifier:
    return bench.table("prey", 1, **GATED)


def watch(bench: Bench, *project: Identifier) -> Watch:
    lake = bench.lake
    return Watch(lake.store, lambda: lake.ledger, project, run_id=RUN, branch=BRANCH)


def net(bench: Bench, *project: Identifier) -> MainWatch:
    return MainWatch(watch(bench, *project), RUN)


def own(bench: Bench, *ids: int) -> None:
    """Append a row of the run that bypasses the gate."""
    table = bench.lake.catalog.load_table(PREY)
    table.append(values(*ids), snapshot_properties={"wap_run": RUN})


def rows(bench: Bench) -> list[int]:
    table = bench.lake.catalog.load_table(PREY)
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def test_rows_of_the_run_are_removed_and_rows_of_others_stay(
    bench: Bench, prey: Identifier
) -> None:
    main = net(bench)
    bench.write(prey, 2, branch="main")
    own(bench, 99)
    (caught,) = main.check(always=True)
    assert (caught.identifier, caught.back) == (PREY, True)
    assert "has this run's id" in caught.message
    assert rows(bench) == [1, 2]
    assert main.check(always=True) == []


def test_rows_of_others_on_top_stop_the_restoration(bench: Bench, prey: Identifier) -> None:
    main = net(bench)
    own(bench, 99)
    bench.write(prey, 2, branch="main")
    (caught,) = main.check(always=True)
    assert not caught.back
    assert "of another writer" in caught.message
    assert rows(bench) == [1, 2, 99]


def test_restoration_while_others_write(bench: Bench, prey: Identifier) -> None:
    """The restoration is staged from the present state, not from the state of the check."""
    seen = watch(bench)
    own(bench, 99)
    ((change, before, _),) = seen.changes()
    bench.write(prey, 2, branch="main")
    with pytest.raises(Differs, match="of another writer"):
        seen.put_back(PREY, before, {change.writers[0].snapshot_id})
    assert rows(bench) == [1, 2, 99]


@pytest.mark.parametrize(("writes", "back", "left"), [(1, True, [1]), (9, False, [1, 97, 98, 99])])
def test_main_is_checked_again_if_the_run_writes_during_the_restoration(
    bench: Bench, prey: Identifier, writes: int, back: bool, left: list[int]
) -> None:
    seen = watch(bench)
    put_back, more = seen.put_back, iter([98, 97, 96, 95, 94][:writes])

    def slowly(*given: Any) -> Any:
        for one in itertools.islice(more, 1):
            own(bench, one)
        return put_back(*given)

    seen.put_back = slowly  # type: ignore[method-assign]
    main = MainWatch(seen, RUN)
    own(bench, 99)
    (caught,) = main.check(always=True)
    assert caught.back is back
    assert set(rows(bench)) >= set(left) if not back else rows(bench) == left


def test_changes_of_others_are_accepted(bench: Bench, prey: Identifier) -> None:
    main = net(bench)
    main.sent("model.x", "insert into s.prey select 1")
    main.answered()
    bench.write(prey, 2, branch="main")
    bench.candidate("prey", 3)
    with bench.lake.catalog.load_table(prey).update_schema() as update:
        update.union_by_name(pa.schema({"extra": pa.string()}))
    assert main.check() == []
    assert rows(bench) == [1, 2]


def test_branches_tags_and_rows_on_them_are_no_changes(bench: Bench, prey: Identifier) -> None:
    seen = watch(bench)
    bench.candidate("prey", 2)
    assert seen.changes() == []


def test_a_dropped_table_is_restored(bench: Bench, prey: Identifier) -> None:
    bench.candidate("prey", 2)
    before = bench.state(prey).metadata_location
    main = net(bench)
    main.sent("model.x", "drop table s.prey")
    bench.lake.catalog.drop_table(prey)
    main.answered()
    (caught,) = main.check()
    assert caught.back
    assert GONE in caught.message
    assert bench.state(prey).metadata_location == before


def test_a_check_of_the_named_tables_keeps_the_commands_for_the_next_full_check(
    bench: Bench, prey: Identifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SqlBackend, "atomic", False)  # each table costs a request
    other = bench.table("other", 1, **GATED)
    main = net(bench, prey, other)
    main.sent("model.p.m", "alter table prey rename to s.other_prey")
    bench.lake.catalog.drop_table(PREY)
    main.answered()
    assert main.check() == [], "the statement names `prey` without its schema"
    (caught,) = main.check(always=True)
    assert (caught.identifier, caught.node, caught.back) == (PREY, "model.p.m", True)
    assert rows(bench) == [1]


@pytest.mark.parametrize("left", ["metadata", "nothing"])
def test_a_drop_is_judged_after_its_statement_has_ended(
    bench: Bench, prey: Identifier, left: str
) -> None:
    """Its files are deleted after the table, so a table restored meanwhile would lack them."""
    location = local_path(bench.lake.catalog.load_table(prey).location())
    assert location is not None
    main = net(bench)
    main.sent("model.x", "drop table s.prey purge")
    bench.lake.catalog.drop_table(prey)
    assert main.check() == []
    for file in location.rglob("*.avro" if left == "metadata" else "*.*"):
        file.unlink()
    main.answered()
    (caught,) = main.check()
    assert not caught.back
    assert "as after a purge" in caught.message
    assert bench.lake.state(prey) is None


def test_a_drop_that_keeps_the_files_is_undone_after_its_end(
    bench: Bench, prey: Identifier
) -> None:
    main = net(bench)
    main.sent("model.x", "drop table s.prey")
    bench.lake.catalog.drop_table(prey)
    assert main.check() == []
    main.answered()
    (caught,) = main.check()
    assert caught.back
    assert rows(bench) == [1]


def test_a_replacing_table_is_removed(bench: Bench, prey: Identifier) -> None:
    before = bench.state(prey).metadata_location
    main = net(bench)
    bench.lake.catalog.drop_table(prey)
    bench.table("prey", **GATED)
    own(bench, 99)
    (caught,) = main.check(always=True)
    assert caught.back
    assert REPLACED in caught.message
    assert bench.state(prey).metadata_location == before


def test_a_new_table_counts_as_a_change_if_the_project_builds_it(bench: Bench) -> None:
    for project, found in (((), []), ((PREY,), [NEW])):
        seen = watch(bench, *project)
        bench.table("prey", 1)
        assert [change.what[0] for change, _, _ in seen.changes()] == found
        bench.lake.catalog.drop_table(PREY)


def test_schema_receipts_and_gate_are_restored(bench: Bench, prey: Identifier) -> None:
    table = bench.lake.catalog.load_table(prey)
    table.manage_snapshots().create_tag(
        table.current_snapshot().snapshot_id, "wap_pub_1a2b3c4d"
    ).commit()
    before = bench.state(prey)
    main = net(bench)
    main.sent("model.x", "alter table s.prey ...")
    table = bench.lake.catalog.load_table(prey)
    with table.update_schema() as update:
        update.rename_column("id", "code")
    table.manage_snapshots().remove_tag("wap_pub_1a2b3c4d").commit()
    with table.transaction() as transaction:
        transaction.remove_properties("write.wap.enabled")
    main.answered()
    (caught,) = main.check()
    assert caught.back
    after = bench.state(prey)
    assert (after.columns, after.refs, after.main) == (before.columns, before.refs, before.main)
    assert after.properties["write.wap.enabled"] == "true"


def test_another_current_snapshot_is_undone(bench: Bench, prey: Identifier) -> None:
    bench.write(prey, 2, branch="main")
    before = bench.state(prey)
    first = bench.lake.histories([PREY])[PREY].log[0][1]
    main = net(bench)
    main.sent("model.x", f"call lake.system.rollback_to_snapshot('s.prey', {first})")
    bench.lake.catalog.load_table(prey).manage_snapshots().set_current_snapshot(first).commit()
    main.answered()
    (caught,) = main.check()
    assert caught.back
    assert MAIN in caught.message
    assert bench.state(prey).main == before.main
    assert rows(bench) == [1, 2]


def test_own_rows_that_main_has_left_are_not_restored(bench: Bench, prey: Identifier) -> None:
    table = bench.lake.catalog.load_table(PREY)
    first = table.metadata.current_snapshot_id
    table.append(values(2))
    main = net(bench)
    main.sent("model.x", "begin insert into s.prey values (9); call set_current(...); end")
    own(bench, 9)
    table = bench.lake.catalog.load_table(PREY)
    table.manage_snapshots().set_current_snapshot(first).commit()
    assert rows(bench) == [1]
    main.answered()
    (caught,) = main.check()
    assert caught.back
    assert rows(bench) == [1, 2]


def test_the_catalog_is_not_read_without_a_command(bench: Bench, prey: Identifier) -> None:
    main = net(bench)
    main.sent("model.x", "select 1")
    own(bench, 99)
    assert main.check() == []
    assert len(main.check(always=True)) == 1
