"""Rows about the differences of two states."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from sparkwap.diff.model import (
    AddedColumn,
    RemovedColumn,
    RenamedColumn,
    RetypedColumn,
    SchemaChange,
)
from sparkwap.page import comparison
from sparkwap.page.comparison import TableComparison, TableSide

from .conftest import FIRST, NOW, node, side


@pytest.mark.parametrize(
    ("new", "old", "same", "change"),
    [
        (side(5), side(3), False, "+2 rows"),
        (side(3), side(5), False, "-2 rows"),
        (side(5), side(5), False, "same number of rows"),
        (side(5), side(5), True, "the same snapshot"),
        (side(None), side(5), False, "another snapshot"),
        (side(5), None, False, "new table"),
        (None, side(5), False, "missing"),
    ],
)
def test_the_change_of_a_table_in_a_few_words(
    new: TableSide | None, old: TableSide | None, same: bool, change: str
) -> None:
    assert TableComparison("s.a", new, old, SchemaChange(), same).change == change


def test_each_changed_column_is_listed() -> None:
    change = SchemaChange(
        (AddedColumn("vat", "string"),),
        (RemovedColumn("fax", "string"),),
        (RetypedColumn("n", "int", "bigint", True),),
        (RenamedColumn("a", "b"),),
    )
    assert TableComparison("s.a", side(5), side(5), change, False).change == (
        "column vat added (string); column fax removed (string); column n was int, is bigint; "
        "column a renamed to b; same number of rows"
    )


def test_the_written_rows_of_commits() -> None:
    commits = [
        {"operation": "overwrite", "added-records": "10", "deleted-records": "4"},
        {"operation": "append", "added-records": "5", "total-records": "x"},
    ]
    table = TableComparison("s.a", side(), side(), SchemaChange(), False, commits)
    assert table.written == "2 commits (append, overwrite): 15 in, 4 out"
    assert TableComparison("s.a", side(), side(), SchemaChange(), True).written == ""


def test_two_states_are_shown_side_by_side() -> None:
    big = 2**60 + 1
    changed = TableComparison(
        "s.b",
        side(5, big, operation="append", columns=(("id", "bigint"), ("vat", "string"))),
        side(3, 7, operation="overwrite"),
        SchemaChange((AddedColumn("vat", "string"),)),
        False,
    )
    same = TableComparison("s.a", side(), side(), SchemaChange(), True)
    rows = comparison.comparison_rows([same, changed])
    assert [one["table"] for one in rows] == ["s.b", "s.a"]
    # A number would lose its last digits in a browser.
    assert rows[0]["snapshot right"] == str(big)
    assert comparison.column_rows(changed) == [
        {"column": "id", "left": "bigint", "right": "bigint", "": ""},
        {"column": "vat", "left": "—", "right": "string", "": "◄ differs"},
    ]
    assert comparison.summary_rows(changed) == [
        {"key": "operation", "left": "overwrite", "right": "append"}
    ]


def stored(**more: Any) -> dict[str, Any]:
    table = {
        "schema": "s",
        "name": "a",
        "change": "changed",
        "rows": {"added": 1, "removed": 0, "changed": 2, "before": 5, "after": 6},
        "columns": {"changed": {"amount": 2}},
        "samples": [
            {
                "change": "changed",
                "count": 1,
                "before": {"id": "1", "amount": "5"},
                "after": {"id": "1", "amount": None},
            },
            {"change": "added", "count": 1, "before": None, "after": {"id": "2"}},
        ],
        "notes": [],
        **more,
    }
    return {"at": NOW.isoformat(), "against": "main", "tables": [table]}


def test_a_stored_comparison_has_rows_for_tables_and_samples() -> None:
    document = stored()
    (table,) = comparison.diff_rows(document)
    assert (table["table"], table["added"], table["changed"]) == ("s.a", 1, 2)
    assert table["columns with changed values"] == "amount (2)"
    assert comparison.diff_samples(document["tables"][0], lambda _name, _columns: ()) == [
        {"change": "changed", "id": "1", "amount": "5 → NULL"},
        {"change": "added", "id": "2"},
    ]


def test_a_comparison_from_before_the_last_build_is_stale() -> None:
    assert not comparison.is_stale(stored(), [node(FIRST, "a", "held", built_at=NOW)])
    later = NOW + timedelta(seconds=1)
    assert comparison.is_stale(stored(), [node(FIRST, "a", "held", built_at=later)])
