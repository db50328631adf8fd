"""The versions of a key."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from sparkwap.page import key_history

from .conftest import NOW


def test_versions_list_changed_columns_and_hide_personal_ones() -> None:
    rows = [
        {"id": 1, "city": "Rome", "email": "a@b", "valid_from": date(2026, 1, 1),
         "valid_to": date(2026, 1, 10), "row_hash": "x", "_batch": 1, "loaded_at": NOW},
        {"id": 1, "city": "Oslo", "email": "c@d", "valid_from": date(2026, 1, 10),
         "valid_to": date(9999, 12, 31), "row_hash": "y", "_batch": 2},
        {"id": 1, "city": "Oslo", "email": "e@f", "valid_from": date(2026, 1, 20),
         "valid_to": None, "row_hash": "z", "_batch": 3},
    ]  # fmt: skip
    found = key_history.versions(rows, "valid_from", "valid_to", {"email"})
    assert [one.what for one in found] == [
        "first version",
        "changed: city",
        "no shown column changed",
    ]
    assert [dict(one.values) for one in found] == [
        {"id": "1", "city": city} for city in ("Rome", "Oslo", "Oslo")
    ]
    bars = key_history.timeline(found, NOW)
    assert [(bar["valid_from"][:10], bar["end"][:10], bar["state"]) for bar in bars] == [
        ("2026-01-01", "2026-01-10", "ended"),
        ("2026-01-10", "2026-01-31", "current"),
        ("2026-01-20", "2026-01-31", "current"),
    ]


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1),
        date(2026, 1, 1),
        "2026-01-01",
        "2026-01-01T00:00:00+00:00",
    ],
)
def test_a_beginning_may_be_of_any_type(value: Any) -> None:
    (version,) = key_history.versions([{"f": value, "t": None}], "f", "t", ())
    assert version.start == datetime(2026, 1, 1, tzinfo=UTC)


def test_a_version_without_a_beginning_starts_at_the_first_known_one() -> None:
    rows = [{"f": None, "t": date(2026, 1, 5)}, {"f": date(2026, 1, 5), "t": None}]
    bars = key_history.timeline(key_history.versions(rows, "f", "t", ()), NOW)
    assert bars[0]["valid_from"] == "unknown"
    assert bars[0]["start"] <= bars[0]["end"]


def test_a_start_that_is_no_time_is_not_known() -> None:
    (found,) = key_history.versions(
        [{"valid_from": "n/a", "valid_to": None}], "valid_from", "valid_to", ()
    )
    assert found.start is None
