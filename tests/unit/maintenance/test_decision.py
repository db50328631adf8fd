"""What a sweep takes away, as a decision."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkwap.gate.settings import Limits
from sparkwap.maintenance.decision import BranchFact, ManifestFact, TagFact, decide, words

NOW = datetime(2025, 6, 15, 12, tzinfo=UTC)
LIMITS = Limits(run_days=7, named_days=30, file_days=3)


def ago(**age: float) -> datetime:
    return NOW - timedelta(**age)


def a_branch(
    last_seen: datetime | None = None, *, ours: bool = True, in_use: str | None = None
) -> BranchFact:
    return BranchFact("wap_1a2b3c4d", True, ours, last_seen, in_use)


@pytest.mark.parametrize(
    ("branch", "reason"),
    [
        (a_branch(ago(days=6, hours=23)), "6 days old, and 7 days are allowed"),
        (a_branch(ago(days=99), in_use="in use by run 1a2b3c4d"), "in use by run 1a2b3c4d"),
        (a_branch(ago(days=99), ours=False), "it was not opened by sparkwap"),
        (a_branch(None), "its age is not known; drop it by hand: wap_discard"),
        (a_branch(ago(days=-1)), "less than no time (clocks differ) old, and 7 days are allowed"),
    ],
)
def test_what_stays_and_why(branch: BranchFact, reason: str) -> None:
    plan = decide([branch], [], LIMITS, NOW)
    assert plan.branches == ()
    assert [(one.name, one.reason) for one in plan.kept] == [(branch.name, reason)]


def test_what_goes_and_why() -> None:
    (swept,) = decide([a_branch(ago(days=7))], [], LIMITS, NOW).branches
    assert (swept.name, swept.reason) == ("wap_1a2b3c4d", "nothing happened on it for 7 days")


@pytest.mark.parametrize(("days", "goes"), [(29, False), (30, True)])
def test_a_named_branch_has_an_age_of_its_own(days: int, goes: bool) -> None:
    named = BranchFact("pr_1", False, True, ago(days=days))
    assert bool(decide([named], [], LIMITS, NOW).branches) is goes


def base(branch: str, *, needed: bool = False, in_use: str | None = None) -> TagFact:
    return TagFact("s.t", f"wap_base_{branch}", branch, needed, in_use=in_use)


def test_a_base_tag_goes_with_its_branch_or_when_it_is_left_over() -> None:
    goes = BranchFact("pr_1", False, True, ago(days=99))
    tags = [base("pr_1", needed=True), base("pr_2", needed=True), base("pr_3"), base("pr_1")]
    tags.append(base("pr_4", in_use="in use by run 5"))
    assert [tag.name for tag in decide([goes], tags, LIMITS, NOW).tags] == ["wap_base_pr_3"]


@pytest.mark.parametrize(
    ("tag", "goes"),
    [
        (TagFact("s.t", "r", None, False, ago(days=91), timedelta(days=90)), True),
        (TagFact("s.t", "r", None, False, ago(days=89), timedelta(days=90)), False),
        (TagFact("s.t", "r", None, True, ago(days=91), timedelta(days=90)), False),
        (TagFact("s.t", "r", None, False, ago(days=9999), None), False),
        (TagFact("s.t", "r", None, False, None, timedelta(days=90)), False),
        (TagFact("s.t", "r", None, False, ago(days=91), timedelta(days=90), "in use"), False),
        (TagFact("s.t", "r", None, False, ago(days=2), timedelta(days=1), aborted=True), True),
    ],
)
def test_a_receipt_stays_as_long_as_it_was_meant_to(tag: TagFact, goes: bool) -> None:
    assert bool(decide([], [tag], LIMITS, NOW).tags) is goes


@pytest.mark.parametrize(
    ("fact", "goes"),
    [
        (ManifestFact("h", False, ago(days=90)), True),
        (ManifestFact("h", False, ago(days=89)), False),
        (ManifestFact("h", True, ago(days=999)), False),
    ],
)
def test_a_manifest_goes_when_it_has_been_of_no_use_for_long(
    fact: ManifestFact, goes: bool
) -> None:
    assert bool(decide([], [], LIMITS, NOW, [fact]).manifests) is goes


@pytest.mark.parametrize(
    ("age", "text"),
    [
        (timedelta(days=1, hours=23), "1 day"),
        (timedelta(hours=2), "2 hours"),
        (timedelta(minutes=59, seconds=59), "59 minutes"),
        (timedelta(seconds=5), "less than a minute"),
    ],
)
def test_ages_in_words(age: timedelta, text: str) -> None:
    assert words(age) == text


branches = st.builds(
    BranchFact,
    st.from_regex(r"[a-z]{1,3}", fullmatch=True),
    st.booleans(),
    st.booleans(),
    st.none() | st.datetimes(datetime(2025, 1, 1), datetime(2025, 7, 1), timezones=st.just(UTC)),
    st.none() | st.just("in use"),
)
limits = st.builds(Limits, st.integers(0, 90), st.integers(0, 90), st.integers(1, 90))


@given(st.lists(branches, unique_by=lambda branch: branch.name), limits)
def test_only_what_is_ours_idle_and_old_goes_and_all_else_is_told(
    found: list[BranchFact], allowed: Limits
) -> None:
    plan = decide(found, [], allowed, NOW)
    by_name = {branch.name: branch for branch in found}
    for swept in plan.branches:
        branch = by_name[swept.name]
        assert branch.ours and branch.in_use is None and branch.last_seen is not None
        days = allowed.run_days if branch.of_run else allowed.named_days
        assert NOW - branch.last_seen >= timedelta(days=days)
    told = [one.name for one in (*plan.branches, *plan.kept)]
    assert sorted(told) == sorted(by_name)
    for kept in plan.kept:
        assert kept.reason


@given(st.lists(branches, unique_by=lambda branch: branch.name), limits, st.integers(0, 30))
def test_a_longer_patience_takes_no_more(
    found: list[BranchFact], allowed: Limits, more: int
) -> None:
    patient = Limits(allowed.run_days + more, allowed.named_days + more, allowed.file_days)
    taken = {one.name for one in decide(found, [], patient, NOW).branches}
    assert taken <= {one.name for one in decide(found, [], allowed, NOW).branches}
