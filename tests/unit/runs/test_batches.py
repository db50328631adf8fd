"""Missing batches of a microbatch model on `main`, by the builds in the ledger."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sparkwap.gate.verdicts import PUBLISHING_OFF
from sparkwap.runs.batches import (
    BatchBuild,
    Range,
    builds,
    lacking,
    lost,
    merged,
    notices,
    read,
    untold,
    written,
)

DAY = timedelta(days=1)
NOON = timedelta(hours=12)


def day(number: int) -> datetime:
    return datetime(2026, 3, number, tzinfo=UTC)


def build(at: int, *, published: bool, lookback: int = 1, first: int | None = None) -> BatchBuild:
    """Return a run at noon of a day, which builds this day and the lookback of dbt."""
    start = day(at) - lookback * DAY if first is None else day(first)
    return BatchBuild(((start, day(at) + DAY),), day(at) + NOON, published)


FIRST = build(3, published=True, first=1)


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ([], []),
        # The next run's lookback includes the rejected range, but not the rest of the day before.
        ([build(4, published=False), build(5, published=True)], [(day(3) + NOON, day(4))]),
        ([build(4, published=False), build(5, published=True, lookback=2)], []),
        ([build(4, published=False)] * 2 + [build(4, published=True)], []),
        # The second half of day 3 was built with day 4, and rejected with it.
        (
            [build(4, published=False), build(5, published=False), build(6, published=True)],
            [(day(3) + NOON, day(5))],
        ),
        (
            [build(4, published=False, lookback=0), build(5, published=True, lookback=0)],
            [(day(4), day(5))],
        ),
        # Skipped for days, as its parent was rejected: no run has built anything.
        ([build(7, published=True)], [(day(4), day(6))]),
        ([build(7, published=True), build(8, published=True, first=4)], []),
        ([build(7, published=True), build(8, published=True, first=5)], [(day(4), day(5))]),
        # A rejected full build does not change the published ranges.
        ([build(4, published=False, first=1), build(5, published=True, lookback=2)], []),
        ([build(4, published=True), build(5, published=True)], []),
    ],
)
def test_a_range_is_missing_until_a_publish_has_it(
    later: list[BatchBuild], expected: list[Range]
) -> None:
    assert list(lacking([FIRST, *later])) == expected


def row(of: BatchBuild, verdict: str = "published", **more: Any) -> tuple[dict[str, Any], bool]:
    told = {"batches": written(of.ranges), "built_at": of.at, "reason": None, **more}
    return told, verdict == "published"


def test_builds_before_the_last_full_build_do_not_count() -> None:
    rejected = row(build(4, published=False), "rejected")
    audit = row(build(5, published=False), "held", reason=PUBLISHING_OFF)
    whole = row(FIRST, batches=None)
    assert builds([rejected, whole, row(FIRST), rejected, audit]) == [
        FIRST,
        build(4, published=False),
    ]
    assert builds([rejected, ({"batches": None, "reason": None}, False)]) == [
        build(4, published=False)
    ]
    # A row of an older version does not have the column.
    assert read({}) == ()
    assert written(()) is None


def test_a_table_that_is_built_anew_loses_the_published_batches_of_other_times() -> None:
    built = [FIRST, build(9, published=False), build(5, published=True)]
    assert lost(built, (day(2), day(5))) == ((day(1), day(2)), (day(5), day(6)))
    assert lost(built, (day(1), day(6))) == ()
    assert lost([], (day(2), day(5))) == ()


def test_batches_of_which_no_publish_tells_may_be_on_main() -> None:
    before = datetime.min.replace(tzinfo=UTC)
    of_new, of_old = row(FIRST, base_snapshot=None), row(FIRST, base_snapshot=7)
    assert untold([of_new, row(build(5, published=True), base_snapshot=8)]) == ()
    # The table had rows before: of another tool, or of an older version.
    (found,) = untold([row(build(2, published=False), "held"), of_old])
    assert found == BatchBuild(((before, FIRST.at),), FIRST.at, True)
    whole = row(build(4, published=True), batches=None, base_snapshot=7)
    for first in (of_new, of_old):
        (found,) = untold([first, whole, row(build(6, published=True))])
        assert found.ranges == ((before, day(4) + NOON),)
    (never,) = untold([row(FIRST, "rejected")])
    assert never.ranges[0][1] > day(30)


def test_adjacent_ranges_are_merged() -> None:
    days = [(day(n), day(n + 1)) for n in (3, 1, 2, 5)]
    assert merged(days) == ((day(1), day(4)), (day(5), day(6)))


def test_the_notice_has_the_command_that_builds_the_range() -> None:
    (told,) = notices("orders", [(day(4), day(6))])
    assert told.endswith(
        "dbt build --select orders --event-time-start 2026-03-04T00:00:00 "
        "--event-time-end 2026-03-06T00:00:00"
    )
