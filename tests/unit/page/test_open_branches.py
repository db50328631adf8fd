"""Open branches and items that need attention."""

from __future__ import annotations

import pytest

from sparkwap.diff.model import (
    SchemaChange,
)
from sparkwap.page import open_branches, run_history
from sparkwap.page.comparison import TableComparison

from .conftest import FIRST, SECOND, node, run, side


def test_items_that_need_attention_are_newest_first() -> None:
    found = run_history.overviews(
        [run(FIRST, 5, "died"), run(SECOND, 1, "published")], [], {SECOND: "rolled back"}
    )
    at = {one.run_id: one.started for one in found}
    branches = [
        ("old", at[FIRST], ["held", "rejected"], False),
        ("busy", at[SECOND], [], True),
        ("left", None, [], False),
    ]
    items = open_branches.attention_items(branches, found, [("s.raw", 3), ("s.clean", 0)])
    texts = [item.what for item in items]
    assert texts[0].endswith("was rolled back")
    assert texts[1] == "The branch old is rejected"
    assert texts[2].endswith("died")
    assert texts[3:] == [
        "The branch left is open: its run did not end", "3 rows of s.raw in quarantine",
    ]  # fmt: skip
    assert [one.view for one in items] == ["Runs", "Branches", "Runs", "Branches", "Quarantine"]


def test_rejected_tables_of_a_branch_come_first() -> None:
    compared = [TableComparison(f"s.{n}", side(5), side(3), SchemaChange(), False) for n in "abc"]
    nodes = [node(FIRST, "a", "held", reason="x"), node(FIRST, "b", "rejected", reason="y")]
    found = open_branches.branch_rows(nodes, compared)
    assert [(one["table"], one["verdict"]) for one in found] == [
        ("s.b", "✖ rejected"),
        ("s.a", "◆ held"),
        ("s.c", "· none: its run did not end"),
    ]
    assert {(one["rows on main"], one["rows here"], one["change"]) for one in found} == {
        (3, 5, "+2 rows")
    }


@pytest.mark.parametrize(
    ("verdicts", "first"),
    [
        ({"rejected"}, "build again after a fix"),
        ({"held"}, "run the tests again and publish"),
        (set(), ""),
    ],
)
def test_the_next_commands_of_a_branch(verdicts: set[str], first: str) -> None:
    found = open_branches.next_commands("pr_1", verdicts)
    assert found[0][0] == (first or "build again after a fix")
    assert found[-1] == (
        "discard the branch",
        "dbt run-operation wap_discard --args '{branch: pr_1}'",
    )
    published = [purpose for purpose, _ in found if "publish" in purpose]
    assert bool(published) == ("held" in verdicts)


def test_a_rejected_load_has_no_build_command() -> None:
    found = [
        command for _, command in open_branches.next_commands("load_1", {"rejected"}, loaded=True)
    ]
    assert not any(" dbt build" in command or " dbt test" in command for command in found)
    assert found[-1] == "dbt run-operation wap_discard --args '{branch: load_1}'"


@pytest.mark.parametrize(
    ("verdicts", "in_use", "why"),
    [
        (["held", "published"], False, ""),
        (["held", "rejected"], False, "has rejected a table"),
        (["held"], True, "A run is building on this branch"),
        ([], False, "did not end"),
        (["held", None], False, "did not end"),
    ],
)
def test_a_blocked_branch_cannot_be_published(
    verdicts: list[str | None], in_use: bool, why: str
) -> None:
    found = open_branches.publish_blocker(verdicts, in_use)
    assert (why in found) if why else not found


def test_each_reason_is_listed_once_with_its_tables() -> None:
    nodes = [
        node(FIRST, "a", "held", reason="all or none"),
        node(FIRST, "b", "rejected", reason="ids failed (3)"),
        node(FIRST, "c", "held", reason="all or none"),
        node(FIRST, "d", "published", reason="a warning"),
        node(FIRST, "e", "rejected"),
    ]
    assert open_branches.unpublished_reasons(nodes, {"model.shop.b": "ids failed"}) == [
        ("ids failed", ["s.b"]),
        ("all or none", ["s.a", "s.c"]),
    ]
