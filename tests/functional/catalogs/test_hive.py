"""The gate on a Hive metastore: Hive's own, of version 2.3, with a Spark server on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.hive_spark import HiveSparkServer, running_hive_server
from helpers.project import Project
from helpers.story import tell

from sparkwap.catalog.hive_client import Hive4Catalog


@pytest.fixture(scope="module")
def hive(tmp_path_factory: pytest.TempPathFactory, shared_jars: None) -> Iterator[HiveSparkServer]:
    with running_hive_server(tmp_path_factory.mktemp("hive")) as server:
        yield server


def test_the_gate_on_a_hive_metastore(hive: HiveSparkServer, tmp_path: Path) -> None:
    # PyIceberg's own catalog asks as Hive 3 does.
    reader = Hive4Catalog("lake", **hive.catalog)
    tell(tmp_path, "shop", hive.output, reader, how="a sequential publish")


def test_names_with_capital_letters_are_refused_before_anything_is_built(
    hive: HiveSparkServer, tmp_path: Path
) -> None:
    model = "{{ config(materialized='table', alias='Orders') }} select 1 as id"
    project = Project(tmp_path, "capitals", hive.output).write({"models/orders.sql": model})
    refused = project.dbt("build").failed()
    assert "capitals.Orders cannot be built: this catalog has names of lower case" in refused.text
    assert Hive4Catalog("lake", **hive.catalog).list_tables("capitals") == []
