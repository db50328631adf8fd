"""The statements that count the rows that differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sparkwap.catalog.private_catalog import CATALOG
from sparkwap.core.names import is_diff_folder
from sparkwap.diff import session, sources
from sparkwap.diff.differ import Differ

from .conftest import BRANCH, Bench, rows


class Spark:
    """Records the statements of a comparison; writes a file for each private table."""

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
        """Return the statements with this beginning, each up to its query."""
        return [s.split(" as select ")[0] for s in self.statements if s.startswith(beginning)]


def views(bench: Bench) -> None:
    bench.view("v")
    bench.lake.ensure_schema(f"s__{BRANCH}", BRANCH)
    bench.view("v", f"s__{BRANCH}")


def test_a_view_is_read_on_both_branches_into_temporary_tables(bench: Bench) -> None:
    views(bench)
    spark = Spark()
    (found,) = Differ(bench.lake, spark).compare(BRANCH).tables
    assert (found.change, found.how, found.added, found.removed) == ("changed", "whole", 1, 2)
    session = [s for s in spark.statements if "spark.wap.branch" in s or s.startswith("create t")]
    assert [s.split(" using ")[0].split(f" {CATALOG}.")[0] for s in session] == [
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


def test_a_view_that_fails_leaves_no_tables(bench: Bench) -> None:
    views(bench)
    spark = Spark(fails_at=2)
    (found,) = Differ(bench.lake, spark).compare(BRANCH).tables
    assert (found.change, found.notes) == (
        "failed",
        ("not compared: Spark reported DIVIDE_BY_ZERO",),
    )
    assert len(spark.folders) == 2
    assert not any(folder.exists() for folder in spark.folders)
    assert spark.statements[-1] == "reset spark.wap.branch"


def test_without_private_tables_a_view_is_not_compared(bench: Bench) -> None:
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
        monkeypatch.setattr(sources, "_AT_ONCE", 0)
        monkeypatch.setattr(session, "_PER_PARTITION", 1)
    table = bench.open(bench.table("t", (1, 2)))
    table.append(rows(3, 4, 5), branch=BRANCH)
    spark = Spark()
    (found,) = Differ(bench.lake, spark, sample=1).compare(BRANCH).tables
    assert (found.added, found.removed, found.how) == (1, 2, "files")
    kept = [s for s in spark.statements if s.startswith("cache table")]
    assert len(kept) == (2 if many else 1)
    # Spark shuffles all values, or only those of hashes that differ.
    assert ("named_struct" in kept[0]) is not many
    assert ("broadcast" in kept[-1]) is many
    sizes = ["set spark.sql.shuffle.partitions=3", "set spark.sql.shuffle.partitions=2"]
    assert spark.sent("set spark.sql.shuffle.partitions=") == (sizes if many else [])
    assert len(spark.sent("uncache")) == len(kept)
