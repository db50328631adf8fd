"""The text of the summary."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from textwrap import dedent
from typing import Any

import pytest

from sparkwap.gate.facts import AuditTest, BuiltNode, TestResult
from sparkwap.gate.settings import GateSettings
from sparkwap.gate.verdicts import decide
from sparkwap.runs.summary import lines, next_of_not_closed, not_closed
from sparkwap.runs.types import RunEnd

RUN = "1a2b3c4d-0000-4000-8000-000000000000"
BRANCH = "wap_1a2b3c4d"


def node(name: str, *parents: str, status: str = "built", kind: str = "model") -> BuiltNode:
    return BuiltNode(
        f"{kind}.lake.{name}",
        f"insurance.{name}",
        kind,
        status,
        "7" if status in ("built", "empty") else None,
        None,
        frozenset(f"model.lake.{parent}" for parent in parents),
    )


def ended(
    nodes: list[BuiltNode],
    statuses: dict[str, list[str | None]],
    gate: GateSettings | None = None,
    refused: str | None = None,
    earlier: frozenset[str] = frozenset(),
    notices: Mapping[str, tuple[str, ...]] | None = None,
    **shown: Any,
) -> str:
    """Return the summary; `statuses` has the results of each table's tests, None for no result."""
    tests, results = [], []
    for item in nodes:
        name = item.name.partition(".")[2]
        for number, status in enumerate(statuses.get(name, [])):
            test = AuditTest(f"{name}{number}", f"check_{name}_{number}", frozenset([item.node_id]))
            tests.append(test)
            if status is not None:
                rows = 0 if status == "pass" else 1
                seen = TestResult(test.test_id, status, rows, None, {item.node_id: "7"})
                results.append(seen)
    decision = decide(nodes, tests, results, gate or GateSettings())
    live = 0 if refused else len(decision.publish)
    closing = RunEnd(
        decision,
        tuple(nodes),
        live,
        refused,
        seconds=0.046,
        earlier=earlier,
        notices=notices or {},
        watched=True,
    )
    return "\n".join(lines(closing, run_id=RUN, branch=BRANCH, **shown))


def golden(text: str) -> str:
    return dedent(text).strip("\n")


def test_all_published() -> None:
    nodes = [node("dim_policy"), node("fct_premiums"), node("regions", kind="seed")]
    nodes.append(node("dbt_test__audit", kind="failures"))
    passed: list[str | None] = ["pass", "pass"]
    assert ended(nodes, {"dim_policy": passed, "fct_premiums": ["warn"]}) == golden(
        """
        sparkwap  run 1a2b3c4d on branch wap_1a2b3c4d
          published  insurance.dim_policy        2/2 tests
          published  insurance.fct_premiums      1/1 test; test check_fct_premiums_0 warned (1 row)
          published  insurance.regions           no tests
          published  insurance.dbt_test__audit   stored failures
          Published 4 tables in one transaction (0.05 s).
        """
    )


def test_a_rejected_run() -> None:
    nodes = [
        node("raw"),
        node("stg_policies", "raw"),
        node("fct_premiums", "stg_policies", status="skipped"),
    ]
    assert ended(nodes, {"raw": ["pass"], "stg_policies": ["fail", "error"]}) == golden(
        """
        sparkwap  run 1a2b3c4d on branch wap_1a2b3c4d
          rejected   insurance.stg_policies   test check_stg_policies_0 failed (1 row)
                                              test check_stg_policies_1 ended in an error
          held       insurance.raw            waits for the run: 2 of 3 tables cannot publish (insurance.stg_policies, insurance.fct_premiums)
          held       insurance.fct_premiums   not built: upstream insurance.stg_policies was rejected
          Nothing was published (1 rejected and 2 held); readers of main still see the state before this run.
          Next: look at it as built   SPARKWAP_BRANCH=wap_1a2b3c4d dbt show --inline "select * from {{ ref('stg_policies') }}"
                after a fix of it     dbt retry
                accept it as it is    dbt run-operation wap_accept --args '{branch: wap_1a2b3c4d, test: check_stg_policies_0, reason: "<why>"}'
                after any other fix   SPARKWAP_BRANCH=wap_1a2b3c4d dbt build --select +stg_policies+
                discard it            dbt run-operation wap_discard --args '{branch: wap_1a2b3c4d}'
        """  # noqa: E501
    )


def test_a_partly_published_run() -> None:
    nodes = [node("a"), node("b", status="failed")]
    text = ended(nodes, {"a": ["pass"]}, GateSettings(publish="lineage"))
    assert text == golden(
        """
        sparkwap  run 1a2b3c4d on branch wap_1a2b3c4d
          published  insurance.a   1/1 test
          rejected   insurance.b   build failed
          Published 1 of 2 tables in one transaction (0.05 s); the others stay on the branch, where no reader sees them.
          Next: after a fix of it     dbt retry
                after any other fix   SPARKWAP_BRANCH=wap_1a2b3c4d dbt build --select +b+
                discard it            dbt run-operation wap_discard --args '{branch: wap_1a2b3c4d}'
        """  # noqa: E501
    )


def test_held_because_no_test_has_run() -> None:
    assert ended([node("a")], {"a": [None, None]}) == golden(
        """
        sparkwap  run 1a2b3c4d on branch wap_1a2b3c4d
          held       insurance.a   tests check_a_0, check_a_1 did not run
          Nothing was published (1 held); readers of main still see the state before this run.
          Next: run the tests, and publish   SPARKWAP_BRANCH=wap_1a2b3c4d dbt test
                discard it                   dbt run-operation wap_discard --args '{branch: wap_1a2b3c4d}'
        """  # noqa: E501
    )


def commands(text: str) -> list[str]:
    start = text.index("Next:")
    return [line[6:].split("   ")[0].strip() for line in text[start:].splitlines()]


def test_each_reason_to_hold_has_its_command() -> None:
    strict = GateSettings(require_tests=True, warnings="hold")
    assert "after adding tests" in ended([node("a")], {}, strict)
    warned = ended([node("a")], {"a": ["warn"]}, strict)
    assert "SPARKWAP_BRANCH=wap_1a2b3c4d SPARKWAP_WARNINGS=publish dbt test" in warned
    off = ended([node("a")], {"a": ["pass"]}, GateSettings(publish="never"))
    assert "dbt run-operation wap_publish --args '{branch: wap_1a2b3c4d}'" in off
    for text in (warned, off):
        assert len(commands(text)) == 2


def test_a_refused_publish() -> None:
    assert ended([node("a")], {"a": ["pass"]}, refused="main moved") == golden(
        """
        sparkwap  run 1a2b3c4d on branch wap_1a2b3c4d
          held       insurance.a   the catalog refused the publish
          The catalog refused the publish, so nothing was published; readers of main still see the state before this run.
          main moved
          Next: build on main as it is   SPARKWAP_BRANCH=wap_1a2b3c4d dbt build --select a+
                discard it               dbt run-operation wap_discard --args '{branch: wap_1a2b3c4d}'
        """  # noqa: E501
    )


def test_long_lists_are_cut() -> None:
    nodes = [node(f"t{number:03}") for number in range(150)]
    text = ended(nodes, {}).splitlines()
    assert len(text) == 23
    assert text[21:] == [
        "  published  and 130 more",
        "  Published 150 tables in one transaction (0.05 s).",
    ]
    text = ended(nodes, {}, GateSettings(publish="never")).splitlines()
    assert text[1] == "  held       150 tables: publishing is off (wap_publish: never)"
    assert text[2].startswith("               insurance.t000, insurance.t001")
    assert text[2].count("insurance.") == 20
    status = "dbt run-operation wap_status --args '{branch: wap_1a2b3c4d}'"
    assert text[3] == f"  held       and 130 more: {status}"


def test_tables_with_the_same_reason_share_a_line() -> None:
    nodes = [node(name) for name in ("raw", "a", "b")]
    text = ended(nodes, {"raw": ["fail"], "a": ["pass"]}).splitlines()
    assert text[2:4] == [
        "  held       2 tables: waits for the run: 1 of 3 tables cannot publish (insurance.raw)",
        "               insurance.a, insurance.b",
    ]


@pytest.mark.parametrize("width", [50, 70, 90])
def test_no_line_is_longer_than_the_terminal(width: int) -> None:
    nodes = [node(f"table_{number}") for number in range(9)]
    nodes += [node("later", "table_0", status="skipped"), node("a_table_with_a_long_name")]
    warned = {nodes[1].node_id: ("a.csv: a new column 'vat' was added at its end as a text",)}
    whole = ended(nodes, {"table_0": ["fail", "error"]}, notices=warned)
    text = ended(nodes, {"table_0": ["fail", "error"]}, notices=warned, width=width)
    # A quoted word of a shell cannot be broken.
    long = [line.strip() for line in text.splitlines() if len(line) > width]
    assert all(line.startswith("'{") and "wap_1a2b3c4d" in line for line in long)
    assert text.replace("\\\n", "").split() == whole.split()
    # A shell can run the command unchanged.
    look = text[text.index("SPARKWAP_BRANCH") :].split("after a fix of it")[0].replace("\\\n", "")
    assert shlex.split(look)[:4] == [f"SPARKWAP_BRANCH={BRANCH}", "dbt", "show", "--inline"]
    assert shlex.split(look)[4] == "select * from {{ ref('table_0') }}"


def test_the_next_steps_are_optional() -> None:
    assert "Next:" not in ended([node("a")], {"a": ["fail"]}, with_next=False)


def test_many_reasons_are_cut() -> None:
    text = ended([node("a")], {"a": ["fail"] * 5}).splitlines()
    assert [line.strip() for line in text[2:5]] == [
        "test check_a_1 failed (1 row)",
        "test check_a_2 failed (1 row)",
        "and 2 more",
    ]


def test_versions_of_a_model_are_named() -> None:
    versioned = BuiltNode("model.lake.orders.v2", "s.orders_v2", "model", "built", "7", "bad")
    assert "{{ ref('orders', v=2) }}" in ended([versioned], {})
    named = replace(versioned, node_id="model.lake.orders.vbeta")
    assert "{{ ref('orders', v='beta') }}" in ended([named], {})


def test_a_run_that_built_nothing_has_no_summary() -> None:
    assert ended([], {}) == ""


def test_a_table_of_an_earlier_run_is_rebuilt_by_name() -> None:
    nodes = [node(name) for name in ("a", "b", "c", "d")]
    few = ended(nodes, {"a": ["fail"]}, earlier=frozenset({nodes[0].node_id}))
    assert f"after a fix           SPARKWAP_BRANCH={BRANCH} dbt build --select +a+" in few
    bad: dict[str, list[str | None]] = {name: ["fail"] for name in ("a", "b", "c", "d")}
    all_of_them = ended(nodes, bad, earlier=frozenset(n.node_id for n in nodes))
    assert f"  SPARKWAP_BRANCH={BRANCH} dbt build\n" in all_of_them


@pytest.mark.parametrize(
    ("reader", "selection"),
    [("b", " --select +b+"), ("a", ""), ("raw", ""), ("x", " --select +b+")],
)
def test_all_is_rebuilt_if_others_read_what_a_rejected_table_is_built_from(
    reader: str, selection: str
) -> None:
    nodes = [node("raw"), node("x"), node("a", "raw"), node("b", "a"), node("other", reader)]
    text = ended(nodes, {"b": ["fail"]})
    assert f"after any other fix   SPARKWAP_BRANCH={BRANCH} dbt build{selection}\n" in text


def test_notices_of_builds_are_shown() -> None:
    nodes = [node("raw_orders"), node("raw_items")]
    told = {nodes[0].node_id: ("a.csv: new column 'vat' added", "b.csv: no column 'note'")}
    text = ended(nodes, {"raw_orders": ["pass"], "raw_items": ["pass"]}, notices=told)
    assert (
        "  notice     insurance.raw_orders: a.csv: new column 'vat' added\n"
        "  notice     insurance.raw_orders: b.csv: no column 'note'\n"
        "  Published 2 tables"
    ) in text
    many = {nodes[0].node_id: tuple(f"notice {number}" for number in range(25))}
    text = ended(nodes, {"raw_orders": ["pass"], "raw_items": ["pass"]}, notices=many)
    assert "  notice     and 5 more\n" in text


def test_a_publish_by_a_journal_is_not_called_a_transaction() -> None:
    built = node("a")
    decision = decide([built], [], [], GateSettings())
    closing = RunEnd(decision, (built,), 1, None, 0.0, sequential=True, watched=True)
    text = "\n".join(lines(closing, run_id=RUN, branch=BRANCH))
    assert "Published 1 table in a sequential publish" in text
    assert "transaction" not in text


def test_a_partial_build_has_to_be_completed() -> None:
    text = ended([node("a", status="empty")], {"a": ["empty"]})
    assert "held       insurance.a   it was built with --empty, without its rows" in text
    assert "Next: build it whole   SPARKWAP_BRANCH=wap_1a2b3c4d dbt build --select a+" in text
    assert "dbt test" not in text


def test_a_disabled_test_is_enabled_or_accepted() -> None:
    text = ended([node("a")], {"a": ["disabled"]})
    assert "test check_a_0 did not run: disabled" in text
    assert "enable the test, and run it   SPARKWAP_BRANCH=wap_1a2b3c4d dbt test" in text
    publish = "dbt run-operation wap_publish --args '{branch: wap_1a2b3c4d}'"
    assert f"publish without it            SPARKWAP_DISABLED_TESTS=publish {publish}" in text


def test_no_dbt_command_is_shown_for_rows_of_another_program() -> None:
    nodes = [node("drop", kind="load")]
    for text in (
        ended(nodes, {"drop": ["fail"]}),
        ended(nodes, {"drop": ["pass"]}, refused="main moved"),
    ):
        assert "wap_discard" in text
        assert "dbt build" not in text
        assert "dbt retry" not in text
    held = ended(nodes, {"drop": [None]})
    assert f"SPARKWAP_BRANCH={BRANCH} dbt test" in held


def test_tables_of_another_project_are_tested_and_built_there() -> None:
    nodes = [replace(node("orders"), known=False), node("items")]
    there = "Next: in the project that has it   SPARKWAP_BRANCH=wap_1a2b3c4d dbt {}\n"
    held = ended(nodes, {"items": ["pass"]})
    assert "insurance.orders   it is not in the project of this command" in held
    assert there.format("test") in held
    rejected = ended(nodes, {"orders": ["fail"], "items": ["pass"]})
    assert there.format("build") in rejected
    assert "dbt retry" not in rejected
    assert "select" not in rejected


def test_a_run_without_a_decision() -> None:
    assert not_closed(run_id=RUN, branch=BRANCH) == [
        "sparkwap  run 1a2b3c4d on branch wap_1a2b3c4d",
        "  A hook failed before the gate decided, so nothing was published.",
        "  Readers of main see no change; the built tables stay on the branch.",
    ]
    assert next_of_not_closed(BRANCH) == [
        "  Next: after a fix of the hook   SPARKWAP_BRANCH=wap_1a2b3c4d dbt build",
        "        discard it                "
        "dbt run-operation wap_discard --args '{branch: wap_1a2b3c4d}'",
    ]
