"""Comparisons that metadata decides, without Spark or with few statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from sparkwap.core.errors import ConfigError
from sparkwap.diff.differ import Differ

from .conftest import BRANCH, Bench, rows


def no_spark(statement: str) -> Sequence[Sequence[Any]]:
    raise AssertionError(f"no statement was expected: {statement}")


def test_a_branch_without_writes_does_not_differ(bench: Bench) -> None:
    bench.open(bench.table("t", (1, 2)))
    (found,) = Differ(bench.lake, no_spark).compare(BRANCH).tables
    assert (found.change, found.how, found.rows) == ("unchanged", "metadata", 0)
    assert (found.rows_before, found.rows_after) == (2, 2)


def test_new_metadata_for_the_same_files_is_no_difference(bench: Bench) -> None:
    table = bench.open(bench.table("t", (1, 2), (3,)))
    table.append(rows(4), branch=BRANCH)
    table.delete("id = 4", branch=BRANCH)
    (found,) = Differ(bench.lake, no_spark).compare(BRANCH).tables
    assert (found.change, found.how) == ("unchanged", "metadata")


def test_a_clone_with_a_new_column_and_the_same_files_differs_only_in_the_column(
    bench: Bench,
) -> None:
    name = bench.table("t", (1, 2))
    bench.lake.branches.clone(name, f"s__{BRANCH}")
    clone = bench.lake.catalog.load_table((f"s__{BRANCH}", "t"))
    with clone.update_schema() as update:
        update.union_by_name(pa.schema({"extra": pa.string()}))
    sent: list[str] = []

    def counts(statement: str) -> Sequence[Sequence[Any]]:
        sent.append(statement)
        return [(2, 0)] if statement.startswith("select count(*)") else []

    (found,) = Differ(bench.lake, counts).compare(BRANCH).tables
    assert (found.change, found.rows, found.how) == ("changed", 0, "metadata")
    (added,) = found.schema.added
    assert (added.name, added.type, added.nulls, added.values) == ("extra", "string", 2, 0)
    assert not [one for one in sent if "xxhash64" in one]


def test_a_new_table_is_counted_by_its_metadata(bench: Bench) -> None:
    bench.lake.ensure_schema(f"s__{BRANCH}", BRANCH)
    bench.lake.catalog.create_table((f"s__{BRANCH}", "n"), rows().schema).append(rows(1, 2, 3))
    (found,) = Differ(bench.lake, no_spark).compare(BRANCH).tables
    assert (found.identifier, found.change, found.added) == (("s", "n"), "new", 3)
    # In the other direction, the table is dropped.
    (found,) = Differ(bench.lake, no_spark).compare("main", BRANCH).tables
    assert (found.change, found.removed) == ("dropped", 3)


def test_a_note_says_that_main_has_moved(bench: Bench) -> None:
    table = bench.open(bench.table("t", (1, 2)))
    table.append(rows(3))
    table.append(rows(3), branch=BRANCH)
    bench.lake.catalog.load_table(("s", "t"))
    found = Differ(bench.lake, lambda _: [(0, 0)]).compare(BRANCH)
    assert "main has moved" in found.tables[0].notes[-1]


@pytest.mark.parametrize(("key", "noted"), [("lower(id)", True), ("ID", False)])
def test_a_note_says_that_a_key_is_not_used(bench: Bench, key: str, noted: bool) -> None:
    bench.open(bench.table("t", (1, 2))).append(rows(3), branch=BRANCH)
    bench.open(bench.table("u", (1, 2)))
    keys = {("s", name): [key] for name in "tu"}

    def counts(statement: str) -> Sequence[Sequence[Any]]:
        return [(1, 0, 0, False, 0, 0) if "count_if(pair" in statement else (1, 0)]

    different, same = Differ(bench.lake, counts, keys=keys).compare(BRANCH).tables
    assert [note for note in different.notes if "not used" in note] == (
        [f"the key ({key}) is not used: not all of it are compared columns"] if noted else []
    )
    assert not same.notes


def test_the_base_has_the_rows_at_the_opening_of_the_branch(bench: Bench) -> None:
    table = bench.open(bench.table("t", (1, 2)))
    table.append(rows(3))
    (found,) = Differ(bench.lake, no_spark).compare(BRANCH, "base").tables
    assert found.change == "unchanged"


def test_the_error_for_an_unknown_branch_or_table_lists_the_known_ones(bench: Bench) -> None:
    bench.open(bench.table("t", (1,)))
    with pytest.raises(ConfigError, match=BRANCH):
        Differ(bench.lake, no_spark).compare("pr_2")
    with pytest.raises(ConfigError, match=r"s\.t"):
        Differ(bench.lake, no_spark).compare(BRANCH, tables=["other"])
    assert len(Differ(bench.lake, no_spark).compare(BRANCH, tables=["S.T"]).tables) == 1


def test_a_table_that_fails_is_reported_without_values(bench: Bench) -> None:
    table = bench.open(bench.table("t", (1, 2)))
    table.append(rows(3), branch=BRANCH)
    bench.open(bench.table("u", (1, 2)))

    def failing(statement: str) -> Sequence[Sequence[Any]]:
        raise RuntimeError("[CAST_INVALID_INPUT] The value 'anna@mail.example' cannot be cast")

    broken, fine = Differ(bench.lake, failing).compare(BRANCH).tables
    assert (broken.change, fine.change) == ("failed", "unchanged")
    assert "CAST_INVALID_INPUT" in broken.notes[0]
    assert "anna" not in str(broken)
