"""What the gate has decided, as Airflow shows it: task state, XCom `sparkwap`, events of assets."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.exceptions import AirflowException, AirflowSkipException
from cosmos import ProfileConfig
from cosmos.constants import InvocationMode

PROJECT = Path(os.environ.get("PROJECT", ".")).resolve()
PROFILES = Path(os.environ.get("DBT_PROFILES_DIR", PROJECT)).resolve() / "profiles.yml"
DBT = os.environ.get("DBT", "dbt")

PUBLISHED = AssetAlias("sparkwap")
"""Each published table is an event of the asset `sparkwap://<schema>/<table>`."""

PROFILE = ProfileConfig(
    profile_name=os.environ["PROFILE"],
    target_name=os.environ["TARGET"],
    profiles_yml_filepath=PROFILES,
)
DBT_COMMAND: dict[str, Any] = {
    # dbt and Airflow have an environment each.
    "dbt_executable_path": DBT,
    "invocation_mode": InvocationMode.SUBPROCESS,
    "install_deps": False,
    # Cosmos' own events say what dbt has built, which nobody reads until the gate publishes it.
    "emit_datasets": False,
}


def tell(folder: str, context: Any) -> None:
    """Read the end of the run; the callback of a command that publishes.

    Cosmos calls it when dbt has ended, in the copy of the project where dbt has run.

    Raises:
        AirflowSkipException: Nothing failed, but tables wait on their branch.
        AirflowException: The run was rejected, or did not come to its end.
    """
    file = Path(folder, "target", "sparkwap_results.json")
    if not file.exists():
        raise AirflowException("dbt ended before the run began; see its output above")
    document = json.loads(file.read_text())
    run = document["result"] or {}
    run = run.get("found") or run  # of a run-operation
    tables = run.get("tables", [])
    summary = {
        "outcome": document["outcome"],
        "run_id": run.get("run_id"),
        "branch": run.get("branch"),
        "publish_id": run.get("publish_id"),
        "tables": {one["table"]: one["outcome"] for one in tables},
        "reasons": {one["table"]: one["reasons"] for one in tables if one["reasons"]},
    }
    context["ti"].xcom_push(key="sparkwap", value=summary)
    for one in tables:
        if one["outcome"] == "published":
            asset = Asset(f"sparkwap://{one['table'].replace('.', '/')}")
            told = {"publish_id": run["publish_id"], "run_id": run["run_id"]}
            context["outlet_events"][PUBLISHED].add(asset, extra=told)
    if document["outcome"] == "held":
        raise AirflowSkipException(f"held on branch {run['branch']}: {summary['reasons']}")
    if document["exit_code"]:
        reason = document["message"] or summary["reasons"]
        raise AirflowException(f"{document['outcome']}: {reason}")
