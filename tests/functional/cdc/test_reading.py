"""What the files of a drop become in a log, without dbt."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkwap import cdc
from sparkwap.landing import LandingError, parse_entry
from sparkwap.landing.landing_files import list_files
from sparkwap.landing.log_state import NOTHING, known_log
from sparkwap.landing.reading import Reader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENTRY: dict[str, Any] = {
    "entity": "notes",
    "kind": "changes",
    "key": ["id"],
    "columns": {"id": "string", "note": "string"},
    "files": [{"match": "*", "load": "inserts"}],
}
Read = Callable[..., "DataFrame"]


@pytest.fixture
def read(session: SparkSession, tmp_path: Path) -> Read:
    """Reads files, given by name and content, by an entry."""

    def log(entry: dict[str, Any], **files: str | bytes) -> DataFrame:
        for name, content in files.items():
            path = tmp_path / f"notes/load_date=2024-01-01/{name}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return reader(session, entry).read(list_files(tmp_path, parse_entry(entry)))

    return log


def reader(session: SparkSession, entry: dict[str, Any], log: DataFrame | None = None) -> Reader:
    here: Any = SimpleNamespace(run_id="r", tell=print)
    parsed = parse_entry(entry)
    known = NOTHING if log is None else known_log(log, parsed, with_files=True)
    return Reader(session, parsed, known, here)


def rows(log: DataFrame, *columns: str, kind: str = "row") -> list[tuple[Any, ...]]:
    found = log.where(f"_kind = '{kind}'").orderBy("_file_path", "_row").select(*columns)
    return [tuple(row) for row in found.collect()]


def test_a_row_that_ends_in_open_quotes_is_bad(read: Read) -> None:
    good = {
        "1": ('5" pipe', '5" pipe'), "2": ('"5"" pipe"', '5" pipe'), "3": ('""', None),
        "4": ('"a"b', '"a"b'), "5": (' "a', ' "a'), "6": ('""""', '"'), "7": ('"a" ', "a"),
        "8": ("", None), "9": ('"a,b"', "a,b"),
    }  # fmt: skip
    bad = ['a,"hello', 'b,"hello, friend', 'c,"a""', 'd,"', 'e,x,"y', 'f,x,"']
    lines = [*(f"{key},{given}" for key, (given, _) in good.items()), *bad]
    log = read(ENTRY, a="\n".join(["id,note", *lines]))
    assert rows(log, "id", "note") == [(key, value) for key, (_, value) in good.items()]
    assert rows(log, "_raw", kind="bad") == [(line,) for line in bad]


def test_a_full_load_of_bad_rows_begins_as_if_they_were_good(
    read: Read, session: SparkSession
) -> None:
    good = ENTRY | {
        "operation": "Op",
        "codes": {"I": "insert"},
        "sequence": {"seq": "bigint"},
        "files": [{"match": "LOAD*", "load": "full"}, {"match": "*", "load": "changes"}],
    }
    bad = good | {"columns": {"id": "string", "note": "bigint"}}
    files = {
        "LOAD": "id,note,seq\n1,x,10\n4,x,x\n5,x,7,\n",
        "a": "Op,id,note,seq\nI,1,1,1\nI,2,1,2\nI,3,1,12\n",
    }

    def of(log: DataFrame) -> dict[str, str]:
        return {row.id: "deleted" if row._is_deleted else row.note
                for row in cdc.state(log, ["id"]).collect()}  # fmt: skip

    log = read(bad, **files).localCheckpoint()
    assert of(log) == {"1": "deleted", "2": "deleted", "3": "1"}
    replayed = log.unionByName(reader(session, good, log).replay(log))
    assert of(replayed) == of(read(good, **files)) == {"1": "x", "2": "deleted", "3": "1"}


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_a_replayed_record_has_the_values_of_the_file(
    read: Read, session: SparkSession, delimiter: str
) -> None:
    good = ENTRY | {"multiline": True, "delimiter": delimiter,
                    "columns": {"id": "string", "note": "string", "more": "string"}}  # fmt: skip
    records = [
        ('"a, b;c"', '"a\r\n""b"""', "  x "), (" 1", '""', ""), ("2", "  c", '"y;z,"'),
        ('"  3"', "5'", '"\tb\n"'), ('"""4"', '5" pipe', "\\"),
    ]  # fmt: skip
    text = "\n".join(delimiter.join(record) for record in [("id", "note", "more"), *records])
    read_rows = rows(read(good, a=text + "\n"), "id", "note", "more")
    assert len(read_rows) == len(records)
    log = read(good | {"rules": {"none": "id is null"}})
    replayed = reader(session, good, log).replay(log)
    assert rows(replayed, "id", "note", "more") == read_rows


def parquet(**columns: pa.Array) -> bytes:
    target = BytesIO()
    pq.write_table(pa.table(columns), target)
    return target.getvalue()


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.time64("us"), pa.float16()])
def test_the_error_names_columns_of_types_that_spark_lacks(read: Read, kind: pa.DataType) -> None:
    content = parquet(id=pa.array(["1"]), note=pa.array([[None]], pa.list_(kind)))
    with pytest.raises(LandingError, match=r"a cannot be read: .*Write 'note.*main is as it was"):
        read(ENTRY | {"format": "parquet"}, a=content)


@pytest.mark.parametrize(("zone", "end"), [(None, ""), ("UTC", "Z")])
def test_a_time_in_a_nested_column_keeps_its_microseconds(
    read: Read, zone: str | None, end: str
) -> None:
    kind = pa.struct({"at": pa.timestamp("us", zone)})
    at = datetime(2024, 1, 1, 10, 0, 0, 123456, UTC)
    content = parquet(id=pa.array(["1"]), note=pa.array([{"at": at}], kind))
    log = read(ENTRY | {"format": "parquet"}, a=content)
    assert rows(log, "note") == [(f'{{"at":"2024-01-01T10:00:00.123456{end}"}}',)]


def test_a_line_feed_in_the_first_record_is_not_the_end_of_all_records(read: Read) -> None:
    entry = ENTRY | {"multiline": True, "files": [
        {"match": "head*", "load": "inserts"}, {"match": "*", "load": "inserts", "header": False}
    ]}  # fmt: skip
    log = read(
        entry,
        a='"a\nb",x\r\n2,"y\r\n"\r\n3,\r\n4,"z"\r\n',
        b='1,x\r\n2,"y\r"\r\n',
        c='1,x\n2,"y\r"\n',
        head="id,note\n1,x\r\n2,y\n",
    )
    assert rows(log, "id", "note") == [
        ("a\nb", "x"), ("2", "y\r\n"), ("3", None), ("4", "z"),
        ("1", "x"), ("2", "y\r"),
        ("1", "x"), ("2", "y\r"),
        ("1", "x"), ("2", "y"),
    ]  # fmt: skip


def test_a_replay_of_partial_parquet_rows_keeps_their_nulls(
    read: Read, session: SparkSession
) -> None:
    good = ENTRY | {"format": "parquet", "partial": True}
    nothing = pa.array([None], pa.string())
    log = read(good | {"rules": {"told": "note is not null"}},
               a=parquet(id=pa.array(["1"]), note=nothing))  # fmt: skip
    replayed = reader(session, good, log).replay(log)
    assert rows(replayed, "id", "note", "_absent") == [("1", None, None)]
