"""The samples of the metrics, read from the text as Prometheus reads it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from sparkwap.gate.verdicts import PUBLISHING_OFF
from sparkwap.ledger.schemas import SCHEMAS
from sparkwap.metrics import exposition
from sparkwap.metrics.decide import (
    PARTS,
    BranchFacts,
    CatalogFacts,
    Facts,
    RawModelFacts,
    samples,
)
from sparkwap.metrics.exposition import METRICS

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
ORDERS, NOTES = ("shop", "orders"), ("shop", "notes")
PROD = {"project": "shop", "target": "prod"}
OWN = {**PROD, "branch_kind": "own"}


def at(hours_ago: float) -> float:
    return ago(hours_ago).timestamp()


def ago(hours: float) -> datetime:
    return NOW - timedelta(hours=hours)


def row(table: str, **more: Any) -> dict[str, Any]:
    assert set(more) <= set(SCHEMAS[table].names)
    return {**dict.fromkeys(SCHEMAS[table].names), **more}


def run(name: str, hours_ago: float, outcome: str, seconds: float = 60, **more: Any) -> Any:
    """A run that ended some hours ago, on its own branch."""
    ended = ago(hours_ago)
    given = {"branch": f"wap_{name * 8}", "project": "shop", "target": "prod", **more}
    started = ended - timedelta(seconds=seconds)
    return row("runs", run_id=name, outcome=outcome, started_at=started, ended_at=ended, **given)


def publish(name: str, table: tuple[str, str], hours_ago: float, **more: Any) -> Any:
    given = {"action": "publish", "branch": f"wap_{name * 8}", "run_id": name, **more}
    schema, table_name = table
    return row(
        "publishes", publish_id=f"p{name}", schema=schema, name=table_name,
        published_at=ago(hours_ago), **given,
    )  # fmt: skip


def verdict(name: str, table: tuple[str, str], text: str, hours_ago: float, **more: Any) -> Any:
    given = {"branch": f"wap_{name * 8}", "resource_type": "model", **more}
    schema, table_name = table
    return row(
        "nodes", run_id=name, schema=schema, name=table_name, verdict=text,
        built_at=ago(hours_ago), **given,
    )  # fmt: skip


class Read:
    """The metrics of some facts, as Prometheus has read them."""

    def __init__(self, own: bool = False, **facts: Any) -> None:
        found = samples(Facts("shop", "prod", NOW, **facts), own=own)
        self.values: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in text_string_to_metric_families(exposition.text(found)):
            assert family.documentation
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                assert key not in self.values, "a series is there twice"
                self.values[key] = sample.value

    def get(self, name: str, **labels: str) -> float | None:
        return self.values.get((f"sparkwap_{name}", frozenset(labels.items())))

    def some(self, name: str, **labels: str) -> dict[str, float]:
        """Return the last label -> value of the series with these labels, without zeros."""
        return {
            ",".join(sorted({v for k, v in series if k not in labels})): value
            for (found, series), value in self.values.items()
            if found == f"sparkwap_{name}" and value and labels.items() <= dict(series).items()
        }


def test_an_empty_lake_has_the_metrics_of_the_call_only() -> None:
    read = Read(lake_exists=False, seconds=1.5)
    assert read.get("lake_exists", **PROD) == 0
    assert read.get("metrics_timestamp_seconds", **PROD) == NOW.timestamp()
    assert read.get("metrics_duration_seconds", **PROD) == 1.5
    assert read.some("part_up", **PROD) == dict.fromkeys(PARTS, 1)
    assert {name for name, _ in read.values} == {
        "sparkwap_metrics_timestamp_seconds", "sparkwap_metrics_duration_seconds",
        "sparkwap_part_up", "sparkwap_lake_exists", "sparkwap_unreadable_tables",
    }  # fmt: skip


def test_each_project_target_and_kind_of_branch_has_its_last_run() -> None:
    runs = [
        run("a", 9, "published"),
        run("b", 5, "rejected", 90),
        run("c", 7, "published"),
        run("d", 1, "rejected", branch="pr_7"),
        run("e", 2, "held", target="dev"),
        run("f", 0.5, "held", as_of="2026-01-01"),
        row("runs", run_id="g", branch="wap_bbbbbbbb", outcome="discarded", ended_at=NOW),
        run("h", 0.1, "proven"),
    ]
    read = Read(runs=runs)
    assert read.get("last_run_end_timestamp_seconds", **OWN) == at(5)
    assert read.get("last_run_duration_seconds", **OWN) == 90
    assert read.some("last_run_outcome", **OWN) == {"rejected": 1}
    assert read.some("runs_total", **OWN) == {"published": 2, "rejected": 1}
    assert read.get("runs_total", **OWN, outcome="died") == 0
    assert read.some("last_run_outcome", branch_kind="named") == {"prod,rejected,shop": 1}
    assert read.some("last_run_outcome", branch_kind="replay") == {"held,prod,shop": 1}
    assert read.some("last_run_outcome", target="dev") == {"held,own,shop": 1}


def test_a_run_that_died_has_the_project_of_its_branch_if_another_run_names_it() -> None:
    died: dict[str, Any] = {"outcome": "died", "project": None, "target": None}
    read = Read(runs=[run("a", 3, "held", branch="pr_7"), run("b", 2, branch="pr_7", **died)])
    assert read.some("last_run_outcome") == {"died,named,prod,shop": 1}
    assert Read(runs=[run("b", 2, **died)]).some("last_run_outcome") == {",died,own": 1}


def test_the_branches_that_a_run_discards_do_not_hide_where_it_belongs() -> None:
    swept = run("a", 4, "discarded", command="wap_sweep", branch="pr_7", target=None)
    held = run("b", 6, "held", branch="pr_7")
    died = run("c", 3, "died", branch="pr_7", project=None, target=None)
    read = Read(
        own=True,
        runs=[run("a", 5, "published", command="build"), held, swept, died],
        publishes=[publish("a", ORDERS, 5)],
    )
    assert read.get("last_run_end_timestamp_seconds", **OWN) == at(5)
    assert read.get("last_publish_timestamp_seconds", **OWN) == at(5)
    assert read.some("last_run_outcome", branch_kind="named") == {"died,prod,shop": 1}


def test_rebuilds_belong_to_the_run_that_they_were_made_for() -> None:
    runs = [
        run("a", 5, "published", tries=2, waited_seconds=3.5),
        run("b", 5.1, "published", rebuild_of="a"),
        run("c", 9, "published", tries=1, waited_seconds=1.0),
    ]
    tests = [
        row("tests", run_id=name, test_id=test, status=status, executed_at=ago(hours))
        for name, test, status, hours in (
            ("a", "t1", "fail", 5.5),
            ("b", "t1", "pass", 5.1),
            ("a", "t2", "warn", 5.5),
            ("a", "t3", "skipped", 5.5),
            ("a", "t4", "disabled", 5.5),
        )
    ]
    read = Read(runs=runs, tests=tests)
    assert read.get("rebuilds_total", **OWN) == 3
    assert read.get("rebuild_wait_seconds_total", **OWN) == 4.5
    assert read.some("runs_total", **OWN) == {"published": 2}
    assert read.some("last_run_tests", **OWN) == {"pass": 1, "warn": 1, "not_run": 2}
    assert read.get("last_run_tests", **OWN, status="fail") == 0


def test_a_publish_counts_for_a_table_until_it_is_rolled_back() -> None:
    runs = [run("a", 9, "published"), run("b", 5, "published"), run("c", 4, "published")]
    publishes = [
        publish("a", ORDERS, 9),
        publish("a", NOTES, 9),
        publish("b", ORDERS, 5),
        publish("b", ORDERS, 2, action="rollback", run_id="x", branch="wap_xxxxxxxx"),
        publish("c", ("shop", "dropped"), 4),
    ]
    read = Read(runs=runs, publishes=publishes, catalog=CatalogFacts(existing={ORDERS, NOTES}))
    orders, notes = ({**PROD, "schema": "shop", "table": name} for name in ("orders", "notes"))
    assert read.get("table_last_publish_timestamp_seconds", **orders) == at(9)
    assert read.get("table_rolled_back", **orders) == 1
    assert read.get("table_last_rollback_timestamp_seconds", **orders) == at(2)
    assert read.get("table_last_publish_timestamp_seconds", **notes) == at(9)
    assert read.get("table_rolled_back", **notes) == 0
    assert set(read.some("table_last_publish_timestamp_seconds", **PROD)) == {
        "orders,shop", "notes,shop",
    }  # fmt: skip
    assert read.get("last_publish_timestamp_seconds", **OWN) == at(4)
    assert read.get("publishes_total", **OWN) == 3
    assert read.get("rollbacks_total", **OWN) == 1


def test_a_table_has_its_last_verdict_that_was_not_published() -> None:
    verdicts = [
        verdict("a", ORDERS, "held", 9),
        verdict("b", ORDERS, "held", 8),
        verdict("b", NOTES, "rejected", 8),
        verdict("c", NOTES, "rejected", 1, branch="pr_7"),
        verdict("b", ("shop", "failed_rows"), "rejected", 8, resource_type="failures"),
        verdict("b", ("shop", "of_a_closed_request"), "rejected", 8),
    ]
    read = Read(
        runs=[run("a", 9, "held"), run("b", 8, "rejected"), run("c", 1, "rejected", branch="pr_7")],
        verdicts=verdicts,
        catalog=CatalogFacts((BranchFacts("pr_7", (NOTES,)),), existing={ORDERS}),
    )
    assert read.some("table_last_unpublished_timestamp_seconds", **OWN) == {
        "held,orders,shop": at(8), "notes,rejected,shop": at(8),
    }  # fmt: skip
    assert read.some("table_last_unpublished_timestamp_seconds", branch_kind="named") == {
        "notes,prod,rejected,shop": at(1)
    }


def test_tables_on_open_branches_are_counted_by_state() -> None:
    more = ("shop", "more")
    held = verdict("a", ORDERS, "held", 30, reason="test t did not run")
    branches = (
        BranchFacts("wap_aaaaaaaa", (ORDERS, more), (held,), ago(31)),
        # Without a candidate on the branch, a held table is not waiting.
        BranchFacts(
            "wap_bbbbbbbb",
            (NOTES,),
            (verdict("b", NOTES, "rejected", 8), verdict("b", ORDERS, "held", 8, reason="x")),
            ago(8),
        ),
        BranchFacts(
            "wap_cccccccc", (ORDERS,), (verdict("c", ORDERS, "rejected", 50),), ago(1), in_use=True
        ),
        BranchFacts(
            "pr_7", (ORDERS,), (verdict("d", ORDERS, "held", 40, reason=PUBLISHING_OFF),), ago(40)
        ),
    )  # fmt: skip
    runs = [
        run("a", 30, "held"),
        run("b", 8, "rejected"),
        run("c", 50, "rejected"),
        run("d", 40, "held", branch="pr_7"),
    ]
    read = Read(runs=runs, catalog=CatalogFacts(branches, unreadable=2))
    assert read.get("open_branches", **OWN) == 3
    assert read.get("open_branches_oldest_timestamp_seconds", **OWN) == at(31)
    assert read.some("open_branch_tables", **OWN) == {
        "held": 1, "rejected": 1, "in_use": 1, "no_verdict": 1,
    }  # fmt: skip
    assert read.some("open_branch_tables_oldest_timestamp_seconds", **OWN) == {
        "held": at(30), "rejected": at(8), "in_use": at(1), "no_verdict": at(31),
    }  # fmt: skip
    named = {**PROD, "branch_kind": "named"}
    assert read.some("open_branch_tables", **named) == {"publishing_off": 1}
    assert read.get("unreadable_tables", **PROD) == 2
    # Where runs are known, zero says that nothing is open.
    assert Read(runs=runs).get("open_branches", **OWN) == 0
    assert Read(runs=runs).get("open_branch_tables", **OWN, state="held") == 0


def test_a_fault_of_a_raw_model_is_no_zero() -> None:
    read = Read(
        raw_models=[
            RawModelFacts("raw_items", unread_files=2, oldest=at(3), quarantined=4),
            RawModelFacts("raw_orders", unread_files=0, quarantined=0),
            RawModelFacts("raw_events", unread_messages=7, quarantined=0),
            RawModelFacts("raw_broken", quarantined=1, faults=("no folder",)),
        ]
    )
    assert read.some("landing_up", **PROD) == dict.fromkeys(
        ("raw_items", "raw_orders", "raw_events"), 1
    )
    assert read.get("landing_up", **PROD, model="raw_broken") == 0
    assert read.some("landing_unread_files", **PROD) == {"raw_items": 2}
    assert read.get("landing_unread_files", **PROD, model="raw_orders") == 0
    assert read.get("landing_unread_files", **PROD, model="raw_broken") is None
    assert read.some("landing_oldest_unread_timestamp_seconds", **PROD) == {"raw_items": at(3)}
    assert read.some("landing_unread_messages", **PROD) == {"raw_events": 7}
    assert read.some("quarantined_rows", **PROD) == {"raw_items": 4, "raw_broken": 1}


def test_an_unreadable_part_does_not_hide_the_others() -> None:
    runs, publishes = [run("a", 9, "published")], [publish("a", ORDERS, 9)]
    read = Read(runs=runs, publishes=publishes, tests=None, catalog=None,
                faults={"tests": "x", "branches": "y"})  # fmt: skip
    assert read.get("part_up", **PROD, part="tests") == 0
    assert read.get("part_up", **PROD, part="runs") == 1
    assert read.some("last_run_tests") == {}
    assert read.some("last_run_outcome", **OWN) == {"published": 1}
    assert read.get("last_publish_timestamp_seconds", **OWN) == at(9)
    # Without the runs, project and target of a publish are unknown.
    read = Read(runs=None, publishes=publishes, faults={"runs": "x"},
                raw_models=[RawModelFacts("raw", unread_files=1)])  # fmt: skip
    assert read.some("last_publish_timestamp_seconds") == {}
    assert read.some("landing_unread_files", **PROD) == {"raw": 1}


def test_with_own_other_projects_and_targets_are_left_out() -> None:
    runs = [run("a", 9, "published"), run("b", 8, "held", target="dev"),
            run("c", 7, "held", project="mart")]  # fmt: skip
    assert len(Read(runs=runs).some("last_run_outcome")) == 3
    read = Read(own=True, runs=runs)
    assert read.some("last_run_outcome") == {"own,prod,published,shop": 1}
    assert read.get("lake_exists", **PROD) == 1


def test_labels_and_names_are_as_defined() -> None:
    facts = Facts(
        "shop", "prod", NOW,
        runs=[run("a", 9, "published")],
        publishes=[publish("a", ORDERS, 9), publish("a", ORDERS, 8, action="rollback")],
        verdicts=[verdict("a", ORDERS, "held", 9)],
        catalog=CatalogFacts((BranchFacts("wap_aaaaaaaa", (ORDERS,), (), ago(1)),), {ORDERS}),
        raw_models=[RawModelFacts("raw", 1, 1.0, 1, 1)],
    )  # fmt: skip
    found, defined = samples(facts), {metric.name: metric for metric in METRICS}
    for one in found:
        assert len(one.labels) == len(defined[one.metric].labels), one
    # Every metric has a sample in some lake.
    missing = set(defined) - {one.metric for one in found}
    assert missing == {"sparkwap_table_last_publish_timestamp_seconds"}


def test_the_last_publish_is_0_where_all_are_rolled_back() -> None:
    rows = [publish("a", ORDERS, 9), publish("a", ORDERS, 8, action="rollback")]
    facts = Facts("shop", "prod", NOW, runs=[run("a", 9, "published")], publishes=rows)
    found = [s for s in samples(facts) if s.metric == "sparkwap_last_publish_timestamp_seconds"]
    assert [one.value for one in found] == [0], "an alert on old publishes fires"


def test_an_operation_is_no_run() -> None:
    """After ``dbt build`` and ``wap_publish``, the last run is the build."""
    rows = [run("a", 9, "held"), {**run("b", 8, "published"), "command": "wap_publish"}]
    found = samples(Facts("shop", "prod", NOW, runs=rows))
    outcomes = {s.labels[-1]: s.value for s in found if s.metric == "sparkwap_last_run_outcome"}
    assert (outcomes["held"], outcomes["published"]) == (1, 0)
