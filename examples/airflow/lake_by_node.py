"""A gated dbt project with a task for each node: they share a branch, which the last publishes.

    dbt parse                                # in PROJECT, after each change: the tasks come from it
    PROJECT=/srv/lake PROFILE=shop TARGET=prod DBT=/srv/lake/.venv/bin/dbt \\
        airflow dags test lake_by_node

Each task is a dbt command of its own. By itself, `dbt run` leaves a table held on a new branch,
where no other task looks for it: all tasks would succeed, and publish nothing. Here the success of
a node's task says: built on the branch. That of the tests says: all passed there. And that of
`publish` says: on main, all tables or none.
"""

from __future__ import annotations

from datetime import datetime

from airflow.sdk import DAG
from cosmos import DbtTaskGroup, ExecutionConfig, ProjectConfig, RenderConfig
from cosmos.constants import LoadMode, TestBehavior
from cosmos.operators.local import DbtRunOperationLocalOperator
from verdicts import DBT_COMMAND, PROFILE, PROJECT, PUBLISHED, tell

command = dict(DBT_COMMAND)
# The same for all tasks of a DAG run, also for those that are cleared and run again.
BRANCH = "airflow_{{ dag_run.run_after.strftime('%Y%m%d_%H%M%S_%f') }}"

with DAG(
    "lake_by_node",
    schedule=None,
    start_date=datetime(2024, 1, 1),
    max_active_runs=1,
    # Two commands at a time on one branch would judge each other's unfinished tables.
    max_active_tasks=1,
):
    nodes = DbtTaskGroup(
        group_id="nodes",
        project_config=ProjectConfig(PROJECT, manifest_path=PROJECT / "target" / "manifest.json"),
        profile_config=PROFILE,
        render_config=RenderConfig(
            load_method=LoadMode.DBT_MANIFEST,
            emit_datasets=False,
            # A test may read several tables: right after the first, it would find the others old.
            test_behavior=TestBehavior.AFTER_ALL,
        ),
        execution_config=ExecutionConfig(
            dbt_executable_path=command.pop("dbt_executable_path"),
            invocation_mode=command.pop("invocation_mode"),
        ),
        operator_args={
            **command,
            "env": {"SPARKWAP_BRANCH": BRANCH, "SPARKWAP_PUBLISH": "never"},
        },
    )
    nodes >> DbtRunOperationLocalOperator(
        task_id="publish",
        macro_name="wap_publish",
        args={"branch": BRANCH},
        project_dir=str(PROJECT),
        profile_config=PROFILE,
        callback=tell,
        outlets=[PUBLISHED],
        **DBT_COMMAND,
    )
