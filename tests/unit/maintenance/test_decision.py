"""The decision about what a sweep removes."""

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
        (a_branch(ago(days=6, hours=23)), "6 days old; the limit is 7 days"),
        (a_branch(ago(days=99), in_use="in use by run 1a2b3c4d"), "in use by run 1a2b3c4d"),
        (a_branch(ago(days=99), ours=False), "it was not opened by sparkwap"),
        (a_branch(None), "its age is not known; drop it by hand: wap_discard"),
        (a_branch(ago(days=-1)), "less than 0 s (clocks differ) old; the limit is 7 days"),
    ],
)
def test_a_branch_stays_for_a_reason(branch: BranchFact, reason: str) -> None:
    plan = decide([branch], [], LIMITS, NOW)
    assert plan.branches == ()
    assert [(kept.name, kept.reason) for kept in plan.kept] == [(branch.name, reason)]


def test_a_branch_without_activity_is_removed() -> None:
    (swept,) = decide([a_branch(ago(days=7))], [], LIMITS, NOW).branches
    assert (swept.name, swept.reason) == ("wap_1a2b3c4d", "no activity for 7 days")


@pytest.mark.parametrize(("days", "goes"), [(29, False), (30, True)])
def test_a_named_branch_has_its_own_limit(days: int, goes: bool) -> None:
    named = BranchFact("pr_1", False, True, ago(days=days))
    assert bool(decide([named], [], LIMITS, NOW).branches) is goes


def base(branch: str, *, needed: bool = False, in_use: str | None = None) -> TagFact:
    return TagFact("s.t", f"wap_base_{branch}", branch, needed, in_use=in_use)


def test_a_base_tag_without_its_branch_is_removed() -> None:
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
def test_a_receipt_is_removed_past_its_age(tag: TagFact, goes: bool) -> None:
    assert bool(decide([], [tag], LIMITS, NOW).tags) is goes


@pytest.mark.parametrize(
    ("fact", "goes"),
    [
        (ManifestFact("h", False, ago(days=90)), True),
        (ManifestFact("h", False, ago(days=89)), False),
        (ManifestFact("h", True, ago(days=999)), False),
    ],
)
def test_a_manifest_is_removed_if_it_is_unused_for_long(fact: ManifestFact, goes: bool) -> None:
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
def test_an_age_is_rounded_down_to_one_unit(age: timedelta, text: str) -> None:
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
def test_only_idle_old_branches_of_sparkwap_are_removed_and_others_are_listed(
    found: list[BranchFact], allowed: Limits
) -> None:
    plan = decide(found, [], allowed, NOW)
    by_name = {branch.name: branch for branch in found}
    for swept in plan.branches:
        branch = by_name[swept.name]
        assert branch.ours and branch.in_use is None and branch.last_seen is not None
        days = allowed.run_days if branch.of_run else allowed.named_days
        assert NOW - branch.last_seen >= timedelta(days=days)
    listed = [branch.name for branch in (*plan.branches, *plan.kept)]
    assert sorted(listed) == sorted(by_name)
    for kept in plan.kept:
        assert kept.reason


@given(st.lists(branches, unique_by=lambda branch: branch.name), limits, st.integers(0, 30))
def test_longer_limits_remove_no_more(found: list[BranchFact], allowed: Limits, more: int) -> None:
    patient = Limits(allowed.run_days + more, allowed.named_days + more, allowed.file_days)
    removed = {branch.name for branch in decide(found, [], patient, NOW).branches}
    assert removed <= {branch.name for branch in decide(found, [], allowed, NOW).branches}
