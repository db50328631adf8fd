"""Answers about tests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import (
    GATE,
    HELPER,
    IDS,
    MANIFEST,
    ORDERS,
    SINGULAR,
    UNIT,
    VERDICTS,
    VOLUME,
    answer,
    metric,
    result,
    results_of,
    verdict,
)


def test_the_gate_is_a_test_of_each_table_except_ephemeral_models() -> None:
    listed = {one["unique_id"]: one for one in answer("get_tests", nodes=VERDICTS)}
    assert listed[GATE]["latest_run_status"] == "fail"
    assert listed[GATE]["created_at"] < listed[GATE]["latest_run_time"]
    assert f"test.shop.gate.{HELPER}" not in listed
    assert {IDS, VOLUME, SINGULAR, UNIT} < set(listed)


def test_former_tables_and_tests_are_left_out() -> None:
    gone = [verdict(1, "published", "model.shop.gone")]
    assert answer("get_models_runs", nodes=gone) == []
    assert answer("get_test_results", nodes=gone, tests=[result(1, "pass", "test.shop.gone")]) == []


def test_results_are_ranked_from_the_newest_which_alone_has_its_query() -> None:
    rows = [result(1, "fail", failures=2, message="Got 2 results"), result(2, "pass")]
    older, newer = results_of(IDS, tests=rows)
    assert [older["invocations_rank_index"], newer["invocations_rank_index"]] == [2, 1]
    assert (newer["status"], newer["failures"]) == ("fail", 2)
    assert newer["test_results_description"] == "Got 2 results"
    assert (older["test_results_query"], newer["test_results_query"]) == (None, "select 1")
    assert newer["test_params"] == {"column_name": "id"}
    assert (newer["model_owner"], newer["tags"]) == (["Ann", "Bob"], ["daily", "key"])
    assert newer["days_diff"] == 1


@pytest.mark.parametrize("status", ["skipped", "disabled", "empty", "deferred"])
def test_a_test_that_did_not_run_has_no_result(status: str) -> None:
    assert results_of(IDS, tests=[result(1, status)]) == []


def test_history_before_the_given_days_is_left_out() -> None:
    rows = [result(29, "pass"), result(31, "fail")]
    assert [one["status"] for one in results_of(IDS, tests=rows)] == ["pass"]
    assert len(results_of(IDS, tests=rows, days=40)) == 2


def test_metrics_are_plotted_with_their_expected_range() -> None:
    rows = [result(2, "pass", VOLUME), result(1, "fail", VOLUME, finding="row_count is 1")]
    older, newer = results_of(
        VOLUME, tests=rows, metrics=[metric(2, 11), metric(1, 1, "anomalous")]
    )
    assert (newer["test_name"], newer["test_sub_type"]) == ("volume_anomalies", "row_count")
    assert newer["test_type"] == "anomaly_detection"
    assert (newer["status"], newer["test_results_description"]) == ("fail", "row_count is 1")
    assert (older["status"], older["sample_data"]) == ("pass", None)
    assert [
        (one["value"], one["min_value"], one["max_value"], one["is_anomalous"])
        for one in newer["sample_data"]
    ] == [(11, 8, 12, False), (1, 8, 12, True)]


def test_only_the_anomalous_one_of_several_metrics_has_failed() -> None:
    rows = [result(1, "fail", VOLUME, finding="mean:a is 1")]
    found = results_of(
        VOLUME,
        tests=rows,
        metrics=[metric(1, 1, "anomalous", metric="mean:a"), metric(1, 0, metric="null_share:a")],
    )
    assert {(one["test_sub_type"], one["column_name"], one["status"]) for one in found} == {
        ("mean", "a", "fail"),
        ("null_share", "a", "pass"),
    }
    assert len({one["elementary_unique_id"] for one in found}) == 2
    assert {one["invocations_rank_index"] for one in found} == {1}


def test_a_metric_that_may_be_a_personal_value_is_not_shown() -> None:
    marked = {"a": {"name": "a", "meta": {"pii": True}}}
    known = {**MANIFEST["nodes"], ORDERS: {**MANIFEST["nodes"][ORDERS], "columns": marked}}
    known[VOLUME] = {**known[VOLUME], "depends_on": {"nodes": [ORDERS]}}
    finding = "max:a is 184,250 (mean 9): expected 8 to 9, by 12 published runs"
    found = results_of(
        VOLUME,
        manifest={**MANIFEST, "nodes": known},
        tests=[result(1, "fail", VOLUME, finding=finding)],
        metrics=[
            metric(1, 184250, "anomalous", metric="max:a"),
            metric(1, 0, metric="null_share:a"),
        ],
    )
    assert "184" not in json.dumps(found, default=str)
    assert {(one["test_sub_type"], one["status"]) for one in found} == {
        ("generic", "fail"),
        ("null_share", "pass"),
    }
    assert "max:a is an anomaly" in json.dumps(found, default=str)


def test_an_audit_with_an_error_has_no_metric() -> None:
    (found,) = results_of(VOLUME, tests=[result(1, "error", VOLUME, message="no such column")])
    assert (found["test_type"], found["status"]) == ("dbt_test", "error")
    assert found["test_results_description"] == "no such column"


def test_only_the_last_failure_shows_stored_rows() -> None:
    rows = [result(2, "fail"), result(1, "fail")]
    older, newer = results_of(IDS, tests=rows, samples={IDS: [{"id": None}]})
    assert (older["sample_data"], newer["sample_data"]) == (None, [{"id": None}])
    (passed,) = results_of(IDS, tests=[result(1, "pass")], samples={IDS: [{"id": None}]})
    assert passed["sample_data"] is None


def test_stored_rows_and_messages_have_no_personal_values() -> None:
    marked = json.loads(json.dumps(MANIFEST))
    marked["nodes"][ORDERS]["columns"] = {"id": {"name": "id", "meta": {"pii": True}}}
    marked["nodes"][IDS]["depends_on"]["nodes"] = [ORDERS]
    secret = "[CAST_INVALID_INPUT] The value 'ann@example.org' cannot be cast"
    given: dict[str, Any] = {
        "manifest": marked,
        "tests": [result(2, "fail"), result(1, "error", message=secret)],
        "nodes": [verdict(1, "rejected", reason=f"build failed: {secret}")],
        "samples": {IDS: [{"id": "ann@example.org"}]},
    }
    assert "ann@example.org" in str(answer("get_test_results", **{**given, "manifest": MANIFEST}))
    assert "ann@example.org" not in str(answer("get_test_results", **given))
