"""Files that can be loaded, and those that cannot."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkwap.load import LoadError, open_drop
from sparkwap.load.files import fits, fitted, misfits


def a_file(folder: Path, **columns: pa.Array) -> Path:
    path = folder / "drop.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def test_a_file_is_known_by_its_bytes(tmp_path: Path) -> None:
    path = a_file(tmp_path, id=pa.array([1, 2]))
    drop = open_drop(path)
    assert (drop.rows, drop.bytes, len(drop.sha256)) == (2, path.stat().st_size, 64)
    other = path.with_name("other.parquet")
    other.write_bytes(path.read_bytes())
    assert open_drop(other).sha256 == drop.sha256


def test_what_is_no_file_to_load(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="There is no file"):
        open_drop(tmp_path / "none.parquet")
    text = tmp_path / "text.parquet"
    text.write_text("id\n1\n")
    with pytest.raises(LoadError, match="is no Parquet file"):
        open_drop(text)
    with pytest.raises(LoadError, match="has no rows"):
        open_drop(a_file(tmp_path, id=pa.array([], pa.int64())))


def test_the_limit_is_that_of_the_values_not_of_the_packed_file(tmp_path: Path) -> None:
    # A few hundred bytes on the disk, many more in memory.
    path = tmp_path / "drop.parquet"
    values = pa.table({"a": ["x" * 100_000 + str(n) for n in range(100)]})
    pq.write_table(values, path, compression="zstd", use_dictionary=False)
    assert path.stat().st_size < 1_000_000
    with pytest.raises(LoadError, match="bytes of values, and a load takes 1,000,000"):
        open_drop(path, limit=1_000_000)
    assert open_drop(path, limit=100_000_000).rows == 100


def test_a_file_that_changes_meanwhile_is_not_loaded(tmp_path: Path) -> None:
    path = a_file(tmp_path, id=pa.array([1]))
    drop = open_drop(path)
    a_file(tmp_path, id=pa.array([2]))
    with pytest.raises(LoadError, match="changed while it was read"):
        drop.read()


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (pa.int32(), pa.int64()),
        (pa.uint32(), pa.int64()),
        (pa.float32(), pa.float64()),
        (pa.decimal128(10, 2), pa.decimal128(12, 2)),
        (pa.decimal128(10, 2), pa.decimal128(13, 4)),
        (pa.large_string(), pa.string()),
        (pa.dictionary(pa.int32(), pa.string()), pa.large_string()),
        (pa.timestamp("ns"), pa.timestamp("us")),
        (pa.timestamp("ms", "Europe/Berlin"), pa.timestamp("us", "UTC")),
        (pa.list_(pa.int32()), pa.large_list(pa.int64())),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.large_string(), pa.int64())),
        (pa.struct({"a": pa.int32()}), pa.struct({"a": pa.int64()})),
        (pa.null(), pa.string()),
    ],
)
def test_a_type_fits_where_no_value_changes(given: pa.DataType, wanted: pa.DataType) -> None:
    assert fits(given, wanted)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (pa.int64(), pa.int32()),
        (pa.uint64(), pa.int64()),
        (pa.float64(), pa.float32()),
        (pa.int64(), pa.float64()),
        (pa.string(), pa.int64()),
        (pa.int64(), pa.string()),
        (pa.decimal128(10, 2), pa.decimal128(10, 4)),
        (pa.decimal128(10, 4), pa.decimal128(12, 2)),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.date32(), pa.timestamp("us")),
        (pa.struct({"a": pa.int64()}), pa.struct({"b": pa.int64()})),
        (pa.list_(pa.int64()), pa.string()),
    ],
)
def test_a_type_does_not_fit_where_a_value_might(given: pa.DataType, wanted: pa.DataType) -> None:
    assert not fits(given, wanted)


def test_every_column_that_does_not_fit_is_told() -> None:
    file = pa.schema({"id": pa.string(), "more": pa.int64()})
    table = pa.schema({"id": pa.int64(), "amount": pa.float64()})
    assert misfits(file, table) == [
        "column more (int64) is not in the table",
        "column id is string, and int64 in the table",
        "column amount (double) is not in the file",
    ]
    twice = pa.schema([("id", pa.int64()), ("id", pa.int64())])
    assert misfits(twice, pa.schema({"id": pa.int64()})) == ["column id is there more than once"]


def test_rows_come_into_the_tables_order_and_types() -> None:
    table = pa.schema({"id": pa.int64(), "at": pa.timestamp("us"), "amount": pa.decimal128(12, 2)})
    rows = pa.table(
        {
            "amount": pa.array([Decimal("1.10")], pa.decimal128(10, 2)),
            "at": pa.array([datetime(2024, 1, 1)], pa.timestamp("ns")),
            "id": pa.array([1], pa.int32()),
        }
    )
    made = fitted(rows, table)
    assert made.schema == table
    assert made.to_pylist() == [
        {"id": 1, "at": datetime(2024, 1, 1), "amount": Decimal("1.10")},
    ]


def test_a_value_that_would_change_is_told() -> None:
    finer = pa.table({"at": pa.array([1], pa.timestamp("ns", "UTC"))})
    with pytest.raises(LoadError, match="Column at has a value that is no timestamp"):
        fitted(finer, pa.schema({"at": pa.timestamp("us", "UTC")}))
    whole = pa.table({"at": pa.array([1000], pa.timestamp("ns", "UTC"))})
    made = fitted(whole, pa.schema({"at": pa.timestamp("us", "UTC")}))
    assert made["at"].to_pylist() == [datetime(1970, 1, 1, 0, 0, 0, 1, UTC)]


def test_a_required_column_must_be_filled() -> None:
    table = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    with pytest.raises(LoadError, match="Column id is required, and 1 rows"):
        fitted(pa.table({"id": pa.array([1, None])}), table)
