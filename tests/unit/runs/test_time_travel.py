"""The moment of a replay, and the snapshot that readers saw then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkwap.catalog import Identifier
from sparkwap.catalog.history import TableHistory
from sparkwap.core.errors import ConfigError
from sparkwap.runs import replay_moment
from sparkwap.runs.main_history import RecordedChange, ReplayRefused, snapshot_at
from sparkwap.runs.replay_moment import Moment, asked
from sparkwap.runs.time_travel import Outside, Replay

NOW = datetime(2024, 6, 1, tzinfo=UTC)
ORDERS: Identifier = ("shop", "orders")


def t(minute: float) -> datetime:
    return datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)


# ---------------------------------------------------------------- which moment


@pytest.mark.parametrize(
    "value",
    [
        "2024-01-01T00:00:00Z",
        "2024-01-01 00:00:00+00:00",
        "2024-01-01T02:00:00+02:00",
        datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
    ],
)
def test_a_time_is_converted_to_utc(value: object) -> None:
    assert asked(value, NOW) == Moment(t(0))


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("wap_pub_1a2b3c4d", "1a2b3c4d"),
        ("1a2b3c4d", "1a2b3c4d"),
        ("1A2B3C4D-0000-4000-8000-000000000000", "1a2b3c4d-0000-4000-8000-000000000000"),
    ],
)
def test_a_tag_or_an_id_names_a_publish(value: str, name: str) -> None:
    assert asked(value, NOW) == name


@pytest.mark.parametrize("value", [None, ""])
def test_without_a_value_there_is_no_replay(value: object) -> None:
    assert asked(value, NOW) is None


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("2024-01-01T00:00:00", "lacks its offset"),
        (datetime(2024, 1, 1), "lacks its offset"),
        ("2024-01-01", "a day has many moments"),
        (date(2024, 1, 1), "a day has many moments"),
        ("2024-13-01T00:00:00Z", "is not a time"),
        ("2024-06-01T00:00:01Z", "in the future"),
        (342391, "put it in quotes"),
        ("yesterday", "none of these"),
        ("1a2b3c", "none of these"),
    ],
)
def test_an_illegal_moment_is_refused_with_the_legal_values(value: object, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as error:
        asked(value, NOW)
    assert "Nothing was run" in str(error.value)
    assert "wap_pub_" in str(error.value)


def row(publish: str, run: str, minute: float, **more: Any) -> dict[str, Any]:
    return {
        "publish_id": publish,
        "run_id": run,
        "schema": "shop",
        "name": "orders",
        "base_snapshot": None,
        "candidate_snapshot": 1,
        "published_at": t(minute),
        "action": "publish",
        **more,
    }


def test_a_publish_is_found_by_its_id_and_by_its_run_id() -> None:
    rows = [row("aaaaaaaa-1", "bbbbbbbb-1", 1), row("aaaaaaaa-1", "bbbbbbbb-1", 1, name="b")]
    for name in ("aaaaaaaa", "bbbbbbbb-1"):
        assert replay_moment.named(name, rows) == Moment(t(1), "aaaaaaaa-1")


def test_a_rollback_is_no_publish_of_the_run_that_rolled_back() -> None:
    rows = [row("aaaaaaaa-1", "bbbbbbbb-1", 1), row("aaaaaaaa-1", "cccccccc", 2, action="rollback")]
    with pytest.raises(ConfigError, match="knows of no publish 'cccccccc'"):
        replay_moment.named("cccccccc", rows)


def test_an_ambiguous_id_is_refused() -> None:
    rows = [row("aaaaaaaa-1", "b", 1), row("aaaaaaaa-2", "c", 2)]
    with pytest.raises(ConfigError, match="2 publishes have an id that begins with 'aaaaaaaa'"):
        replay_moment.named("aaaaaaaa", rows)


# ---------------------------------------------------------------- which snapshot


def history(
    log: Iterable[tuple[float, int]], parents: Mapping[int, int | None], main: int | None = None
) -> TableHistory:
    entries = tuple((t(minute), one) for minute, one in log)
    last = entries[-1][1] if entries else None
    cut = bool(entries) and parents.get(entries[0][1]) is not None
    return TableHistory(ORDERS, "table", main or last, entries, parents, cut)


def published(
    minute: float, base: int | None, candidate: int | None, name: str = ""
) -> RecordedChange:
    return RecordedChange(t(minute), "publish", name or f"p{minute}", base, candidate)


def undone(minute: float, base: int | None, candidate: int | None, name: str) -> RecordedChange:
    return RecordedChange(t(minute), "rollback", name, base, candidate)


def test_a_table_of_another_program_follows_its_snapshot_log() -> None:
    of_others = history([(1, 11), (2, 12)], {11: None, 12: 11})
    assert [snapshot_at(of_others, [], t(m)) for m in (0, 1, 1.5, 2, 9)] == [None, 11, 11, 12, 12]


def test_a_publish_counts_from_its_time_in_the_ledger() -> None:
    # A log has the time at which this table's file was written, a moment later for each table.
    gated = history([(1.1, 11), (2.1, 12)], {11: None, 12: 11})
    changes = [published(1, None, 11), published(2, 11, 12)]
    assert [snapshot_at(gated, changes, t(m)) for m in (0.9, 1, 1.9, 2)] == [None, 11, 11, 12]


def test_intermediate_snapshots_of_a_build_were_never_visible() -> None:
    # A new table that was built in the side schema in two steps, long before its publish.
    built = history([(1, 11), (2, 12), (5, 12)], {11: None, 12: 11})
    assert snapshot_at(built, [published(5, None, 12)], t(3)) is None
    assert snapshot_at(built, [published(5, None, 12)], t(5)) == 12


def test_writes_of_others_after_a_publish_count() -> None:
    mixed = history([(1, 11), (2, 12), (3, 13)], {11: None, 12: 11, 13: 12})
    changes = [published(1, None, 11), published(3, 12, 13)]
    assert [snapshot_at(mixed, changes, t(m)) for m in (1, 2, 3)] == [11, 12, 13]


def test_between_a_publish_and_its_rollback_readers_saw_it() -> None:
    rolled_back = history([(1, 11), (2, 12), (3, 11)], {11: None, 12: 11})
    changes = [published(1, None, 11), published(2, 11, 12, "p"), undone(3, 11, 12, "p")]
    assert [snapshot_at(rolled_back, changes, t(m)) for m in (1, 2, 3)] == [11, 12, 11]


def test_a_rollback_of_several_publishes_restores_the_state_before_the_first() -> None:
    log = history([(1, 11), (2, 12), (3, 13), (4, 11)], {11: None, 12: 11, 13: 12})
    changes = [
        published(1, None, 11),
        published(2, 11, 12, "z"),
        published(3, 12, 13, "a"),
        undone(4, 12, 13, "a"),
        undone(4, 11, 12, "z"),
    ]
    assert [snapshot_at(log, changes, t(m)) for m in (3, 4)] == [13, 11]


def test_a_table_whose_first_publish_was_rolled_back_did_not_exist() -> None:
    again = history([(5, 21)], {21: None})
    changes = [published(1, None, 11, "p"), undone(2, None, 11, "p"), published(5, None, 21)]
    assert snapshot_at(again, changes, t(3)) is None
    with pytest.raises(ReplayRefused, match="snapshot 11 at that time has expired"):
        snapshot_at(again, changes, t(1))


def test_an_expired_state_is_distinguished_from_a_missing_table() -> None:
    cut = history([(5, 15)], {15: 14})
    with pytest.raises(ReplayRefused, match="expired; its history begins at 2024-01-01T00:05"):
        snapshot_at(cut, [], t(1))


def test_a_log_that_was_cut_after_a_publish_proves_nothing() -> None:
    # Others wrote 12 at an unknown time between; its log entry was removed when it expired.
    cut = history([(5, 13)], {11: None, 13: 12})
    with pytest.raises(ReplayRefused, match="it is unknown whether others wrote"):
        snapshot_at(cut, [published(1, None, 11)], t(3))
    # The next publish started from 11, so nobody else wrote.
    changes = [published(1, None, 11), published(5, 11, 13)]
    assert snapshot_at(history([(5, 13)], {11: None, 13: 11}), changes, t(3)) == 11


def test_a_publish_of_a_view_or_an_empty_table_has_no_snapshot() -> None:
    filled = history([(5, 21)], {21: None})
    assert snapshot_at(filled, [published(1, None, None), published(5, None, 21)], t(3)) is None


@given(st.lists(st.sampled_from("po"), min_size=1, max_size=12), st.integers(0, 26))
def test_snapshot_at_returns_what_a_reader_saw(steps: list[str], half: int) -> None:
    """Publishes (each by two snapshots) and other writers' commits, a minute apart."""
    log, parents, changes, seen = [], {}, [], {}
    main: int | None = None
    for minute, step in enumerate(steps, start=1):
        new = minute * 10
        if step == "p":
            parents[new], parents[new + 1] = main, new
            changes.append(published(minute, main, new + 1))
            new += 1
        else:
            parents[new] = main
        log.append((minute + (0.1 if step == "p" else 0), new))
        main = seen[minute] = new
    expected = next((seen[m] for m in sorted(seen, reverse=True) if m <= half / 2), None)
    assert snapshot_at(history(log, parents), changes, t(half / 2)) == expected


# ---------------------------------------------------------------- the pins of a run


def a_replay(*pasts: TableHistory) -> Replay:
    known = {past.identifier: past for past in pasts}
    return Replay(
        Moment(t(3)), lambda names: {name: known[name] for name in names if name in known}, {}
    )


def test_all_read_tables_are_pinned_or_none() -> None:
    past = history([(1, 11)], {11: None})
    young = TableHistory(("shop", "young"), "table", 1, ((t(9), 1),), {1: None})
    view = TableHistory(("shop", "newest"), "view")
    one = a_replay(past, young, view)
    with pytest.raises(ReplayRefused) as error:
        one.pin(
            Outside(("shop", name), node, "totals")
            for name, node in (
                ("orders", "orders"),
                ("young", "young"),
                ("newest", "newest"),
                ("gone", "source:shop.gone"),
            )
        )
    told = str(error.value)
    assert "shop.young, read by totals: it did not exist then" in told
    assert "shop.newest, read by totals: it is a view" in told
    assert "--select ... newest" in told
    assert "shop.gone, read by totals: there is no such table now" in told
    assert "Nothing was written" in told
    assert "shop.orders" not in told


def test_the_summary_and_the_ledger_have_the_pins() -> None:
    one = a_replay(history([(1, 11)], {11: None}))
    one.pin([Outside(ORDERS, "orders", "totals")])
    assert one.recorded_pins() == {"shop.orders": "11"}
    assert one.remark() == [
        "A replay as of 2024-01-01T00:03:00.000000Z; 1 table read as of then: shop.orders at 11"
    ]


def test_a_table_that_the_run_builds_need_not_have_existed() -> None:
    one = a_replay(history([(1, 11)], {11: None}), TableHistory(("shop", "v"), "view"))
    assert one.former(ORDERS) == 11
    assert one.former(("shop", "v")) is None
    assert one.former(("shop", "gone")) is None


def test_the_sql_literal_of_a_moment_does_not_depend_on_the_time_zone() -> None:
    assert replay_moment.literal(t(3)) == "timestamp '2024-01-01 00:03:00.000000Z'"
