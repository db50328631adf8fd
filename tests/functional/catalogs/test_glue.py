"""The gate on AWS Glue (moto, with the checks of the real one), with tables in an S3 store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.glue import GlueSparkServer, running_glue_server
from helpers.project import Project
from helpers.story import tell
from pyiceberg.catalog import load_catalog


@pytest.fixture(scope="module")
def glue(tmp_path_factory: pytest.TempPathFactory, shared_jars: None) -> Iterator[GlueSparkServer]:
    with running_glue_server(tmp_path_factory.mktemp("glue")) as server:
        yield server


def test_the_gate_on_glue(glue: GlueSparkServer, tmp_path: Path) -> None:
    reader = load_catalog("lake", **glue.catalog)
    tell(tmp_path, "shop", glue.output, reader, how="a sequential publish", views=False)


def test_a_view_is_refused_before_anything_is_built(glue: GlueSparkServer, tmp_path: Path) -> None:
    files = {
        "models/orders.sql": "{{ config(materialized='table') }} select 1 as id",
        "models/newest.sql": "{{ config(materialized='view') }} select * from {{ ref('orders') }}",
    }
    project = Project(tmp_path, "views", glue.output).write(files)
    refused = project.dbt("build").failed()
    assert "views.newest would be a view, and this catalog has no views" in refused.text
    assert load_catalog("lake", **glue.catalog).list_tables("views") == []
