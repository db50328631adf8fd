"""Runs without Spark: PyIceberg writes the rows that the macros would write."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from helpers.bench import view_json
from pyiceberg.types import StringType

from sparkwap.catalog import CommitUnknown, Identifier, lease
from sparkwap.catalog.branches import BASE_METADATA
from sparkwap.catalog.metadata import WAP_ENABLED
from sparkwap.catalog.pointers import Pointer, PointerUpdate
from sparkwap.catalog.store import Staged
from sparkwap.core import names
from sparkwap.core.errors import ConfigError, SparkwapError
from sparkwap.core.sqllex import relation_names
from sparkwap.gate.facts import NO_NODE
from sparkwap.gate.placement import Desired
from sparkwap.gate.settings import GateSettings
from sparkwap.gate.verdicts import OTHER_CODE, STALE
from sparkwap.ledger import records
from sparkwap.publish.lake import Lake
from sparkwap.publish.publishing import Publishing
from sparkwap.runs import rows as run_rows
from sparkwap.runs.next_steps import next_steps
from sparkwap.runs.operations import OPERATIONS, LakeOperations, NotPublished, Operation
from sparkwap.runs.replay_moment import Moment
from sparkwap.runs.rows import run_row
from sparkwap.runs.run import Run
from sparkwap.runs.state import LastRun, find_continuation, require_unpublished
from sparkwap.runs.summary import lines
from sparkwap.runs.time_travel import Outside, Replay
from sparkwap.runs.types import Invocation, NodeFact, RunEnd, TestFact, TestSeen
from sparkwap.runs.watched import GateBypass

FIRST = "1a2b3c4d-0000-4000-8000-000000000000"
SECOND = "2b3c4d5e-0000-4000-8000-000000000000"
THIRD = "3c4d5e6f-0000-4000-8000-000000000000"
KEPT = Desired()
ORDERS = ("shop", "orders")
FAILURES = ("shop", "failures_of_ids")
NODE = NodeFact("model.orders", ORDERS, "model", "success", None, frozenset())
TEST = TestFact("test.ids", "ids", "data", frozenset({"model.orders"}), "error")
PASSED = TestSeen("test.ids", "pass", 0, None)
FAILED = TestSeen("test.ids", "fail", 1, None)
OTHER = NodeFact("model.shop.b", ("shop", "b"), "model", "success", None, frozenset())
STANDS = {node.node_id: node.identifier for node in (NODE, OTHER)}.get
KNOWN = frozenset({NODE.node_id, OTHER.node_id})
"""The nodes of the project, whose tests each command knows."""


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    lake = Lake("lake", {"type": "sql", "uri": uri, "warehouse": f"{tmp_path}/warehouse"})
    lake.ensure_schema("shop")
    table = lake.catalog.create_table(ORDERS, rows(1).schema)
    table.append(rows(1))
    return lake


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def a_run(
    lake: Lake,
    run_id: str = FIRST,
    branch: str = "dev",
    part: Literal["empty", "sample"] | None = None,
    replay: Replay | None = None,
    code: str | None = None,
    **settings: object,
) -> Run:
    run = Run(
        lake,
        Invocation(
            run_id=run_id,
            branch=branch,
            settings=GateSettings(**settings),  # type: ignore[arg-type]
            command="build",
            project="shop",
            target_name="dev",
            part=part,
            replay=replay,
        ),
        table_of_node=STANDS,
        code_of_node=lambda node_id: code,
    )
    run.candidates.load()
    return run


def build(run: Run, *ids: int) -> None:
    run.begin(NODE.node_id, ORDERS)
    run.candidates.place_table(ORDERS, KEPT)
    run.lake.catalog.load_table(ORDERS).append(rows(*ids), branch=run.branch)
    run.built(NODE.node_id, ORDERS, must_write=True)


def another_table(run: Run, *ids: int) -> None:
    run.lake.catalog.create_table(OTHER.identifier, rows(1).schema).append(rows(1))
    run.begin(OTHER.node_id, OTHER.identifier)
    run.candidates.place_table(OTHER.identifier, KEPT)
    run.lake.catalog.load_table(OTHER.identifier).append(rows(*ids), branch=run.branch)
    run.built(OTHER.node_id, OTHER.identifier, must_write=True)


def live(lake: Lake, identifier: Identifier = ORDERS) -> list[int]:
    table = lake.catalog.load_table(identifier)
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def operations(lake: Lake, last: LastRun | None = None) -> LakeOperations:
    return LakeOperations(
        lake,
        run_id=SECOND,
        settings=GateSettings(),
        project="shop",
        target_name="dev",
        tests=lambda: [TEST],
        known=lambda: KNOWN,
        unfinished=last,
    )


def test_a_table_that_is_gated_in_capitals_is_published(lake: Lake) -> None:
    # Spark reads the property as Java does.
    with lake.catalog.load_table(ORDERS).transaction() as change:
        change.set_properties({WAP_ENABLED: "TRUE"})
    run = a_run(lake)
    build(run, 2)
    closing = run.close([NODE], [TEST], [PASSED])
    assert (closing.published, live(lake)) == (1, [1, 2])


def test_a_table_that_a_hook_has_dropped_is_not_published(lake: Lake) -> None:
    run = a_run(lake)
    build(run, 2)
    new = ("shop", "new")
    run.begin("model.new", new)
    side = run.candidates.place_table(new, KEPT)
    beside = side.place
    with pytest.raises(SparkwapError, match="left nothing in the side schema"):
        run.built("model.new", new, must_write=True)
    run.candidates.dropped(beside)
    run.built("model.new", new, must_write=True)
    closing = run.close(
        [NODE, replace(OTHER, node_id="model.new", identifier=new)], [TEST], [PASSED]
    )
    assert (closing.published, live(lake)) == (1, [1, 2])
    assert "shop.new: dropped by a hook" in str(run.left_nothing())


def test_names_of_the_lake_that_differ_in_case_only_are_found(lake: Lake) -> None:
    lake.ensure_schema("Shop")
    for name in (("Shop", "orders"), ("shop", "Orders"), ("shop", "other")):
        lake.catalog.create_table(name, rows(1).schema)
    assert lake.alike([ORDERS, ("shop", "new")]) == {("Shop", "orders"), ("shop", "Orders")}
    assert lake.alike([ORDERS, ("shop", "Orders"), ("Shop", "orders")]) == set()
    assert lake.alike([("shop", "OTHER")]) == {("shop", "other")}


def test_two_branches_with_names_that_differ_in_case_only(lake: Lake) -> None:
    """Neither run can know of the other, but the second publish can."""
    for run_id, branch, name in ((FIRST, "dev", "twin"), (THIRD, "pr_2", "Twin")):
        run = a_run(lake, run_id, branch, publish="never")
        run.begin(NODE.node_id, ("shop", name))
        side = run.candidates.place_table(("shop", name), KEPT)
        lake.catalog.create_table(side.place, rows(1).schema).append(rows(1))
        run.built(NODE.node_id, ("shop", name), must_write=True)
        run.close([replace(NODE, identifier=("shop", name))], [TEST], [PASSED])
    operations(lake).call("wap_publish", {"branch": "dev"})
    with pytest.raises(NotPublished, match=r"(?s)found shop\.twin.*`alias`") as refused:
        operations(lake).call("wap_publish", {"branch": "pr_2"})
    assert "The catalog refused the publish, so nothing was published" in str(refused.value)
    assert set(lake.relations("shop")) == {"orders", "twin"}
    lake.catalog.drop_table(("shop", "twin"))
    operations(lake).call("wap_publish", {"branch": "pr_2"})
    assert set(lake.relations("shop")) == {"orders", "Twin"}


def test_a_run_publishes_tables_that_passed_their_tests(lake: Lake) -> None:
    run = a_run(lake)
    build(run, 2)
    assert live(lake) == [1]
    closing = run.close([NODE], [TEST], [PASSED])
    assert (closing.published, closing.refused) == (1, None)
    assert live(lake) == [1, 2]


def test_a_run_without_its_tests_is_held_and_a_test_run_publishes_it(lake: Lake) -> None:
    run = a_run(lake)
    build(run, 2)
    assert run.close([NODE], [TEST], []).published == 0
    assert live(lake) == [1]
    assert a_run(lake, SECOND).close([], [TEST], [PASSED], KNOWN).published == 1
    assert live(lake) == [1, 2]


@pytest.mark.parametrize(("code", "published"), [("a", 1), ("b", 0), (None, 1)])
def test_a_candidate_of_other_code_than_the_checkout_has_is_held(
    lake: Lake, code: str | None, published: int
) -> None:
    run = a_run(lake)
    build(run, 2)
    run.close([replace(NODE, code="a")], [TEST], [])
    for again in (SECOND, THIRD):
        closing = a_run(lake, again, code=code).close([], [TEST], [PASSED], KNOWN)
        assert closing.published == (published if again == SECOND else 0)
    if not published:
        (reason,) = closing.decision.verdicts[NODE.node_id].reasons
        assert reason == OTHER_CODE
        text = "\n".join(lines(closing, run_id=THIRD, branch="dev"))
        assert "build it again   SPARKWAP_BRANCH=dev dbt build --select" in text
    assert live(lake) == ([1, 2] if published else [1])


def build_clone(run: Run, *ids: int) -> None:
    """Add rows to the candidate of an earlier run, with a change that needs a clone."""
    assert run.may_add_to_candidate(NODE.node_id, ORDERS)
    clone = run.candidates.place_clone(ORDERS, ["added note"])
    run.lake.catalog.load_table(clone.place).append(rows(*ids))
    run.built(NODE.node_id, ORDERS, must_write=False)


def test_a_clone_starts_with_the_rows_that_its_node_has_on_the_branch(lake: Lake) -> None:
    run = a_run(lake)
    build(run, 2)
    run.close([NODE], [TEST], [])
    second = a_run(lake, SECOND)
    build_clone(second, 3)
    assert second.close([NODE], [TEST], []).published == 0
    third = a_run(lake, THIRD)
    build_clone(third, 4)
    assert third.close([NODE], [TEST], [PASSED]).published == 1
    assert live(lake) == [1, 2, 3, 4]


@pytest.mark.parametrize("part", ["empty", "sample"])
@pytest.mark.parametrize("status", ["success", "partial success", "error"])
def test_nothing_is_added_to_a_build_on_a_part_of_the_rows(
    lake: Lake, part: Literal["empty", "sample"], status: str
) -> None:
    first = a_run(lake, part=part)
    build(first, 3)
    first.close([replace(NODE, status=status)], [TEST], [PASSED])
    second = a_run(lake, SECOND)
    assert not second.may_add_to_candidate(NODE.node_id, ORDERS)
    second.candidates.require_publishable(NODE.node_id, ORDERS)
    build(second, 2, 3)
    assert second.close([NODE], [TEST], [PASSED]).published == 1
    assert live(lake) == [1, 2, 3]


def test_a_node_that_begins_anew_does_not_keep_rows_of_the_branch_on_a_clone(lake: Lake) -> None:
    first = a_run(lake)
    build(first, 2)
    first.close([NODE], [TEST], [FAILED])
    second = a_run(lake, SECOND)
    second.begin(NODE.node_id, ORDERS)
    clone = second.candidates.place_clone(ORDERS, ["added note"])
    lake.catalog.load_table(clone.place).append(rows(3))
    second.built(NODE.node_id, ORDERS, must_write=False)
    assert second.close([NODE], [TEST], [PASSED]).published == 1
    assert live(lake) == [1, 3]


@pytest.mark.parametrize("desired", [KEPT, Desired(comment="new")])
def test_a_table_that_moves_before_rows_are_added_to_its_branch(
    lake: Lake, desired: Desired
) -> None:
    first = a_run(lake)
    build(first, 2)
    first.close([NODE], [TEST], [])
    second = a_run(lake, SECOND)
    assert second.may_add_to_candidate(NODE.node_id, ORDERS)
    lake.catalog.load_table(ORDERS).append(rows(7))
    with pytest.raises(SparkwapError, match=r"can no longer be published.*wap_discard"):
        second.candidates.place_table(ORDERS, desired)
    assert second.close([replace(NODE, status="error")], [TEST], [PASSED]).published == 0
    assert live(lake) == [1, 7]


def add_column(lake: Lake) -> None:
    with lake.catalog.load_table(ORDERS).update_schema() as update:
        update.add_column("more", StringType())


def delete_base(lake: Lake) -> None:
    lake.catalog.load_table(ORDERS).transaction().set_properties(n="1").commit_transaction()
    base = lake.catalog.load_table(("shop__dev", "orders")).properties[BASE_METADATA]
    Path(base.removeprefix("file://")).unlink()


def restarted(lake: Lake) -> Lake:
    properties = {key: lake.catalog.properties[key] for key in ("type", "uri", "warehouse")}
    return Lake("lake", properties)


@pytest.mark.parametrize("change", [add_column, delete_base])
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("beside", [False, True])
def test_rows_on_a_clone_that_is_outdated_are_not_lost(
    lake: Lake, change: Callable[[Lake], None], begun: bool, beside: bool
) -> None:
    """`main` is the same snapshot, but the clone can no longer be published."""
    first = a_run(lake)
    if beside:
        first.begin(NODE.node_id, ORDERS)
        placed = first.candidates.place_clone(ORDERS, ["added note"])
        lake.catalog.load_table(placed.place).append(rows(2))
        first.built(NODE.node_id, ORDERS, must_write=False)
    else:
        build(first, 2)
    first.close([NODE], [TEST], [])
    second = a_run(lake, SECOND)
    build_clone(second, 3)
    second.close([NODE], [TEST], [])
    third = a_run(restarted(lake), THIRD)
    if begun:
        assert third.may_add_to_candidate(NODE.node_id, ORDERS)
    change(lake)
    third = third if begun else a_run(restarted(lake), THIRD)
    if begun:
        third.candidates.lake = restarted(lake)
    else:
        assert not third.may_add_to_candidate(NODE.node_id, ORDERS)
    with pytest.raises(SparkwapError, match=r"can no longer be published.*wap_discard"):
        if begun:
            third.candidates.place_clone(ORDERS, ["added note"])
        third.candidates.require_publishable(NODE.node_id, ORDERS)
    assert live(lake, ("shop__dev", "orders")) == [1, 2, 3]


def test_a_node_that_is_published_may_be_built_from_main_again(lake: Lake) -> None:
    first = a_run(lake)
    build(first, 2)
    assert first.close([NODE], [TEST], [PASSED]).published == 1
    second = a_run(lake, SECOND)
    assert not second.may_add_to_candidate(NODE.node_id, ORDERS)
    second.candidates.require_publishable(NODE.node_id, ORDERS)


def test_a_retry_of_batches_on_a_clone_keeps_the_batches_on_the_branch(lake: Lake) -> None:
    def day(number: int) -> tuple[datetime, datetime]:
        return datetime(2026, 1, number, tzinfo=UTC), datetime(2026, 1, number + 1, tzinfo=UTC)

    first = a_run(lake)
    build(first, 2)
    with pytest.raises(SparkwapError, match=r"Run `dbt retry`.*batches that are written stay"):
        first.candidates.place_clone(ORDERS, ["added note"])
    partial = replace(NODE, status="partial success", batches=(day(2), day(3)))
    first.close([partial], [TEST], [])
    second = a_run(lake, SECOND)
    build_clone(second, 3)
    end = second.close([replace(NODE, batches=(day(3),))], [TEST], [PASSED])
    assert (end.published, live(lake)) == (1, [1, 2, 3])


def accept(lake: Lake, **more: str) -> str:
    arguments = {"branch": "dev", "test": TEST.name, "reason": "two shops, one number", **more}
    return "\n".join(operations(lake).call("wap_accept", {"by": "ada", **arguments}))


def reject(lake: Lake, run_id: str, *ids: int, failures: int = 1) -> None:
    run = a_run(lake, run_id)
    build(run, *ids)
    run.close([NODE], [TEST], [TestSeen("test.ids", "fail", failures, None)])


def test_an_accepted_test_is_published_with_the_name_of_the_person(lake: Lake) -> None:
    reject(lake, FIRST, 2)
    with pytest.raises(NotPublished):
        operations(lake).call("wap_publish", {"branch": "dev"})
    told = accept(lake)
    assert "Accepted by ada: up to 1 failing row of test ids, on dev" in told
    assert "wap_publish --args '{branch: dev}'" in told
    assert live(lake) == [1]
    told = "\n".join(operations(lake).call("wap_publish", {"branch": "dev"}))
    assert "test ids failed (1 row), accepted by ada: two shops, one number" in told
    assert live(lake) == [1, 2]


def test_an_acceptance_names_the_tests_that_still_fail(lake: Lake) -> None:
    run = a_run(lake)
    build(run, 2)
    skipped = replace(OTHER, status="skipped", parents=frozenset({NODE.node_id}))
    other = replace(TEST, test_id="test.b", name="b")
    failed = [FAILED, TestSeen("test.b", "fail", 4, None)]
    told = "\n".join(
        lines(run.close([NODE, skipped], [TEST, other], failed), run_id=FIRST, branch="dev")
    )
    assert "accept test 1 of 2 as it is" in told
    assert "accept test 2 of 2 as it is" in told
    status = "\n".join(operations(lake).call("wap_status", {}))
    assert "shop.b   not on the branch: not built: upstream shop.orders was rejected" in status
    told = accept(lake)
    assert "Still failing: b\n  Next: accept this one, too" in told
    assert "wap_accept --args '{branch: dev, test: b" in told
    assert "Next: build the skipped nodes" in accept(lake, test="b", reason="known")


def test_a_later_build_warns_up_to_the_accepted_number_of_rows(lake: Lake) -> None:
    reject(lake, FIRST, 2, failures=7)
    assert a_run(lake, SECOND).rules.error_if("test.ids", "error") is None
    accept(lake)
    again = a_run(lake, SECOND)
    assert again.rules.error_if("test.ids", "error") == "> 7"
    assert again.rules.error_if("test.ids", "error, error_if > 3") is None
    assert again.rules.error_if("test.others", "error") is None
    build(again, 3)
    closing = again.close([NODE], [TEST], [TestSeen("test.ids", "warn", 6, None)])
    assert (closing.published, live(lake)) == (1, [1, 3])


def test_an_acceptance_ends_with_the_branch_or_the_day(lake: Lake) -> None:
    reject(lake, FIRST, 2)
    accept(lake)
    operations(lake).call("wap_discard", {"branch": "dev"})
    reject(lake, THIRD, 2)
    assert a_run(lake, SECOND).rules.error_if("test.ids", "error") is None
    accept(lake, until="2999-12-31")
    assert a_run(lake, SECOND, "other").rules.error_if("test.ids", "error") == "> 1"
    closing = a_run(lake, SECOND).close([], [TEST], [FAILED], KNOWN)
    assert closing.published == 1
    (notice,) = closing.decision.verdicts[NODE.node_id].notices
    assert "accepted by ada until 2999-12-31: two shops" in notice


def test_an_acceptance_ends_with_the_publish_of_its_table(lake: Lake) -> None:
    run = a_run(lake, publish="lineage")
    build(run, 2)
    another_table(run, 2)
    other = replace(TEST, test_id="test.b", name="b", reads=frozenset({OTHER.node_id}))
    tests, failed = [TEST, other], [FAILED, TestSeen("test.b", "fail", 1, None)]
    assert run.close([NODE, OTHER], tests, failed).published == 0
    accept(lake)
    closing = a_run(lake, SECOND, publish="lineage").close([], tests, failed, KNOWN)
    assert (closing.decision.outcome, live(lake)) == ("partial", [1, 2])
    reject(lake, THIRD, 3)
    assert a_run(lake, SECOND).rules.error_if("test.ids", "error") is None
    assert live(lake) == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"test": "idz"}, "no test 'idz' has failed on this branch by a number of rows"),
        ({"reason": " "}, "reason is missing"),
        ({"until": "soon"}, "until is 'soon', but must be YYYY-MM-DD"),
        ({"until": "9999-12-31"}, "until is '9999-12-31', but must be YYYY-MM-DD before"),
        ({"until": "2020-01-31"}, "until is 2020-01-31, which is in the past"),
        ({"branch": "nowhere"}, "there is no open branch 'nowhere'"),
    ],
)
def test_a_refused_acceptance_changes_nothing(
    lake: Lake, arguments: dict[str, str], told: str
) -> None:
    reject(lake, FIRST, 2)
    with pytest.raises(ConfigError, match=re.escape(told)):
        accept(lake, **arguments)
    assert lake.ledger.rows("acceptances") == []


def clocks_differ(monkeypatch: pytest.MonkeyPatch, minutes: int) -> None:
    """Let the clock of the machine be late by some minutes."""
    late = timedelta(minutes=minutes)
    clock = type("Late", (datetime,), {"now": lambda zone: datetime.now(zone) - late})
    monkeypatch.setattr(run_rows, "datetime", clock)
    monkeypatch.setattr(records, "datetime", clock)


@pytest.mark.parametrize("first", ["pass", "fail"])
def test_the_last_result_counts_whatever_the_clocks_say(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    run = a_run(lake, publish="never")
    build(run, 2)
    run.close([NODE], [TEST], [PASSED if first == "pass" else FAILED])
    clocks_differ(monkeypatch, 5)
    run = a_run(lake, SECOND, publish="never")
    run.close([], [TEST], [FAILED if first == "pass" else PASSED], KNOWN)
    if first == "pass":
        with pytest.raises(NotPublished):
            operations(lake).call("wap_publish", {"branch": "dev"})
    else:
        operations(lake).call("wap_publish", {"branch": "dev"})
    assert live(lake) == ([1] if first == "pass" else [1, 2])


def test_a_machine_with_a_late_clock_builds_after_a_discard(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(lake, publish="never")
    build(run, 2)
    run.close([NODE], [TEST], [PASSED])
    operations(lake).call("wap_discard", {"branch": "dev"})
    clocks_differ(monkeypatch, 5)
    run = a_run(lake, SECOND, publish="never")
    build(run, 3)
    run.close([NODE], [TEST], [FAILED])
    history = lake.ledger.branch_history("dev")
    assert [row["status"] for row in history.tests] == ["fail"]
    assert [row["run_id"] for row in history.nodes] == [SECOND]


def test_a_result_on_an_older_candidate_does_not_count(lake: Lake) -> None:
    first = a_run(lake, publish="never")
    build(first, 2)
    first.close([NODE], [TEST], [PASSED])
    second = a_run(lake, SECOND)
    build(second, 3)
    closing = second.close([NODE], [TEST], [])
    assert closing.decision.verdicts[NODE.node_id].outcome == "held"
    assert live(lake) == [1]


def test_building_again_starts_from_main(lake: Lake) -> None:
    first = a_run(lake)
    build(first, 2)
    first.close([NODE], [TEST], [TestSeen("test.ids", "fail", 1, None)])
    second = a_run(lake, SECOND)
    build(second, 3)
    second.close([NODE], [TEST], [PASSED])
    assert live(lake) == [1, 3]


def test_a_result_does_not_count_for_a_later_candidate_of_another_run(lake: Lake) -> None:
    build(first := a_run(lake), 2)
    first.close([NODE], [TEST], [])
    tests = a_run(lake, SECOND)
    # Its test reads these rows; meanwhile another run replaces them.
    build(other := a_run(lake, THIRD), 666)
    other.close([NODE], [TEST], [])
    closing = tests.close([], [TEST], [PASSED], KNOWN)
    reason = "test ids audited an older candidate of shop.orders"
    assert closing.decision.verdicts[NODE.node_id].reasons == (reason,)
    # The ledger does not say so, either.
    with pytest.raises(NotPublished, match=reason):
        operations(lake).call("wap_publish", {"branch": "dev"})
    assert live(lake) == [1]
    assert a_run(lake, SECOND).close([], [TEST], [PASSED], KNOWN).published == 1
    assert live(lake) == [1, 666]


def test_a_result_does_not_count_for_a_candidate_built_after_the_start_of_its_run(
    lake: Lake,
) -> None:
    run = a_run(lake, SECOND)
    another_table(run, 5)
    build(other := a_run(lake, FIRST), 666)
    other.close([NODE], [TEST], [], KNOWN)
    both = replace(TEST, reads=frozenset({NODE.node_id, OTHER.node_id}))
    closing = run.close([OTHER], [both], [PASSED], KNOWN)
    for verdict in closing.decision.verdicts.values():
        (reason,) = verdict.reasons
        assert "as it is on the branch" in reason
    assert live(lake) == [1]


@pytest.mark.parametrize("publish", ["run", "lineage"])
@pytest.mark.parametrize("seen", [[], [FAILED]])
def test_another_project_does_not_publish_unknown_nodes(
    lake: Lake, seen: list[TestSeen], publish: str
) -> None:
    build(first := a_run(lake), 666)
    first.close([NODE], [TEST], seen)
    run = a_run(lake, SECOND, publish=publish)
    another_table(run, 5)
    closing = run.close([OTHER], [], [], {OTHER.node_id})
    verdicts = closing.decision.verdicts
    assert verdicts[NODE.node_id].outcome == ("rejected" if seen else "held")
    assert verdicts[OTHER.node_id].reasons[0].startswith("waits for the run: 1 of 2 tables")
    assert (live(lake), live(lake, OTHER.identifier)) == ([1], [1])
    told = "\n".join(lines(closing, run_id=SECOND, branch="dev"))
    again = "build" if seen else "test"
    assert f"in the project that has it   SPARKWAP_BRANCH=dev dbt {again}" in told
    # Its own project finds it unchanged.
    (row,) = (r for r in lake.ledger.branch_history("dev").nodes if r["node_id"] == NODE.node_id)
    assert (row["run_id"], row["problem"]) == (FIRST, None)
    build(third := a_run(lake, THIRD), 2)
    assert third.close([NODE], [TEST], [PASSED], KNOWN).published == 2
    assert (live(lake), live(lake, OTHER.identifier)) == ([1, 2], [1, 5])


def test_a_failed_node_of_another_project_keeps_its_verdict(lake: Lake) -> None:
    broken = replace(OTHER, status="error", message="no such column")
    a_run(lake).close([broken], [], [])
    build(run := a_run(lake, SECOND), 2)
    assert run.close([NODE], [TEST], [PASSED]).published == 0
    assert live(lake) == [1]
    (row,) = lake.ledger.of_run("nodes", SECOND)
    assert row["node_id"] == NODE.node_id


@pytest.mark.parametrize("seen", [[], [FAILED]])
def test_dbt_clone_publishes_only_its_copies(lake: Lake, seen: list[TestSeen]) -> None:
    build(first := a_run(lake), 666)
    first.close([NODE], [TEST], seen)
    copies = a_run(lake, SECOND)
    copies.begin("model.copy", ("shop", "copy"))
    copies.candidates.place_copy(("shop", "copy"), ORDERS)
    copies.built("model.copy", ("shop", "copy"), must_write=True)
    closing = copies.close_copies()
    assert closing.decision.verdicts[NODE.node_id].outcome == ("rejected" if seen else "held")
    assert closing.decision.verdicts["model.copy"].outcome == "held"
    assert set(lake.relations("shop")) == {"orders"}
    assert live(lake) == [1]


def test_deleting_a_failed_test_does_not_release_its_table(lake: Lake) -> None:
    build(first := a_run(lake), 666)
    first.close([NODE], [TEST], [FAILED])
    reason = "test ids failed (1 row) in an earlier run; it is not a test of this run"
    off = replace(TEST, disabled=True)
    moved = replace(TEST, reads=frozenset({OTHER.node_id}))
    for tests in ([], [off], [moved]):
        later = a_run(lake, SECOND, disabled_tests="publish").close([], tests, [], KNOWN)
        assert later.decision.verdicts[NODE.node_id].reasons == (reason,)
    told = "\n".join(lines(later, run_id=SECOND, branch="dev"))
    assert "after a fix           SPARKWAP_BRANCH=dev dbt build --select +orders+" in told
    assert live(lake) == [1]
    # The test was deleted before this build, so it has no result for these rows.
    build(again := a_run(lake, THIRD, publish="never"), 2)
    again.close([NODE], [], [], KNOWN)
    assert a_run(lake, SECOND).close([], [], [], KNOWN).published == 1
    assert live(lake) == [1, 2]


def test_a_build_without_new_rows_is_a_new_candidate(lake: Lake) -> None:
    def build_nothing(run_id: str) -> Run:
        run = a_run(lake, run_id)
        run.begin(NODE.node_id, ORDERS)
        run.candidates.place_table(ORDERS, KEPT)
        run.built(NODE.node_id, ORDERS, must_write=False)
        return run

    build_nothing(FIRST).close([NODE], [TEST], [FAILED])
    assert a_run(lake, SECOND).close([], [], [], KNOWN).published == 0
    assert build_nothing(THIRD).close([NODE], [], [], KNOWN).published == 1
    assert lake.branches.all() == []


def test_a_deleted_test_that_did_not_run_holds_nothing_up(lake: Lake) -> None:
    build(first := a_run(lake), 2)
    first.close([NODE], [TEST], [replace(FAILED, status="skipped")])
    assert a_run(lake, SECOND).close([], [], [], KNOWN).published == 1
    assert live(lake) == [1, 2]


def test_main_that_moves_during_the_build_is_a_problem(lake: Lake) -> None:
    run = a_run(lake)
    run.candidates.place_table(ORDERS, KEPT)
    lake.catalog.load_table(ORDERS).append(rows(9))
    with pytest.raises(SparkwapError, match="main moved"):
        run.built(NODE.node_id, ORDERS, must_write=False)
    assert run.close([NODE], [], []).published == 0


def test_a_build_that_wrote_nothing_to_the_branch_is_a_problem(lake: Lake) -> None:
    run = a_run(lake)
    run.candidates.place_table(ORDERS, KEPT)
    with pytest.raises(SparkwapError, match="wrote nothing to the audit branch"):
        run.built(NODE.node_id, ORDERS, must_write=True)


def test_a_build_without_a_side_object_is_a_problem(lake: Lake) -> None:
    run = a_run(lake)
    run.candidates.place_beside(("shop", "new"))
    with pytest.raises(SparkwapError, match="left nothing in the side schema"):
        run.built("model.new", ("shop", "new"), must_write=True)


def test_a_table_that_is_dropped_during_the_build_is_a_problem(lake: Lake) -> None:
    run = a_run(lake)
    run.candidates.place_table(ORDERS, KEPT)
    lake.catalog.drop_table(ORDERS)
    with pytest.raises(SparkwapError, match="was dropped during the run"):
        run.built(NODE.node_id, ORDERS, must_write=True)


def test_a_branch_that_is_dropped_during_the_build_is_a_problem(lake: Lake) -> None:
    run = a_run(lake)
    run.candidates.place_table(ORDERS, KEPT)
    lake.catalog.load_table(ORDERS).manage_snapshots().remove_branch(run.branch).commit()
    with pytest.raises(SparkwapError, match="its audit branch dev is gone"):
        run.built(NODE.node_id, ORDERS, must_write=True)


def test_a_statement_of_another_run_that_writes_late_is_a_problem(lake: Lake) -> None:
    run = a_run(lake)
    run.candidates.place_table(ORDERS, KEPT)
    for writer in (SECOND, FIRST):
        table = lake.catalog.load_table(ORDERS)
        table.append(rows(2), branch=run.branch, snapshot_properties={"wap_run": writer})
    with pytest.raises(SparkwapError, match="a statement of run 2b3c4d5e was still running"):
        run.built(NODE.node_id, ORDERS, must_write=True)


def test_a_statement_of_another_run_that_writes_to_a_side_object_is_a_problem(lake: Lake) -> None:
    run = a_run(lake)
    run.candidates.place_beside(("shop", "new"))
    table = lake.catalog.create_table(("shop__dev", "new"), rows(1).schema)
    table.append(rows(2), snapshot_properties={"wap_run": SECOND})
    with pytest.raises(SparkwapError, match="a statement of run 2b3c4d5e was still running"):
        run.built("model.new", ("shop", "new"), must_write=True)


def test_a_schema_that_changes_after_the_first_write_is_refused(lake: Lake) -> None:
    run = a_run(lake)
    run.candidates.place_table(ORDERS, KEPT)
    with pytest.raises(SparkwapError, match="was already written on its branch"):
        run.candidates.place_clone(ORDERS, ["column extra added"])


def a_replay(lake: Lake) -> Replay:
    return Replay(Moment(datetime.now(UTC)), lake.histories, {})


def test_a_replay_pins_the_tables_that_it_does_not_build(lake: Lake) -> None:
    replay = a_replay(lake)
    run = a_run(lake, replay=replay)
    then = lake.catalog.load_table(ORDERS).current_snapshot()
    assert then is not None
    lake.catalog.load_table(ORDERS).append(rows(2))
    # Earlier than the append, as its log says.
    replay.moment = Moment(datetime.fromtimestamp(then.timestamp_ms / 1000, UTC))
    run.pin([Outside(ORDERS, "orders", "totals")])
    assert run.candidates.overlay.pinned(ORDERS) == then.snapshot_id
    run.read("model.totals", [ORDERS])
    row = run_row(run.invocation, "held")
    assert row["pins"] == {"shop.orders": str(then.snapshot_id)}
    assert row["as_of"] == str(replay.moment)
    # The pin does not change if main moves.
    assert not run.trail.reads


def test_a_replay_reads_its_own_builds_on_the_branch(lake: Lake) -> None:
    build(a_run(lake), 2)
    again = a_run(lake, SECOND, replay=a_replay(lake))
    again.pin([Outside(ORDERS, "orders", "totals")])
    assert again.candidates.overlay.pinned(ORDERS) is None


def test_a_run_of_the_present_pins_nothing(lake: Lake) -> None:
    run = a_run(lake)
    run.pin([Outside(ORDERS, "orders", "totals")])
    assert run.candidates.overlay.pinned(ORDERS) is None
    row = run_row(run.invocation, "held")
    assert (row["as_of"], row["pins"]) == (None, {})


def test_a_node_that_was_not_placed_is_not_published(lake: Lake) -> None:
    run = a_run(lake)
    with pytest.raises(SparkwapError, match="outside the gate"):
        run.built(NODE.node_id, ORDERS, must_write=True)
    closing = run.close([NODE], [], [])
    assert closing.rejected()[NODE.node_id].endswith("does not go through the gate")


def test_main_that_moves_before_the_publish_refuses_it(lake: Lake) -> None:
    run = a_run(lake)
    build(run, 2)
    lake.catalog.load_table(ORDERS).append(rows(9))
    closing = run.close([NODE], [TEST], [PASSED])
    assert closing.refused is not None
    assert closing.published == 0
    assert set(closing.rejected()) == {NODE.node_id}
    assert live(lake) == [1, 9]


def store_failures(run: Run, *ids: int) -> None:
    placed = run.candidates.place_beside(FAILURES)
    run.lake.catalog.create_table(placed.place, rows(1).schema).append(rows(*ids))
    run.built(TEST.test_id, FAILURES, must_write=True)


@pytest.mark.parametrize("before", [(), (9,)])
def test_failures_that_another_run_has_stored_meanwhile_are_replaced(
    lake: Lake, before: tuple[int, ...]
) -> None:
    if before:
        first = a_run(lake, THIRD, names.audit_branch(THIRD, None))
        store_failures(first, *before)
        first.close([], [TEST], [FAILED])
    run, other = (a_run(lake, each, names.audit_branch(each, None)) for each in (FIRST, SECOND))
    build(run, 2)
    store_failures(run, 7)
    store_failures(other, 5, 6)
    assert other.close([], [TEST], [FAILED]).published == 1
    closing = run.close([NODE], [TEST], [PASSED])
    assert (closing.published, closing.refused) == (2, None)
    assert (live(lake), live(lake, FAILURES)) == ([1, 2], [7])
    (entries,) = [one.entries for one in lake.ledger.publish(FIRST)]
    lake.publishing.rollback(entries, run_id=THIRD, publish_id=str(closing.publish_id))
    assert (live(lake), live(lake, FAILURES)) == ([1], [5, 6])


def test_failures_do_not_replace_a_table_that_became_a_node_meanwhile(lake: Lake) -> None:
    run, other = (a_run(lake, each, names.audit_branch(each, None)) for each in (FIRST, SECOND))
    build(run, 2)
    store_failures(run, 7)
    owner = replace(OTHER, identifier=FAILURES)
    other.begin(owner.node_id, FAILURES)
    placed = other.candidates.place_beside(FAILURES)
    lake.catalog.create_table(placed.place, rows(1).schema).append(rows(5))
    other.built(owner.node_id, FAILURES, must_write=True)
    assert other.close([owner], [], []).published == 1
    closing = run.close([NODE], [TEST], [PASSED])
    assert (closing.published, closing.rebase) == (0, None)
    assert closing.gave_up == "only stored failures of tests were refused"
    assert (live(lake), live(lake, FAILURES)) == ([1], [5])


def test_a_branch_that_somebody_else_wrote_to_is_rejected(lake: Lake) -> None:
    run = a_run(lake, publish="never")
    build(run, 2)
    run.close([NODE], [TEST], [PASSED])
    lake.catalog.load_table(ORDERS).append(rows(66), branch="dev")
    closing = a_run(lake, SECOND).close([], [TEST], [PASSED], KNOWN)
    assert "somebody else wrote to it" in closing.rejected()[NODE.node_id]
    assert live(lake) == [1]


def test_a_changed_column_goes_to_a_clone(lake: Lake) -> None:
    run = a_run(lake)
    wanted = Desired(columns=(("id", "bigint", None, None), ("extra", "string", None, None)))
    target = run.candidates.place_table(ORDERS, wanted)
    assert (target.how, target.changes) == ("side", ("column extra added",))
    assert run.candidates.overlay.schema_of("shop", "orders") == "shop__dev"
    assert [c.name for c in lake.states([ORDERS])[ORDERS].columns] == ["id"]


def test_errors_of_operations_list_the_legal_arguments(lake: Lake) -> None:
    for name, arguments, told in (
        ("wap_discard", {"branc": "x"}, "unknown argument: branc"),
        ("wap_discard", {"branch": "x"}, "no open branch 'x'"),
        ("wap_publish", {"branch": "x", "mode": "all"}, "mode is 'all'"),
        ("wap_rollback", {}, "run is missing"),
        ("wap_sweep", {"older_then": 7}, "unknown argument: older_then"),
        ("wap_sweep", {"older_than": -1}, "older_than is '-1'; legal: 0 or more"),
        ("wap_sweep", {"files_older_than": 0}, "a running job would lose its files"),
        ("wap_sweep", {"named_older_than": 999999}, "the most are 36,500 days"),
        ("wap_sweep", {"dry_run": "perhaps"}, "dry_run is 'perhaps'; legal: true, false"),
    ):
        with pytest.raises(ConfigError, match=told) as error:
            operations(lake).call(name, arguments)
        listed = "Nothing was changed. Arguments (--args \"{key: 'value'}\" of dbt;"
        assert listed in str(error.value)


def test_a_failed_node_of_an_earlier_run_holds_up_the_branch(lake: Lake) -> None:
    other = replace(OTHER, status="error", message="no such column")
    first = a_run(lake)
    build(first, 2)
    first.close([NODE, other], [TEST], [])
    again = a_run(lake, SECOND).close([], [TEST], [PASSED], KNOWN)
    assert again.decision.verdicts[other.node_id].reasons == ("build failed: no such column",)
    assert again.decision.verdicts[NODE.node_id].outcome == "held"
    assert live(lake) == [1]
    # An operation reports this by its exit code.
    with pytest.raises(NotPublished, match="build failed: no such column"):
        operations(lake).call("wap_publish", {"branch": "dev"})
    assert live(lake) == [1]


def test_a_missing_candidate_holds_up_the_branch(lake: Lake) -> None:
    first = a_run(lake, publish="never")
    build(first, 2)
    first.close([NODE], [TEST], [PASSED])
    # Like a second build that then dies.
    a_run(lake, SECOND).begin(NODE.node_id, ORDERS)
    closing = a_run(lake, SECOND).close([], [TEST], [PASSED], KNOWN)
    assert "no longer on the branch" in closing.rejected()[NODE.node_id]
    assert live(lake) == [1]


def test_operations_require_the_name_of_a_branch(lake: Lake) -> None:
    build(a_run(lake), 2)
    for name in ("wap_discard", "wap_publish"):
        with pytest.raises(ConfigError, match="branch is missing") as error:
            operations(lake).call(name, {})
        assert "Open branches: dev" in str(error.value)


def test_operations_publish_roll_back_and_discard(lake: Lake) -> None:
    run = a_run(lake, publish="never")
    build(run, 2)
    run.close([NODE], [TEST], [PASSED])
    status = "\n".join(operations(lake).call("wap_status", {}))
    assert "1 audit branch is open" in status
    assert "shop.orders   held: publishing is off" in status
    operations(lake).call("wap_publish", {"branch": "dev"})
    assert live(lake) == [1, 2]
    operations(lake).call("wap_rollback", {"run": SECOND[:8]})
    assert live(lake) == [1]
    build(a_run(lake, FIRST, "other"), 5)
    assert "Discarded other" in operations(lake).call("wap_discard", {"branch": "other"})[0]
    assert "No audit branch is open" in operations(lake).call("wap_status", {})[0]


def test_a_branch_that_no_run_has_opened_is_not_discarded(lake: Lake) -> None:
    table = lake.catalog.load_table(ORDERS)
    table.append(rows(7), branch="wap_mine")
    with pytest.raises(SparkwapError, match=r"alter table shop\.orders drop branch wap_mine"):
        operations(lake).call("wap_discard", {"branch": "wap_mine"})
    assert "wap_mine" in lake.catalog.load_table(ORDERS).metadata.refs


def test_a_failed_node_without_a_candidate_is_discarded(lake: Lake) -> None:
    a_run(lake).close([replace(NODE, status="error")], [], [])
    assert lake.ledger.branch_history("dev").nodes
    assert "0 tables on it" in operations(lake).call("wap_discard", {"branch": "dev"})[0]
    assert not lake.ledger.branch_history("dev").nodes
    with pytest.raises(SparkwapError, match="no open branch 'dev'"):
        operations(lake).call("wap_discard", {"branch": "dev"})


def test_a_statement_of_a_run_that_died_is_not_published(lake: Lake) -> None:
    dead, again = a_run(lake, FIRST), a_run(lake, SECOND)
    build(dead, 2)
    again.begin(NODE.node_id, ORDERS)
    again.candidates.place_table(ORDERS, KEPT)
    # The server has continued the statement of the killed run.
    for run, row in ((dead, 2), (again, 3)):
        stamp = {"wap_run": run.run_id}
        lake.catalog.load_table(ORDERS).append(rows(row), branch="dev", snapshot_properties=stamp)
    with pytest.raises(SparkwapError, match=r"statement of run 1a2b3c4d was still running"):
        again.built(NODE.node_id, ORDERS, must_write=True)
    assert again.close([NODE], [TEST], [PASSED]).published == 0
    assert live(lake) == [1]


def test_throw_away_tables_of_a_dead_run_are_dropped(lake: Lake) -> None:
    def left_by(run_id: str) -> str:
        schema = names.throw_away_schema(run_id, "0" * 32, "dev")
        lake.ensure_schema(schema, "dev")
        lake.catalog.create_table((schema, "tested"), rows(1).schema)
        return schema

    dead, living = left_by(SECOND), left_by(THIRD)
    held = lease.hold(lake.leases, run_id=THIRD, branch="dev", command="test")
    run = a_run(lake)
    assert dead not in lake.schemas()
    assert lake.relations(living) == {"tested": "table"}
    build(run, 2)
    # That of a living run is no leftover, and does not hold up the branch.
    assert run.close([NODE], [TEST], [PASSED]).published == 1
    held.release()
    a_run(lake)
    assert living not in lake.schemas()


def test_leftovers_of_a_dead_run_hold_up_its_branch(lake: Lake) -> None:
    # It built one table and died; the next run builds another one, and has read the first.
    other = NodeFact("model.shop.b", ("shop", "b"), "model", "success", None, frozenset())
    lake.catalog.create_table(other.identifier, rows(1).schema).append(rows(1))
    build(a_run(lake, FIRST), 2)
    for publish in ("run", "lineage"):
        run = a_run(lake, SECOND, publish=publish)
        run.begin(other.node_id, other.identifier)
        run.candidates.place_table(other.identifier, KEPT)
        lake.catalog.load_table(other.identifier).append(rows(2), branch="dev")
        run.built(other.node_id, other.identifier, must_write=True)
        closing = run.close([other], [], [], KNOWN)
        assert closing.published == 0
        (reason,) = (v.reasons for k, v in closing.decision.verdicts.items() if "leftover" in k)
        assert "left on the branch by an earlier run" in reason[0]
        # dbt would select no node by the name of the table.
        told = "\n".join(lines(closing, run_id=SECOND, branch="dev"))
        assert "dbt build" in told and "--select" not in told
    # Built again, it holds up nothing.
    build(third := a_run(lake, THIRD), 2)
    assert third.close([NODE], [TEST], [PASSED], KNOWN).published == 2
    assert live(lake) == [1, 2]


def test_a_table_that_its_node_no_longer_has_is_only_discarded(lake: Lake) -> None:
    branch = names.audit_branch(FIRST, None)
    build(first := a_run(lake, FIRST, branch), 2)
    first.close([NODE], [TEST], [])
    renamed = replace(NODE, identifier=("shop", "renamed"))
    found = find_continuation(
        lake,
        [LastRun(FIRST, branch, "held", "run")],
        60.0,
        command="build",
        publish="run",
        selected=KNOWN,
        known=lambda: {NODE.node_id: renamed.identifier},
        last=None,
    )
    discard = f"dbt run-operation wap_discard --args '{{branch: {branch}}}'"
    assert found.run is None and found.line is not None
    assert found.line.endswith(f"in this project now, or none; to drop it: {discard}")
    # Who builds on it none the less is told the same, each time.
    for run_id in (SECOND, THIRD):
        run = a_run(lake, run_id, branch)
        run.rules = replace(run.rules, table_of_node={NODE.node_id: renamed.identifier}.get)
        run.begin(NODE.node_id, renamed.identifier)
        place = run.candidates.place_table(renamed.identifier, KEPT).place
        lake.catalog.create_table(place, rows(1).schema).append(rows(7))
        run.built(NODE.node_id, renamed.identifier, must_write=True)
        closing = run.close([renamed], [TEST], [PASSED], KNOWN)
        assert closing.published == 0
        reasons = closing.decision.verdicts["leftover.shop.orders"].reasons
        assert NO_NODE in reasons[0] and "drop the branch" in reasons[0]
        assert next_steps(closing, branch) == [("discard it", discard)]


def test_after_an_unknown_commit_the_ledger_is_not_written(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(lake)
    build(run, 2)

    def publish(*_args: object, **_options: object) -> None:
        raise CommitUnknown("nobody knows")

    monkeypatch.setattr(Publishing, "publish", publish)
    with pytest.raises(CommitUnknown):
        run.close([NODE], [TEST], [PASSED])
    assert lake.ledger.runs() == []


def test_a_run_that_has_published_is_not_retried(lake: Lake) -> None:
    run = a_run(lake)
    build(run, 2)
    last = LastRun(FIRST, "dev", "open")
    require_unpublished(lake.ledger, last)
    run.close([NODE], [TEST], [PASSED])
    published = r"Run 1a2b3c4d \(branch dev\).* has completed its publish of 1 table"
    with pytest.raises(SparkwapError, match=published):
        require_unpublished(lake.ledger, last)


def test_status_shows_the_end_of_the_last_run(lake: Lake) -> None:
    last = LastRun(FIRST, "dev", "open")
    run = a_run(lake)
    build(run, 2)
    told = operations(lake, last).call("wap_status", {})
    assert told[0].startswith(
        "Run 1a2b3c4d on dev, the last run of this target folder, has not ended"
    )
    run.close([NODE], [TEST], [PASSED])
    told = operations(lake, last).call("wap_status", {})
    assert told[0].startswith(
        "Run 1a2b3c4d (branch dev), the last run of this target folder, has completed its "
        "publish of 1 table,"
    )
    assert "last run of this target folder" not in "".join(operations(lake).call("wap_status", {}))


def test_status_shows_a_candidate_that_a_dead_run_has_overwritten(lake: Lake) -> None:
    first = a_run(lake, publish="never")
    build(first, 2)
    first.close([NODE], [TEST], [PASSED])
    build(a_run(lake, SECOND), 3)
    told = "\n".join(operations(lake).call("wap_status", {}))
    assert "written again since its run, by a run that has not ended" in told
    # The results of the first run in the ledger do not publish it.
    with pytest.raises(NotPublished):
        operations(lake).call("wap_publish", {"branch": "dev"})
    assert live(lake) == [1]


@pytest.mark.parametrize("part", ["empty", "sample"])
def test_a_build_with_empty_or_sample_is_never_published(
    lake: Lake, part: Literal["empty", "sample"]
) -> None:
    run = a_run(lake, part=part)
    build(run, 2)
    closing = run.close([NODE], [TEST], [PASSED])
    assert (
        closing.decision.verdicts[NODE.node_id].reasons[0].startswith(f"it was built with --{part}")
    )
    assert not closing.decision.failed
    # The ledger records this for later commands.
    assert a_run(lake, SECOND).close([], [TEST], [PASSED], KNOWN).published == 0
    with pytest.raises(NotPublished, match=f"it was built with --{part}"):
        operations(lake).call("wap_publish", {"branch": "dev"})
    assert live(lake) == [1]
    again = a_run(lake, SECOND)
    build(again, 3)
    again.close([NODE], [TEST], [PASSED])
    assert live(lake) == [1, 3]


def test_a_test_with_empty_does_not_count_for_a_full_build(lake: Lake) -> None:
    build(run := a_run(lake), 2)
    run.close([NODE], [TEST], [])
    closing = a_run(lake, SECOND, part="empty").close([], [TEST], [PASSED], KNOWN)
    assert closing.decision.verdicts[NODE.node_id].reasons == (
        "test ids ran with --empty, on no rows",
    )
    with pytest.raises(NotPublished, match="ran with --empty"):
        operations(lake).call("wap_publish", {"branch": "dev"})
    assert live(lake) == [1]


def test_properties_that_need_no_clone_are_set_with_the_branch(lake: Lake) -> None:
    for number in (5, 6):
        run = a_run(lake, FIRST)
        target = run.candidates.place_table(ORDERS, KEPT, {"commit.retry.num-retries": str(number)})
        assert target.how == "branch"
        state = lake.states([ORDERS])[ORDERS]
        assert state.properties["commit.retry.num-retries"] == str(number)


def test_the_fate_of_a_write_is_read_from_the_catalog(lake: Lake) -> None:
    run = a_run(lake)
    run.candidates.place_table(ORDERS, KEPT)
    look = run.candidates.watch(ORDERS)
    assert look() == "not made"
    table = lake.catalog.load_table(ORDERS)
    table.append(rows(2), branch="dev", snapshot_properties={"wap_run": FIRST})
    assert look() == "made"
    lake.catalog.load_table(ORDERS).append(rows(3), branch="dev")
    assert look() == "unknown"
    assert run.candidates.watch(("shop", "nowhere"))() == "unknown"


def test_the_fate_of_a_batch_is_its_own_among_batches_of_the_run(lake: Lake) -> None:
    run = a_run(lake)
    run.candidates.place_table(ORDERS, KEPT)
    look = run.candidates.watch(ORDERS, "day 1")
    assert look() == "not made"
    for day, found in (("day 2", "not made"), ("day 1", "made"), ("day 3", "made")):
        properties = {"wap_run": FIRST, "wap_batch": day}
        table = lake.catalog.load_table(ORDERS)
        table.append(rows(2), branch="dev", snapshot_properties=properties)
        assert look() == found
    assert run.candidates.watch(ORDERS, "day 1")() == "not made"
    lake.catalog.load_table(ORDERS).append(rows(3), branch="dev")
    assert look() == "unknown"


def test_a_unit_test_reads_rows_of_its_own(lake: Lake) -> None:
    build(run := a_run(lake), 2)
    unit = replace(TEST, kind="unit")
    run.close([NODE], [unit], [])
    a_run(lake, SECOND, part="empty").close([], [unit], [PASSED], KNOWN)
    assert live(lake) == [1, 2]


def test_a_disabled_test_holds_until_somebody_accepts_it(lake: Lake) -> None:
    off = replace(TEST, disabled=True)
    build(run := a_run(lake), 2)
    closing = run.close([NODE], [off], [])
    assert "test ids did not run: disabled" in closing.decision.verdicts[NODE.node_id].reasons[0]
    assert live(lake) == [1]
    a_run(lake, SECOND, disabled_tests="publish").close([], [off], [], KNOWN)
    assert live(lake) == [1, 2]


def test_the_ledger_has_no_rows_of_disabled_tests_of_other_nodes(lake: Lake) -> None:
    build(run := a_run(lake), 2)
    elsewhere = TestFact("test.far", "far", "data", frozenset({"model.far"}), "", disabled=True)
    run.close([NODE], [TEST, elsewhere], [PASSED])
    told = lake.catalog.load_table(("wap_ledger", "tests")).scan().to_arrow()
    assert told["test_id"].to_pylist() == [TEST.test_id]


def test_a_severity_that_was_lowered_holds_until_somebody_accepts_it(lake: Lake) -> None:
    def close(run_id: str, ids: int, severity: str, **settings: object) -> None:
        build(run := a_run(lake, run_id, f"b{ids}", **settings), ids)
        warned = TestSeen(TEST.test_id, "pass" if severity == "error" else "warn", 0, None)
        run.close([NODE], [replace(TEST, severity=severity)], [warned])

    close(FIRST, 2, "error")
    close(SECOND, 3, "warn")
    # A held run does not count as an earlier result.
    close(THIRD, 4, "warn")
    assert live(lake) == [1, 2]
    close(THIRD, 5, "warn", warnings="publish")
    close(SECOND, 6, "warn")
    assert live(lake) == [1, 2, 5, 6]


def test_thresholds_that_have_changed_hold_until_somebody_accepts_them(lake: Lake) -> None:
    def close(run_id: str, ids: int, severity: str) -> None:
        build(run := a_run(lake, run_id, f"b{ids}"), ids)
        run.close([NODE], [replace(TEST, severity=severity)], [PASSED])

    close(FIRST, 2, "error")
    close(SECOND, 3, "error, error_if > 1000")
    assert live(lake) == [1, 2]
    close(THIRD, 4, "warn")
    assert live(lake) == [1, 2, 4]


def test_a_var_that_a_test_uses_holds_until_somebody_accepts_it(lake: Lake) -> None:
    def close(run_id: str, ids: int, inputs: dict[str, str], **settings: object) -> None:
        build(run := a_run(lake, run_id, f"b{ids}", **settings), ids)
        run.close([NODE], [replace(TEST, inputs=inputs)], [PASSED])

    close(FIRST, 2, {})
    close(SECOND, 3, {"var most": "1"})
    assert live(lake) == [1, 2]
    # The var also counts for wap_publish without it.
    with pytest.raises(NotPublished, match="but var most was another"):
        operations(lake).call("wap_publish", {"branch": "b3"})
    close(THIRD, 4, {"var most": "1"}, warnings="publish")
    close(SECOND, 5, {"var most": "1"})
    close(SECOND, 6, {})
    assert live(lake) == [1, 2, 4, 5, 6]


def test_wap_publish_accepts_a_lowered_severity(lake: Lake) -> None:
    build(run := a_run(lake, FIRST, "b2"), 2)
    run.close([NODE], [TEST], [PASSED])
    build(run := a_run(lake, SECOND, "b3"), 3)
    run.close([NODE], [replace(TEST, severity="warn")], [TestSeen("test.ids", "warn", 3, None)])
    with pytest.raises(NotPublished, match="its severity was 'error'"):
        operations(lake).call("wap_publish", {"branch": "b3"})
    assert live(lake) == [1, 2]


def ungate(lake: Lake, value: str = "false") -> None:
    table = lake.catalog.load_table(ORDERS)
    table.transaction().set_properties({"write.wap.enabled": value}).commit_transaction()


def test_a_table_without_the_gate_property_after_the_build_is_a_problem(lake: Lake) -> None:
    run = a_run(lake)
    run.candidates.place_table(ORDERS, KEPT)
    lake.catalog.load_table(ORDERS).append(rows(2), branch=run.branch)
    ungate(lake)
    with pytest.raises(SparkwapError, match=r"the property write.wap.enabled was removed"):
        run.built(NODE.node_id, ORDERS, must_write=True)


def test_a_side_table_with_the_gate_property_is_a_problem(lake: Lake) -> None:
    run = a_run(lake)
    run.begin(OTHER.node_id, OTHER.identifier)
    side = run.candidates.place_table(OTHER.identifier, KEPT)
    lake.catalog.create_table(side.place, rows(1).schema, properties={WAP_ENABLED: "true"})
    with pytest.raises(SparkwapError, match=r"its rows are on a branch of that table"):
        run.built(OTHER.node_id, OTHER.identifier, must_write=True)


def test_a_table_without_the_gate_property_is_not_published(lake: Lake) -> None:
    build(run := a_run(lake), 2)
    ungate(lake)
    closing = run.close([NODE], [TEST], [PASSED])
    assert "property write.wap.enabled: expected true, found false" in str(closing.refused)
    assert live(lake) == [1]


def test_a_later_run_rejects_a_table_without_the_gate_property(lake: Lake) -> None:
    build(run := a_run(lake), 2)
    run.close([NODE], [TEST], [])
    ungate(lake)
    closing = a_run(lake, SECOND).close([], [TEST], [PASSED], KNOWN)
    assert "the property write.wap.enabled was removed" in closing.rejected()[NODE.node_id]
    assert live(lake) == [1]


def test_a_table_that_was_dropped_and_created_again_is_not_published(lake: Lake) -> None:
    build(run := a_run(lake), 2)
    lake.catalog.drop_table(ORDERS)
    lake.catalog.create_table(ORDERS, rows(1).schema).append(rows(7))
    closing = run.close([NODE], [TEST], [PASSED])
    assert "main: expected snapshot" in str(closing.refused)
    assert live(lake) == [7]
    later = a_run(lake, SECOND).close([], [TEST], [PASSED], KNOWN)
    assert "no longer on the branch" in later.rejected()[NODE.node_id]
    assert live(lake) == [7]


@pytest.mark.parametrize("node", [NODE.node_id, None])
def test_a_run_that_has_moved_main_publishes_nothing(lake: Lake, node: str | None) -> None:
    build(run := a_run(lake, publish="lineage"), 2)
    run.caught_on_main = lambda: [
        GateBypass(("shop", "prey"), node, "was moved past the gate", True)
    ]
    closing = run.close([NODE], [TEST], [PASSED])
    assert closing.published == 0
    assert "was moved past the gate" in "; ".join(closing.rejected().values())


def two_by_name(lake: Lake, *, reads_first: bool = False, where: str = "shop.orders") -> Run:
    """OTHER reads NODE's table by its name, without ref(); NODE's test fails."""
    run = a_run(lake, publish="lineage")
    sql = where if where.startswith(("call", "create")) else f"select * from {where}"
    if reads_first:
        run.begin(OTHER.node_id, OTHER.identifier)
        run.trail.named(OTHER.node_id, relation_names(sql))
    build(run, 2)
    run.trail.named(OTHER.node_id, relation_names(sql))
    another_table(run, 3)
    return run


@pytest.mark.parametrize(
    "where",
    [
        "shop.orders",
        "lake.`SHOP`. /* */ Orders x",
        '"shop"."orders"',
        "identifier('shop.orders')",
        "identifier(?)",
        "global_temp.kept",
        "spark_catalog.default.kept",
        "parquet.`WAREHOUSE/shop/orders/data/a.parquet`",
        "parquet.`file:WAREHOUSE/shop/*/data`",
        "create temporary view v using parquet options (path 'WAREHOUSE/shop/orders/data')",
        "create temporary view v using iceberg options (path 'file://WAREHOUSE/shop/orders')",
        "call lake.system.create_changelog_view(table => 'shop.orders')",
    ],
)
def test_a_table_read_by_name_is_a_parent(lake: Lake, where: str) -> None:
    where = where.replace("WAREHOUSE", lake.warehouse)
    closing = two_by_name(lake, where=where).close([NODE, OTHER], [TEST], [FAILED])
    verdict = closing.decision.verdicts[OTHER.node_id]
    assert (verdict.outcome, closing.published) == ("held", 0)
    assert "upstream shop.orders" in verdict.reasons[0]
    # A retry has to build both, because one contains rows of the other.
    assert set(closing.rejected()) == {NODE.node_id, OTHER.node_id}
    (row,) = [r for r in lake.ledger.rows("nodes") if r["node_id"] == OTHER.node_id]
    assert row["parents"] == [NODE.node_id]


@pytest.mark.parametrize(
    "where", ["other.kept", "csv.`/landing/*.csv`", 'values("/", "yyyy/MM/dd")', "a.`b/c`"]
)
def test_a_table_outside_the_run_is_no_parent(lake: Lake, where: str) -> None:
    closing = two_by_name(lake, where=where).close([NODE, OTHER], [TEST], [FAILED])
    assert closing.decision.publish == (OTHER.node_id,)


def a_view(lake: Lake, schema: str, name: str, sql: str) -> None:
    """A view, as Spark writes it."""
    lake.ensure_schema(schema)
    location = f"{lake.warehouse}/{schema}/{name}"
    file = f"{location}/metadata/00000-v.metadata.json"
    document = view_json(location, sql, None)
    swap = PointerUpdate(None, Pointer((schema, name), "view", file))
    files = lake.store.write({file: document})
    lake.store.commit(lambda: Staged(None, [swap], files), "publish", tries=1)


@pytest.mark.parametrize(("schema", "view"), [("shop", "Shown"), ("shop", "SHOWN"), ("SHOP", "v")])
def test_a_table_read_by_a_view_in_another_case_is_a_parent(
    lake: Lake, schema: str, view: str
) -> None:
    for twin in ("shop.Shown", "shop.SHOWN", "SHOP.v", "shop.v"):
        told = "select id from shop.orders" if twin == f"{schema}.{view}" else "select 1 as id"
        a_view(lake, *twin.split("."), sql=told)
    run = two_by_name(lake, where=f"{schema}.{view}")
    closing = run.close([NODE, OTHER], [TEST], [FAILED])
    assert (closing.decision.verdicts[OTHER.node_id].outcome, closing.published) == ("held", 0)


SHOWN = NodeFact(
    "model.shown", ("shop", "shown"), "model", "success", None, frozenset({"model.orders"})
)
VIEW_TEST = TestFact(
    "test.shown",
    "shown_ids",
    "data",
    frozenset({SHOWN.node_id, NODE.node_id}),
    "error",
    views=frozenset({SHOWN.node_id}),
    behind=frozenset({NODE.node_id}),
)


def a_tested_view(lake: Lake, sql: str, status: str = "pass", test: str = "") -> RunEnd:
    """A run of orders and of a view that, as dbt knows it, reads them; the view is tested."""
    run = a_run(lake, publish="lineage")
    build(run, 2)
    run.begin(SHOWN.node_id, SHOWN.identifier)
    side = run.candidates.place_beside(SHOWN.identifier, "view").place[0]
    a_view(lake, side, "shown", sql=sql)
    run.built(SHOWN.node_id, SHOWN.identifier, must_write=True)
    run.trail.named("test.shown", relation_names(test or f"select * from {side}.shown"))
    seen = replace(PASSED, test_id="test.shown", status=status)
    return run.close([NODE, SHOWN], [TEST, VIEW_TEST], [PASSED, seen])


@pytest.mark.parametrize(
    "sql", ["select id from kept.orders", "select 1 as id /* depends on shop.orders */"]
)
def test_a_view_that_reads_other_tables_than_dbt_knows_counts_for_what_it_reads(
    lake: Lake, sql: str
) -> None:
    """The copy of a view by `dbt clone` reads what its original reads."""
    lake.ensure_schema("kept")
    lake.catalog.create_table(("kept", "orders"), rows(1).schema)
    closing = a_tested_view(lake, sql)
    assert (closing.published, live(lake)) == (2, [1, 2])


def test_nothing_is_added_to_a_view(lake: Lake) -> None:
    a_tested_view(lake, "select 1 as id", status="warn", test="shop.orders")
    second = a_run(lake, SECOND)
    assert SHOWN.node_id in second.candidates.found
    assert not second.may_add_to_candidate(SHOWN.node_id, SHOWN.identifier)


def test_rows_of_a_table_that_is_a_view_now_are_not_begun_anew_without_a_word(lake: Lake) -> None:
    first = a_run(lake)
    build(first, 2)
    first.close([NODE], [TEST], [])
    lake.catalog.drop_table(ORDERS)
    a_view(lake, *ORDERS, sql="select 1 as id")
    second = a_run(restarted(lake), SECOND)
    assert not second.may_add_to_candidate(NODE.node_id, ORDERS)
    with pytest.raises(SparkwapError, match="can no longer be published"):
        second.candidates.require_publishable(NODE.node_id, ORDERS)


def test_a_failed_test_of_such_a_view_rejects_the_view(lake: Lake) -> None:
    closing = a_tested_view(lake, "select 1 as id", status="fail")
    assert closing.rejected().keys() == {SHOWN.node_id}
    assert (closing.published, live(lake)) == (1, [1, 2])


@pytest.mark.parametrize(
    ("sql", "outcome"),
    [
        ("select id from lake.shop.orders", "held"),
        ("select id from spark_catalog.default.kept", "held"),
        ("select 1 as id", "published"),
    ],
)
def test_a_test_counts_for_what_the_text_of_its_view_may_read(
    lake: Lake, sql: str, outcome: str
) -> None:
    closing = a_tested_view(lake, sql, test="select 1")
    outcomes = {one: verdict.outcome for one, verdict in closing.decision.verdicts.items()}
    assert outcomes == {NODE.node_id: outcome, SHOWN.node_id: "held"}


def test_reading_a_table_by_name_during_its_build_is_a_problem(lake: Lake) -> None:
    closing = two_by_name(lake, reads_first=True).close([NODE, OTHER], [TEST], [PASSED])
    assert "dbt does not know" in closing.rejected()[OTHER.node_id]


def test_a_table_read_by_name_before_its_build_was_read_from_main(lake: Lake) -> None:
    run = a_run(lake, publish="lineage")
    run.trail.named(OTHER.node_id, relation_names("select * from shop.orders"))
    another_table(run, 3)
    build(run, 2)
    closing = run.close([NODE, OTHER], [TEST], [FAILED])
    assert closing.decision.publish == (OTHER.node_id,)


def test_the_owner_of_a_table_is_the_node_published_last(
    lake: Lake,
) -> None:
    stored = ("shop", "stored")
    for run_id, ids in ((FIRST, 2), (SECOND, 3)):
        run = a_run(lake, run_id, branch=f"dev{ids}")
        build(run, ids)
        run.candidates.place_beside(stored)
        table = lake.catalog.create_table_if_not_exists(
            (f"shop__dev{ids}", "stored"), rows(1).schema
        )
        table.append(rows(1), snapshot_properties={"wap_run": run_id})
        run.built(TEST.test_id, stored, must_write=True)
        assert run.close([NODE], [TEST], [PASSED]).published == 2
    assert lake.ledger.owners() == {ORDERS: NODE.node_id}


def test_a_test_that_reads_a_table_by_name_rejects_it(lake: Lake) -> None:
    run = a_run(lake)
    build(run, 2)
    run.trail.named(TEST.test_id, relation_names("select * from shop.orders where id > 1"))
    closing = run.close([NODE], [replace(TEST, reads=frozenset())], [FAILED])
    assert set(closing.rejected()) == {NODE.node_id}


@pytest.mark.parametrize(
    ("where", "beside", "published"),
    [
        ("shop.orders", False, 1),
        ("other.orders", False, 0),
        ("shop.orders.files", False, 0),
        ("shop.orders version as of 'main'", False, 0),
        ("shop__dev.orders version as of 'main'", True, 0),
        ("shop__dev.orders", True, 1),
        ("SHOP__DEV.Orders", True, 1),
        ("shop.orders", True, 0),
        ("identifier(?)", True, 0),
    ],
)
def test_a_test_counts_only_if_it_has_read_the_candidate(
    lake: Lake, where: str, beside: bool, published: int
) -> None:
    run = a_run(lake)
    run.begin(NODE.node_id, ORDERS)
    place = ORDERS
    if beside:
        target = run.candidates.place_clone(ORDERS, ["a column"])
        place = target.place
    else:
        run.candidates.place_table(ORDERS, KEPT)
    branch = "main" if beside else run.branch
    lake.catalog.load_table(place).append(rows(2), branch=branch)
    run.built(NODE.node_id, ORDERS, must_write=True)
    sql = f"select * from {where}"
    run.trail.named(TEST.test_id, relation_names(sql), relation_names(sql, present=True))
    closing = run.close([NODE], [TEST], [PASSED])
    assert closing.published == published
    if not published:
        (reason,) = closing.decision.verdicts[NODE.node_id].reasons
        assert "did not read shop.orders as it is on the branch" in reason


def test_reading_metadata_counts_as_a_read_of_the_present_place(lake: Lake) -> None:
    run = a_run(lake)
    run.begin(NODE.node_id, ORDERS)
    beside = run.candidates.place_clone(ORDERS, ["a column"]).place
    lake.catalog.load_table(beside).append(rows(2))
    run.built(NODE.node_id, ORDERS, must_write=True)
    run.looked_at(TEST.test_id, ORDERS)
    assert run.close([NODE], [TEST], [PASSED]).published == 1


def test_a_reader_of_a_live_table_is_no_child_of_its_side_object(
    lake: Lake,
) -> None:
    run = a_run(lake, publish="lineage")
    run.begin(NODE.node_id, ORDERS)
    beside = run.candidates.place_clone(ORDERS, ["a column"]).place
    lake.catalog.load_table(beside).append(rows(2))
    run.built(NODE.node_id, ORDERS, must_write=True)
    run.trail.named(OTHER.node_id, relation_names("select * from shop.orders"))
    another_table(run, 3)
    closing = run.close([NODE, OTHER], [TEST], [PASSED])
    assert "it read shop.orders as readers of main have it" in closing.rejected()[OTHER.node_id]


class TestCandidatesOfOthers:
    """A node that was built on a replaced candidate is not published."""

    CHILD = replace(OTHER, parents=frozenset({NODE.node_id}))

    def held(self, lake: Lake) -> None:
        run = a_run(lake)
        build(run, 9)
        another_table(run, 9)
        closing = run.close([NODE, self.CHILD], [TEST], [])
        assert closing.published == 0

    @pytest.mark.parametrize("mode", ["run", "lineage"])
    def test_a_child_of_a_rebuilt_node_is_held(self, lake: Lake, mode: str) -> None:
        self.held(lake)
        run = a_run(lake, SECOND, publish=mode)
        build(run, 2)
        closing = run.close([NODE], [TEST], [PASSED], {OTHER.node_id})
        verdict = closing.decision.verdicts[OTHER.node_id]
        assert (verdict.outcome, verdict.reasons[0]) == ("held", f"{STALE} shop.orders")
        assert live(lake, OTHER.identifier) == [1]
        assert live(lake) == ([1, 2] if mode == "lineage" else [1])
        # The same for later commands, even if its parent is published by then.
        again = a_run(lake, THIRD).close([], [TEST], [PASSED], KNOWN | {OTHER.node_id})
        assert again.decision.verdicts[OTHER.node_id].reasons[0] == f"{STALE} shop.orders"
        assert live(lake, OTHER.identifier) == [1]

    def test_a_child_that_was_built_again_is_published(self, lake: Lake) -> None:
        self.held(lake)
        run = a_run(lake, SECOND)
        build(run, 2)
        run.begin(OTHER.node_id, OTHER.identifier)
        run.candidates.place_table(OTHER.identifier, KEPT)
        lake.catalog.load_table(OTHER.identifier).append(rows(2), branch=run.branch)
        run.built(OTHER.node_id, OTHER.identifier, must_write=True)
        closing = run.close([NODE, self.CHILD], [TEST], [PASSED])
        assert (closing.published, live(lake, OTHER.identifier)) == (2, [1, 2])

    def test_no_batches_are_added_to_a_candidate_of_replaced_inputs(self, lake: Lake) -> None:
        self.held(lake)
        run = a_run(lake, SECOND)
        build(run, 2)
        assert not run.may_add_to_candidate(OTHER.node_id, OTHER.identifier)
        assert OTHER.node_id in run.candidates.found

    def test_batches_of_several_runs_are_recorded(self, lake: Lake) -> None:
        first = a_run(lake)
        build(first, 2)
        first.close([NODE], [TEST], [])
        second = a_run(lake, SECOND)
        assert not second.candidates.has_added(NODE.node_id)
        assert second.may_add_to_candidate(NODE.node_id, ORDERS)
        second.candidates.place_table(ORDERS, KEPT)
        lake.catalog.load_table(ORDERS).append(rows(3), branch=second.branch)
        second.built(NODE.node_id, ORDERS, must_write=True)
        second.close([NODE], [TEST], [])
        assert a_run(lake, THIRD).candidates.has_added(NODE.node_id)
        published = a_run(lake, THIRD).close([], [TEST], [PASSED], KNOWN)
        assert (published.published, live(lake)) == (1, [1, 2, 3])


def test_a_schema_of_a_user_is_no_side_schema(lake: Lake) -> None:
    lake.ensure_schema("shop__dev")
    lake.catalog.create_table(("shop__dev", "orders"), rows(1).schema).append(rows(7))
    for refused in (a_run, lambda lake: lake.ensure_schema("shop__dev", "dev")):
        with pytest.raises(ConfigError, match="no schema of sparkwap"):
            refused(lake)
    assert live(lake, ("shop__dev", "orders")) == [7]
    assert lake.side_schemas() == {}


def test_each_target_of_a_project_has_tests_and_acceptances_of_its_own(lake: Lake) -> None:
    def close(run_id: str, schema: str, now: list[TestFact], seen: list[TestSeen]) -> int:
        key = (schema, "orders")
        node = replace(NODE, identifier=key)
        run = a_run(lake, run_id, branch=f"wap_{schema}_{run_id[:1]}")
        run.begin(node.node_id, key)
        place = run.candidates.place_table(key, KEPT)
        if place.how == "side":
            lake.catalog.create_table(place.place, rows(1).schema).append(rows(2))
        else:
            lake.catalog.load_table(key).append(rows(2), branch=run.branch)
        run.built(node.node_id, key, must_write=True)
        return run.close([node], now, seen, varied=True).published

    warned = [TestSeen(TEST.test_id, "warn", 3, None)]
    assert close(FIRST, "shop", [TEST], [PASSED]) == 1
    # A test of the target `shop` does not count for another target, where the table is new.
    assert close(SECOND, "dev", [replace(TEST, severity="warn")], warned) == 1
    assert close(SECOND, "other", [], []) == 1
    assert close(SECOND, "shop", [], []) == 0
    assert close(THIRD, "dev", [TEST], [FAILED]) == 0
    accept(lake, branch=f"wap_dev_{THIRD[:1]}", until="2999-12-31")
    assert close(THIRD, "shop", [TEST], [FAILED]) == 0
    assert close(FIRST, "dev", [TEST], [FAILED]) == 1


def test_a_run_reports_unpublished_batches_of_an_earlier_run(
    lake: Lake,
) -> None:
    days = [datetime(2026, 3, day, tzinfo=UTC) for day in (1, 2, 3, 4)]

    def close(run_id: str, first: int, seen: TestSeen) -> tuple[str, ...]:
        run = a_run(lake, run_id, branch=f"wap_{run_id[:8]}")
        build(run, int(run_id[0]) + 1)
        node = replace(NODE, batches=((days[first], days[first + 1]),))
        return run.close([node], [TEST], [seen]).notices.get(NODE.node_id, ())

    assert close(FIRST, 0, PASSED) == ()
    assert close(SECOND, 1, FAILED) == ()
    (told,) = close(THIRD, 2, PASSED)
    assert "--event-time-start 2026-03-02T00:00:00 --event-time-end 2026-03-03T00:00:00" in told
    assert live(lake) == [1, 2, 4]


def test_a_changed_query_holds_if_the_caller_gave_other_variables(lake: Lake) -> None:
    def close(run_id: str, where: str, target: str) -> int:
        run = a_run(lake, run_id, branch=f"wap_{run_id[:8]}")
        build(run, int(run_id[0]) + 1)
        side = f"shop__{run.branch}"
        sql = f"select '{run_id}' from `{side}`.orders where {where}"
        test = replace(TEST, code="c", given={"the target": target})
        return run.close([NODE], [test], [replace(PASSED, sql=sql)]).published

    assert close(FIRST, "id < 1", "dev") == 1
    assert close(SECOND, "id < 1", "weak") == 1
    assert close(THIRD, "false", "weaker") == 0
    assert live(lake) == [1, 2, 3]
    (row,) = lake.ledger.of_run("tests", SECOND)
    assert (row["code"], row["given"]) == ("c", {"the target": "weak"})


@pytest.mark.parametrize("varied", [True, False])
def test_a_test_that_a_variable_removes_holds(lake: Lake, varied: bool) -> None:
    run = a_run(lake, branch="wap_1")
    build(run, 2)
    run.close([NODE], [TEST], [PASSED])
    run = a_run(lake, SECOND, branch="wap_2")
    build(run, 3)
    closing = run.close([NODE], [], [], varied=varied)
    assert closing.published == (0 if varied else 1)
    assert ("did not exist with the --vars" in str(closing.decision.verdicts)) == varied


def test_a_publish_that_was_rolled_back_is_no_base_of_comparison(lake: Lake) -> None:
    run = a_run(lake, branch="wap_1")
    build(run, 2)
    run.close([NODE], [TEST], [PASSED])
    assert lake.ledger.published_tests([TEST.test_id], STANDS)
    operations(lake).call("wap_rollback", {"run": run.run_id})
    assert not lake.ledger.published_tests([TEST.test_id], STANDS)


def test_the_tests_of_the_project_that_built_a_table_last_count(lake: Lake) -> None:
    ours = replace(NODE, node_id="model.shop.orders")
    test = replace(TEST, reads=frozenset({ours.node_id}))

    def built_by(node: NodeFact, run_id: str, *ids: int, **settings: object) -> Run:
        run = a_run(lake, run_id, branch=f"wap_{run_id[:8]}", **settings)
        run.begin(node.node_id, ORDERS)
        run.candidates.place_table(ORDERS, KEPT)
        lake.catalog.load_table(ORDERS).append(rows(*ids), branch=run.branch)
        run.built(node.node_id, ORDERS, must_write=True)
        return run

    assert built_by(ours, FIRST, 2).close([ours], [test], [PASSED]).published == 1
    theirs = replace(NODE, node_id="model.guest.orders")
    closing = built_by(theirs, SECOND, 9).close([theirs], [], [])
    assert closing.published == 0
    assert "belonged to the project that built it last" in str(closing.decision.verdicts)
    later = a_run(lake, THIRD, branch=f"wap_{SECOND[:8]}")
    assert later.close([], [], [], {theirs.node_id}).published == 0
    closing = built_by(theirs, THIRD, 9, warnings="publish").close([theirs], [], [])
    assert (closing.published, live(lake)) == (1, [1, 2, 9])


@pytest.mark.parametrize("kind", OPERATIONS, ids=lambda kind: kind.name)
def test_an_operation_that_only_reads_leaves_an_interrupted_publish_as_it_is(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, kind: type[Operation]
) -> None:
    recovered: list[str] = []
    monkeypatch.setattr(Publishing, "recover", lambda _: recovered.append(kind.name) or [])
    with contextlib.suppress(ConfigError):
        operations(lake).call(kind.name, {})
    assert recovered == ([] if kind.only_reads else [kind.name])
