"""Tests that no rows can make fail are found by their config; other tests are not."""

from typing import Any

import pytest

from sparkwap.gate.thresholds import accepting, cannot_fail

USUAL: dict[str, Any] = {"severity": "ERROR", "error_if": "!= 0"}


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"limit": 0}, "limit: 0"),
        ({"limit": 5, "error_if": ">8"}, "error_if: >8"),
        ({"limit": 5, "error_if": "> 5"}, "limit: 5"),
        ({"limit": 5000, "error_if": ">= 5001"}, "limit: 5000"),
        ({"limit": 5, "error_if": "between 6 and 10"}, "between"),
        ({"error_if": "< 0"}, "< 0"),
        ({"error_if": "> 3 and 1 = 0"}, "1 = 0"),
        ({"error_if": "is null"}, "is null"),
        ({"fail_calc": "0"}, "fail_calc: 0"),
        ({"fail_calc": "7", "error_if": "> 10"}, "fail_calc: 7"),
        ({"where": "1 = 2"}, "where: 1 = 2"),
        ({"where": "false"}, "reads no row"),
    ],
)
def test_it_cannot_fail(config: dict[str, Any], told: str) -> None:
    why = cannot_fail(**{**USUAL, **config})
    assert why is not None
    assert told in why


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"limit": 5, "error_if": ">= 5"},
        {"limit": 5},
        {"limit": 1, "fail_calc": "sum(n)", "error_if": "> 1000"},
        {"error_if": "> 1000000"},
        {"error_if": "> 0.5", "fail_calc": "max(share)"},
        {"error_if": "< -100000", "fail_calc": "min(n)"},
        {"error_if": "% 2 = 1"},
        {"error_if": "> (select n from allowed)"},
        {"severity": "warn", "error_if": "> 8", "limit": 5},
        {"where": "status = 'open'"},
        {"where": "1 = 1"},
        {"where": "`1` = 2"},
    ],
)
def test_some_rows_make_it_fail(config: dict[str, Any]) -> None:
    assert cannot_fail(**{**USUAL, **config}) is None


@pytest.mark.parametrize(
    ("severity", "condition"),
    [
        ("error", "> 7"),
        ("error, error_if > 5", "> 7"),
        ("error, warn_if > 1, error_if >= 5", "> 7"),
        ("error, error_if <>0", "> 7"),
        ("error, error_if < 5", None),
        ("error, error_if between 1 and 9", None),
        ("error, fail_calc sum(n)", None),
        ("warn", None),
        ("", None),
    ],
)
def test_accepted_rows_raise_the_threshold(severity: str, condition: str | None) -> None:
    assert accepting(severity, 7) == condition
