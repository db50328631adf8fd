"""The readers of ``analyses/readers``, without Spark: what each engine sees of each state.

What is said of the engines in ``docs/readers.md`` is held here and in
``tests/functional/readers``.
"""

from __future__ import annotations

import gzip
import inspect
import runpy
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from helpers.engines import ENGINES, FOLDER, Engines
from helpers.engines import engines as all_engines
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.types import StringType

TAG, BRANCH = "wap_pub_1a2b3c4d", "pr_1"
FIRST = [{"id": 1}, {"id": 2}]
ON_BRANCH = [*FIRST, {"id": 9}]
NOW = [{"id": 1, "note": None}, {"id": 2, "note": None}, {"id": 3, "note": "x"}]
BESIDE = [{"id": 5, "more": 1.5}]


@pytest.fixture(scope="module")
def engines() -> Iterator[Engines]:
    with all_engines() as found:
        yield found


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
    compress_metadata(catalog, "shop.orders")
    catalog.create_namespace(f"shop__{BRANCH}")
    beside = pa.table({"id": pa.array([5], pa.int64()), "more": [1.5]})
    catalog.create_table(f"shop__{BRANCH}.totals", beside.schema).append(beside)
    return SimpleNamespace(folder=folder, catalog=catalog, then=then, on_branch=on_branch)


def compress_metadata(catalog: Catalog, name: str) -> None:
    """Compress a table's metadata file as `sparkwap maintain` does where metadata are large."""
    plain = catalog.load_table(name).metadata_location.removeprefix("file://")
    packed = plain.replace(".metadata.json", ".gz.metadata.json")
    Path(packed).write_bytes(gzip.compress(Path(plain).read_bytes()))
    catalog.drop_table(name)
    catalog.register_table(name, packed)


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def table_of(lake: SimpleNamespace) -> Any:
    catalog: Catalog = lake.catalog
    return catalog.load_table("shop.orders")


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_sees_every_state(
    lake: SimpleNamespace, engines: Engines, engine: str
) -> None:
    for arguments, rows in (
        (["shop.orders"], NOW),
        (["shop.orders", "--tag", TAG], FIRST),
        (["shop.orders", "--branch", BRANCH], ON_BRANCH),
        (["shop.totals", "--branch", BRANCH], BESIDE),
        (["shop.orders", "--as-of", lake.then.isoformat()], FIRST),
        # The branch was written by then; main was not.
        (["shop.orders", "--as-of", lake.on_branch.isoformat()], FIRST),
    ):
        assert engines.rows(engine, *engines.find(lake.folder, *arguments)) == rows, arguments


@pytest.mark.parametrize(
    "state", [["--branch", "pr_2"], ["--tag", "wap_pub_00000000"], ["--as-of", "2020-01-01"]]
)
def test_a_state_that_is_not_there_is_no_look_at_main(
    lake: SimpleNamespace, engines: Engines, state: list[str]
) -> None:
    with pytest.raises(SystemExit, match="has no such state"):
        engines.find(lake.folder, "shop.orders", *state)


# ---------------------------------------------------------------- facts that the docs name


def test_polars_is_told_of_a_state_by_its_snapshot_alone(engines: Engines) -> None:
    parameters = inspect.signature(engines.module("polars").scan_iceberg).parameters
    assert not {"branch", "tag", "ref", "timestamp"} & set(parameters)


def test_duckdb_takes_the_name_of_a_branch_and_reads_main(
    lake: SimpleNamespace, engines: Engines
) -> None:
    connection, table = engines.module("with_duckdb").connect(), table_of(lake)
    query = f"select id from iceberg_scan(?, version := '{BRANCH}') order by id"
    found = connection.execute(query, [table.metadata_location]).fetchall()
    assert found == [(1,), (2,), (3,)]


def test_duckdb_goes_by_time_along_main(lake: SimpleNamespace, engines: Engines) -> None:
    connection, table = engines.module("with_duckdb").connect(), table_of(lake)
    moment = lake.on_branch.replace(tzinfo=None).isoformat(sep=" ")
    query = f"select id from iceberg_scan(?, snapshot_from_timestamp := timestamp '{moment}')"
    assert sorted(connection.execute(query, [table.metadata_location]).fetchall()) == [(1,), (2,)]


def test_duckdb_shows_decimals_and_times_as_they_are(
    lake: SimpleNamespace, engines: Engines
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
        assert engines.rows(engine, table, snapshot) == [row], engine


@pytest.mark.parametrize("script", ["pyiceberg", "pandas", "polars", "duckdb"])
def test_the_scripts_print_what_they_read(
    lake: SimpleNamespace,
    engines: Engines,
    script: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    arguments = ["shop.totals", "--branch", BRANCH, "--lake", str(lake.folder)]
    monkeypatch.setattr("sys.argv", ["reader", *arguments])
    runpy.run_path(str(FOLDER / f"with_{script}.py"), run_name="__main__")
    assert "1.5" in capfd.readouterr().out
