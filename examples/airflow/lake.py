"""A gated dbt project as one task: all of its tables are published at once, or none.

    PROJECT=/srv/lake PROFILE=shop TARGET=prod DBT=/srv/lake/.venv/bin/dbt airflow dags test lake

| the run is | task `build` | assets |
|---|---|---|
| published | success | an event for each table, with the id of the publish |
| held | skipped, and so is what comes after it | none |
| rejected, or dead | failed, after a second try | none |
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta

from airflow.sdk import DAG
from cosmos.operators.local import DbtBuildLocalOperator
from verdicts import DBT_COMMAND, PROFILE, PROJECT, PUBLISHED, tell

with DAG(
    "lake",
    schedule="@hourly",
    start_date=datetime(2024, 1, 1),
    catchup=False,
    max_active_runs=1,
):
    DbtBuildLocalOperator(
        task_id="build",
        project_dir=str(PROJECT),
        profile_config=PROFILE,
        callback=tell,
        outlets=[PUBLISHED],
        retries=1,
        retry_delay=timedelta(seconds=float(os.environ.get("RETRY_DELAY", "300"))),
        **DBT_COMMAND,
    )
