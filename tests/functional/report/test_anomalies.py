"""Anomaly audits on builds of several days, and the report about them.

In one file, as all of it looks at the same few builds.
"""

from __future__ import annotations

import json
import math
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from helpers.browser import shown

from sparkwap.report import command
from sparkwap.report.answers import answers
from sparkwap.report.facts import ReportFacts

if TYPE_CHECKING:
    from helpers.lake import SparkReader
    from tests.functional.report.conftest import Story

ORDERS = "model.shop.orders"
ANALYSIS = Path(__file__).parents[3] / "analyses/anomalies.sql"


def metrics(story: Story, run_id: str) -> dict[str, dict[str, Any]]:
    rows = story.reader.ledger("metrics", run_id=run_id)
    return {f"{row['name']} {row['metric']}": row for row in rows}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "orders",
            "orders_volume failed (row_count is 10 (90 % below the mean, 100): expected 95 ",
        ),
        ("payments", "payments_amounts failed (null_share:amount is 0.5 (mean 0): expected"),
        ("visits", "visits_columns failed (page was bigint and is string)"),
        ("deliveries", "deliveries_age failed (age_hours:delivered_at is 2,160"),
    ],
)
def test_an_anomalous_day_is_rejected_and_readers_see_no_change(
    story: Story, name: str, told: str
) -> None:
    for day in story.days:
        assert day.verdict(name) == "published"
    assert story.bad_day is not None
    assert story.bad_day.verdict(name) == "rejected"
    assert told in story.bad_day.text
    assert story.after[name].seen() == story.before[name].seen()
    assert story.after[name].location != ""


def test_normal_tables_of_the_same_run_are_published(story: Story) -> None:
    assert story.bad_day is not None
    for name in ("regions", "calm"):
        assert story.bad_day.verdict(name) == "published"
    assert len(story.after["regions"].rows) == 10
    assert len(story.before["regions"].rows) == 99


def test_the_figures_are_in_the_ledger(story: Story) -> None:
    assert story.bad_day is not None
    found = metrics(story, story.bad_day.run_id)
    volume = found["orders row_count"]
    assert (volume["value"], volume["state"], volume["samples"]) == (10, "anomalous", 3)
    assert (volume["mean"], volume["spread"]) == (100, 1)
    assert found["payments null_share:amount"]["value"] == 0.5
    assert found["payments max:amount"]["state"] == "anomalous"
    assert found["regions row_count"]["value"] == 4
    assert found["regions row_count"]["scope"] == "id < 8 and part = 0"


def test_sql_over_the_ledger_has_the_same_results(story: Story, spark: SparkReader) -> None:
    """SQL computes the formula of the audits a second time."""
    sql = ANALYSIS.read_text()
    columns = "relation, metric, value, samples, mean, spread, score, state"
    schema = story.project.schema
    found = spark.rows(f"select {columns} from ({sql}) where relation like '{schema}.%'")
    recorded = [row for row in story.reader.ledger("metrics") if row["schema"] == schema]
    assert len(found) == len(recorded) == 4 * 7
    judged = {
        (f"{row['schema']}.{row['name']}", row["metric"], row["value"], row["samples"]): row
        for row in recorded
    }
    for relation, metric, value, samples, mean, spread, score, state in found:
        row = judged[relation, metric, value, samples]
        if row["state"] == "learning":
            continue
        assert samples == 3
        assert mean == pytest.approx(row["mean"])
        assert spread == pytest.approx(row["spread"])
        assert state == row["state"]
        if score is not None and math.isfinite(row["score"]):
            assert score == pytest.approx(row["score"])


# The report


@pytest.fixture(scope="module")
def data(page: Path) -> dict[str, Any]:
    """Return the data that Elementary has made from the answers."""
    found: dict[str, Any] = json.loads((page.parent / "elementary_output.json").read_text())
    return found


def latest(data: dict[str, Any], model: str) -> dict[str, dict[str, Any]]:
    """Test -> its last result."""
    found = data["test_results"][f"model.shop.{model}"]
    return {f"{t['metadata']['test_name']} {t['metadata']['test_sub_type']}": t for t in found}


def test_elementary_calls_exactly_the_answered_macros(
    story: Story, elementary: Path, tmp_path: Path
) -> None:
    """This fails for an Elementary that calls more macros, or reads other fields."""
    manifest = json.loads((story.project.folder / "target/manifest.json").read_text())
    given = answers(ReportFacts(manifest, (), (), (), (), "lake", datetime.now(UTC)))
    handed = tmp_path / "answers.json"
    handed.write_text(
        json.dumps({"answers": given, "database": "lake", "project": "shop", "env": "t", "days": 1})
    )
    script = Path(command.__file__).parent / "page.py"
    done = subprocess.run(
        [elementary, script, handed, tmp_path / "page.html"],
        capture_output=True,
        text=True,
        check=True,
    )
    asked = set(json.loads(done.stdout.splitlines()[-1]))
    # Elementary calls the last macro only for a filter by run.
    assert asked - {"get_elementary_database_and_schema"} == set(given) - {
        "get_test_last_invocation"
    }


def test_each_run_has_the_verdict_of_the_gate(data: dict[str, Any]) -> None:
    (runs,) = [one for one in data["model_runs"] if one["unique_id"] == ORDERS]
    assert [run["status"] for run in runs["runs"]] == ["success"] * 3 + ["error"]
    assert all(run["execution_time"] > 0 for run in runs["runs"])
    gate = latest(data, "orders")["gate generic"]
    assert gate["metadata"]["latest_run_status"] == "fail"
    assert "1 table rejected: test orders_volume failed" in gate["test_results"]["error_message"]
    (history,) = [
        one["test_runs"]
        for one in data["test_runs"][ORDERS]
        if one["metadata"]["test_name"] == "gate"
    ]
    assert [one["status"] for one in history["invocations"]] == ["pass"] * 3 + ["fail"]
    # Other tests may have runs of this project that have built nothing.
    assert set(data["invocations_job_identification"]) >= {"published", "partial"}


def test_a_metric_has_its_plot(data: dict[str, Any]) -> None:
    found = latest(data, "orders")["volume_anomalies row_count"]
    points = found["test_results"]["metrics"]
    assert [point["value"] for point in points] == [100, 101, 99, 10]
    assert (points[-1]["min_value"], points[-1]["max_value"]) == (95, 105)
    assert [point["is_anomalous"] for point in points] == [False] * 3 + [True]
    amounts = latest(data, "payments")
    assert amounts["column_anomalies null_share"]["metadata"]["latest_run_status"] == "fail"
    visits = latest(data, "visits")["schema_changes generic"]
    assert visits["test_results"]["result_description"] == "page was bigint and is string"


def test_stored_rows_are_shown_if_requested(data: dict[str, Any]) -> None:
    known = latest(data, "payments")["not_null generic"]
    assert known["metadata"]["latest_run_status"] == "warn"
    rows = known["test_results"]["results_sample"]
    assert [row["amount"] for row in rows] == [None] * 3


def test_owners_tags_lineage_and_coverage(data: dict[str, Any]) -> None:
    assert data["models"][ORDERS]["owners"] == ["Ann", "Bob"]
    assert data["models"][ORDERS]["tags"] == ["daily"]
    assert ["model.shop.calm", "model.shop.regions"] in data["lineage"]["edges"]
    assert data["coverages"]["model.shop.payments"] == {"table_tests": 0, "column_tests": 2}
    failed = next(one for one in data["filters"]["test_results"] if one["name"] == "failures")
    assert ORDERS in failed["model_unique_ids"]


def test_a_browser_shows_the_failed_tests(page: Path) -> None:
    texts = shown(page, "/report/test-results")
    at = texts.index("volume_anomalies")
    row = texts[at - 2 : at + 6]
    assert "orders" in row
    assert "Failure" in row
    assert "shop" in texts


def test_a_browser_shows_the_runs(page: Path) -> None:
    texts = shown(page, "/report/model-runs")
    at = texts.index("orders")
    assert "Error" in texts[at : at + 10]
    at = texts.index("calm")
    assert "Success" in texts[at : at + 10]


# This test is the last, because it adds a day.


def test_the_next_day_is_compared_only_with_good_days(story: Story) -> None:
    after = story.build(100).succeeded()
    assert set(after.verdicts.values()) and after.verdict("orders") == "published"
    volume = metrics(story, after.run_id)["orders row_count"]
    assert (volume["samples"], volume["mean"], volume["state"]) == (3, 100, "normal")
    assert len(story.look()["orders"].rows) == 100
