"""A gated dbt project as Dagster assets: an asset is materialized when its table is published.

    PROJECT=/srv/lake DBT=/srv/lake/.venv/bin/dbt dagster dev -f definitions.py

| the table is | in Dagster |
|---|---|
| published | a materialization, with the id of the publish and the branch |
| held | an observation that says why; what comes after it is skipped |
| rejected | an observation that says why; the run fails |
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_dbt import DbtCliResource, DbtProject, dbt_assets

PROJECT = Path(os.environ.get("PROJECT", ".")).resolve()
dbt_project = DbtProject(PROJECT, profiles_dir=os.environ.get("DBT_PROFILES_DIR", PROJECT))
dbt_resource = DbtCliResource(dbt_project, dbt_executable=os.environ.get("DBT", "dbt"))

if not dbt_project.manifest_path.exists():
    dbt_resource.cli(["parse"], target_path=dbt_project.manifest_path.parent).wait()


def verdicts(build: Any) -> dict[str, Any]:
    """What the gate has left beside dbt's own results.

    Raises:
        Failure: dbt ended before its run began.
    """
    file = build.target_path / "sparkwap_results.json"
    if not file.exists():
        raise build.get_error() or dg.Failure("dbt has left no results of the gate")
    document: dict[str, Any] = json.loads(file.read_text())
    return document


@dbt_assets(manifest=dbt_project.manifest_path, project=dbt_project, name="lake")
def lake(context: dg.AssetExecutionContext, dbt: DbtCliResource) -> Iterator[Any]:
    """Build, audit and publish; tell Dagster what the gate has decided."""
    build = dbt.cli(["build"], context=context, raise_on_error=False)
    # A model that dbt has built is on a branch. So its events wait until the gate has decided.
    events = list(build.stream())
    built = {e.metadata["unique_id"].value: e for e in events if isinstance(e, dg.Output)}
    document = verdicts(build)
    run = document["result"] or {"tables": []}
    unpublished = []
    for table in run["tables"]:
        node = build.manifest["nodes"].get(table["node_id"], {})
        if node.get("resource_type") not in ("model", "seed", "snapshot"):
            continue  # stored failures of a test, which are no asset
        key = build.dagster_dbt_translator.get_asset_key(node)
        told = {
            "verdict": table["outcome"],
            "table": table["table"],
            "tests": f"{table['tests_passed']}/{table['tests_expected']}",
            "branch": run["branch"],
            "run_id": run["run_id"],
        }
        if table["outcome"] == "published":
            more = built[table["node_id"]].metadata if table["node_id"] in built else {}
            metadata = {**more, **told, "publish_id": run["publish_id"]}
            # A run that goes on with a branch publishes all of it, also what was not selected.
            selected = key in context.selected_asset_keys
            event = dg.MaterializeResult if selected else dg.AssetMaterialization
            yield event(asset_key=key, metadata=metadata)
        else:
            unpublished.append(
                f"{table['table']} {table['outcome']}: {', '.join(table['reasons'])}"
            )
            yield dg.AssetObservation(key, description=unpublished[-1], metadata=told)
    # Tests are asset checks; those of a published table come after its materialization.
    yield from (event for event in events if not isinstance(event, dg.Output))
    if document["outcome"] not in ("published", "done", "held"):
        raise dg.Failure("; ".join(unpublished) or document["message"] or document["outcome"])
    if error := build.get_error():
        raise error
    for line in unpublished:
        context.log.warning(line)


job = dg.define_asset_job("lake_job", selection=[lake])
defs = dg.Definitions(
    assets=[lake],
    jobs=[job],
    schedules=[dg.ScheduleDefinition(job=job, cron_schedule="0 * * * *")],
    resources={"dbt": dbt_resource},
)
