"""What metadata decides without a statement, and what is sent where it does not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparkwap.core.errors import ConfigError
from sparkwap.core.names import is_diff_folder
from sparkwap.diff import Differ, work
from sparkwap.diff.work import _class_of

from .conftest import BRANCH, Bench, rows


def no_spark(statement: str) -> Sequence[Sequence[Any]]:
    raise AssertionError(f"no statement was expected: {statement}")


def test_a_branch_on_which_nothing_was_written_differs_in_nothing(bench: Bench) -> None:
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


def test_a_clone_with_a_new_column_and_the_same_files_differs_in_it_alone(bench: Bench) -> None:
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
    # The other way round it is dropped.
    (found,) = Differ(bench.lake, no_spark).compare("main", BRANCH).tables
    assert (found.change, found.removed) == ("dropped", 3)


def test_main_that_moved_is_said(bench: Bench) -> None:
    table = bench.open(bench.table("t", (1, 2)))
    table.append(rows(3))
    table.append(rows(3), branch=BRANCH)
    bench.lake.catalog.load_table(("s", "t"))
    found = Differ(bench.lake, lambda _: [(0, 0)]).compare(BRANCH)
    assert "main has moved" in found.tables[0].notes[-1]


def test_rows_of_the_base_are_those_when_the_branch_was_opened(bench: Bench) -> None:
    table = bench.open(bench.table("t", (1, 2)))
    table.append(rows(3))
    (found,) = Differ(bench.lake, no_spark).compare(BRANCH, "base").tables
    assert found.change == "unchanged"


def test_an_unknown_branch_or_table_is_an_error_that_names_the_others(bench: Bench) -> None:
    bench.open(bench.table("t", (1,)))
    with pytest.raises(ConfigError, match=BRANCH):
        Differ(bench.lake, no_spark).compare("pr_2")
    with pytest.raises(ConfigError, match=r"s\.t"):
        Differ(bench.lake, no_spark).compare(BRANCH, tables=["other"])
    assert len(Differ(bench.lake, no_spark).compare(BRANCH, tables=["S.T"]).tables) == 1


def test_a_table_that_fails_is_told_without_the_values_in_the_error(bench: Bench) -> None:
    table = bench.open(bench.table("t", (1, 2)))
    table.append(rows(3), branch=BRANCH)
    bench.open(bench.table("u", (1, 2)))

    def failing(statement: str) -> Sequence[Sequence[Any]]:
        raise RuntimeError("[CAST_INVALID_INPUT] The value 'anna@mail.example' cannot be cast")

    broken, fine = Differ(bench.lake, failing).compare(BRANCH).tables
    assert (broken.change, fine.change) == ("failed", "unchanged")
    assert "CAST_INVALID_INPUT" in broken.notes[0]
    assert "anna" not in str(broken)
    assert _class_of(ValueError("anna")) == "ValueError"


class Spark:
    """Answers what a comparison asks, and notes it; writes a file for each private table."""

    def __init__(self, *, fails_at: int | None = None, broken: bool = False) -> None:
        self.statements: list[str] = []
        self.folders: list[Path] = []
        self._fails_at = fails_at
        self._broken = broken

    def __call__(self, statement: str) -> Sequence[Sequence[Any]]:
        self.statements.append(statement)
        if self._broken and statement.startswith("create namespace"):
            raise RuntimeError("[CLASS_NOT_FOUND] no driver")
        created = re.match(r"create table \S+ using iceberg location '(.*?)'", statement)
        if created:
            self.folders.append(Path(created[1].removeprefix("file://")))
            (self.folders[-1] / "data").mkdir(parents=True)
            (self.folders[-1] / "data/x.parquet").write_bytes(b"x")
            if len(self.folders) == self._fails_at:
                raise RuntimeError("[DIVIDE_BY_ZERO] in the view")
        if statement.startswith("set spark.sql.shuffle.partitions"):
            return [("spark.sql.shuffle.partitions", "2")]
        if statement.startswith("select coalesce"):
            return [(1, 2)]
        return []

    def sent(self, beginning: str) -> list[str]:
        """The statements that begin so, each up to its query."""
        return [s.split(" as select ")[0] for s in self.statements if s.startswith(beginning)]


def views(bench: Bench) -> None:
    bench.view("v")
    bench.lake.ensure_schema(f"s__{BRANCH}", BRANCH)
    bench.view("v", f"s__{BRANCH}")


def test_a_view_is_read_on_either_branch_into_tables_that_are_gone_afterwards(bench: Bench) -> None:
    views(bench)
    spark = Spark()
    (found,) = Differ(bench.lake, spark).compare(BRANCH).tables
    assert (found.change, found.how, found.added, found.removed) == ("changed", "whole", 1, 2)
    session = [s for s in spark.statements if "spark.wap.branch" in s or s.startswith("create t")]
    assert [s.split(" using ")[0].split(" wap_diff.")[0] for s in session] == [
        f"set spark.wap.branch={BRANCH}",
        "create table",
        "reset spark.wap.branch",
        "reset spark.wap.branch",
        "create table",
        "reset spark.wap.branch",
    ]
    assert len(spark.folders) == 2
    assert not any(folder.exists() for folder in spark.folders)
    assert all(is_diff_folder(folder.name) for folder in spark.folders)


def test_a_view_that_fails_leaves_nothing(bench: Bench) -> None:
    views(bench)
    spark = Spark(fails_at=2)
    (found,) = Differ(bench.lake, spark).compare(BRANCH).tables
    assert (found.change, found.notes) == ("failed", ("not compared: Spark said DIVIDE_BY_ZERO",))
    assert len(spark.folders) == 2
    assert not any(folder.exists() for folder in spark.folders)
    assert spark.statements[-1] == "reset spark.wap.branch"


def test_without_private_tables_a_view_says_what_is_missing(bench: Bench) -> None:
    views(bench)
    (found,) = Differ(bench.lake, Spark(broken=True)).compare(BRANCH).tables
    assert found.change == "failed"
    assert "CLASS_NOT_FOUND" in found.notes[0]
    assert "SQLite's JDBC driver" in found.notes[0]


@pytest.mark.parametrize("many", [False, True])
def test_many_rows_are_hashed_before_they_are_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    if many:
        monkeypatch.setattr(work, "_AT_ONCE", 0)
        monkeypatch.setattr(work, "_PER_PARTITION", 1)
    table = bench.open(bench.table("t", (1, 2)))
    table.append(rows(3, 4, 5), branch=BRANCH)
    spark = Spark()
    (found,) = Differ(bench.lake, spark, sample=1).compare(BRANCH).tables
    assert (found.added, found.removed, found.how) == (1, 2, "files")
    kept = [s for s in spark.statements if s.startswith("cache table")]
    assert len(kept) == (2 if many else 1)
    # All values go through the shuffle, or only those of hashes that differ.
    assert ("named_struct" in kept[0]) is not many
    assert ("broadcast" in kept[-1]) is many
    sizes = ["set spark.sql.shuffle.partitions=3", "set spark.sql.shuffle.partitions=2"]
    assert spark.sent("set spark.sql.shuffle.partitions=") == (sizes if many else [])
    assert len(spark.sent("uncache")) == len(kept)
