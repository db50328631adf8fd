"""Which batches of a microbatch model may write at the same time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkwap.gate.batch_writes import BatchWrite, are_apart, decide

DAYS = [("days(ts)",)]


@pytest.mark.parametrize(
    ("specs", "size", "apart"),
    [
        (DAYS, "day", True),
        (DAYS, "month", True),
        (DAYS, "year", True),
        (DAYS, "hour", False),
        ([("hours(ts)",)], "hour", True),
        ([("months(ts)",)], "day", False),
        ([("months(ts)",)], "month", True),
        ([("years(ts)",)], "month", False),
        ([("ts",)], "hour", True),
        ([("region", "`TS`")], "hour", True),
        ([("bucket(16, id)", "date(Ts)")], "day", True),
        ([("bucket(16, ts)",)], "day", False),
        ([("truncate(4, ts)",)], "day", False),
        ([("days(other)",)], "day", False),
        ([()], "day", False),
        ([], "day", False),
        # Files of an older spec may have rows of two batches.
        ([("months(ts)",), ("days(ts)",)], "day", False),
        ([("hours(ts)",), ("days(ts)",)], "day", True),
        (DAYS, "week", False),
    ],
)
def test_partitions_as_fine_as_the_batches_keep_them_apart(
    specs: list[tuple[str, ...]], size: str, apart: bool
) -> None:
    assert are_apart(specs, "ts", "timestamp", size) is apart
    assert are_apart(specs, "`TS`", "timestamp", size) is apart


@pytest.mark.parametrize(
    ("term", "kind", "apart"),
    [
        # One date is one moment in every time zone; the first of a month may be in the month
        # before.
        ("days(ts)", "date", True),
        ("months(ts)", "date", False),
        ("ts", "date", True),
        ("ts", "timestamp_ntz", True),
        ("days(ts)", "timestamp_ntz", False),
        ("days(ts)", "string", False),
        ("ts", "string", True),
        ("days(ts)", "", False),
    ],
)
def test_times_that_depend_on_the_time_zone_of_the_session(
    term: str, kind: str, apart: bool
) -> None:
    assert are_apart([(term,)], "ts", kind, "month") is apart


def _truncated(at: datetime, unit: str) -> datetime:
    zeros = {"microsecond": 0, "second": 0, "minute": 0}
    for name, value in (("hour", 0), ("day", 1), ("month", 1)):
        if name == unit:
            break
        zeros[name] = value
    return at.replace(**zeros)


UNITS = st.sampled_from(["hour", "day", "month", "year"])
TIMES = st.datetimes(datetime(2020, 1, 1), datetime(2022, 1, 1), timezones=st.just(UTC))


@given(UNITS, UNITS, st.lists(TIMES, min_size=2, max_size=20))
def test_no_partition_has_rows_of_two_batches(
    partition: str, size: str, times: list[datetime]
) -> None:
    """Compare the decision with the partitions and batches of moments, some of them close."""
    near = [at + timedelta(hours=hours) for at in times for hours in (0, 1, 24, 24 * 28)]
    shared = any(
        _truncated(one, partition) == _truncated(other, partition)
        and _truncated(one, size) != _truncated(other, size)
        for one, other in pairwise(sorted(near))
    )
    assert not (shared and are_apart([(f"{partition}s(ts)",)], "ts", "timestamp", size))


@pytest.mark.parametrize("built_whole", [False, True])
@pytest.mark.parametrize("apart", [False, True])
def test_a_batch_writes_as_before_if_no_other_runs_beside_it(
    built_whole: bool, apart: bool
) -> None:
    found = decide(together=False, built_whole=built_whole, apart=apart)
    assert found == BatchWrite(checked=False, deletes=True, alone=True)


@pytest.mark.parametrize(
    ("built_whole", "apart", "deletes", "alone"),
    [
        (False, False, True, True),
        (False, True, True, False),
        (True, False, False, False),
        (True, True, False, False),
    ],
)
def test_batches_that_delete_rows_of_shared_files_write_alone(
    built_whole: bool, apart: bool, deletes: bool, alone: bool
) -> None:
    found = decide(together=True, built_whole=built_whole, apart=apart)
    assert found == BatchWrite(checked=True, deletes=deletes, alone=alone)
