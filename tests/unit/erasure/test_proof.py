"""The proof finds the subject in each format and place."""

from __future__ import annotations

import gzip
import io
import json
import unicodedata
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.people import files
from pyarrow import orc

from sparkwap.catalog import avro
from sparkwap.erasure.file_search import Owned
from sparkwap.erasure.proof import Proof, Scanner
from sparkwap.erasure.search import Search
from sparkwap.erasure.subject_tables import SubjectTable
from sparkwap.publish.lake import Lake

EMAIL = "anna.berg@mail.example"
SEARCH = Search.of(["42"], {"email": [EMAIL]}, [EMAIL])
PLACE = SubjectTable(("s", "people"), ("customer_id",), ("email",))
FIELDS = {1: "customer_id", 2: "email", 3: "city"}


def scanner(
    folder: str = "/w/s/people", place: SubjectTable | None = PLACE, **more: Any
) -> Scanner:
    return Scanner(SEARCH, [Owned(("s", "people"), [folder], place, FIELDS)], **more)


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


@pytest.mark.parametrize("at", [0, 99, 2_097_140, 2_000_001, 3_932_160, 4_999_000])
def test_a_large_file_is_read_in_parts(at: int, tmp_path: Path) -> None:
    class Reads(io.FileIO):
        largest = 0

        def read(self, size: int | None = -1) -> bytes:
            assert size is not None
            Reads.largest = max(Reads.largest, size)
            return super().read(size) or b""

    path = tmp_path / "server.log"
    path.write_bytes(b"." * at + EMAIL.encode() + b"." * (5_000_000 - at))
    data = pa.PythonFile(Reads(path), "r")
    assert scanner().scan(str(path), data).found == ("its bytes",)
    assert 0 < Reads.largest <= 2 << 20
    assert scanner().scan(str(path), pa.OSFile(str(path))).size == 5_000_000 + len(EMAIL)


@pytest.mark.parametrize(
    ("names", "fields"),
    [
        (("email", "email"), [EMAIL, "x"]),
        (("email", "Email"), [EMAIL, "x"]),
        (("s.email", "s"), [EMAIL, {"email": "x"}]),
        (("customer_id", "customer_id"), [42, 1]),
    ],
)
def test_columns_whose_names_orc_confuses_are_read(
    names: tuple[str, str], fields: list[Any]
) -> None:
    table = pa.Table.from_arrays([pa.array([one]) for one in fields], names=list(names))
    sink = io.BytesIO()
    orc.write_table(table, sink)
    found = scanner().scan("/w/s/people/data/x.orc", sink.getvalue()).found
    assert f"column {names[0]}" in found


def test_the_key_is_found_in_a_column_of_a_name_that_is_there_twice() -> None:
    table = pa.Table.from_arrays(
        [pa.array([42]), pa.array([1]), pa.array([EMAIL])],
        names=["customer_id", "customer_id", "email"],
    )
    sink = io.BytesIO()
    orc.write_table(table, sink)
    path = "/w/s/people/data/x.orc"
    assert scanner().collect(path, sink.getvalue()) == {"email": {(EMAIL, True)}}


def test_a_nested_column_does_not_hide_the_values_of_others() -> None:
    place = SubjectTable(("s", "people"), ("customer_id",), ("tags", "email"))
    tags = pa.array([["a"]], pa.list_(pa.string_view()))
    data = parquet(pa.table({"customer_id": [42], "tags": tags, "email": [EMAIL]}))
    found = scanner(place=place).collect("/w/s/people/data/x.parquet", data)
    assert found == {"tags": {("a", True)}, "email": {(EMAIL, True)}}


@pytest.mark.parametrize("values", [[1234567], [EMAIL.encode("utf-16")]])
def test_free_text_that_is_no_text_cannot_be_read(values: list[Any]) -> None:
    place = SubjectTable(("s", "people"), texts=("remark",))
    data = parquet(pa.table({"remark": values}))
    (found,) = scanner(place=place).scan("/w/s/people/data/x.parquet", data).found
    assert "cannot be read" in found


def test_statistics_are_read() -> None:
    data = parquet(pa.table({"customer_id": [42, 50]}))
    found = scanner().scan("/w/s/people/data/x.parquet", data).found
    assert found == ("column customer_id", "statistics of column customer_id")


def test_a_short_key_in_another_column_does_not_count() -> None:
    data = parquet(pa.table({"amount": [42], "city": ["42"]}))
    assert scanner().scan("/w/s/people/data/x.parquet", data).found == ()


def test_a_name_inside_a_struct_is_another_column() -> None:
    data = parquet(pa.table({"basket": [{"customer_id": 42, "n": 1}]}))
    assert scanner().scan("/w/s/people/data/x.parquet", data).found == ()


def test_a_file_of_a_former_table_is_searched_by_all_marks() -> None:
    data = parquet(pa.table({"customer_id": [42]}))
    assert scanner().scan("/w/s/gone/data/x.parquet", data).found != ()


def test_a_key_is_found_by_its_name_in_tables_without_marks() -> None:
    tables = [
        Owned(("s", "people"), ["/w/s/people"], PLACE),
        Owned(("s", "visits"), ["/w/s/visits"], None),
    ]
    data = parquet(pa.table({"customer_id": [42]}))
    found = Scanner(SEARCH, tables).scan("/w/s/visits/data/x.parquet", data)
    assert "column customer_id" in found.found


def test_a_renamed_column_is_found_by_its_id() -> None:
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
def test_all_other_files_are_read(path: str, data: bytes) -> None:
    assert scanner().scan(path, data).found != ()


def test_bounds_of_manifests_are_found(lake: Lake, tmp_path: Path) -> None:
    state = lake.state(("s", "people"))
    assert state is not None
    look = scanner(state.location)
    # The lowest and the highest e-mail address belong to others.
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


def test_avro_files_are_read_by_another_library(lake: Lake, tmp_path: Path) -> None:
    table = lake.catalog.load_table(("s", "people"))
    (manifest,) = table.current_snapshot().manifests(table.io)
    (entry,) = avro.read(Path(manifest.manifest_path).read_bytes()).records
    assert entry["status"] == 1
    assert entry["data_file"]["record_count"] == 3
    listed = avro.read(Path(table.current_snapshot().manifest_list).read_bytes())
    assert [one["manifest_path"] for one in listed.records] == [manifest.manifest_path]


def test_personal_values_are_collected_without_those_of_others(lake: Lake, tmp_path: Path) -> None:
    state = lake.state(("s", "people"))
    assert state is not None
    place = SubjectTable(("s", "people"), ("customer_id",), ("email", "city"))
    look = Scanner(SEARCH, [Owned(("s", "people"), [state.location], place, FIELDS)])
    (path,) = (path for path in files(tmp_path) if path.endswith(".parquet"))
    data = Path(path).read_bytes()
    assert look.collect(path, data) == {"email": {(EMAIL, True)}, "city": {("Oslo", True)}}
    own = {"email": frozenset({EMAIL}), "city": frozenset({"Oslo"})}
    assert look.shared(path, data, own) == {"city": {"Oslo"}}


def test_one_file_with_the_subject_fails_the_proof(tmp_path: Path) -> None:
    look = scanner(str(tmp_path))
    files = {
        f"{tmp_path}/{index}.parquet": parquet(pa.table({"email": [email]}))
        for index, email in enumerate(("a@y.example", EMAIL, "x@y.example"))
    }
    proof = Proof(tuple(look.scan(path, data) for path, data in files.items()))
    assert not proof.clean
    assert [file.path for file in proof.holding] == [f"{tmp_path}/1.parquet"]


ROWS = {"cust": [41, 42], "email": ["x@y.example", EMAIL], "born": [date(1990, 1, 2)] * 2}


def orc_file(**columns: Any) -> bytes:
    number = pa.field("cust", pa.int64(), metadata={"iceberg.id": "1"})
    table = pa.table(columns)
    fields = [number if field.name == "cust" else field for field in table.schema]
    sink = pa.BufferOutputStream()
    orc.write_table(table.cast(pa.schema(fields)), sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def avro_file(**columns: Any) -> bytes:
    day = {"type": "int", "logicalType": "date"}
    fields = [
        {"name": "cust", "type": ["null", "long"], "field-id": 1},
        {"name": "email", "type": "string", "field-id": 2},
        {"name": "born", "type": day, "field-id": 4},
    ]
    schema = {"type": "record", "name": "table", "fields": fields}
    return avro.write(schema, pa.table(columns).to_pylist(), {})


@pytest.mark.parametrize(("ending", "write"), [("orc", orc_file), ("avro", avro_file)])
def test_data_files_of_each_format_are_searched_and_collected_from(ending: str, write: Any) -> None:
    place = SubjectTable(("s", "people"), ("customer_id",), ("email", "born"))
    path, data = f"/w/s/people/data/x.{ending}", write(**ROWS)
    found = scanner(place=place).scan(path, data)
    assert found.format == ending
    assert {"column email", "column customer_id"} <= set(found.found)
    assert scanner(place=place).collect(path, data) == {
        "email": {(EMAIL, True)},
        "born": {("1990-01-02", False)},
    }
    own = {"born": frozenset({"1990-01-02"})}
    assert scanner(place=place).shared(path, data, own) == {"born": {"1990-01-02"}}
    clean = write(cust=[41], email=["x@y.example"], born=[date(1990, 1, 3)])
    assert scanner(place=place).scan(path, clean).found == ()


def test_logical_types_of_avro_files_are_decoded() -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    field = {"name": "email", "type": ["null", kind], "field-id": 2}
    schema = {"type": "record", "name": "table", "fields": [field]}
    data = avro.write(schema, [{"email": None}, {"email": Decimal("-1.50")}], {})
    search = Search.of(["42"], {"email": ["-1.5"]}, [])
    look = Scanner(search, [Owned(("s", "people"), ["/w/s/people"], PLACE, FIELDS)])
    assert "column email" in look.scan("/w/s/people/data/x.avro", data).found


def test_names_are_excused_only_where_names_stand() -> None:
    search = Search.of([], {"name": ["Price"]}, ["Price"]).with_names("s.price")
    look = Scanner(search, [])
    kind = {"type": "record", "name": "o", "fields": [{"name": "file_path", "type": "string"}]}
    schema = {"type": "record", "name": "r", "fields": [{"name": "o", "type": kind}]}
    row = {"o": {"file_path": "/w/s/price/x"}}
    assert not look.scan("/w/m.avro", avro.write(schema, [row], {"snapshot-id": "1"})).found
    assert look.scan("/w/d.avro", avro.write(schema, [row], {})).found
    number = {b"PARQUET:field_id": b"2147483546"}
    for metadata, stands in ((number, False), (None, True)):
        field = pa.field("file_path", pa.string(), metadata=metadata)
        data = parquet(pa.table({"file_path": ["/w/s/price/x"]}, pa.schema([field])))
        assert bool(look.scan("/w/s/price/d.parquet", data).found) is stands
    for document, stands in (
        ({"format-version": 2, "fields": [{"name": "price"}]}, False),
        ({"format-version": 2, "fields": [{"name": "x", "initial-default": "Price"}]}, True),
        ({"name": "Price"}, True),
    ):
        assert bool(look.scan("/w/a.json", json.dumps(document).encode()).found) is stands
    assert not look.scan("/w/lake.db", b"SQLite format 3\x00 s.price").found
    assert look.scan("/w/a.csv", b"1;Price").found


UUID = {"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"}
UUIDS = avro.write(
    {"type": "record", "name": "r", "fields": [{"name": "id", "type": UUID, "field-id": 1}]},
    [{"id": b"0123456789abcdef"}],
    {},
)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.avro", UUIDS),
        ("x.orc", b"ORC torn"),
        ("x.orc", b"no orc"),
        ("x.parquet", b"no parquet"),
        ("x.avro", b"no avro"),
        ("x.parquet", b"PARE encrypted"),
        ("x.zip", b"PK\x03\x04 packed"),
        ("x.csv.xz", b"\xfd7zXZ packed"),
        ("x.csv.zst", b"\x28\xb5\x2f\xfd torn"),
    ],
)
def test_a_file_that_cannot_be_read_counts_as_holding_the_subject(name: str, data: bytes) -> None:
    (found,) = scanner().scan(f"/w/s/people/data/{name}", data).found
    assert "cannot be read" in found


@pytest.mark.parametrize("codec", ["zstd", "bz2", "gzip"])
def test_compressed_files_are_decompressed(codec: str) -> None:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as out:
        out.write(f"1,{EMAIL}".encode())
    assert scanner().scan("/landing/x.csv", sink.getvalue().to_pybytes()).found == ("its bytes",)


NAME = "Jörg  von\u00a0Ähren"
SPELLINGS = ["Jörg von Ähren", NAME, unicodedata.normalize("NFD", NAME), "JÖRG VON ÄHREN"]


@pytest.mark.parametrize("known", SPELLINGS[:3])
@pytest.mark.parametrize("stands", SPELLINGS)
def test_all_spellings_of_a_name_are_found(known: str, stands: str) -> None:
    search = Search.of(["42"], {"name": [known]}, [known])
    tables = [Owned(("s", "people"), ["/w/s/people"], PLACE, FIELDS)]
    look = Scanner(search, tables)
    rows = parquet(pa.table({"remark": [f"to {stands}!"]}))
    assert look.scan("/w/s/people/data/x.parquet", rows).found
    assert look.scan("/landing/x.csv", f"1;{stands};2".encode()).found
    assert look.scan("/w/a.json", json.dumps({"to": stands}).encode()).found
    assert look.scan(f"/w/name={quote(stands)}/x", b"").found


@pytest.mark.parametrize(
    "stands", ["Jörg  von\u00a0Ähren-Österreich", "Jo\u0308rg von A\u0308hren"]
)
def test_the_prefix_of_a_name_is_found_in_all_spellings(stands: str) -> None:
    search = Search.of([], {}, ["Jörg von Ähren-Österreich"])
    assert search.in_bound(stands[:15] + "\uffff", frozenset())


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_texts_of_other_encodings_are_read(encoding: str) -> None:
    look = Scanner(Search.of([], {}, [NAME]), [])
    assert look.scan("/landing/x.csv", f"1;{NAME};2".encode(encoding)).found
