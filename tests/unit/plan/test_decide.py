"""What a build would do, from what is known of each node."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from sparkwap.core.command_end import plain
from sparkwap.plan import render
from sparkwap.plan.decide import Facts, Input, Known, Plan, decide

AT = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
CODE = {"text": "1", "macro a": "2"}
LIVE = Known("0123abcd-run", AT, CODE, (Input("shop.raw", "7", "7"),))
RAW = Facts("model.shop.raw", (), CODE, known=replace(LIVE, inputs=()), seconds=2.0)
FACT = Facts("model.shop.fact", ("model.shop.raw",), CODE, known=LIVE, seconds=3.0)
TEST = Facts("test.shop.not_null_fact_id.0a1b", ("model.shop.fact",), CODE, known=LIVE)
NAMES = {"model.shop.raw": "raw", "model.shop.fact": "fact"}


def plan(*nodes: Facts, tests: tuple[Facts, ...] = ()) -> Plan:
    return decide(nodes, tests, NAMES)


def reasons(facts: Facts) -> tuple[str, ...]:
    (step,) = plan(facts).nodes
    assert (step.action == "reuse") == (not step.reasons)
    return step.reasons


def test_what_has_not_changed_is_reused() -> None:
    found = plan(RAW, FACT, tests=(TEST,))
    assert [step.action for step in (*found.nodes, *found.tests)] == ["reuse"] * 3
    assert found.stale == ()


def test_each_reason() -> None:
    def known(**changes: object) -> Facts:
        return replace(FACT, known=replace(LIVE, **changes))  # type: ignore[arg-type]

    assert reasons(replace(FACT, known=None)) == ("it was never published",)
    assert reasons(known(code={**CODE, "text": "0", "macro b": "3"})) == (
        "its code has changed: macro b, text",
    )
    assert reasons(known(code=None)) == ("the code of its last build is not stored",)
    assert reasons(known(problem="its last publish was rolled back")) == (
        "its last publish was rolled back",
    )
    assert reasons(known(inputs=(Input("shop.raw", "7", "8"),))) == ("shop.raw has changed",)
    for lost in (Input("shop.raw", None, "8"), Input("shop.raw", "8", None)):
        assert reasons(known(inputs=(lost,))) == ("what it has read of shop.raw is not known",)
    assert reasons(replace(FACT, uncertain="it uses rand")) == ("it uses rand",)
    assert reasons(replace(FACT, unread=2)) == ("2 unread landing files",)


def test_a_node_is_built_with_what_it_reads() -> None:
    found = plan(replace(RAW, unread=1), FACT, tests=(TEST,))
    assert [step.action for step in found.nodes] == ["build", "build"]
    assert found.nodes[1].reasons == ("it reads raw, which is built",)
    # Its test runs with the node.
    assert found.tests[0].reasons == ("it reads fact, which is built",)
    assert found.stale == ("model.shop.raw", "model.shop.fact")


@pytest.mark.parametrize("known", [None, replace(LIVE, problem="its last result is fail")])
def test_a_test_without_a_result_of_what_is_live_runs_alone(known: Known | None) -> None:
    found = plan(RAW, FACT, tests=(replace(TEST, known=known),))
    assert found.stale == ("test.shop.not_null_fact_id.0a1b",)


def test_the_plan_as_text_markdown_and_json() -> None:
    found = plan(RAW, replace(FACT, uncertain="it uses rand"), tests=(TEST,))
    assert render.text(found) == [
        "To build: 1 of 2 nodes: about 3.0 s of about 5.0 s, without their tests",
        "  reuse  raw   as published at 2026-01-02 03:04 UTC (run 0123abcd)",
        "  build  fact  it uses rand  about 3.0 s",
        "  1 other test: each runs if a node that it reads is built, else it is reused",
        "Build these alone: sparkwap build --stale",
    ]
    assert render.markdown(found)[-1] == "| build | `fact` | it uses rand | about 3.0 s |"
    assert render.document(found).stale == ("model.shop.fact",)
    assert plain(render.document(found))["nodes"][0]["last_at"] == AT.isoformat()
    assert render.text(plan(RAW, FACT))[0] == (
        "Nothing to build: 2 nodes unchanged since the last publish."
    )
