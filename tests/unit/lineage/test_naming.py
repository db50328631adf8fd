"""Names of datasets and jobs are those of other integrations, and without secrets."""

from __future__ import annotations

import pytest

from sparkwap.lineage import naming
from sparkwap.lineage.model import Parent

RUN = "11111111-1111-4111-8111-111111111111"


@pytest.mark.parametrize(
    ("catalog", "namespace"),
    [
        ({"type": "sql", "uri": "sqlite:///x", "warehouse": "file:///lake/w"}, "file:/lake/w"),
        ({"type": "sql", "warehouse": "/lake/w"}, "file:/lake/w"),
        ({"type": "sql", "warehouse": "s3a://bucket/w/"}, "s3://bucket/w"),
        ({"type": "sql", "warehouse": "gs://bucket/w?key=x"}, "gs://bucket/w"),
        ({"type": "rest", "uri": "https://u:p@rest:8181/x/", "warehouse": "w"},
         "https://rest:8181/x"),
        ({"type": "sql", "uri": "postgresql+psycopg2://dbt:secret@db:5432/lake"},
         "postgresql+psycopg2://db:5432/lake"),
    ],
)  # fmt: skip
def test_the_namespace_of_datasets(catalog: dict[str, str], namespace: str) -> None:
    assert naming.dataset_namespace(catalog) == namespace


def test_the_environment_names_jobs() -> None:
    assert naming.job_namespace({}) == "dbt"
    assert naming.job_namespace({"OPENLINEAGE_NAMESPACE": "prod"}) == "prod"
    assert naming.command_job("shop", {}) == "dbt-run-shop"
    assert naming.tests_job("model.shop.orders") == "model.shop.orders.test"
    assert naming.command_job("shop", {"OPENLINEAGE_DBT_JOB_NAME": "nightly"}) == "nightly"


@pytest.mark.parametrize(
    ("given", "parent"),
    [
        (f"airflow/nightly.dbt/{RUN}", Parent("airflow", "nightly.dbt", RUN)),
        ("airflow/nightly/not-an-id", None),
        (f"airflow//{RUN}", None),
        ("", None),
    ],
)
def test_the_run_of_a_scheduler(given: str, parent: Parent | None) -> None:
    assert naming.parent({"OPENLINEAGE_PARENT_ID": given}) == parent
