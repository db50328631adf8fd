"""What `sparkwap watch` does when: decided without a clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkwap.watch import decision
from sparkwap.watch.decision import Build, Listing, Settings, State, Upkeep, Wait, decide, look

START = datetime(2026, 3, 1, 5, 0, tzinfo=UTC).timestamp()
ONE: Listing = frozenset({("a.csv", 10, 1)})
GROWN: Listing = frozenset({("a.csv", 20, 2)})
QUIET = Settings(upkeep=())


def at(seconds: float) -> float:
    return START + seconds


def seen(listing: Listing, when: float, state: State | None = None) -> State:
    return look(state or State(began=START), listing, at(when))


class TestFiles:
    def test_an_empty_folder(self) -> None:
        assert decide(State(began=START), QUIET, at(999)) == Wait(5, "nothing is due")

    def test_new_files_are_built_when_they_have_settled(self) -> None:
        state = seen(ONE, 100)
        assert decide(state, QUIET, at(103)) == Wait(5, "files are arriving")
        assert decide(state, QUIET, at(107)) == Wait(3, "files are arriving")
        grown = seen(GROWN, 109, state)
        assert decide(grown, QUIET, at(110.5)) == Wait(5, "files are arriving")
        assert decide(grown, QUIET, at(119)) == Build("new files")

    def test_what_was_built_is_not_built_again(self) -> None:
        state = decision.succeeded(seen(ONE, 0), ONE, at(10))
        assert decide(state, QUIET, at(50)) == Wait(5, "nothing is due")
        assert decide(seen(ONE | GROWN, 60, state), QUIET, at(70)) == Build("new files")

    def test_files_that_came_during_a_build_are_built_next(self) -> None:
        state = decision.succeeded(seen(ONE, 0), ONE, at(10))
        state = seen(ONE | GROWN, 20, state)
        assert decide(state, QUIET, at(30)) == Build("new files")

    def test_the_same_bytes_written_once_more_are_looked_at(self) -> None:
        state = decision.succeeded(seen(ONE, 0), ONE, at(10))
        assert decide(seen(frozenset({("a.csv", 10, 9)}), 20, state), QUIET, at(30)) == Build(
            "new files"
        )


class TestTries:
    def test_growing_waits_and_an_end(self) -> None:
        rules = replace(QUIET, tries=4, retry_wait=30, longest_wait=50)
        state = seen(ONE, 0)
        for wait in (30, 50, 50):
            state = decision.failed(state, rules, ONE, at(10), at(20))
            assert decide(state, rules, at(20 + wait - 1)) == Wait(1, "the next try")
            assert decide(state, rules, at(20 + wait)) == Build("retry")
        assert decision.gave_up(state, rules)
        state = decision.failed(state, rules, ONE, at(10), at(20))
        assert decide(state, rules, at(9_999)) == Wait(5, "nothing is due")

    def test_a_change_begins_anew(self) -> None:
        state = decision.failed(seen(ONE, 0), QUIET, ONE, at(10), at(20))
        state = seen(GROWN, 25, state)
        assert decide(state, QUIET, at(30)) == Wait(5, "files are arriving")
        assert decide(state, QUIET, at(35)) == Build("new files")
        assert state.failed == 0

    def test_one_try(self) -> None:
        rules = replace(QUIET, tries=1)
        state = decision.failed(seen(ONE, 0), rules, ONE, at(10), at(20))
        assert decide(state, rules, at(9_999)) == Wait(5, "nothing is due")


class TestSchedule:
    def test_every(self) -> None:
        rules = replace(QUIET, every=3600)
        state = State(began=START)
        assert decide(state, rules, at(3599)) == Wait(5, "nothing is due")
        assert decide(state, rules, at(3600)) == Build("schedule")
        built = decision.succeeded(state, frozenset(), at(3600))
        assert decide(built, rules, at(7199)) == Wait(5, "nothing is due")
        assert decide(built, rules, at(7200)) == Build("schedule")

    def test_at_a_time_of_day(self) -> None:
        rules = replace(QUIET, at=(time(6, 0), time(18, 30)))
        state = State(began=START)  # 05:00
        assert decide(state, rules, at(3599)) == Wait(5, "nothing is due")
        assert decide(state, rules, at(3600)) == Build("schedule")
        built = decision.succeeded(state, frozenset(), at(3600))
        assert decision.next_build(built, rules) == at(13.5 * 3600)
        late = decision.succeeded(state, frozenset(), at(14 * 3600))
        assert decision.next_build(late, rules) == at(25 * 3600)

    def test_not_while_files_arrive(self) -> None:
        rules = replace(QUIET, every=60)
        assert decide(seen(ONE, 98), rules, at(100)) == Wait(5, "files are arriving")

    def test_after_the_last_try_the_schedule_tries_again(self) -> None:
        rules = replace(QUIET, every=3600, tries=1)
        state = decision.failed(seen(ONE, 0), rules, ONE, at(10), at(20))
        assert decide(state, rules, at(3600)) == Wait(5, "nothing is due")
        assert decide(state, rules, at(3610)) == Build("schedule")


def test_upkeep_comes_after_builds_and_each_job_by_its_own_interval() -> None:
    rules = Settings(upkeep=(("sweep", 100), ("alerts", 50)))
    state = State(began=START)
    assert decide(state, rules, at(49)) == Wait(5, "nothing is due")
    assert decide(state, rules, at(50)) == Upkeep("alerts")
    state = decision.called(state, "alerts", at(50))
    assert decide(state, rules, at(99)) == Wait(5, "nothing is due")
    assert decide(state, rules, at(100)) == Upkeep("sweep")
    assert decide(seen(ONE, 90, state), rules, at(100)) == Build("new files")


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(1, 50), st.sampled_from([ONE, GROWN, ONE | GROWN]), st.booleans()),
        max_size=40,
    )
)
def test_whatever_happens_the_last_files_are_built_or_given_up(
    steps: list[tuple[float, Listing, bool]],
) -> None:
    state, now, rules = State(began=START), START, replace(QUIET, retry_wait=5)
    for wait, listing, ok in steps:
        now += wait
        state = look(state, listing, now)
        if isinstance(decide(state, rules, now), Build):
            end = decision.succeeded if ok else None
            state = (
                end(state, listing, now)
                if end
                else decision.failed(state, rules, listing, now, now)
            )
    builds = 0
    for _ in range(200):
        action = decide(state, rules, now)
        if isinstance(action, Wait):
            assert action.seconds > 0
            now += action.seconds
        else:
            builds += 1
            state = decision.failed(state, rules, state.listing, now, now)
    assert state.done == state.listing
    assert builds <= rules.tries


@pytest.mark.parametrize(
    ("text", "expected"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("1d", 86400)]
)
def test_durations(text: str, expected: float) -> None:
    assert decision.seconds(text) == expected


@pytest.mark.parametrize("text", ["", "0", "-1m", "soon", "inf", "nan", "1w"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError):
        decision.seconds(text)
