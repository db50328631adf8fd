"""Malicious and broken landing files: clear errors, and bounded memory."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkwap import landing
from sparkwap.landing import LandingError, drift
from sparkwap.landing.contents import Contents
from sparkwap.landing.samples import read_samples

ENTRY: dict[str, Any] = {
    "entity": "t",
    "kind": "extract",
    "key": ["id"],
    "columns": {"id": "bigint", "name": "string"},
    "files": [{"match": "*"}],
}
HEADER = b"id,name\n"


def look(path: Path, **more: Any) -> Contents:
    entry = landing.parse_entry({**ENTRY, **more})
    return landing.look_into(path, entry.layouts[0], entry)


def refusal(path: Path, **more: Any) -> str:
    with pytest.raises(LandingError) as error:
        look(path, **more)
    assert str(path) in str(error.value)
    assert "Nothing was read" in str(error.value)
    return str(error.value)


def written(folder: Path, content: bytes, name: str = "a.csv") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


# ---------------------------------------------------------------- encodings


def test_a_byte_order_mark_is_not_text(tmp_path: Path) -> None:
    path = written(tmp_path, b"\xef\xbb\xbfid,name\n1,a\n")
    assert look(path) == Contents(("id", "name"), 1)
    assert look(written(tmp_path, b"\xef\xbb\xbf")) == Contents(("id", "name"), 0)


@pytest.mark.parametrize(
    ("encoding", "told"),
    [
        ("utf-16", "the mark of UTF-16"),
        ("utf-16-le", "full of NULs, like UTF-16"),
        ("utf-16-be", "full of NULs, like UTF-16"),
        ("utf-32-le", "full of NULs"),
        ("latin-1", "it is not UTF-8 (invalid continuation byte at byte 11)"),
    ],
)
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_other_encodings_are_named(tmp_path: Path, encoding: str, told: str, name: str) -> None:
    content = "id,name\n1,aé,b\n".encode(encoding)
    assert told in refusal(written(tmp_path, content, name))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (gzip.compress(HEADER, mtime=0), "a name that ends in .gz"),
        (bz2.compress(HEADER), "it is a bzip2 archive; unpack it"),
        (lzma.compress(HEADER), "it is an xz archive"),
        (pa.compress(HEADER, codec="zstd", asbytes=True), "it is a Zstandard archive"),
        (b"PK\x03\x04\x14\x00\x00\x00\x08\x00", "it is a zip archive (or a spreadsheet)"),
        (b"PAR1\x15\x04\x15\xff", "set format: parquet"),
    ],
)
def test_archives_and_other_formats_are_named(tmp_path: Path, content: bytes, told: str) -> None:
    assert told in refusal(written(tmp_path, content, "a.csv"))


def test_text_that_begins_like_an_archive_is_text(tmp_path: Path) -> None:
    assert look(written(tmp_path, b"PAR1,BZh\n1,a\n")) == Contents(("PAR1", "BZh"), 1)


def test_a_character_cut_in_two_by_the_end_or_by_a_chunk(tmp_path: Path) -> None:
    assert "unexpected end of data" in refusal(written(tmp_path, HEADER + "1,é".encode()[:-1]))
    lines = HEADER + "1,é\n".encode() * 500_000
    assert len(lines) > 2 << 20
    for shift in range(5):
        assert look(written(tmp_path, b" " * shift + lines)).rows == 500_000


def test_few_nuls_are_text(tmp_path: Path) -> None:
    assert look(written(tmp_path, HEADER + b"1,a\x00b\n\x00\n2,c\n")).rows == 2


@settings(max_examples=300)
@given(st.text(alphabet="a,\r\n \x0b\x85\u2028\u00e9", max_size=40), st.integers(1, 7))
def test_lines_end_as_in_python_and_spark(text: str, chunk: int) -> None:
    from sparkwap.landing import contents

    entry = landing.parse_entry(ENTRY)
    stream = contents.Text(io.BytesIO(text.encode()), Path(__file__), entry)
    usual = contents._CHUNK
    contents._CHUNK = chunk
    try:
        found = [line.rstrip(b"\r\n").decode() for line in stream.lines()]
    finally:
        contents._CHUNK = usual
    assert found == [line.rstrip("\n") for line in io.StringIO(text, newline=None)]


# ---------------------------------------------------------------- sizes


def test_a_file_of_10_gb_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "t" / "load_date=2024-01-01" / "a.csv"
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(10 << 30)  # it declares a size, and has no blocks
    with pytest.raises(LandingError, match=r"10,737,418,240 bytes, more than max_bytes") as error:
        landing.list_files(tmp_path, landing.parse_entry(ENTRY))
    assert "set max_bytes in the entry" in str(error.value)


def test_a_file_beyond_the_limit_of_its_entry_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t" / "load_date=2024-01-01" / "a.csv"
    path.parent.mkdir(parents=True)
    path.write_bytes(HEADER)
    entry = landing.parse_entry({**ENTRY, "max_bytes": len(HEADER) - 1})
    with pytest.raises(LandingError, match="more than max_bytes"):
        landing.list_files(tmp_path, entry)
    landing.list_files(tmp_path, landing.parse_entry({**ENTRY, "max_bytes": len(HEADER)}))


@pytest.mark.long
def test_an_archive_that_inflates_without_end(tmp_path: Path) -> None:
    bomb = tmp_path / "a.csv.gz"
    with gzip.open(bomb, "wb", compresslevel=9) as file:
        file.write(HEADER)
        for _ in range(100):
            file.write(b"1,aaaaaaaaaaaaa\n" * (1 << 16))
    assert bomb.stat().st_size < 1 << 20
    assert "inflates to more than 20 times its size" in refusal(bomb, max_ratio=20)
    assert "more than max_bytes" in refusal(bomb, max_bytes=50_000_000)
    assert look(bomb, max_ratio=10_000).rows == 100 << 16


def test_archives_that_are_broken(tmp_path: Path) -> None:
    whole = gzip.compress(HEADER + random.Random(1).randbytes(3000).hex().encode())
    for content in (whole[:-9], whole[:100], whole[:-4] + b"0000", b"no archive"):
        (tmp_path / "a.csv.gz").write_bytes(content)
        assert "cannot be read" in refusal(tmp_path / "a.csv.gz")


@pytest.mark.parametrize("more", [{}, {"multiline": True}, {"format": "json"}])
def test_a_row_without_end(tmp_path: Path, more: dict[str, Any]) -> None:
    start = HEADER + b'1,"' if not more.get("format") else b'{"id": "'
    told = refusal(written(tmp_path, start + b"a" * 3_000_000), max_row_bytes=2_000_000, **more)
    assert "a row has more than 2,000,000 bytes, more than max_row_bytes" in told


def test_a_record_whose_quotes_never_end(tmp_path: Path) -> None:
    content = HEADER + b'1,"' + b"a\n" * 1_000_000
    assert look(written(tmp_path, content)).rows == 1_000_000
    told = refusal(written(tmp_path, content), multiline=True, max_row_bytes=1_000_000)
    assert "a row has more than 1,000,000 bytes" in told
    short = HEADER + b'1,"a\nb"\n' * 300_000
    assert look(written(tmp_path, short), multiline=True, max_row_bytes=1_000).rows == 300_000


def test_a_long_field_below_the_limit_is_legal(tmp_path: Path) -> None:
    content = HEADER + b'1,"' + b"a" * 500_000 + b'"\n'
    assert look(written(tmp_path, content), multiline=True).rows == 1


def test_json_nested_deeply(tmp_path: Path) -> None:
    deep = b"[" * 200_000 + b"]" * 200_000
    told = refusal(written(tmp_path, deep), format="json", multiline=True)
    assert "its JSON is nested too deeply" in told
    # As a line, the text is a row, which Spark parses or quarantines.
    assert look(written(tmp_path, deep + b"\n{}\n"), format="json").rows == 2


def test_parquet_with_a_billion_encoded_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": pa.array([7] * 3_000_000, pa.int64())}), path)
    assert path.stat().st_size < 100_000
    told = refusal(path, format="parquet", max_bytes=1_000_000)
    assert "it holds 3,000,000 rows" in told
    assert look(path, format="parquet").rows == 3_000_000
    path.write_bytes(b"PAR1" + b"\xff" * 100 + b"PAR1")
    assert "cannot be read" in refusal(path, format="parquet")


# ---------------------------------------------------------------- places and names


def deliver(root: Path, name: str) -> Path:
    path = root / "t" / "load_date=2024-01-01" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(HEADER)
    return path


def listed(root: Path, **more: Any) -> list[str]:
    return [f.name for f in landing.list_files(root, landing.parse_entry({**ENTRY, **more}))]


def test_links_that_lead_out_are_refused(tmp_path: Path) -> None:
    root, outside = tmp_path / "landing", tmp_path / "secret.csv"
    outside.write_bytes(b"id,name\n1,secret\n")
    path = deliver(root, "a.csv")
    (path.parent / "b.csv").symlink_to(path)
    assert len(listed(root)) == 2
    (path.parent / "c.csv").symlink_to(outside)
    with pytest.raises(LandingError, match="leads out of the landing folder") as error:
        listed(root)
    assert str(outside) in str(error.value)
    (path.parent / "c.csv").unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "d.csv").write_bytes(HEADER)
    (root / "t" / "load_date=2024-02-01").symlink_to(elsewhere)
    with pytest.raises(LandingError, match="leads out of the landing folder"):
        listed(root)


def test_a_landing_folder_that_is_a_link_itself(tmp_path: Path) -> None:
    deliver(tmp_path / "real", "a.csv")
    (tmp_path / "landing").symlink_to(tmp_path / "real")
    assert listed(tmp_path / "landing") == ["t/load_date=2024-01-01/a.csv"]


@pytest.mark.parametrize("path", ["..", "../t", "a/../../t"])
def test_an_entry_that_leads_out_is_refused(path: str) -> None:
    with pytest.raises(LandingError, match="leads out of the landing folder"):
        landing.parse_entry({**ENTRY, "path": path})


@pytest.mark.parametrize("character", ["\n", "\t", "\x7f", "\u2028", "\udcff", ":"])
def test_names_with_control_characters_are_refused(tmp_path: Path, character: str) -> None:
    deliver(tmp_path, f"a{character}b.csv")
    with pytest.raises(LandingError, match="another control character") as error:
        listed(tmp_path)
    str(error.value).encode()


@pytest.mark.parametrize(
    "name", ['it\'s "a" `b`; drop.csv', "100%25 + {a} [b] *?.csv", "é😀.csv", "x" * 240]
)
def test_unusual_names_are_accepted(tmp_path: Path, name: str) -> None:
    deliver(tmp_path, name)
    assert listed(tmp_path) == [f"t/load_date=2024-01-01/{name}"]


def test_a_pipe_or_a_folder_is_refused(tmp_path: Path) -> None:
    path = deliver(tmp_path, "a.csv")
    os.mkfifo(path.parent / "b.csv")
    with pytest.raises(LandingError, match="matches no layout"):
        listed(tmp_path)


# ---------------------------------------------------------------- columns of a file


@pytest.mark.parametrize("column", ["", "a\nb", "a\x00", "x" * 256])
def test_columns_without_a_usable_name_are_refused(column: str) -> None:
    entry = landing.parse_entry(ENTRY)
    with pytest.raises(LandingError, match="have no usable names"):
        drift.map_columns(entry, entry.layouts[0], ("id", "name", column))
    ignoring = landing.parse_entry({**ENTRY, "on_new_columns": "ignore"})
    drift.map_columns(ignoring, ignoring.layouts[0], ("id", "name", column))


def test_thousands_of_new_columns_are_refused() -> None:
    entry = landing.parse_entry({**ENTRY, "format": "json"})
    columns = tuple(f"c{i}" for i in range(3000))
    with pytest.raises(LandingError, match="3,000 new columns, but a table has at most 2,000"):
        drift.map_columns(entry, entry.layouts[0], columns)


@pytest.mark.parametrize("name", ["max_bytes", "max_ratio", "max_row_bytes"])
@pytest.mark.parametrize("value", [0, -1, "10GB", 1.5, True])
def test_limits_are_whole_numbers(name: str, value: object) -> None:
    with pytest.raises(LandingError, match=f"{name} '{value}' is not a whole number of 1 or more"):
        landing.parse_entry({**ENTRY, name: value})


# ---------------------------------------------------------------- samples


@pytest.mark.parametrize(
    ("content", "name", "told"),
    [
        (b"[" * 200_000, "a.json", "nested too deeply"),
        (HEADER + b'1,"' + b"a" * 500_000 + b'"\n', "a.csv", "field larger than field limit"),
        (b"\xff\xfei\x00d\x00", "a.csv", "UnicodeDecodeError"),
    ],
)
def test_an_invalid_sample_is_refused(tmp_path: Path, content: bytes, name: str, told: str) -> None:
    csv.field_size_limit(131_072)
    with pytest.raises(LandingError, match=told) as error:
        read_samples([written(tmp_path, content, name)])
    assert "Nothing was written" in str(error.value)


def test_only_a_part_of_an_endless_sample_is_read(tmp_path: Path) -> None:
    bomb = tmp_path / "a.csv.gz"
    with gzip.open(bomb, "wb") as file:
        file.write(HEADER)
        for _ in range(64):
            file.write(b"1,aaaaaaaaaaaaa\n" * (1 << 16))
    assert read_samples([bomb])[0].rows[0] == {"id": "1", "name": "aaaaaaaaaaaaa"}
