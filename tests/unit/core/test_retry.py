"""The rules for errors, with messages of Spark and of databases."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import OperationalError

from sparkwap.core.retry import Fate, Rule, batch_fate, classify, fate, rule_of, step, wait_seconds

RULES: tuple[Rule, ...] = get_args(Rule)
FATES: tuple[Fate, ...] = get_args(Fate)
MESSAGES: list[tuple[Rule, str]] = [
    (
        "retry",
        "org.apache.iceberg.jdbc.UncheckedSQLException: Unknown failure\nCaused by: "
        "org.sqlite.SQLiteException: [SQLITE_BUSY] The database file is locked",
    ),
    ("retry", "ERROR: could not serialize access due to concurrent update"),
    (
        "retry",
        '(psycopg2.OperationalError) connection to server at "127.0.0.1", port 5432 failed: '
        "FATAL:  sorry, too many clients already",
    ),
    (
        "fail",
        "org.apache.iceberg.jdbc.UncheckedSQLException: Failed to connect: jdbc:postgresql://db\n"
        "Caused by: org.postgresql.util.PSQLException: FATAL: sorry, too many clients already",
    ),
    ("retry", "ERROR: deadlock detected\n  Detail: Process 1 waits for ShareLock"),
    (
        "refresh",
        "org.apache.iceberg.exceptions.CommitFailedException: Cannot commit s.t: metadata "
        "location has changed",
    ),
    ("refresh", "Cannot commit: Table metadata refresh is required"),
    ("refresh", "Requirement failed: branch main has changed: expected id 1, found 2"),
    (
        "rebuild",
        "org.apache.iceberg.exceptions.ValidationException: Found conflicting files that can "
        'contain records matching ref(name="id") == 1: [a.parquet]',
    ),
    (
        "rebuild",
        "ValidationException: Found new conflicting delete files that can apply to records",
    ),
    ("rebuild", "ValidationException: Cannot commit, missing data files: [a.parquet]"),
    (
        "look",
        "org.apache.iceberg.exceptions.CommitStateUnknownException: Cannot determine whether the "
        "commit was successful or not\nCaused by: CommitFailedException",
    ),
    (
        "look",
        "org.postgresql.util.PSQLException: An I/O error occurred while sending to the backend.",
    ),
    ("fail", "[TABLE_OR_VIEW_NOT_FOUND] The table or view `t` cannot be found."),
    ("fail", "[DIVIDE_BY_ZERO] Division by zero."),
    ("fail", ""),
]


@pytest.mark.parametrize(("rule", "message"), MESSAGES)
def test_messages(rule: Rule, message: str) -> None:
    assert classify(message) == rule


def test_sqlstates_and_causes_count() -> None:
    class Serialization(Exception):
        pgcode = "40001"

    wrapped = OperationalError("update t", {}, Serialization("sagt ein Server auf Deutsch"))
    assert rule_of(wrapped) == "retry"
    told = RuntimeError("the statement failed")
    told.__cause__ = ValueError(next(text for rule, text in MESSAGES if rule == "refresh"))
    assert rule_of(told) == "refresh"
    assert rule_of(ValueError("no")) == "fail"


@pytest.mark.parametrize(
    ("before", "after", "parent", "writer", "found"),
    [
        (1, 1, 0, "mine", "not made"),
        (None, None, None, None, "not made"),
        (1, 2, 1, "mine", "made"),
        (None, 2, None, "mine", "made"),
        (1, 2, 1, "other", "unknown"),
        (1, 3, 2, "mine", "unknown"),
        (1, None, None, None, "unknown"),
    ],
)
def test_fates(
    before: int | None, after: int | None, parent: int | None, writer: str | None, found: Fate
) -> None:
    assert fate(before, after, parent, writer, "mine") == found


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ([], "not made"),
        # The next batch has written, so the head alone would say that this one has.
        ([("mine", "day 2")], "not made"),
        ([("mine", "day 2"), ("mine", "day 1"), ("mine", "day 3")], "made"),
        ([("mine", "day 1"), ("other", "day 2")], "unknown"),
        ([("other", "day 1")], "unknown"),
        ([("mine", None)], "not made"),
        ([(None, None)], "unknown"),
    ],
)
def test_fates_of_a_batch_beside_others(
    written: list[tuple[str | None, str | None]], found: Fate
) -> None:
    assert batch_fate(written, "mine", "day 1") == found


@given(st.sampled_from(RULES), st.sampled_from(FATES), st.integers(1, 9))
def test_a_possibly_committed_write_is_not_sent_twice(rule: Rule, found: Fate, tried: int) -> None:
    taken = step(rule, found, tried)
    if taken == "send":
        assert rule in ("retry", "refresh")
        assert found in ("not made", "no table")
        assert tried < 5
    if taken == "done":
        assert found == "made"


def test_steps() -> None:
    assert step("retry", "not made", 1) == "send"
    assert step("refresh", "no table", 1) == "send"
    assert step("look", "made", 1) == "done"
    assert step("look", "not made", 1) == "raise"
    assert step("retry", "made", 5) == "done"
    assert step("fail", "made", 1) == "raise"


def test_waits_double() -> None:
    assert [wait_seconds(tried, 0.5, 1) for tried in (1, 2, 3)] == [1, 2, 4]
    assert wait_seconds(1, 0, 2) == 1


@given(st.integers(1, 10_000), st.floats(0, 1e6), st.floats(0, 1, exclude_max=True))
def test_waits_are_bounded(tried: int, first: float, draw: float) -> None:
    assert 0 <= wait_seconds(tried, draw, first, 300) <= 300
