"""The decisions of `sparkwap.cdc` without Spark; functional tests cover the states."""

from __future__ import annotations

from datetime import date
from types import SimpleNamespace
from typing import Any

import pytest

from sparkwap import cdc
from sparkwap.cdc import resets
from sparkwap.core.errors import ConfigError


def load(day: int, sequence: str, batch: int = 1) -> dict[str, Any]:
    return {
        "_kind": "file",
        "_load_date": date(2024, 1, day),
        "_sequence": sequence,
        "_file_path": f"f{sequence}",
        "_row": None,
        "_part": 0,
        "_batch": batch,
    }


def truncate(sequence: str, file: str = "c1", row: int = 1, batch: int = 1) -> dict[str, Any]:
    return {**load(1, sequence, batch), "_kind": "row", "_file_path": file, "_row": row}


def test_the_hash_escapes_its_separator() -> None:
    sql = cdc.row_hash(["a", "b`c"])
    assert sql.startswith("sha2(concat_ws(char(31), ")
    assert r"coalesce(replace(replace(`b``c`, r'\', r'\\'), char(31), r'\u'), r'\N')" in sql


def test_there_is_no_reset_without_a_load_or_a_truncate() -> None:
    assert resets.newest([]) is None
    assert resets.before(None) == "false"


def test_the_files_of_one_load_date_are_one_load() -> None:
    assert resets.newest([load(1, "5"), load(1, "3"), load(1, "9")]) == ("3", "", 0, 0)
    assert resets.newest([load(1, "5"), load(2, "7")]) == ("7", "", 0, 0)


def test_the_first_copy_of_a_truncate_counts() -> None:
    copies = [truncate("5", "c2", 1), truncate("5", "c1", 3), truncate("5", "c1", 2)]
    assert resets.newest(copies) == ("5", "c1", 3, 0)
    assert resets.newest([*copies, load(1, "6")]) == ("6", "", 0, 0)


def test_only_known_loads_count() -> None:
    rows = [load(1, "5", batch=1), truncate("7", batch=3)]
    assert resets.newest(rows, up_to=2) == ("5", "", 0, 0)
    assert resets.newest(rows, up_to=3) == ("7", "c1", 1, 0)


@pytest.mark.parametrize(("key", "what"), [([], "it is empty"), (["x"], "no column `x`")])
def test_a_state_needs_a_key(key: list[str], what: str) -> None:
    log: Any = SimpleNamespace(columns=["id", "_op"])
    with pytest.raises(ConfigError, match=what):
        cdc.state(log, key)


@pytest.mark.parametrize(
    ("entry", "partial", "truncates"),
    [
        ({"key": ["id"], "format": "csv", "files": [{"codes": {"D": "delete"}}]}, False, False),
        ({"key": ["id"], "files": [{"codes": {"T": "truncate"}}, {}]}, False, True),
        ({"key": ["id"], "codes": {"T": "truncate"}}, False, True),
        ({"key": ["id"], "kind": "extract", "files": [{"load": "full"}]}, False, False),
        ({"key": ["id"]}, False, True),
        ({"key": ["id"], "format": "debezium"}, True, True),
        ({"key": ["id"], "format": "debezium", "partial": False}, False, True),
    ],
)
def test_the_entry_determines_the_kinds_of_events(
    entry: dict[str, Any], partial: bool, truncates: bool
) -> None:
    assert cdc._how(entry) == {"key": ["id"], "partial": partial, "truncates": truncates}
