"""Answers about runs, and about tests, with the verdicts of the gate as results of a test."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from sparkwap.report.facts import (
    TABLE_TYPES,
    Answer,
    ReportFacts,
    Row,
    is_table,
    iso,
    owners,
    tested_node,
)

TEST_STATUSES = {"published": "pass", "held": "warn", "rejected": "fail"}
"""Verdicts as the statuses of a test on the page."""

# The page has no other statuses for the run of a model.
_RUN_STATUSES = {"published": "success", "held": "partial success", "rejected": "error"}

GATE = "gate"
"""Name of the test that stands for the gate's verdict on a table."""

_SHOWN_STATUSES = frozenset({"pass", "warn", "fail", "error"})
# The page's dashboard knows Elementary's own audits by their names.
_PAGE_NAMES = {
    "wap_volume_anomaly": "volume_anomalies",
    "wap_freshness_anomaly": "freshness_anomalies",
    "wap_column_anomaly": "column_anomalies",
    "wap_schema_changes": "schema_changes",
}
_METRIC_TYPES = {"age_hours": "freshness"}


def tests(facts: ReportFacts, results: Iterable[Row]) -> Answer:
    """Return all tests, with their first and last result. The gate is a test of each table."""
    first: dict[str, Row] = {}
    last: dict[str, Row] = {}
    for row in sorted(results, key=lambda row: row["detected_at"]):
        first.setdefault(row["test_unique_id"], row)
        last[row["test_unique_id"]] = row
    listed = [_test(facts, test) for test in facts.of_type("test", "unit_test")]
    listed += [_gate_test(facts, node) for node in facts.of_type(*TABLE_TYPES) if is_table(node)]
    return [
        {
            **test,
            "created_at": first[key]["detected_at"] if key in first else None,
            "latest_run_time": last[key]["detected_at"] if key in last else None,
            "latest_run_status": last[key]["status"] if key in last else None,
            "test_type": last[key]["test_type"] if key in last else "dbt_test",
            "test_sub_type": last[key]["test_sub_type"] if key in last else None,
        }
        for test in listed
        for key in (test["unique_id"],)
    ]


def test_results(facts: ReportFacts) -> Answer:
    """Return all results of tests and verdicts of the gate; each test's newest has rank 1."""
    rows = [*_dbt_results(facts), *_gate_results(facts)]
    ranks: Counter[str] = Counter()
    ranked = []
    for row in sorted(rows, key=lambda row: row["detected_at"], reverse=True):
        key = row["elementary_unique_id"]
        ranks[key] += 1
        if ranks[key] > 1:
            row["sample_data"] = row["test_results_query"] = None
        ranked.append({**row, "invocations_rank_index": ranks[key]})
    return ranked[::-1]


def _dbt_results(facts: ReportFacts) -> Iterable[dict[str, Any]]:
    measured: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in facts.recent(facts.metrics, "measured_at"):
        measured[row["run_id"], row["test_id"]].append(row)
    for row in facts.recent(facts.tests, "executed_at"):
        test = facts.known.get(row["test_id"])
        if test is None or row["status"] not in _SHOWN_STATUSES:
            continue
        metrics = measured.get((row["run_id"], row["test_id"]), [])
        plotted = [
            metric
            for metric in metrics
            if not facts.marks.is_withheld(metric["metric"], [metric["node_id"], row["test_id"]])
        ]
        for metric in plotted:
            yield _metric_result(facts, test, row, metric)
        if not metrics or plotted != metrics:
            yield _plain_result(facts, test, row)


def _plain_result(facts: ReportFacts, test: Row, row: Row) -> dict[str, Any]:
    finding = row["finding"] and facts.marks.harmless(row["finding"], row["test_id"])
    message = finding or row["message"]
    failed = row["status"] in ("fail", "warn")
    schema = _page_name(test) == "schema_changes"
    if message and row["status"] == "error":
        message = facts.marks.error_class(message, row["test_id"])
    samples = facts.shown(row["test_id"])
    return {
        **_result(facts, _test(facts, test), row["run_id"], row["executed_at"]),
        "test_type": "schema_change" if schema else "dbt_test",
        "test_results_description": message if row["status"] != "pass" else None,
        "status": row["status"],
        "failures": row["failures"],
        "severity": row["severity"],
        "execution_time": row["seconds"],
        "sample_data": samples if samples and failed else None,
    }


def _metric_result(facts: ReportFacts, test: Row, row: Row, metric: Row) -> dict[str, Any]:
    kind, _, column = metric["metric"].partition(":")
    anomalous = metric["state"] == "anomalous"
    history = [
        earlier
        for earlier in facts.plots[row["test_id"], metric["metric"]]
        if earlier["measured_at"] <= metric["measured_at"]
    ]
    about = _test(facts, test)
    return {
        **_result(facts, about, row["run_id"], row["executed_at"]),
        "elementary_unique_id": f"{about['unique_id']}.{column or None}.{kind}",
        "column_name": column or None,
        "test_type": "anomaly_detection",
        "test_sub_type": _METRIC_TYPES.get(kind, kind),
        "test_results_description": facts.marks.harmless(row["finding"], row["test_id"])
        if anomalous and row["finding"]
        else None,
        # If a test has several metrics, only the anomalous ones have failed.
        "status": row["status"] if anomalous or row["status"] == "error" else "pass",
        "failures": None,
        "severity": row["severity"],
        "execution_time": row["seconds"],
        "sample_data": [_point(point) for point in history],
    }


def _point(metric: Row) -> dict[str, Any]:
    """Return a point of a metric's plot, with the expected range."""
    return {
        "value": metric["value"],
        "average": metric["mean"],
        "min_value": metric["low"],
        "max_value": metric["high"],
        "start_time": iso(metric["measured_at"]),
        "end_time": iso(metric["measured_at"]),
        "is_anomalous": metric["state"] == "anomalous",
    }


def _gate_results(facts: ReportFacts) -> Iterable[dict[str, Any]]:
    for row in verdicts(facts):
        node = facts.known[row["node_id"]]
        if not is_table(node):
            continue
        verdict = row["verdict"]
        why = f": {facts.marks.harmless(row['reason'], row['node_id'])}" if row["reason"] else ""
        yield {
            **_result(facts, _gate_test(facts, node), row["run_id"], row["built_at"]),
            "test_type": "dbt_test",
            # The page shows the first number in the text as the number of failed rows.
            "test_results_description": None
            if verdict == "published"
            else f"1 table {verdict}{why}",
            "status": TEST_STATUSES[verdict],
            "failures": None if verdict == "published" else 1,
            "severity": "error",
            "execution_time": row["seconds"],
            "sample_data": None,
        }


def _result(facts: ReportFacts, test: Row, run_id: str, at: datetime) -> dict[str, Any]:
    test_id, column = test["unique_id"], test["column_name"]
    return {
        "id": f"{test_id}.{run_id}",
        "invocation_id": run_id,
        "test_execution_id": f"{test_id}.{run_id}",
        "model_unique_id": test["model_unique_id"],
        "test_unique_id": test_id,
        "elementary_unique_id": f"{test_id}.{column}.{test['type']}",
        "detected_at": iso(at),
        "database_name": test["database_name"],
        "schema_name": test["schema_name"],
        "table_name": test["table_name"],
        "column_name": column,
        "test_sub_type": test["type"],
        "test_description": test["description"],
        "original_path": test["original_path"],
        "package_name": test["package_name"],
        "owners": owners({"config": {"meta": test["meta"]}}),
        "model_owner": owners({"config": {"meta": test["model_meta"]}}),
        "tags": sorted({*test["tags"], *test["model_tags"]}),
        "test_tags": test["tags"],
        "model_tags": test["model_tags"],
        "meta": test["meta"],
        "model_meta": test["model_meta"],
        "test_results_query": test["query"],
        "other": None,
        "test_name": test["short_name"],
        "test_params": test["test_params"],
        "test_created_at": None,
        "days_diff": (facts.now - at) / timedelta(days=1),
    }


def _test(facts: ReportFacts, test: Row) -> dict[str, Any]:
    metadata = test.get("test_metadata") or {}
    arguments = metadata.get("kwargs") or {}
    kind = "generic" if metadata else "singular"
    return {
        **_about(facts, tested_node(facts, test)),
        "unique_id": test["unique_id"],
        "column_name": test.get("column_name"),
        "name": test["name"],
        "short_name": _page_name(test),
        "description": test.get("description"),
        "package_name": test["package_name"],
        "original_path": test["original_file_path"],
        "test_params": {key: value for key, value in arguments.items() if key != "model"},
        "meta": dict((test.get("config") or {}).get("meta") or {}),
        "tags": list(test.get("tags") or ()),
        "type": "unit" if test["resource_type"] == "unit_test" else kind,
        "query": test.get("compiled_code"),
    }


def _gate_test(facts: ReportFacts, node: Row) -> dict[str, Any]:
    return {
        **_about(facts, node["unique_id"]),
        "unique_id": f"test.{facts.project}.{GATE}.{node['unique_id']}",
        "column_name": None,
        "name": f"{GATE}_{node['name']}",
        "short_name": GATE,
        "description": (
            "The gate's verdict on the table in each run: passed is published, warning is held on "
            "the audit branch, failed is rejected."
        ),
        "package_name": node["package_name"],
        "original_path": node["original_file_path"],
        "test_params": {},
        "meta": {},
        "tags": [GATE],
        "type": "generic",
        "query": None,
    }


def _about(facts: ReportFacts, node_id: str | None) -> dict[str, Any]:
    node: Row = facts.known.get(node_id or "", {})
    return {
        "model_unique_id": node_id,
        "database_name": facts.database,
        "schema_name": node.get("schema", ""),
        "table_name": node.get("alias") or node.get("identifier"),
        "model_meta": dict((node.get("config") or {}).get("meta") or {}),
        "model_tags": list(node.get("tags") or ()),
    }


def _page_name(test: Row) -> str:
    name = str((test.get("test_metadata") or {}).get("name") or test["name"])
    return _PAGE_NAMES.get(name, name)


def invocations(facts: ReportFacts) -> Answer:
    """Return the runs, with their outcome in the place of a job's name: the page filters by it."""
    return [
        {
            "invocation_id": run["run_id"],
            "detected_at": iso(run["started_at"]),
            "command": run["command"],
            "job_name": run["outcome"],
            "job_id": run["branch"],
            "job_run_id": run["run_id"],
        }
        for run in facts.recent(facts.runs, "started_at")
    ]


def model_runs(facts: ReportFacts) -> Answer:
    """Return each build of each table, with the gate's verdict as its status."""
    return [
        {
            "unique_id": row["node_id"],
            "invocation_id": row["run_id"],
            "name": facts.known[row["node_id"]]["name"],
            "schema": row["schema"],
            "status": _RUN_STATUSES.get(row["verdict"], row["verdict"]),
            "execution_time": row["seconds"] or 0.0,
            "full_refresh": None,
            "materialization": facts.known[row["node_id"]]["config"].get("materialized"),
            "compiled_code": facts.known[row["node_id"]].get("compiled_code"),
            "generated_at": iso(row["built_at"]),
        }
        for row in verdicts(facts)
    ]


def latest_runs(facts: ReportFacts) -> Answer:
    """Return the last run of each table."""
    last = {row["node_id"]: row["run_id"] for row in verdicts(facts)}
    return [{"unique_id": key, "invocation_id": run_id} for key, run_id in last.items()]


def verdicts(facts: ReportFacts) -> list[Row]:
    """Return the gate's verdicts on tables that are still in the project, oldest first."""
    return [
        row
        for row in facts.recent(facts.nodes, "built_at")
        if row["node_id"] in facts.known and row["verdict"] in TEST_STATUSES
    ]
