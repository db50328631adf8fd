"""The state of a branch, from rows of the ledger."""

from __future__ import annotations

import pytest

from sparkwap.gate.verdicts import UNTESTED
from sparkwap.pr.standing import BranchState

from .conftest import KEY, REFUSED, audit, node, run, stands

REJECTED = node(verdict="rejected", reason="test ids failed (1 row)")
MOVED = node(verdict="rejected", reason=REFUSED, refusal="main", run_id="op", minutes=2)
OPERATION = run("op", 2, outcome="rejected", message=REFUSED)


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ("nothing", stands(is_open=False, runs=())),
        ("discarded", stands(is_open=False, runs=(run(outcome="discarded"),))),
        ("unfinished", stands()),
        ("ready", stands(node(), node("totals"))),
        ("held", stands(node(), node("totals", reason=UNTESTED))),
        ("rejected", stands(node(), node("totals", verdict="rejected"))),
        ("moved", stands(node(), MOVED, runs=(OPERATION, run()))),
        ("published", stands(node(verdict="published"), is_open=False)),
        ("gone", stands(node(), is_open=False)),
    ],
)
def test_the_outcome_of_a_branch(expected: str, found: BranchState) -> None:
    assert found.outcome == expected


def test_the_latest_row_of_a_node_counts() -> None:
    assert stands(REJECTED, node(minutes=2)).outcome == "ready"
    assert stands(node(minutes=2), node(minutes=3, verdict="rejected")).outcome == "rejected"


def test_a_changed_candidate_is_rejected_and_not_moved() -> None:
    touched = {**MOVED, "refusal": "candidate"}
    assert stands(node(), touched, runs=(OPERATION, run())).outcome == "rejected"
    # A test failed, and the refused publish was about another table.
    other = {**MOVED, "node_id": "model.shop.totals", "name": "totals"}
    assert stands(REJECTED, other, runs=(OPERATION, run())).outcome == "rejected"
    assert stands(node(), {**MOVED, "refusal": None}, runs=(OPERATION,)).outcome == "rejected"


def test_stored_failures_do_not_count() -> None:
    failures = node("failed", resource_type="failures", reason="stored", verdict="held")
    assert stands(node(), failures).outcome == "ready"


def test_tables_that_the_branch_published_before_are_not_on_it() -> None:
    found = stands(node(verdict="published"), node("totals", "r2", 9), runs=(run("r2", 8), run()))
    assert [row["name"] for row in found.nodes] == ["totals"]
    assert found.makers == {"model.shop.totals": "r2"}


def test_the_maker_of_a_candidate_is_the_run_that_built_it() -> None:
    tested = node(run_id="r2", minutes=5)
    assert stands(node(), tested, runs=(run("r2", 4), run())).makers == {KEY: "r1"}
    built_again = node(run_id="r2", minutes=5, candidate_snapshot=8)
    assert stands(node(), built_again, runs=(run("r2", 4), run())).makers == {KEY: "r2"}


def test_tests_before_the_first_build_do_not_count() -> None:
    tests = (audit("old"), audit("new", "r2"))
    found = stands(node(run_id="r2", minutes=5), tests=tests, runs=(run("r2", 4), run()))
    assert [row["test_name"] for row in found.tests] == ["new"]


def test_what_is_left_after_a_publish_does_not_matter() -> None:
    published = (node(verdict="published", reason=None), run(publish_id="p1"))
    left = node("failed", resource_type="failures", reason="stored", verdict="held")
    found = stands(published[0], left, runs=(published[1],), is_open=True)
    assert (found.outcome, found.published_by) == ("published", "p1")
    discarded = run("r2", 5, outcome="discarded")
    found = stands(runs=(discarded, published[1]), is_open=False)
    assert (found.outcome, found.published_by) == ("published", "p1")
    assert stands(runs=(discarded, run("r3"), published[1]), is_open=False).outcome == "discarded"
