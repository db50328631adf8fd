"""The report's data: what Elementary is told of the ledger and dbt's artifacts."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sparkwap.core.errors import ConfigError
from sparkwap.ledger.schemas import SCHEMAS
from sparkwap.publish.lake import Lake
from sparkwap.report import command
from sparkwap.report.answers import ReportFacts, answers, as_built, as_they_stand, ours

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
ORDERS, RAW, HELPER = "model.shop.orders", "seed.shop.raw", "model.shop.helper"
IDS, VOLUME, SINGULAR, UNIT = "test.shop.ids", "test.shop.volume", "test.shop.sum", "unit.shop.u"
GATE = f"test.shop.gate.{ORDERS}"


def node(key: str, **more: Any) -> dict[str, Any]:
    kind, _, name = key.split(".", 2)
    config = {"materialized": more.pop("materialized", "table"), "meta": more.pop("meta", {})}
    return {
        "unique_id": key,
        "name": name,
        "alias": name,
        "schema": "s",
        "resource_type": "unit_test" if kind == "unit" else kind,
        "package_name": "shop",
        "original_file_path": f"models/{name}.sql",
        "path": f"{name}.sql",
        "tags": more.pop("tags", []),
        "config": config,
        "depends_on": {"nodes": more.pop("above", [])},
        **more,
    }


MANIFEST = {
    "metadata": {"project_name": "shop"},
    "nodes": {
        one["unique_id"]: one
        for one in (
            node(ORDERS, meta={"owner": "Ann, Bob"}, tags=["daily"], above=[RAW, HELPER]),
            node(RAW, materialized="seed"),
            node(HELPER, materialized="ephemeral"),
            node("snapshot.shop.history", above=[ORDERS], unique_key="id"),
            node(
                IDS,
                attached_node=ORDERS,
                column_name="id",
                test_metadata={"name": "not_null", "kwargs": {"column_name": "id", "model": "x"}},
                tags=["key"],
                compiled_code="select 1",
            ),
            node(
                VOLUME,
                attached_node=ORDERS,
                test_metadata={"name": "wap_volume_anomaly", "kwargs": {"window": 9}},
            ),
            node(SINGULAR, above=[ORDERS]),
        )
    },
    "sources": {
        "source.shop.crm.events": {
            **node("source.shop.crm.events", meta={"owner": ["Cy"]}),
            "source_name": "crm",
            "identifier": "events",
            "alias": None,
        }
    },
    "exposures": {
        "exposure.shop.board": {**node("exposure.shop.board", above=[ORDERS]), "type": "dashboard"}
    },
    "unit_tests": {UNIT: node(UNIT, above=[ORDERS])},
}


def row(table: str, days_ago: float, **more: Any) -> dict[str, Any]:
    """A row as the ledger gives it: all columns are there."""
    at = NOW - timedelta(days=days_ago)
    times = dict.fromkeys(("started_at", "built_at", "executed_at", "measured_at"), at)
    known = SCHEMAS[table].names
    return {**dict.fromkeys(known), **{k: v for k, v in times.items() if k in known}, **more}


def verdict(days_ago: float, said: str, key: str = ORDERS, **more: Any) -> dict[str, Any]:
    return row(
        "nodes", days_ago, run_id=f"r{days_ago}", node_id=key, schema="s", verdict=said, **more
    )


def result(days_ago: float, status: str, key: str = IDS, **more: Any) -> dict[str, Any]:
    return row("tests", days_ago, run_id=f"r{days_ago}", test_id=key, status=status, **more)


def metric(days_ago: float, value: float, state: str = "normal", **more: Any) -> dict[str, Any]:
    given = {"metric": "row_count", "mean": 10.0, "low": 8.0, "high": 12.0, **more}
    return row(
        "metrics",
        days_ago,
        run_id=f"r{days_ago}",
        test_id=VOLUME,
        value=value,
        state=state,
        **given,
    )


def test_runs_of_other_projects_and_schemas_are_not_shown() -> None:
    here = MANIFEST["nodes"][ORDERS]["schema"]
    tables = {
        "runs": [
            row("runs", 1, run_id="mine", project="shop"),
            row("runs", 1, run_id="of a developer", project="shop"),
            row("runs", 1, run_id="of another branch", project="shop"),
            row("runs", 1, run_id="of another", project="web"),
        ],
        "nodes": [
            row("nodes", 1, run_id="mine", node_id=ORDERS, schema=here),
            row("nodes", 1, run_id="mine", node_id="model.shop.dropped", schema="elsewhere"),
            row("nodes", 1, run_id="of a developer", node_id=ORDERS, schema="dev_ann"),
            row("nodes", 1, run_id="of another branch", node_id="model.shop.n", schema="dev_bob"),
        ],
    }
    tables["tests"] = [row("tests", 1, run_id=one["run_id"]) for one in tables["runs"]]
    found = ours(MANIFEST, tables, "prod")
    for rows in found.values():
        assert {one["run_id"] for one in rows} == {"mine"}
    assert len(found["nodes"]) == 2


def test_what_a_variable_has_switched_off_is_told_as_its_last_run_has_left_it() -> None:
    off = {
        "model.shop.off": [node("model.shop.off", tags=["x"])],
        "test.shop.off": [node("test.shop.off", above=[])],
        "model.shop.never": [node("model.shop.never")],
    }
    tables = {
        "runs": [
            row("runs", 1, run_id="mine", project="shop", target="prod"),
            row("runs", 1, run_id="of a developer", project="shop", target="dev"),
        ],
        "nodes": [
            row("nodes", 2, run_id="mine", node_id="model.shop.off", schema="before"),
            row("nodes", 1, run_id="mine", node_id="model.shop.off", schema="sensors"),
            row("nodes", 0, run_id="of a developer", node_id="model.shop.off", schema="ann"),
        ],
        "tests": [
            row("tests", 1, run_id="mine", test_id="test.shop.off", audited={"model.shop.off": "7"})
        ],
    }
    found = as_built({**MANIFEST, "disabled": off}, tables, "prod")["nodes"]
    assert found.keys() - MANIFEST["nodes"].keys() == {"model.shop.off", "test.shop.off"}
    assert (found["model.shop.off"]["schema"], found["model.shop.off"]["tags"]) == (
        "sensors",
        ["x"],
    )
    assert found["test.shop.off"]["depends_on"] == {"nodes": ["model.shop.off"]}
    given = as_built({**MANIFEST, "disabled": off}, tables, "dev")["nodes"]
    assert given["model.shop.off"]["schema"] == "ann"


def test_with_all_schemas_what_was_parsed_last_does_not_decide_what_is_shown() -> None:
    """The manifest is that of another variable, with another schema, where nothing was built."""
    runs = [
        row("runs", days, run_id=f"r{days}", project="shop", target=target)
        for days, target in ((3, "prod"), (2, "prod"), (1, "dev"))
    ]
    nodes = [
        row("nodes", days, run_id=f"r{days}", node_id=ORDERS, schema=schema)
        for days, schema in ((3, "sensors"), (2, "airports"), (1, "ann"))
    ]
    tables = {"runs": runs, "nodes": nodes, "tests": []}
    told = as_built(MANIFEST, tables, "prod", all_schemas=True)
    assert told["nodes"][ORDERS]["schema"] == "airports"
    assert told["nodes"][RAW] == MANIFEST["nodes"][RAW]
    found = ours(told, tables, "prod", all_schemas=True)
    assert [one["schema"] for one in found["nodes"]] == ["sensors", "airports"]
    # Another developer may have a target of that name, and a schema of their own.
    assert as_built(MANIFEST, tables, "prod")["nodes"] == MANIFEST["nodes"]
    assert ours(MANIFEST, tables, "prod")["nodes"] == []


def test_what_was_rolled_back_is_held() -> None:
    rows = [
        row("nodes", 1, run_id="r", schema="s", name=name, verdict=verdict, reason=None)
        for name, verdict in (("a", "published"), ("b", "published"), ("c", "rejected"))
    ]
    found = as_they_stand(rows, {("r", "s", "a"), ("r", "s", "c"), ("other", "s", "b")})
    assert [one["verdict"] for one in found] == ["held", "published", "rejected"]
    assert found[0]["reason"] == "its publish was rolled back"


def told(name: str, **more: Any) -> list[dict[str, Any]]:
    """One answer."""
    facts: dict[str, Any] = dict.fromkeys(("runs", "nodes", "tests", "metrics"), ())
    found: list[dict[str, Any]] = answers(
        ReportFacts(**{"manifest": MANIFEST, "database": "lake", "now": NOW, **facts, **more})
    )[name]
    return found


def results_of(key: str, **more: Any) -> list[dict[str, Any]]:
    return [one for one in told("get_test_results", **more) if one["test_unique_id"] == key]


def test_a_lake_without_history_has_its_artifacts() -> None:
    (orders,) = [m for m in told("get_models") if m["unique_id"] == ORDERS]
    assert orders["owners"] == ["Ann", "Bob"]
    assert (orders["database_name"], orders["schema_name"]) == ("lake", "s")
    assert orders["tags"] == ["daily"]
    (source,) = told("get_sources")
    assert (source["table_name"], source["owners"]) == ("events", ["Cy"])
    assert [one["name"] for one in told("get_seeds")] == ["raw"]
    assert [one["name"] for one in told("get_snapshots")] == ["history"]
    assert [one["name"] for one in told("get_singular_tests")] == ["sum"]
    (exposure,) = told("get_exposures")
    assert exposure["depends_on_nodes"] == [ORDERS]
    assert told("get_test_results") == []
    assert told("get_models_runs") == []


def test_coverage_counts_tests_of_columns_and_of_tables() -> None:
    assert told("get_dbt_models_test_coverage") == [
        {"model_unique_id": ORDERS, "column_tests": 1, "table_tests": 3}
    ]


def test_lineage_has_what_each_node_reads() -> None:
    found = {one["unique_id"]: one for one in told("get_nodes_depends_on_nodes")}
    assert json.loads(found[ORDERS]["depends_on_nodes"]) == [RAW, HELPER]
    assert found[HELPER]["materialization"] == "ephemeral"
    assert {one["type"] for one in found.values()} == {
        "model",
        "seed",
        "snapshot",
        "source",
        "exposure",
    }


VERDICTS = [
    verdict(3, "published", seconds=1.5),
    verdict(2, "held", reason="did not run"),
    verdict(1, "rejected", reason="test ids failed (1 row)"),
]


def test_each_verdict_is_a_run_and_a_result_of_the_gate() -> None:
    runs = told("get_models_runs", nodes=VERDICTS)
    assert [run["status"] for run in runs] == ["success", "partial success", "error"]
    assert [run["execution_time"] for run in runs] == [1.5, 0.0, 0.0]
    found = results_of(GATE, nodes=VERDICTS)
    assert [one["status"] for one in found] == ["pass", "warn", "fail"]
    assert [one["test_results_description"] for one in found] == [
        None,
        "1 table held: did not run",
        "1 table rejected: test ids failed (1 row)",
    ]
    assert told("get_models_latest_invocation", nodes=VERDICTS) == [
        {"unique_id": ORDERS, "invocation_id": "r1"}
    ]


def test_the_gate_is_listed_as_a_test_of_each_table_and_not_of_ephemeral_models() -> None:
    listed = {one["unique_id"]: one for one in told("get_tests", nodes=VERDICTS)}
    assert listed[GATE]["latest_run_status"] == "fail"
    assert listed[GATE]["created_at"] < listed[GATE]["latest_run_time"]
    assert f"test.shop.gate.{HELPER}" not in listed
    assert {IDS, VOLUME, SINGULAR, UNIT} < set(listed)


def test_tables_and_tests_that_are_gone_are_left_out() -> None:
    gone = [verdict(1, "published", "model.shop.gone")]
    assert told("get_models_runs", nodes=gone) == []
    assert told("get_test_results", nodes=gone, tests=[result(1, "pass", "test.shop.gone")]) == []


def test_results_are_ranked_from_the_newest_and_only_that_has_its_query() -> None:
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
def test_what_did_not_run_is_no_result(status: str) -> None:
    assert results_of(IDS, tests=[result(1, status)]) == []


def test_older_history_than_asked_for_is_left_out() -> None:
    rows = [result(29, "pass"), result(31, "fail")]
    assert [one["status"] for one in results_of(IDS, tests=rows)] == ["pass"]
    assert len(results_of(IDS, tests=rows, days=40)) == 2


def test_metrics_are_plotted_with_what_was_expected() -> None:
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


def test_of_several_metrics_only_the_anomalous_one_has_failed() -> None:
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


def test_an_audit_that_ended_in_an_error_has_no_metric() -> None:
    (found,) = results_of(VOLUME, tests=[result(1, "error", VOLUME, message="no such column")])
    assert (found["test_type"], found["status"]) == ("dbt_test", "error")
    assert found["test_results_description"] == "no such column"


def test_stored_rows_are_shown_of_the_last_failure_only() -> None:
    rows = [result(2, "fail"), result(1, "fail")]
    older, newer = results_of(IDS, tests=rows, samples={IDS: [{"id": None}]})
    assert (older["sample_data"], newer["sample_data"]) == (None, [{"id": None}])
    (passed,) = results_of(IDS, tests=[result(1, "pass")], samples={IDS: [{"id": None}]})
    assert passed["sample_data"] is None


def test_what_is_personal_is_in_no_stored_row_and_in_no_message() -> None:
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
    assert "ann@example.org" in str(told("get_test_results", **{**given, "manifest": MANIFEST}))
    assert "ann@example.org" not in str(told("get_test_results", **given))


def test_runs_can_be_told_apart_by_what_they_came_to() -> None:
    runs = [row("runs", 1, run_id="r1", command="build", outcome="rejected", branch="wap_1")]
    (found,) = told("get_models_latest_invocations_data", runs=runs)
    assert (found["job_name"], found["job_id"], found["command"]) == ("rejected", "wap_1", "build")


def test_source_freshness_is_that_of_dbt() -> None:
    sources = {
        "metadata": {"invocation_id": "i", "generated_at": NOW.isoformat()},
        "results": [
            {
                "unique_id": "source.shop.crm.events",
                "status": "error",
                "max_loaded_at": NOW.isoformat(),
                "criteria": {"error_after": {"count": 1, "period": "day"}},
            },
            {"unique_id": "source.shop.gone", "status": "pass"},
        ],
    }
    (found,) = told("get_source_freshness_results", sources=sources)
    assert (found["status"], found["table_name"]) == ("fail", "events")
    assert found["error_after"] == {"count": 1, "period": "day"}


def test_all_answers_are_json() -> None:
    facts = ReportFacts(
        MANIFEST,
        [row("runs", 1, run_id="r1", outcome="rejected", branch="b")],
        VERDICTS,
        [result(1, "fail", VOLUME)],
        [metric(1, 1)],
        "lake",
        NOW,
    )
    assert json.loads(json.dumps(answers(facts)))


# The command


def test_without_elementary_it_says_where_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(command.PYTHON, raising=False)
    with pytest.raises(ConfigError, match=r"pip install 'dbt-sparkwap\[elementary\]'"):
        command.find_python(None)
    with pytest.raises(ConfigError, match="There is no /nowhere/python"):
        command.find_python(Path("/nowhere/python"))
    monkeypatch.setenv(command.PYTHON, sys.executable)
    assert command.find_python(None) == Path(sys.executable)


def test_stored_rows_are_read_only_when_asked_for(tmp_path: Path) -> None:
    import pyarrow as pa

    properties = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"{tmp_path}/w"}
    lake = Lake("lake", properties)
    lake.ensure_schema("audit__b", "b")
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
    lake.catalog.create_table(("audit__b", "ids"), rows.schema).append(rows)
    kept: Sequence[dict[str, Any]] = [
        {
            "resource_type": "failures",
            "node_id": key,
            "schema": "audit",
            "name": name,
            "branch": "b",
            "verdict": "held",
            "built_at": NOW,
        }
        for key, name in ((IDS, "ids"), (VOLUME, "discarded"))
    ]
    assert command.stored_rows(lake, kept, 0) == {}
    assert command.stored_rows(lake, kept, 2) == {IDS: [{"id": 1}, {"id": 2}]}
    lake.close()
