"""The oracle is right where the truth is plain: small logs by hand, and the source's own table."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from helpers.reference_model import (
    START,
    Row,
    attempts,
    deliver,
    event_set,
    history,
    in_order,
    rows_of,
    state,
)

ALL_KINDS: list[dict[str, Any]] = [
    {},
    {"partial": True},
    {"key": ("id", "part")},
    {"truncates": 0, "loads": 0},
    {"truncates": 3, "loads": 3, "partial": True},
]


def event(sequence: int, op: str, a: str | None = None, b: str | None = None, **more: Any) -> Row:
    return {
        "id": "1",
        "a": a,
        "b": b,
        "_op": op,
        "_sequence": f"{sequence:03d}",
        "_event_time": START + timedelta(hours=sequence),
        "_absent": None,
        "_load_date": START.date(),
        "_file_path": "f1",
        "_row": sequence,
        "_part": 0,
        "_batch": 1,
        "_kind": "row",
        "_load": "changes",
        **more,
    }


def last(*log: Row) -> tuple[Any, ...] | None:
    """The values of the one key, None if it is deleted."""
    (row,) = state(log, ["id"], ["id", "a", "b"]).values()
    return None if row["_is_deleted"] else (row["a"], row["b"])


def spans(*log: Row, **how: Any) -> list[tuple[Any, ...]]:
    """The versions of the one key: from, to in hours, how it ended, and a."""

    def hours(at: datetime | None) -> float | None:
        return None if at is None else (at - START) / timedelta(hours=1)

    found = history(log, ["id"], ["id", "a", "b"], **how).get(("1",), [])
    return [(hours(v.valid_from), hours(v.valid_to), v.closed_by, v.values["a"]) for v in found]


def test_the_highest_sequence_counts() -> None:
    assert last(event(2, "update", "new"), event(1, "insert", "old")) == ("new", None)


def test_a_late_update_does_not_bring_a_deleted_key_back() -> None:
    assert last(event(1, "insert"), event(3, "delete"), event(2, "update", "late")) is None
    assert last(event(3, "delete"), event(4, "insert", "back")) == ("back", None)


def test_an_absent_column_keeps_its_value_until_a_delete() -> None:
    partial = event(4, "update", "x", _absent=["b"])
    assert last(event(1, "insert", "a", "b"), partial) == ("x", "b")
    assert last(event(1, "insert", "a", "b"), event(2, "delete"), partial) == ("x", None)
    late = event(3, "update", "y", "z")
    assert last(event(1, "insert", "a", "b"), partial, late) == ("x", "z")


def test_a_truncate_clears_what_is_before_it() -> None:
    truncate = event(2, "truncate", id=None)
    assert last(event(1, "insert"), truncate) is None
    assert last(event(1, "insert"), truncate, event(3, "insert", "a")) == ("a", None)


def test_a_full_load_clears_the_keys_that_it_lacks() -> None:
    mark = event(3, "insert", _kind="file", _load="full", _op=None, _load_date=date(2024, 1, 5))
    assert last(event(1, "insert"), mark) is None
    assert last(event(1, "insert"), event(4, "update", "a"), mark) == ("a", None)


def test_a_copy_stands_where_it_came_first() -> None:
    a, b = event(1, "update", "a", _row=1), event(1, "update", "b", _row=2)
    assert last(a, b) == ("b", None)
    assert last(a, b, {**a, "_file_path": "f2"}) == ("b", None)
    assert last(a, b, {**a, "_file_path": "f0"}, {**b, "_file_path": "f2"}) == ("b", None)
    assert last(a, b, {**a, "_row": 3}) == ("a", None)


def test_versions_go_from_change_to_change() -> None:
    log = (
        event(1, "insert", "a"),
        event(2, "update", "a"),
        event(3, "update", "b"),
        event(5, "delete"),
        event(7, "insert", "b"),
    )
    truth = [(1, 3, "update", "a"), (3, 5, "delete", "b"), (7, None, None, "b")]
    assert spans(*log) == truth
    assert spans(*reversed(log)) == truth
    assert spans(*log, tracked=["b"]) == [(1, 5, "delete", "a"), (7, None, None, "b")]
    assert spans(*log, grain="date") == [(0, None, None, "b")]


def test_the_last_of_one_moment_counts() -> None:
    at = {"_event_time": START}
    log = event(1, "insert", "a", **at), event(2, "delete", **at), event(3, "insert", "c", **at)
    assert spans(*log) == [(0, None, None, "c")]
    assert spans(*log[:2]) == []


@pytest.mark.parametrize("kind", ALL_KINDS, ids=str)
@pytest.mark.parametrize("seed", range(20))
def test_any_delivery_leads_to_the_table_of_the_source(seed: int, kind: dict[str, Any]) -> None:
    events = event_set(seed, **kind)
    deliveries = [in_order(events), deliver(events, seed, batches=1 + seed % 10)]
    found = [state(rows_of(d), events.key, events.columns) for d in deliveries]
    for rows in found:
        assert {
            k: {c: row[c] for c in events.columns if c not in events.key}
            for k, row in rows.items()
            if not row["_is_deleted"]
        } == events.table
    assert {k: r["_sequence"] for k, r in found[0].items()} == {
        k: r["_sequence"] for k, r in found[1].items()
    }
    histories = [history(rows_of(d), events.key, events.columns) for d in deliveries]
    assert histories[0] == histories[1]
    assert {k: v[-1].values for k, v in histories[0].items() if v[-1].is_current} == {
        k: {c: row[c] for c in events.columns}
        for k, row in found[0].items()
        if not row["_is_deleted"]
    }


@pytest.mark.parametrize("seed", range(20))
def test_copies_in_later_files_do_not_change_the_order_of_ties(seed: int) -> None:
    events = event_set(seed, tied=True, partial=seed % 2 == 0)
    clean = deliver(events, 0, shuffle=False, duplicates=0, files_per_batch=6)
    dirty = deliver(events, seed, shuffle=False, batches=6, files_per_batch=1, duplicates=0.5)
    key, columns = events.key, events.columns
    assert history(rows_of(clean), key, columns) == history(rows_of(dirty), key, columns)


def test_the_events_are_as_dirty_as_they_say() -> None:
    events = event_set(3, changes=4000, partial=True)
    ops = [row["_op"] for message in events.messages for row in message]
    assert 0.15 < ops.count("delete") / len(ops) < 0.3
    assert {"insert", "update", "delete", "truncate"} == set(ops)
    assert any(len(message) == 2 for message in events.messages)
    delivered = rows_of(deliver(events, 1, batches=10))
    copies = sum(r["_kind"] == "row" and r["_load"] == "changes" for r in delivered) / len(ops)
    assert 1.1 < copies < 1.25
    kept = [rows for rows, is_kept in attempts(deliver(events, 1, batches=10), 5) if is_kept]
    assert rows_of(kept) == delivered
    assert events.messages[0][0]["_event_time"].tzinfo == UTC
