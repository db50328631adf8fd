"""States, schemas, audit branches, clones, discard."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import (
    DecimalType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from sparkwap.catalog.model import ColumnState, OpenedBranch, SideObject
from sparkwap.core.errors import CatalogError, ConfigError
from sparkwap.publish.lake import Lake

BRANCH, SIDE = "pr_1", "s__pr_1"
Bench = Any


def test_relations_distinguishes_views_from_tables(bench: Bench) -> None:
    bench.table("t")
    bench.view("v", "select 1", schema="s")
    assert bench.lake.relations("s") == {"t": "table", "v": "view"}
    assert bench.lake.relations("nothing") == {}


def test_pyiceberg_does_not_list_a_view_as_a_table(bench: Bench) -> None:
    bench.view("v", "select 1", schema="s")
    assert bench.lake.catalog.list_tables("s") == []


def test_state_uses_terms_of_spark_sql(bench: Bench) -> None:
    struct = StructType(NestedField(7, "a", LongType(), required=False))
    schema = Schema(
        NestedField(1, "id", LongType(), required=True, doc="the key"),
        NestedField(2, "at", TimestamptzType()),
        NestedField(3, "local", TimestampType()),
        NestedField(4, "price", DecimalType(10, 2)),
        NestedField(5, "many", ListType(6, struct, element_required=False)),
        NestedField(8, "named", MapType(9, StringType(), 10, LongType(), value_required=False)),
        NestedField(11, "odd name", StringType()),
    )
    spec = PartitionSpec(
        PartitionField(2, 1000, DayTransform(), "day"),
        PartitionField(1, 1001, BucketTransform(16), "bucket"),
        PartitionField(11, 1002, IdentityTransform(), "odd"),
    )
    order = SortOrder(SortField(1, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST))
    bench.lake.catalog.create_table(
        ("s", "t"), schema, None, spec, order, {"comment": "all types", "k": "v"}
    )
    state = bench.state(("s", "t"))
    assert [(c.name, c.type) for c in state.columns] == [
        ("id", "bigint"),
        ("at", "timestamp"),
        ("local", "timestamp_ntz"),
        ("price", "decimal(10,2)"),
        ("many", "array<struct<a:bigint>>"),
        ("named", "map<string,bigint>"),
        ("odd name", "string"),
    ]
    assert state.columns[0] == ColumnState("id", "bigint", True, "the key")
    assert state.partitioning == ("days(at)", "bucket(16, id)", "`odd name`")
    assert state.sort_order == ("id desc nulls last",)
    assert (state.comment, state.properties["k"], state.format_version) == ("all types", "v", 2)
    assert (state.main, dict(state.refs)) == (None, {})


def test_states_returns_existing_tables_only(bench: Bench) -> None:
    bench.table("a", 1)
    bench.table("b", 1)
    found = bench.lake.states([("s", "a"), ("s", "b"), ("s", "c")])
    assert set(found) == {("s", "a"), ("s", "b")}


def test_state_of_a_view(bench: Bench) -> None:
    bench.view("v", "select 1 as id", schema="s")
    state = bench.state(("s", "v"))
    assert (state.kind, state.main, state.comment) == ("view", None, "a view")
    assert state.columns == (ColumnState("id", "bigint", False, None),)


def test_snapshot_summary(bench: Bench) -> None:
    table = bench.table("t", 1)
    main = bench.state(table).main
    assert bench.lake.snapshot_summary(table, main)["operation"] == "append"
    with pytest.raises(CatalogError, match="no snapshot 5"):
        bench.lake.snapshot_summary(table, 5)


def test_the_type_column_is_added_to_an_older_catalog(tmp_path: Any) -> None:
    path = tmp_path / "catalog.db"
    with sqlite3.connect(path) as connection:
        connection.execute(
            "create table iceberg_tables (catalog_name varchar(255) not null, table_namespace "
            "varchar(255) not null, table_name varchar(255) not null, metadata_location "
            "varchar(1000), previous_metadata_location varchar(1000), "
            "primary key (catalog_name, table_namespace, table_name))"
        )
        connection.execute("insert into iceberg_tables values ('lake', 's', 'old', '/x', null)")
    lake = Lake("lake", {"uri": f"sqlite:///{path}", "warehouse": str(tmp_path)})
    assert lake.relations("s") == {"old": "table"}


def test_two_lakes_may_start_at_once(tmp_path: Any) -> None:
    failures: list[Exception] = []

    def start() -> None:
        try:
            Lake("lake", {"uri": f"sqlite:///{tmp_path}/x/c.db", "warehouse": str(tmp_path)})
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"type": "nessie", "uri": "x", "warehouse": "y"}, "'nessie' is not supported"),
        ({"warehouse": "y"}, "'uri'"),
        ({"uri": "sqlite://"}, "'warehouse'"),
        ({"uri": "mysql+pymysql://me:pw@h/db", "warehouse": "y"}, "SQLite .* or a PostgreSQL"),
        ({"type": "hive", "uri": "thrift://x:1"}, "'warehouse'"),
        ({"type": "glue"}, "'warehouse'"),
    ],
)
def test_bad_properties(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Lake("lake", properties)


def test_the_error_names_an_unreachable_database(tmp_path: Any) -> None:
    (tmp_path / "file").write_text("no database, but long enough to be looked at as one" * 100)
    with pytest.raises(CatalogError, match="not a database"):
        Lake("lake", {"uri": f"sqlite:///{tmp_path}/file", "warehouse": str(tmp_path)})


def test_open_branch_starts_at_main_and_gates_the_table(bench: Bench) -> None:
    table = bench.table("t", 1)
    main = bench.state(table).main
    assert bench.lake.branches.open(table, BRANCH) == OpenedBranch(main, main, True)
    state = bench.state(table)
    assert state.refs[BRANCH].snapshot_id == state.refs["wap_base_pr_1"].snapshot_id == main
    assert state.properties["write.wap.enabled"] == "true"


def test_open_branch_again_finds_base_and_head(bench: Bench) -> None:
    table = bench.table("t", 1)
    base = bench.state(table).main
    bench.lake.branches.open(table, BRANCH)
    head = bench.write(table, 2)
    before = bench.pointers()
    assert bench.lake.branches.open(table, BRANCH) == OpenedBranch(base, head, False)
    assert bench.pointers() == before


def test_open_branch_starts_again_after_main_has_moved(bench: Bench) -> None:
    table = bench.table("t", 1)
    bench.lake.branches.open(table, BRANCH)
    bench.write(table, 2)
    main = bench.write(table, 3, branch="main")
    assert bench.lake.branches.open(table, BRANCH) == OpenedBranch(main, main, True)
    assert bench.read("t", BRANCH) == [1, 3]


def test_open_branch_of_an_empty_table_that_got_rows(bench: Bench) -> None:
    table = bench.table("t")
    bench.lake.branches.open(table, BRANCH)
    main = bench.write(table, 3, branch="main")
    assert bench.lake.branches.open(table, BRANCH) == OpenedBranch(main, main, True)
    assert "wap.base.pr_1" not in bench.state(table).properties


@pytest.mark.parametrize("kind", ["branch", "tag"])
def test_open_branch_does_not_change_refs_of_users(bench: Bench, kind: str) -> None:
    table = bench.table("t", 1)
    snapshots = bench.lake.catalog.load_table(table).manage_snapshots()
    getattr(snapshots, f"create_{kind}")(bench.state(table).main, BRANCH).commit()
    with pytest.raises(CatalogError, match=f"has a {kind} named pr_1 that no run has opened"):
        bench.lake.branches.open(table, BRANCH)


def test_a_branch_of_a_user_is_neither_forgotten_nor_discarded(bench: Bench) -> None:
    table = bench.table("t", 1)
    for name in (BRANCH, "wap_mine"):
        snapshots = bench.lake.catalog.load_table(table).manage_snapshots()
        snapshots.create_branch(bench.state(table).main, name).commit()
    head = bench.write(table, 7)
    with pytest.raises(CatalogError, match="has a branch named pr_1 that no run has opened"):
        bench.lake.branches.require_own([table], BRANCH)
    bench.lake.branches.require_own([table], "pr_2")
    assert not bench.lake.branches.forget(table, BRANCH)
    assert bench.lake.branches.discard(BRANCH).tables == ()
    assert bench.lake.branches.discard("wap_mine").tables == ()
    refs = bench.state(table).refs
    assert (refs[BRANCH].snapshot_id, "wap_mine" in refs) == (head, True)


def test_open_branch_of_an_empty_table(bench: Bench) -> None:
    table = bench.table("t")
    assert bench.lake.branches.open(table, BRANCH) == OpenedBranch(None, None, True)
    assert bench.lake.branches.open(table, BRANCH) == OpenedBranch(None, None, False)
    (found,) = bench.lake.branches.all()
    assert (found.branch, found.tables[0].base, found.tables[0].head) == (BRANCH, None, None)
    bench.lake.branches.discard(BRANCH)
    assert bench.lake.branches.all() == []


def test_open_branch_refuses_views_and_missing_tables(bench: Bench) -> None:
    bench.view("v", "select 1", schema="s")
    with pytest.raises(CatalogError, match=r"s\.v is a view"):
        bench.lake.branches.open(("s", "v"), BRANCH)
    with pytest.raises(CatalogError, match=r"s\.x does not exist"):
        bench.lake.branches.open(("s", "x"), BRANCH)


def test_many_branches_at_once_on_one_table(bench: Bench) -> None:
    table = bench.table("t", 1)
    names = [f"b{number}" for number in range(12)]
    threads = [threading.Thread(target=bench.lake.branches.open, args=(table, n)) for n in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(names) <= set(bench.state(table).refs)


def test_clone_does_not_change_the_table(bench: Bench) -> None:
    table = bench.table("t", 1, 2, **{"gc.enabled": "true"})
    before = bench.pointers()[table]
    clone = bench.lake.branches.clone(table, SIDE, {"k": "v"})
    assert bench.pointers()[table] == before
    assert (clone.identifier, clone.uuid) == ((SIDE, "t"), bench.state(table).uuid)
    assert clone.properties["write.wap.enabled"] == "false"
    assert clone.properties["gc.enabled"] == "false"
    assert clone.properties["k"] == "v"
    assert clone.properties["wap.base-metadata"] == before
    bench.changed("t", 9)
    assert (bench.read("t"), bench.read("t", schema=SIDE)) == ([1, 2], [9])


def test_clone_keeps_an_existing_clone_on_the_same_base(bench: Bench) -> None:
    table = bench.table("t", 1)
    first = bench.lake.branches.clone(table, SIDE)
    bench.lake.branches.open(table, "other")
    assert bench.lake.branches.clone(table, SIDE) == first
    bench.write(table, 2, branch="main")
    assert bench.lake.branches.clone(table, SIDE).main == bench.state(table).main


def test_clone_does_not_replace_another_table(bench: Bench) -> None:
    bench.new("t", 5)
    table = bench.table("t", 1)
    with pytest.raises(CatalogError, match=r"s__pr_1\.t in the side schema is not a clone"):
        bench.lake.branches.clone(table, SIDE)


def test_discard_drops_everything_that_exists_only_on_the_branch(bench: Bench) -> None:
    bench.table("a", 1)
    bench.table("c", 1, 2)
    bench.candidate("a", 2)
    bench.lake.branches.open(("s", "a"), "other")
    bench.changed("c", 3)
    bench.new("n", 4)
    bench.view("v", "select 1")
    discarded = bench.lake.branches.discard(BRANCH)
    assert discarded.tables == (("s", "a"),)
    assert discarded.side == tuple(
        SideObject((SIDE, name), kind)
        for name, kind in [("c", "table"), ("n", "table"), ("v", "view")]
    )
    assert (discarded.schemas, discarded.kept) == ((SIDE,), ())
    assert set(bench.state(("s", "a")).refs) == {"main", "other", "wap_base_other"}
    assert "s__pr_1" not in bench.lake.schemas()
    assert not any("n-1a2b3c4d" in file or "s__pr_1" in file for file in bench.files())
    assert (bench.read("a"), bench.read("c")) == ([1], [1, 2])
    assert bench.lake.branches.discard(BRANCH).tables == ()


def test_a_damaged_table_does_not_stop_the_branches_of_others(bench: Bench) -> None:
    bench.table("a", 1)
    bench.candidate("a", 2)
    bench.table("damaged", 1)
    bench.new("n", 4)
    for name in (("s", "damaged"), (SIDE, "n")):
        Path(bench.state(name).metadata_location.removeprefix("file://")).unlink()
    lake = Lake("lake", bench.properties)  # that has read nothing yet
    assert [table.identifier for table in lake.branches.all()[0].tables] == [("s", "a")]
    assert list(lake.unreadable()) == [("s", "damaged"), (SIDE, "n")]
    assert lake.branches.discard(BRANCH).tables == (("s", "a"),)
    assert lake.branches.all() == [] and bench.read("a") == [1]


def test_discard_of_a_clone_keeps_the_files_of_its_dropped_table(bench: Bench) -> None:
    table = bench.table("c", 1, 2)
    files = bench.files()
    bench.lake.branches.clone(table, SIDE)
    bench.lake.catalog.drop_table(table)
    bench.lake.branches.discard(BRANCH)
    assert files <= bench.files()


def test_discard_keeps_a_folder_that_another_table_uses(bench: Bench) -> None:
    bench.table("c", 1)
    bench.lake.ensure_schema(SIDE, BRANCH)
    around = f"{bench.folder}/warehouse/s"
    bench.lake.catalog.create_table((SIDE, "n"), pa.schema({"id": pa.int64()}), location=around)
    bench.lake.branches.discard(BRANCH)
    assert bench.read("c") == [1]


def test_a_branch_with_an_empty_side_schema_is_open(bench: Bench) -> None:
    bench.lake.ensure_schema(SIDE, BRANCH)
    (found,) = bench.lake.branches.all()
    assert (found.branch, found.tables, found.side) == (BRANCH, (), ())
    bench.lake.branches.discard(BRANCH)
    assert bench.lake.branches.all() == []


def test_writers_that_read_first_wait_for_each_other(bench: Bench) -> None:
    bench.table("t", 1)
    rows, failures = bench.lake.store.backend, []

    def read_then_write() -> None:
        try:
            with rows.transaction() as connection:
                connection.exec_driver_sql("select count(*) from iceberg_tables").all()
                time.sleep(0.05)
                connection.exec_driver_sql("update iceberg_tables set table_name = table_name")
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=read_then_write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_discard_does_not_drop_a_schema_of_a_user(bench: Bench) -> None:
    bench.lake.ensure_schema("acme__staging")
    bench.table("t", 1, schema="acme__staging")
    discarded = bench.lake.branches.discard("staging")
    assert (discarded.kept, discarded.schemas) == (("acme__staging",), ())
    assert bench.read("t", schema="acme__staging") == [1]


def test_a_side_schema_of_a_run_is_recognized_by_its_name(bench: Bench) -> None:
    bench.lake.ensure_schema("s__wap_1a2b3c4d")
    assert bench.lake.branches.discard("wap_1a2b3c4d").schemas == ("s__wap_1a2b3c4d",)


def test_drop_schema(bench: Bench) -> None:
    bench.table("c", 1)
    bench.changed("c", 3)
    bench.new("n", 4)
    bench.lake.drop_schema(SIDE, purge=True)
    assert bench.lake.relations(SIDE) == {}
    assert bench.read("c") == [1]
    assert not any("n-1a2b3c4d" in file for file in bench.files())
    bench.lake.drop_schema(SIDE, purge=True)


def test_all_returns_the_open_branches(bench: Bench) -> None:
    bench.table("a", 1)
    bench.table("b", 1)
    item = bench.candidate("a", 2)
    bench.write(("s", "a"), 7, branch="main")
    bench.new("n", 4)
    bench.lake.branches.open(("s", "b"), "other")
    other, ours = bench.lake.branches.all()
    assert (other.branch, ours.branch) == ("other", BRANCH)
    (table,) = ours.tables
    assert (table.identifier, table.base, table.head) == (("s", "a"), item.base, item.head)
    assert table.main_now == bench.state(("s", "a")).main
    assert table.created_ms > 1_600_000_000_000
    assert ours.side == (SideObject((SIDE, "n"), "table"),)


def test_a_table_of_format_version_3_keeps_all_its_fields(bench: Bench) -> None:
    bench.lake.catalog.create_table(
        ("s", "t"), pa.schema({"id": pa.int64()}), properties={"format-version": "2"}
    )
    row = bench.lake.store.backend.get(("s", "t"))
    document = dict(bench.lake.store.load(row.location))
    document |= {"format-version": 3, "next-row-id": 7, "encryption-keys": [{"key-id": "x"}]}
    location = row.location.replace("00000", "00001")
    bench.lake.store.write({location: document})
    from sparkwap.catalog.pointers import Pointer, PointerUpdate

    bench.lake.store.backend.apply([PointerUpdate(row, Pointer(row.identifier, "table", location))])
    bench.lake.branches.open(("s", "t"), BRANCH)
    state = bench.state(("s", "t"))
    grown = bench.lake.store.load(state.metadata_location)
    assert (state.format_version, grown["next-row-id"]) == (3, 7)
    assert grown["encryption-keys"] == [{"key-id": "x"}]


def test_the_history_of_a_table_and_its_former_columns(bench: Bench) -> None:
    orders = bench.table("orders", 1)
    first = bench.head(orders, "main")
    bench.publish(bench.changed("orders", 2))
    second = bench.head(orders, "main")
    bench.view("newest", "select 1", schema="s")
    found = bench.lake.histories([orders, ("s", "newest"), ("s", "gone")])
    assert set(found) == {orders, ("s", "newest")}
    assert found["s", "newest"].kind == "view"
    past = found[orders]
    assert (past.main, [one for _, one in past.log]) == (second, [first, second])
    assert past.has(first)
    assert not past.has(1)
    assert [c.name for c in bench.lake.columns_at(orders, first)] == ["id"]
    assert [c.name for c in bench.lake.columns_at(orders, second)] == ["id", "extra"]


def test_a_cut_history_is_marked(bench: Bench) -> None:
    orders = bench.table("orders", 1)
    first = bench.head(orders, "main")
    assert not bench.lake.histories([orders])[orders].cut
    table = bench.lake.catalog.load_table(orders)
    table.append(table.scan().to_arrow())
    table.maintenance.expire_snapshots().by_id(first).commit()
    past = bench.lake.histories([orders])[orders]
    assert past.cut
    assert not past.has(first)


def test_most_rows_are_those_of_the_largest_branch(bench: Bench) -> None:
    table = bench.table("t", 1, 2)
    bench.write(table, 3, 4, 5)

    def found() -> float:
        return bench.lake.most_rows(bench.lake.locations([table])[table][1])

    assert found() == 3
    bench.write(table, *range(10), branch="main")
    assert found() == 12
    assert bench.lake.most_rows(bench.lake.locations([bench.table("new")])["s", "new"][1]) == 0
