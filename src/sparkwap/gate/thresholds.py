"""Finds tests whose config prevents every failure, and thresholds for accepted failures."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from contextlib import closing

COUNT = "count(*)"
_MORE_FAILS = re.compile(r"(?:!= *0|<> *0|>=? *\d+)")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_NEAR = 1_000


def cannot_fail(
    *,
    severity: str,
    error_if: str,
    fail_calc: str = COUNT,
    limit: int | None = None,
    where: str | None = None,
) -> str | None:
    """Return why no rows can make a test fail; None if some can, or if this is not known.

    SQLite evaluates the conditions for the numbers of failures at which they may change. It
    evaluates them as Spark does, or returns an error, for example if they name a column.

    Args:
        severity: The test's severity; a test that only warns need not fail.
        fail_calc: The SQL of that number.
        limit: The maximum number of failing rows that the test counts.
    """
    if limit == 0:
        return "its config has `limit: 0`, so it cannot fail"
    with closing(sqlite3.connect(":memory:")) as engine:

        def holds(condition: str) -> bool | None:
            try:
                row = engine.execute(f"select cast(({condition}) as integer) <> 0").fetchone()
            except (sqlite3.Error, sqlite3.Warning):
                return None
            return bool(row[0])

        if where and holds(where) is False:
            return f"its config has `where: {where}`, so it reads no rows"
        if severity.lower() != "error":
            return None
        numbers = _failures(error_if, fail_calc, limit)
        if any(holds(f"{number} {error_if}") is not False for number in numbers):
            return None
    given = [f"error_if: {error_if}", *([f"limit: {limit}"] if limit is not None else [])]
    given += [f"fail_calc: {fail_calc}"] if _plain(fail_calc) != COUNT else []
    return (
        f"its config has {', '.join(f'`{item}`' for item in given)}, so it cannot fail; for a test "
        "that only warns, set `severity: warn`"
    )


def accepting(severity: str, failures: int) -> str | None:
    """Return an `error_if` with which a test fails only on more than the accepted rows.

    Args:
        severity: The test's severity with its thresholds: `error`, `error, error_if > 10`.

    Returns:
        The condition; None for a test that does not count rows, or that fails on fewer rows.
    """
    kind, *given = severity.split(", ")
    own = dict(item.split(" ", 1) for item in given if " " in item)
    counts = _plain(own.get("fail_calc", COUNT)) == COUNT
    if kind != "error" or not counts or not _MORE_FAILS.fullmatch(own.get("error_if", "!= 0")):
        return None
    return f"> {failures}"


def _failures(condition: str, fail_calc: str, limit: int | None) -> Iterable[float]:
    """Return the possible numbers of failures at which a condition may change."""
    if _NUMBER.fullmatch(_plain(fail_calc)):
        return [float(fail_calc)]
    given = [float(number) for number in _NUMBER.findall(condition)]
    near = {number + step for number in given for step in (-1, -0.5, 0, 0.5, 1)}
    if _plain(fail_calc) != COUNT:
        return (
            {-number for number in near} | near | {*map(float, range(-_NEAR, _NEAR)), 1e18, -1e18}
        )
    most = float("inf") if limit is None else limit
    whole = {float(int(number)) for number in near} | {*map(float, range(_NEAR)), 1e18, most}
    return {number for number in whole if 0 <= number <= most and number != float("inf")}


def _plain(fail_calc: str) -> str:
    return "".join(fail_calc.lower().split())
