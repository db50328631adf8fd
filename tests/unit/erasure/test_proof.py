"""The reader finds what is planted, wherever it is planted."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkwap.catalog import Lake
from sparkwap.erasure import avro
from sparkwap.erasure.plan import Place
from sparkwap.erasure.proof import Owned, Scanner, scan
from sparkwap.erasure.search import Search

from .conftest import files

EMAIL = "anna.berg@mail.example"
SEARCH = Search.of(["42"], {"email": [EMAIL]}, [EMAIL])
PLACE = Place(("s", "people"), ("customer_id",), ("email",))
FIELDS = {1: "customer_id", 2: "email", 3: "city"}


def scanner(folder: str = "/w/s/people", place: Place | None = PLACE, **more: Any) -> Scanner:
    return Scanner(SEARCH, [Owned(("s", "people"), folder, place, FIELDS)], **more)


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("email", ["x@y.example", EMAIL]),
        ("remark", ["write to " + EMAIL, None]),
        ("customer_id", [41, 42]),
        ("inner", [{"to": EMAIL}, {"to": "x"}]),
        ("many", [[EMAIL], []]),
        ("map", pa.array([[("a", EMAIL)]], pa.map_(pa.string(), pa.string()))),
        ("bytes", [EMAIL.encode()]),
    ],
)
def test_values_of_data_files_are_found(column: str, values: Any) -> None:
    data = parquet(pa.table({column: values}))
    found = scanner().scan("/w/s/people/data/x.parquet", data)
    assert f"column {column}" in found.found
    assert found.table == ("s", "people")


def test_statistics_are_read_too() -> None:
    data = parquet(pa.table({"customer_id": [42, 50]}))
    found = scanner().scan("/w/s/people/data/x.parquet", data).found
    assert found == ("column customer_id", "statistics of column customer_id")


def test_a_short_key_elsewhere_is_something_else() -> None:
    data = parquet(pa.table({"amount": [42], "city": ["42"]}))
    assert scanner().scan("/w/s/people/data/x.parquet", data).found == ()


def test_a_name_inside_a_struct_is_another_column() -> None:
    data = parquet(pa.table({"basket": [{"customer_id": 42, "n": 1}]}))
    assert scanner().scan("/w/s/people/data/x.parquet", data).found == ()


def test_a_file_of_a_table_that_is_no_more_is_read_by_all_marks() -> None:
    data = parquet(pa.table({"customer_id": [42]}))
    assert scanner().scan("/w/s/gone/data/x.parquet", data).found != ()


def test_a_key_is_found_by_its_name_in_tables_without_marks() -> None:
    tables = [
        Owned(("s", "people"), "/w/s/people", PLACE),
        Owned(("s", "visits"), "/w/s/visits", None),
    ]
    data = parquet(pa.table({"customer_id": [42]}))
    found = Scanner(SEARCH, tables).scan("/w/s/visits/data/x.parquet", data)
    assert "column customer_id" in found.found


def test_a_renamed_column_is_known_by_its_id() -> None:
    column = pa.field("cust", pa.int64(), metadata={"PARQUET:field_id": "1"})
    data = parquet(pa.table([pa.array([42])], pa.schema([column])))
    assert "column customer_id" in scanner().scan("/w/s/people/data/x.parquet", data).found


def test_columns_may_be_left_out_by_request() -> None:
    data = parquet(pa.table({"email": [EMAIL]}))
    look = scanner(ignored=frozenset({"s.people.email"}))
    assert look.scan("/w/s/people/data/x.parquet", data).found == ()


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/w/s/people/metadata/v.metadata.json", json.dumps({"comment": EMAIL}).encode()),
        (
            "/w/s/people/metadata/v.gz.metadata.json",
            gzip.compress(
                json.dumps([{"summary": {"partitions.customer_id=42": "1"}}]).encode(), mtime=0
            ),
        ),
        ("/w/s/people/metadata/stats.puffin", b"PFA1\x00" + EMAIL.encode()),
        ("/w/server/server.log", f"select '{EMAIL}'".encode()),
        ("/w/s/people/data/customer_id=42/empty", b""),
        ("/w/s/people/data/torn.parquet", b"PAR1 torn"),
        ("/w/s/people/metadata/torn.avro", b"Obj\x01 torn"),
    ],
)
def test_everything_else_is_read_too(path: str, data: bytes) -> None:
    assert scanner().scan(path, data).found != ()


def test_bounds_of_manifests_are_found(lake: Lake, tmp_path: Path) -> None:
    state = lake.state(("s", "people"))
    assert state is not None
    look = scanner(state.location)
    # The least and the greatest e-mail address are somebody else's.
    search = Search.of(["41"], {"email": ["bo@mail.example"]}, [])
    found = {
        Path(path).name.rpartition("-")[2]: Scanner(search, look.tables).scan(
            path, Path(path).read_bytes()
        )
        for path in files(tmp_path)
    }
    manifest = found["m0.avro"]
    assert manifest.format == "avro"
    assert manifest.found == ("bound of column customer_id",)


def test_avro_is_read_without_its_writer(lake: Lake, tmp_path: Path) -> None:
    table = lake.catalog.load_table(("s", "people"))
    (manifest,) = table.current_snapshot().manifests(table.io)
    (entry,) = avro.read(Path(manifest.manifest_path).read_bytes()).records
    assert entry["status"] == 1
    assert entry["data_file"]["record_count"] == 3
    listed = avro.read(Path(table.current_snapshot().manifest_list).read_bytes())
    assert [one["manifest_path"] for one in listed.records] == [manifest.manifest_path]


def test_personal_values_are_collected_and_told_from_those_of_others(
    lake: Lake, tmp_path: Path
) -> None:
    state = lake.state(("s", "people"))
    assert state is not None
    place = Place(("s", "people"), ("customer_id",), ("email", "city"))
    look = Scanner(SEARCH, [Owned(("s", "people"), state.location, place, FIELDS)])
    (path,) = (path for path in files(tmp_path) if path.endswith(".parquet"))
    data = Path(path).read_bytes()
    assert look.collect(path, data) == {"email": {(EMAIL, True)}, "city": {("Oslo", True)}}
    own = {"email": frozenset({EMAIL}), "city": frozenset({"Oslo"})}
    assert look.shared(path, data, own) == {"city": {"Oslo"}}


def test_one_file_is_enough_to_spoil_the_proof(tmp_path: Path) -> None:
    paths = []
    for index in range(3):
        path = tmp_path / f"{index}.parquet"
        path.write_bytes(parquet(pa.table({"email": [EMAIL if index == 1 else "x@y.example"]})))
        paths.append(str(path))
    proof = scan(
        scanner(str(tmp_path)),
        paths,
        lambda path: Path(path).read_bytes(),
        lambda function, values: [function(value) for value in values],
    )
    assert not proof.clean
    assert [file.path for file in proof.holding] == [paths[1]]
    assert len(proof.files) == 3
