"""When row ids tell which rows differ, and the ids that files inherit."""

from __future__ import annotations

from typing import Any

import pytest

from sparkwap.catalog.pointers import Pointer
from sparkwap.catalog.snapshot_files import ManifestEntry
from sparkwap.diff.row_lineage import MOST_WORDS, RowLineage, lineage_since
from sparkwap.diff.session import Cache
from sparkwap.diff.sql import Source
from sparkwap.diff.states import TableVersion

SPARK = {
    "engine-name": "spark",
    "iceberg-version": "Apache Iceberg 1.12.0 (commit 1)",
    "spark.app.id": "local-1",
}
REWRITE = {**SPARK, "operation": "replace"}
del REWRITE["spark.app.id"]
ADD_FILES = {**REWRITE, "operation": "append"}


def version(
    snapshot: int | None, *changes: dict[str, str], of_format: int = 3, column: str = "id"
) -> TableVersion:
    """A state of a table with a snapshot for each summary, one after the other."""
    document = {
        "format-version": of_format,
        "table-uuid": "u",
        "current-schema-id": 0,
        "schemas": [{"schema-id": 0, "fields": [{"id": 1, "name": column, "type": "long"}]}],
        "snapshots": [
            {
                "snapshot-id": number,
                "sequence-number": 10 * number,
                "summary": summary,
                **({"parent-snapshot-id": number - 1} if number > 1 else {}),
            }
            for number, summary in enumerate(changes, 1)
        ],
    }
    return TableVersion(("s", "t"), Pointer(("s", "t"), "table", "m"), document, "r", snapshot)


def since(*changes: dict[str, str], first: int = 1, **more: Any) -> int | None:
    last = len(changes)
    return lineage_since(version(first, *changes, **more), version(last, *changes, **more))


OVERWRITE, APPEND = {"operation": "overwrite"}, {"operation": "append"}


@pytest.mark.parametrize(
    ("change", "sure"),
    [
        ({**SPARK, **OVERWRITE}, True),
        (REWRITE, True),
        ({**SPARK, "operation": "append"}, True),
        ({**SPARK, "operation": "delete"}, True),
        (ADD_FILES, False),
        ({**ADD_FILES, "operation": "overwrite"}, False),
        ({**SPARK, **OVERWRITE, "iceberg-version": "Apache Iceberg 1.13.1 (commit 1)"}, True),
        ({**SPARK, **OVERWRITE, "iceberg-version": "Apache Iceberg 2.0.0 (commit 1)"}, True),
        (APPEND, False),
        ({**SPARK, **OVERWRITE, "iceberg-version": "Apache Iceberg 1.11.4 (commit 1)"}, False),
        ({**SPARK, **OVERWRITE, "iceberg-version": "Apache Iceberg 1.9.2 (commit 1)"}, False),
        ({**SPARK, **OVERWRITE, "iceberg-version": "1.12.0"}, False),
        ({**SPARK, **OVERWRITE, "engine-name": "flink"}, False),
        (OVERWRITE, False),
        ({}, False),
    ],
)
def test_only_known_writers_are_trusted(change: dict[str, str], sure: bool) -> None:
    good = {**SPARK, **OVERWRITE}
    expected = 10 if sure else None
    assert since(good, change) == expected
    assert since(good, change, good) == expected
    assert since(good, good, change) == expected
    # What was before the old state is not compared.
    assert since(change, good, good, first=2) == 20


def test_what_has_not_grown_from_the_old_state_is_not_sure() -> None:
    good = {**SPARK, **OVERWRITE}
    assert since(good, good, of_format=2) is None
    # Spark reads a column of that name in place of the id, in any case.
    assert since(good, good, column="_LAST_Updated_sequence_number") is None
    assert since(good, good, column="_row_ID") is None
    assert lineage_since(version(3, good, good, good), version(2, good, good, good)) is None
    assert lineage_since(version(None), version(1, good)) is None


COUNTS = {"select count(*), coalesce": (2, 90, 90), "select count(*) from": (10,)}


@pytest.mark.parametrize(
    ("wrong", "differing"),
    [
        ({}, (5, 10)),
        ({"select count(*), coalesce": (0, 0, 0)}, None),
        ({"select count(*), coalesce": (2, 90, 89)}, None),  # an id twice, or none
        ({"select count(*), coalesce": (MOST_WORDS + 1, 90, 90)}, None),
        ({"select count(*) from": (11,)}, None),  # an id that the old state does not have
        ({"select count(*) from": (9,)}, None),
    ],
)
def test_ids_that_do_not_add_up_are_not_used(
    wrong: dict[str, tuple[int, ...]], differing: tuple[int, int] | None
) -> None:
    answers = {**COUNTS, **wrong}

    def sql(statement: str) -> list[tuple[int, ...]]:
        return [row for start, row in answers.items() if statement.startswith(start)]

    lineage = RowLineage(Source("a", 1, False, rows=95), Source("r", -1, True, rows=100), 7)
    found = lineage.differing(sql, Cache(sql))
    assert (found and tuple(one.rows for one in found)) == differing
    if found is not None:
        changed = "_last_updated_sequence_number <= 7L"
        assert found[0].condition == f"not coalesce({changed}, false)"
        assert [one.old for one in found] == [False, True]


def test_an_error_of_spark_means_that_all_rows_are_compared() -> None:
    def sql(statement: str) -> list[tuple[int, ...]]:
        raise RuntimeError(statement)

    lineage = RowLineage(Source("a", 1, False, rows=95), Source("r", -1, True, rows=100), 7)
    assert lineage.differing(sql, Cache(sql)) is None


def entry(status: int, rows: int, first: int | None) -> dict[str, Any]:
    return {"status": status, "data_file": {"record_count": rows, "first_row_id": first}}


def inherited(first: int | None, *entries: dict[str, Any]) -> list[Any]:
    manifest = ManifestEntry({"first_row_id": first})
    return [one["data_file"].get("first_row_id") for one in manifest.with_row_ids(entries)]


def test_files_inherit_the_ids_that_follow_those_before_them() -> None:
    listed = [entry(1, 5, None), entry(0, 7, 3), entry(2, 9, None), entry(1, 2, None)]
    assert inherited(100, *listed) == [100, 3, None, 105]
    assert inherited(0, entry(0, 4, 0), entry(1, 4, None)) == [0, 0]
    assert inherited(None, *listed) == [None, 3, None, None]
    # A manifest of format version 2.
    assert inherited(100, {"status": 1, "data_file": {"record_count": 5}}) == [None]
