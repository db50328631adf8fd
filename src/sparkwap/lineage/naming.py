"""The names of jobs and datasets, as other integrations of OpenLineage have them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

from sparkwap.lineage.model import Parent


def dataset_namespace(catalog: Mapping[str, str]) -> str:
    """Return the namespace of a catalog's tables, without secrets, by PyIceberg's properties.

    As for Spark, it is the address of a REST catalog, and otherwise the warehouse.
    """
    uri, warehouse = catalog.get("uri", ""), catalog.get("warehouse", "")
    if catalog.get("type") == "rest" or not warehouse:
        return _without_secrets(uri).rstrip("/")
    place = _without_secrets(warehouse).rstrip("/")
    if "://" not in place:
        return f"file:{place.removeprefix('file:')}"
    # OpenLineage writes s3a and s3n as s3, and local paths with one slash.
    scheme, rest = place.split("://", 1)
    if scheme == "file":
        return f"file:{rest}"
    return f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{rest}"


def job_namespace(environment: Mapping[str, str]) -> str:
    """Return the namespace of jobs: ``OPENLINEAGE_NAMESPACE``, or that of openlineage-dbt."""
    return environment.get("OPENLINEAGE_NAMESPACE") or "dbt"


def command_job(project: str, environment: Mapping[str, str]) -> str:
    """Return the name of the job of a dbt command, which is the same for all commands."""
    return environment.get("OPENLINEAGE_DBT_JOB_NAME") or f"dbt-run-{project}"


def parent(environment: Mapping[str, str]) -> Parent | None:
    """Return the run in ``OPENLINEAGE_PARENT_ID``, which schedulers set; None if there is none."""
    parts = environment.get("OPENLINEAGE_PARENT_ID", "").split("/")
    if len(parts) != 3 or not all(parts):
        return None
    namespace, job, run_id = parts
    try:
        return Parent(namespace, job, str(UUID(run_id)))
    except ValueError:
        return None


def tests_job(node_id: str) -> str:
    """Return the name of the job of a node's tests.

    The job that builds a node has its id as its name, as openlineage-dbt has with dbt's structured
    log. A command that publishes what another one has built thus ends the same job.
    """
    return f"{node_id}.test"


def _without_secrets(uri: str) -> str:
    parts = urlsplit(uri)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
