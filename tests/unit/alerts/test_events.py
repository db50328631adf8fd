"""The events of runs, rollbacks, branches and quarantines."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from sparkwap.alerts import events
from sparkwap.alerts.events import Failure, Quarantined
from sparkwap.alerts.project import of_manifest
from sparkwap.catalog.model import PublishedEntry
from sparkwap.core import next_command
from sparkwap.gate.facts import AuditTest, BuiltNode, TestResult
from sparkwap.gate.settings import GateSettings
from sparkwap.gate.verdicts import decide
from sparkwap.ledger.records import LedgerPublish
from sparkwap.runs.types import RunEnd
from sparkwap.runs.watched import GateBypass

from .conftest import NOW, RUN, sample

BRANCH = "wap_1a2b3c4d"


def node(name: str, owner: str | None = None) -> dict[str, Any]:
    meta = {"owner": owner} if owner else {}
    return {"unique_id": f"model.shop.{name}", "config": {"meta": meta}}


PROJECT = of_manifest(
    {
        "nodes": {
            "model.shop.orders": node("orders", "jane"),
            "model.shop.totals": node("totals", "joe"),
            "model.shop.notes": node("notes"),
            "test.shop.t": {"config": {"meta": {"owner": "tester"}}},
        }
    }
)


def built(name: str, *parents: str, status: str = "built") -> BuiltNode:
    above = frozenset(f"model.shop.{parent}" for parent in parents)
    candidate = "7" if status == "built" else None
    return BuiltNode(f"model.shop.{name}", f"shop.{name}", "model", status, candidate, None, above)


def ended(test: str = "pass", **more: Any) -> RunEnd:
    nodes = [built("orders"), built("totals", "orders"), built("notes")]
    reads = frozenset({"model.shop.orders"})
    result = TestResult("test.shop.t", test, 3, None, {"model.shop.orders": "7"})
    decision = decide(nodes, [AuditTest("test.shop.t", "t", reads)], [result], GateSettings())
    given = {"published": 0, "refused": None, "seconds": 0.0, **more}
    return RunEnd(decision, tuple(nodes), **given)


def of_run(closing: RunEnd, **more: Any) -> list[events.Event]:
    given = {
        "run_id": RUN,
        "branch": BRANCH,
        "at": NOW,
        "project": PROJECT,
        "ways": [("after a fix", "dbt retry")],
        "samples": {"test.shop.t": sample(("1",))},
        **more,
    }
    reads = frozenset({"model.shop.orders"})
    return events.of_run(closing, [Failure("test.shop.t", "t", reads, 3)], **given)


def broken(message: str) -> events.Event:
    return events.broken_down(
        message,
        ["model.shop.orders", "model.shop.totals", "model.shop.notes"],
        subject="dbt build of shop",
        run_id=RUN,
        branch=BRANCH,
        at=NOW,
        project=PROJECT,
    )


class TestRuns:
    def test_a_rejected_table_has_an_event_and_held_tables_have_none(self) -> None:
        (event,) = of_run(ended("fail", watched=True))
        assert (event.kind, event.subject, event.branch) == ("rejected", "shop.orders", BRANCH)
        assert event.owners == ("jane", "tester")
        assert event.reasons == ("test t failed (3 rows)",)
        assert [(t.name, t.failures, t.sample) for t in event.tests] == [("t", 3, sample(("1",)))]
        assert [(c.purpose, c.command) for c in event.commands] == [("after a fix", "dbt retry")]
        assert event.state == (
            "Nothing was published; readers of main still see the state before this run."
        )

    def test_the_state_claims_only_what_was_watched(self) -> None:
        assert of_run(ended("fail"))[0].state == "Nothing was published."
        moved = GateBypass(("shop", "orders"), None, "moved", back=False)
        (event,) = of_run(ended("fail", watched=True, caught=(moved,)))
        assert event.state == (
            "Nothing was published; but readers of main see what the run has done to shop.orders."
        )

    def test_a_published_run_has_no_events(self) -> None:
        assert of_run(ended("pass", published=3)) == []

    def test_a_refused_publish_has_an_event_for_each_table_that_stopped_it(self) -> None:
        closing = ended(
            refused="main moved",
            refusals={"model.shop.totals": ("main",)},
            gave_up="it moved each time",
        )
        (event,) = of_run(closing)
        assert (event.kind, event.subject, event.owners) == ("refused", "shop.totals", ("joe",))
        assert event.reasons == ("main moved", "it moved each time")
        assert event.tests == ()
        found = of_run(ended(refused="the database failed"))
        assert [e.subject for e in found] == ["shop.orders", "shop.totals", "shop.notes"]

    def test_the_state_counts_the_published_tables(self) -> None:
        assert of_run(ended("fail", published=2))[0].state == "2 tables were published."

    def test_a_run_that_the_gate_could_not_close_is_an_event_for_all_owners(self) -> None:
        event = broken("The catalog\nfailed")
        assert (event.kind, event.owners) == ("failed", ("jane", "joe"))
        assert event.reasons == ("The catalog failed",)
        assert event.commands[0].command == "dbt run-operation wap_status"


def test_a_rollback_has_an_event_for_the_owners_of_each_table() -> None:
    tables = [("shop", "orders"), ("shop", "gone")]
    entries = tuple(PublishedEntry(t, "branch", 1, None, 2, None) for t in tables)
    found = events.of_rollback(
        [LedgerPublish("p1", RUN, BRANCH, NOW, entries, left=())],
        run_id="f" * 8,
        at=NOW,
        project=PROJECT,
        node_ids={"shop.orders": "model.shop.orders"},
    )
    assert [(e.kind, e.subject, e.owners) for e in found] == [
        ("rolled_back", "shop.orders", ("jane",)),
        ("rolled_back", "shop.gone", ()),
    ]
    assert found[0].reasons == ("the publish of run 1a2b3c4d at 2026-03-01 06:00 UTC was undone",)
    assert "{run: 1a2b3c4d, reopen: true}" in found[0].commands[0].command


def row(name: str, verdict: str, hours: float, reason: str = "r", **more: Any) -> dict[str, Any]:
    return {
        "run_id": RUN,
        "node_id": f"model.shop.{name}",
        "schema": "shop",
        "name": name,
        "verdict": verdict,
        "reason": reason,
        "built_at": NOW - timedelta(hours=hours),
        **more,
    }


def of_branch(*rows: dict[str, Any], standing: Any = ("shop.orders",)) -> list[events.Event]:
    held_for = timedelta(hours=24)
    return events.of_branch(BRANCH, rows, standing, held_for=held_for, now=NOW, project=PROJECT)


class TestBranches:
    def test_a_table_that_is_held_too_long_has_an_event(self) -> None:
        (event,) = of_branch(row("orders", "held", 24, "tests a did not run"))
        assert (event.kind, event.owners, event.branch) == ("held", ("jane",), BRANCH)
        assert event.reasons == ("tests a did not run", "held for 1 day")
        assert [c.command for c in event.commands][1] == f"SPARKWAP_BRANCH={BRANCH} dbt test"

    @pytest.mark.parametrize(
        "given",
        [
            row("orders", "held", 23.9),
            row("orders", "published", 48),
            # It was not built, so the branch has no candidate.
            row("totals", "held", 48),
            # The audit of a pull request leaves it there on purpose.
            row("orders", "held", 48, "publishing is off (wap_publish: never)"),
        ],
    )
    def test_other_tables_have_no_event(self, given: dict[str, Any]) -> None:
        assert of_branch(given) == []

    def test_a_rejection_has_the_fingerprint_of_the_event_of_its_run(self) -> None:
        (at_the_end,) = of_run(ended("fail"))
        (later,) = of_branch(row("orders", "rejected", 1, "test t failed (3 rows)"))
        assert later.fingerprint == at_the_end.fingerprint
        assert later.reasons[-1] == "rejected for 1 hour"
        (refused,) = of_run(ended(refused="x", refusals={"model.shop.orders": ("main",)}))
        (again,) = of_branch(row("orders", "rejected", 1, "x", refusal="main"))
        assert again.fingerprint == refused.fingerprint

    def test_another_reason_is_another_problem(self) -> None:
        def fingerprints(reason: str) -> list[str]:
            refused = of_run(
                ended(refused=reason, refusals={"model.shop.orders": ("main",)}, gave_up="x")
            )
            held = of_branch(row("orders", "held", 24, reason))
            again = of_branch(row("orders", "rejected", 1, reason, refusal="main"))
            return [e.fingerprint for e in (*refused, *held, *again, broken(reason))]

        (run, held, branch, failed) = fingerprints("wap_1a2b3c4d: 3 tables moved")
        assert run == branch
        assert [run, held, branch, failed] == fingerprints("wap_0a2b3c4e: 4 tables moved")
        assert not {run, held, failed} & set(fingerprints("the disk is full"))


@pytest.mark.parametrize(
    ("bad", "rows", "threshold", "exceeded"),
    [
        (1, 99, 0, True),
        (0, 99, 0, False),
        (10, 90, 10, False),
        (11, 90, 10, True),
        (1, 99, 0.01, False),
        (2, 98, 0.01, True),
        (5, 0, None, False),
    ],
)
def test_a_quarantine_above_the_threshold_has_an_event(
    bad: int, rows: int, threshold: float | None, exceeded: bool
) -> None:
    table = Quarantined("model.shop.orders", "shop.raw", bad, rows)
    found = events.of_quarantine([table], threshold, run_id=RUN, at=NOW, project=PROJECT)
    assert [e.owners for e in found] == ([("jane",)] if exceeded else [])
    if exceeded:
        assert found[0].reasons[0].startswith(f"{bad} row")
        assert found[0].commands[0].command == "sparkwap quarantine list"


def test_the_commands_of_an_alert_have_the_target() -> None:
    next_command.set_target("prod")
    found = [
        *events.of_quarantine(
            [Quarantined("model.shop.orders", "shop.raw", 5, 0)],
            0,
            run_id=RUN,
            at=NOW,
            project=PROJECT,
        ),
        events.example(run_id=RUN, at=NOW),
    ]
    assert all(one.command.endswith(" --target prod") for e in found for one in e.commands)
