"""The events of a run: what a catalog is told about published, held and rejected tables."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from openlineage.client.serde import Serde

from sparkwap.core.redaction import remember
from sparkwap.gate.verdicts import Outcome
from sparkwap.lineage.events import PRODUCER, events, public_reason
from sparkwap.lineage.model import Column, Command, Facts, Node, Parent, Version
from sparkwap.runs.results import RunResults, TableResult, TestOutcome

RUN = "0b1f5a52-6a7e-4a37-9c1b-0d8f3f1f7a11"
BEGAN = datetime(2026, 1, 31, 6, tzinfo=UTC)
BUILT = datetime(2026, 1, 31, 6, 1, tzinfo=UTC)
ENDED = datetime(2026, 1, 31, 6, 5, tzinfo=UTC)
COMMAND = Command("dbt-run-shop", "dbt", "s3://lake/warehouse", "1.11.0")
NODES = {
    "model.shop.orders": Node(
        ("raw.orders", "shop.customers"),
        (Column("id", "bigint", "its number"), Column("amount")),
        "The orders.",
        "table",
        BUILT,
    ),
    "seed.shop.customers": Node(materialized="seed"),
    "snapshot.shop.history": Node(("shop.orders",), materialized="snapshot"),
}
TESTS = (
    TestOutcome("test.shop.unique_id", "unique_id", "pass", 0, ("shop.orders",)),
    TestOutcome("test.shop.amounts", "amounts", "warn", 2, ("shop.orders",)),
    TestOutcome("unit_test.shop.sums", "sums", "pass", None, ("shop.orders",)),
    TestOutcome("test.shop.late", "late", "not run", None, ("shop.orders",)),
)
FACTS = Facts(
    NODES,
    {
        "shop.orders": Version("branch", 42),
        "shop.customers": Version("new", 7, is_new=True),
        "shop.history": Version("branch", 9),
    },
    {"test.shop.unique_id": "id"},
)


def table(name: str = "orders", outcome: Outcome = "published", **more: Any) -> TableResult:
    kinds = {"orders": "model", "customers": "seed", "history": "snapshot"}
    kind = kinds.get(name, "model")
    known: dict[str, Any] = {
        "reasons": (),
        "notices": (),
        "tests_expected": 2,
        "tests_passed": 2,
        "candidate": "42",
    }
    return TableResult(
        f"shop.{name}", more.pop("node_id", f"{kind}.shop.{name}"), more.pop("kind", kind), outcome,
        **{**known, **more},
    )  # fmt: skip


def results(*tables: TableResult, **more: Any) -> RunResults:
    known: dict[str, Any] = {"publish_id": "p1", "tables": tables, "tests": TESTS}
    return RunResults(RUN, "wap_0b1f5a52", "shop", "prod", BEGAN, ENDED, **{**known, **more})


def sent(found: RunResults, command: Command = COMMAND, facts: Facts = FACTS) -> list[Any]:
    return [json.loads(Serde.to_json(event)) for event in events(found, command, facts)]


def of_job(found: list[Any], name: str) -> tuple[Any, Any]:
    """The start and the end of a job."""
    start, end = (event for event in found if event["job"]["name"] == name)
    assert start["eventType"] == "START"
    assert start["run"]["runId"] == end["run"]["runId"]
    assert not start["outputs"]
    return start, end


def test_a_published_table_is_the_output_of_its_job() -> None:
    start, end = of_job(sent(results(table())), "model.shop.orders")
    assert (start["eventTime"], end["eventTime"]) == (BUILT.isoformat(), ENDED.isoformat())
    assert end["eventType"] == "COMPLETE"
    assert [one["name"] for one in end["inputs"]] == ["raw.orders", "shop.customers"]
    (output,) = end["outputs"]
    assert (output["namespace"], output["name"]) == ("s3://lake/warehouse", "shop.orders")
    facets = output["facets"]
    assert facets["version"]["datasetVersion"] == "42"
    assert facets["lifecycleStateChange"]["lifecycleStateChange"] == "OVERWRITE"
    assert facets["documentation"]["description"] == "The orders."
    assert [(f["name"], f.get("type"), f.get("description")) for f in facets["schema"]["fields"]] \
        == [("id", "bigint", "its number"), ("amount", None, None)]  # fmt: skip
    (identifier,) = facets["symlinks"]["identifiers"]
    assert identifier == {
        "namespace": "s3://lake/warehouse", "name": "shop.orders", "type": "TABLE"
    }  # fmt: skip
    gate = end["run"]["facets"]["sparkwap_gate"]
    assert (gate["outcome"], gate["publish_id"], gate["branch"]) == (
        "published", "p1", "wap_0b1f5a52"
    )  # fmt: skip
    assert (gate["tests_passed"], gate["tests_expected"], gate["candidate"]) == (2, 2, "42")
    assert end["job"]["facets"]["jobType"]["integration"] == "DBT"
    assert end["run"]["facets"]["parent"]["run"]["runId"] == RUN


def test_tests_of_a_published_table_are_assertions_about_it() -> None:
    _, end = of_job(sent(results(table())), "model.shop.orders.test")
    assert end["eventType"] == "COMPLETE"
    assert not end["outputs"]
    (tested,) = end["inputs"]
    assert tested["name"] == "shop.orders"
    found = tested["inputFacets"]["dataQualityAssertions"]["assertions"]
    # A unit test reads no rows, and a test that did not run asserts nothing.
    assert [(one["assertion"], one["success"], one.get("column")) for one in found] == [
        ("unique_id", True, "id"),
        ("amounts", False, None),
    ]


@pytest.mark.parametrize(("outcome", "state"), [("held", "ABORT"), ("rejected", "FAIL")])
def test_a_table_that_is_not_published_is_no_output(outcome: Outcome, state: str) -> None:
    reasons = ("test amounts failed (2 rows)",)
    found = sent(
        results(table(outcome=outcome, reasons=reasons), publish_id=None), facts=Facts(NODES)
    )
    _, end = of_job(found, "model.shop.orders")
    assert end["eventType"] == state
    gate = end["run"]["facets"]["sparkwap_gate"]
    assert (gate["outcome"], gate["reasons"]) == (outcome, list(reasons))
    assert "publish_id" not in gate
    assert {one["name"]: one["status"] for one in gate["tests"]}["amounts"] == "warn"
    error = end["run"]["facets"].get("errorMessage", {}).get("message")
    assert error == (reasons[0] if outcome == "rejected" else None)
    # Neither a version of main, nor a verdict of tests that have read the branch.
    assert not any(event["outputs"] for event in found)
    assert "datasetVersion" not in str(found)
    assert "dataQualityAssertions" not in str(found)


def test_a_held_table_that_others_publish_beside_has_no_version() -> None:
    found = sent(results(table(outcome="held"), table("history")))
    _, end = of_job(found, "snapshot.shop.history")
    assert [one["name"] for one in end["outputs"]] == ["shop.history"]
    assert "lifecycleStateChange" not in end["outputs"][0]["facets"]
    (read,) = end["inputs"]
    assert (read["name"], "version" in read["facets"]) == ("shop.orders", False)


@pytest.mark.parametrize(
    ("tables", "more", "state", "outcome"),
    [
        ([table()], {}, "COMPLETE", "published"),
        ([table(), table("history", "held")], {}, "COMPLETE", "held"),
        ([table("history", "held"), table(outcome="rejected")], {}, "FAIL", "rejected"),
        ([table(outcome="held")], {"refused": "main has moved"}, "FAIL", "rejected"),
        ([], {}, "COMPLETE", "done"),
    ],
)
def test_the_command(
    tables: list[TableResult], more: dict[str, Any], state: str, outcome: str
) -> None:
    found = sent(results(*tables, **more))
    assert found[0] == of_job(found, "dbt-run-shop")[0]
    end = found[-1]
    assert (end["run"]["runId"], end["eventType"]) == (RUN, state)
    assert not end["inputs"] and not end["outputs"]
    gate = end["run"]["facets"]["sparkwap_gate"]
    assert gate["outcome"] == outcome
    assert gate["reasons"] == list(more.values())
    assert ("errorMessage" in end["run"]["facets"]) == (state == "FAIL")
    assert "parent" not in end["run"]["facets"]


def test_a_refused_publish_has_no_output() -> None:
    found = sent(
        results(
            table(outcome="held", reasons=("the catalog refused the publish",)),
            refused="main of shop.orders has moved",
            publish_id=None,
        ),
        facts=Facts(NODES),
    )
    _, end = of_job(found, "model.shop.orders")
    assert end["eventType"] == "ABORT"
    assert not any(event["outputs"] for event in found)
    assert found[-1]["run"]["facets"]["errorMessage"]["message"] == "main of shop.orders has moved"


def test_dbt_may_fail_without_a_table() -> None:
    end = sent(results(), replace(COMMAND, failed=True))[-1]
    assert (end["eventType"], end["run"]["facets"]["sparkwap_gate"]["outcome"]) == ("FAIL", "done")


def test_the_run_of_a_scheduler_is_the_parent() -> None:
    scheduler = Parent("airflow", "nightly.dbt", "11111111-1111-4111-8111-111111111111")
    found = sent(results(table()), replace(COMMAND, parent=scheduler))
    facet = found[0]["run"]["facets"]["parent"]
    assert facet["job"]["name"] == "nightly.dbt"
    assert facet["run"]["runId"] == scheduler.run_id
    assert found[1]["run"]["facets"]["parent"]["run"]["runId"] == RUN


def test_a_repeat_is_not_a_second_run() -> None:
    found = results(table(), table("customers"))
    ids = {event["run"]["runId"] for event in sent(found)}
    assert ids == {event["run"]["runId"] for event in sent(found)}
    assert len({UUID(one) for one in ids}) == 1 + 2 + 2 - 1  # customers have no tests
    again = replace(found, run_id="22222222-2222-4222-8222-222222222222")
    assert not ids & {event["run"]["runId"] for event in sent(again)}


@pytest.mark.parametrize(
    ("version", "materialized", "change"),
    [
        (Version("new", 1, is_new=True), "incremental", "CREATE"),
        (Version("view", None, is_new=True), "view", "CREATE"),
        (Version("view", None), "view", "OVERWRITE"),
        (Version("replace", 1), "table", "OVERWRITE"),
        (Version("clone", 1), "incremental", "ALTER"),
        (Version("branch", 1), "seed", "OVERWRITE"),
        (Version("branch", 1), "incremental", None),
    ],
)
def test_the_change_of_a_table(version: Version, materialized: str, change: str | None) -> None:
    facts = Facts({"model.shop.orders": Node(materialized=materialized)}, {"shop.orders": version})
    (output,) = of_job(
        sent(results(table(candidate="file:/m.json")), facts=facts), "model.shop.orders"
    )[1]["outputs"]
    assert output["facets"].get("lifecycleStateChange", {}).get("lifecycleStateChange") == change
    assert ("version" in output["facets"]) == (version.snapshot is not None)


def test_stored_failures_and_leftovers_have_no_job() -> None:
    found = sent(results(table(kind="failures", node_id="test.shop.x"), table(kind="leftover")))
    assert {event["job"]["name"] for event in found} == {"dbt-run-shop"}


def test_a_node_that_the_manifest_does_not_know_has_no_inputs() -> None:
    found = sent(results(table(node_id="model.other.orders")))
    _, end = of_job(found, "model.other.orders")
    assert (end["inputs"], [one["name"] for one in end["outputs"]]) == ([], ["shop.orders"])


@pytest.mark.parametrize(
    ("reason", "public"),
    [
        ("build failed: [CAST_INVALID_INPUT] The value 'Jane' of", "build failed"),
        ("build ended with the unknown status 'x': 1", "build ended with the unknown status 'x'"),
        ("test a failed (1 row)", "test a failed (1 row)"),
        ("test a warned (1,200 rows)", "test a warned (1,200 rows)"),
        ("test a ended in an error (value 'Jane (2)')", "test a ended in an error"),
        ("not built: unit test a ended in an error ([X] Jane) (of an earlier run)",
         "not built: unit test a ended in an error"),
        ("test a failed (1 row); test b ended in an error (Jane",
         "test a failed (1 row); test b ended in an error"),
        ("not built: unit test a failed (Jane)", "not built: unit test a failed"),
        ("test a failed (maximum Jane), of an earlier run", "test a failed, of an earlier run"),
        ("upstream shop.orders was rejected", "upstream shop.orders was rejected"),
    ],
)  # fmt: skip
def test_a_reason_quotes_no_rows(reason: str, public: str) -> None:
    assert public_reason(reason) == public


def test_nothing_has_secrets() -> None:
    remember("hunter2hunter2")
    secret = "main has moved: postgresql://dbt:hunter2hunter2@db/lake, password=abcdefgh"
    node = Node(columns=(Column("id", "int", secret),), description=secret)
    found = sent(
        results(table(), table("history", "rejected", reasons=(secret,)), refused=secret),
        facts=Facts({"model.shop.orders": node}),
    )
    assert "hunter2" not in str(found)
    assert "abcdefgh" not in str(found)


def test_all_facets_name_their_producer() -> None:
    text = json.dumps(sent(results(table(), table("history", "rejected", reasons=("x",)))))
    assert text.count('"_producer"') == text.count(f'"_producer": "{PRODUCER}"') > 20
