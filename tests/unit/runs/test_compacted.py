"""Compactions between the audits of a run and its publish."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.bench import compact

from sparkwap.audits.incremental import Answer
from sparkwap.catalog import Candidate
from sparkwap.core.errors import CatalogError
from sparkwap.ledger.records import token_of
from sparkwap.publish.audit_branches import AuditBranches
from sparkwap.publish.lake import Lake
from sparkwap.runs.operations import NotPublished
from sparkwap.runs.rebase import Rebase
from sparkwap.runs.summary import lines

from .test_run import (
    FIRST,
    NODE,
    ORDERS,
    OTHER,
    PASSED,
    SECOND,
    TEST,
    a_run,
    another_table,
    build,
    lake,
    live,
    operations,
    rows,
)

__all__ = ["lake"]

SECOND_TABLE = OTHER.identifier


def node(lake: Lake, name: str) -> dict[str, Any]:
    return [one for one in lake.ledger.of_run("nodes", FIRST) if one["name"] == name][-1]


def head(lake: Lake, ref: str, identifier: tuple[str, str] = ORDERS) -> str:
    state = lake.state(identifier)
    assert state is not None
    return str(state.refs[ref].snapshot_id)


def test_the_ledger_names_the_published_snapshots(lake: Lake) -> None:
    run = a_run(lake)
    build(run, 2)
    audited = head(lake, run.branch)
    compact(lake, ORDERS)
    run.trail.shared[TEST.test_id] = Answer("shared", "b", None, 0, int(audited))
    closing = run.close([NODE], [TEST], [PASSED])
    assert (closing.published, closing.refused, live(lake)) == (1, None, [1, 2])
    assert head(lake, "main") != audited
    assert token_of(node(lake, "orders")) == head(lake, "main")
    (test,) = lake.ledger.of_run("tests", FIRST)
    assert dict(test["audited"]) == {NODE.node_id: head(lake, "main")}
    assert (test["basis"], str(test["snapshot"])) == ("b", head(lake, "main"))
    assert "main was compacted meanwhile" in "\n".join(
        lines(closing, run_id=FIRST, branch=run.branch)
    )


def test_a_table_that_others_have_changed_is_built_again_and_the_other_is_not(lake: Lake) -> None:
    run = a_run(lake)
    build(run, 2)
    another_table(run, 3)
    before = {table: head(lake, run.branch, table) for table in (ORDERS, SECOND_TABLE)}
    compact(lake, ORDERS)
    lake.catalog.load_table(SECOND_TABLE).append(rows(9))
    closing = run.close([NODE, OTHER], [TEST], [PASSED])
    assert closing.refused is not None
    assert (live(lake), live(lake, SECOND_TABLE)) == ([1], [1, 9])
    assert isinstance(closing.rebase, Rebase)
    assert closing.rebase.nodes == (OTHER.node_id,)
    # The branch and the ledger agree on the candidate that has moved.
    assert token_of(node(lake, "orders")) == head(lake, run.branch) != before[ORDERS]
    assert token_of(node(lake, "b")) == before[SECOND_TABLE]


def test_what_an_earlier_run_has_audited_is_not_moved(lake: Lake) -> None:
    """The ledger's rows of that run name the candidate, and what counts later goes by them."""
    run = a_run(lake, publish="never")
    build(run, 2)
    run.close([NODE], [TEST], [PASSED])
    compact(lake, ORDERS)
    before = lake.state(ORDERS)
    with pytest.raises(NotPublished, match="main: expected snapshot"):
        operations(lake).call("wap_publish", {"branch": run.branch})
    assert (lake.state(ORDERS), live(lake)) == (before, [1])


def test_what_adds_to_the_rows_of_an_earlier_run_is_not_moved(lake: Lake) -> None:
    run = a_run(lake, publish="never")
    build(run, 2)
    run.close([NODE], [TEST], [PASSED])
    later = a_run(lake, SECOND)
    build(later, 3)
    later.trail.continued.add(NODE.node_id)
    compact(lake, ORDERS)
    before = lake.state(ORDERS)
    closing = later.close([NODE], [TEST], [PASSED])
    assert closing.refused is not None
    assert (lake.state(ORDERS), live(lake)) == (before, [1])


def test_each_try_of_a_publish_follows_one_more_compaction(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody compacts as soon as the candidate has moved, twice; then the publish is refused."""
    run = a_run(lake)
    build(run, 2)
    compact(lake, ORDERS)
    pick, picked = AuditBranches.cherry_pick, []

    def again(branches: AuditBranches, candidate: Candidate) -> Candidate | None:
        picked.append(pick(branches, candidate))
        compact(lake, ORDERS)
        return picked[-1]

    monkeypatch.setattr(AuditBranches, "cherry_pick", again)
    closing = run.close([NODE], [TEST], [PASSED])
    assert closing.refused is not None
    assert (len(picked), live(lake)) == (2, [1])


def test_a_catalog_that_fails_leaves_the_refusal(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(lake)
    build(run, 2)
    compact(lake, ORDERS)

    def fails(*_given: object) -> None:
        raise CatalogError("the database is away")

    monkeypatch.setattr(AuditBranches, "cherry_pick", fails)
    closing = run.close([NODE], [TEST], [PASSED])
    assert "main: expected snapshot" in str(closing.refused)
    assert node(lake, "orders")["refusal"] == "main"
