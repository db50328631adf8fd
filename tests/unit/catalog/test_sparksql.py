"""Iceberg's metadata as Spark SQL."""

from __future__ import annotations

from typing import Any

import pytest

from sparkwap.catalog.sparksql import partitioning, partitionings

SCHEMA = {"schema-id": 0, "fields": [{"id": 1, "name": "ts", "type": "timestamptz"}]}
DAY, MONTH, VOID = (
    {"source-id": 1, "field-id": 1000, "name": "ts_part", "transform": name}
    for name in ("day", "month", "void")
)


@pytest.mark.parametrize(
    ("document", "present", "every"),
    [
        (
            {
                "default-spec-id": 1,
                "partition-specs": [
                    {"spec-id": 0, "fields": [MONTH]},
                    {"spec-id": 1, "fields": [DAY, VOID]},
                ],
            },
            ("days(ts)",),
            [("months(ts)",), ("days(ts)",)],
        ),
        ({"default-spec-id": 0, "partition-specs": [{"spec-id": 0, "fields": []}]}, (), [()]),
        # Format version 1 may have the present spec only.
        ({"partition-spec": [DAY]}, ("days(ts)",), [("days(ts)",)]),
    ],
)
def test_files_of_every_spec_may_be_left(
    document: dict[str, Any], present: tuple[str, ...], every: list[tuple[str, ...]]
) -> None:
    table = {"current-schema-id": 0, "schemas": [SCHEMA], **document}
    assert partitioning(table) == present
    assert partitionings(table) == every
