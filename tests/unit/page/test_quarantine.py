"""Rows in quarantine."""

from __future__ import annotations

from sparkwap.landing.raw_models import BadRow
from sparkwap.page import quarantine


def test_reasons_are_counted_without_quoted_values() -> None:
    rows = [
        BadRow("b.csv", 9, "amount is not a decimal(12,2): Ann", "x"),
        BadRow("a.csv", 3, "amount is not a decimal(12,2): Bob", "y"),
        BadRow("a.csv", 4, 'operation "Cy: 1" is not one of I, U, D', "z"),
    ]
    found = quarantine.group_reasons(rows)
    assert found == [
        {
            "reason": "amount is not a decimal(12,2)",
            "rows": 2,
            "files": 2,
            "first": "a.csv, line 3",
        },
        {
            "reason": "operation … is not one of I, U, D",
            "rows": 1,
            "files": 1,
            "first": "a.csv, line 4",
        },
    ]
