"""Answers about runs."""

from __future__ import annotations

from .conftest import GATE, ORDERS, VERDICTS, answer, results_of, row


def test_each_verdict_is_a_run_of_the_model_and_a_result_of_the_gate() -> None:
    runs = answer("get_models_runs", nodes=VERDICTS)
    assert [run["status"] for run in runs] == ["success", "partial success", "error"]
    assert [run["execution_time"] for run in runs] == [1.5, 0.0, 0.0]
    found = results_of(GATE, nodes=VERDICTS)
    assert [one["status"] for one in found] == ["pass", "warn", "fail"]
    assert [one["test_results_description"] for one in found] == [
        None,
        "1 table held: did not run",
        "1 table rejected: test ids failed (1 row)",
    ]
    assert answer("get_models_latest_invocation", nodes=VERDICTS) == [
        {"unique_id": ORDERS, "invocation_id": "r1"}
    ]


def test_the_outcome_of_a_run_is_in_the_place_of_the_job_name() -> None:
    runs = [row("runs", 1, run_id="r1", command="build", outcome="rejected", branch="wap_1")]
    (found,) = answer("get_models_latest_invocations_data", runs=runs)
    assert (found["job_name"], found["job_id"], found["command"]) == ("rejected", "wap_1", "build")
