"""The readers of ``analyses/readers``, without Spark: what each engine sees of each state.

What is said of the engines in ``docs/readers.md`` is held here and in
``tests/functional/readers``.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.types import StringType

FOLDER = Path(__file__).parents[2] / "analyses/readers"
ENGINES = ("pyiceberg", "pandas", "polars", "duckdb", "duckdb without its extension")
TAG, BRANCH = "wap_pub_1a2b3c4d", "pr_1"
FIRST = [{"id": 1}, {"id": 2}]
ON_BRANCH = [*FIRST, {"id": 9}]
NOW = [{"id": 1, "note": None}, {"id": 2, "note": None}, {"id": 3, "note": "x"}]
BESIDE = [{"id": 5, "more": 1.5}]

Read = Callable[[Any, int], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def modules() -> Iterator[Callable[[str], Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield importlib.import_module
    for name in ("lake", *(f"with_{engine}" for engine in ENGINES)):
        sys.modules.pop(name, None)


def reader(modules: Callable[[str], Any], engine: str) -> Read:
    """Reads rows, sorted, as an engine gives them."""
    name, _, without = engine.partition(" ")
    module = modules(f"with_{name}")

    def read(table: Any, snapshot: int) -> list[dict[str, Any]]:
        if name == "duckdb":
            connection = modules("duckdb").connect() if without else module.connect()
            assert module.has_extension(connection) == (not without)
            rows = module.read(connection, table, snapshot).to_arrow_table()
        else:
            rows = module.read(table, snapshot)
        if name == "polars":
            rows = rows.collect().to_arrow()
        if name == "pandas":
            rows = pa.Table.from_pandas(rows, preserve_index=False)
        return sorted(rows.to_pylist(), key=lambda row: row["id"])

    return read


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A table of two states, the first one tagged; a branch of it; another table beside it."""
    folder = tmp_path_factory.mktemp("lake")
    catalog = load_catalog(
        "lake",
        type="sql",
        uri=f"sqlite:///{folder}/catalog.db",
        warehouse=f"file://{folder}/warehouse",
    )
    catalog.create_namespace("shop")
    orders = catalog.create_table("shop.orders", ids().schema)
    orders.append(ids(1, 2))
    first = orders.current_snapshot().snapshot_id
    then = datetime.now(UTC)
    orders.manage_snapshots().create_tag(first, TAG).create_branch(first, BRANCH).commit()
    orders.append(ids(9), branch=BRANCH)
    on_branch = datetime.now(UTC)
    # Times are kept in milliseconds.
    time.sleep(0.01)
    with orders.update_schema() as update:
        update.add_column("note", StringType())
    orders.append(ids(3).append_column("note", pa.array(["x"])))
    catalog.create_namespace(f"shop__{BRANCH}")
    beside = pa.table({"id": pa.array([5], pa.int64()), "more": [1.5]})
    catalog.create_table(f"shop__{BRANCH}.totals", beside.schema).append(beside)
    return SimpleNamespace(folder=folder, catalog=catalog, then=then, on_branch=on_branch)


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def table_of(lake: SimpleNamespace) -> Any:
    catalog: Catalog = lake.catalog
    return catalog.load_table("shop.orders")


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_sees_every_state(
    lake: SimpleNamespace, modules: Callable[[str], Any], engine: str
) -> None:
    read, find = reader(modules, engine), modules("lake").find
    for arguments, rows in (
        (["shop.orders"], NOW),
        (["shop.orders", "--tag", TAG], FIRST),
        (["shop.orders", "--branch", BRANCH], ON_BRANCH),
        (["shop.totals", "--branch", BRANCH], BESIDE),
        (["shop.orders", "--as-of", lake.then.isoformat()], FIRST),
        # The branch was written by then; main was not.
        (["shop.orders", "--as-of", lake.on_branch.isoformat()], FIRST),
    ):
        asked = modules("lake").arguments([*arguments, "--lake", str(lake.folder)])
        assert read(*find(asked)) == rows, arguments


@pytest.mark.parametrize(
    "state", [["--branch", "pr_2"], ["--tag", "wap_pub_00000000"], ["--as-of", "2020-01-01"]]
)
def test_a_state_that_is_not_there_is_no_look_at_main(
    lake: SimpleNamespace, modules: Callable[[str], Any], state: list[str]
) -> None:
    asked = modules("lake").arguments(["shop.orders", *state, "--lake", str(lake.folder)])
    with pytest.raises(SystemExit, match="has no such state"):
        modules("lake").find(asked)


# ---------------------------------------------------------------- facts that the docs name


def test_polars_is_told_of_a_state_by_its_snapshot_alone(modules: Callable[[str], Any]) -> None:
    import inspect

    parameters = inspect.signature(modules("polars").scan_iceberg).parameters
    assert not {"branch", "tag", "ref", "timestamp"} & set(parameters)


def test_duckdb_takes_the_name_of_a_branch_and_reads_main(
    lake: SimpleNamespace, modules: Callable[[str], Any]
) -> None:
    connection, table = modules("with_duckdb").connect(), table_of(lake)
    query = f"select id from iceberg_scan(?, version := '{BRANCH}') order by id"
    found = connection.execute(query, [table.metadata_location]).fetchall()
    assert found == [(1,), (2,), (3,)]


def test_duckdb_goes_by_time_along_main(
    lake: SimpleNamespace, modules: Callable[[str], Any]
) -> None:
    connection, table = modules("with_duckdb").connect(), table_of(lake)
    moment = lake.on_branch.replace(tzinfo=None).isoformat(sep=" ")
    query = f"select id from iceberg_scan(?, snapshot_from_timestamp := timestamp '{moment}')"
    assert sorted(connection.execute(query, [table.metadata_location]).fetchall()) == [(1,), (2,)]


def test_duckdb_shows_decimals_and_times_as_they_are(
    lake: SimpleNamespace, modules: Callable[[str], Any]
) -> None:
    kinds = pa.schema(
        {
            "id": pa.int64(),
            "amount": pa.decimal128(10, 2),
            "at": pa.timestamp("us", "UTC"),
            "local": pa.timestamp("us"),
            "tags": pa.list_(pa.string()),
            "place": pa.struct({"x": pa.float64()}),
        }
    )
    from decimal import Decimal

    row = {
        "id": 1,
        "amount": Decimal("1.10"),
        "at": datetime(2024, 1, 1, 12, tzinfo=UTC),
        "local": datetime(2024, 1, 1, 12),
        "tags": ["a", "b"],
        "place": {"x": 0.5},
    }
    name = "shop.kinds"
    table = lake.catalog.create_table_if_not_exists(name, kinds)
    table.append(pa.Table.from_pylist([row], kinds))
    snapshot = table.current_snapshot().snapshot_id
    for engine in ENGINES:
        assert reader(modules, engine)(table, snapshot) == [row], engine
