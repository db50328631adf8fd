"""Answers about runs: invocations, and the builds of each table with the verdicts of the gate."""

from __future__ import annotations

from sparkwap.report.facts import Answer, ReportFacts, Row, iso

TEST_STATUSES = {"published": "pass", "held": "warn", "rejected": "fail"}
"""Verdicts as the statuses of a test on the page."""

# The page has no other statuses for the run of a model.
_RUN_STATUSES = {"published": "success", "held": "partial success", "rejected": "error"}


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
