"""What the files of a drop become in a log, without dbt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from sparkwap.landing import parse_entry
from sparkwap.landing.landing_files import list_files
from sparkwap.landing.log_state import NOTHING
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


def reader(session: SparkSession, entry: dict[str, Any]) -> Reader:
    here: Any = SimpleNamespace(run_id="r", tell=print)
    return Reader(session, parse_entry(entry), NOTHING, here)


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
