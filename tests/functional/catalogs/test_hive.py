"""The gate on a Hive metastore: Hive's own, with an embedded Spark server on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.hive import HiveServer, running_hive_metastore
from helpers.project import Project
from helpers.story import tell
from pyiceberg.catalog import load_catalog

from sparkwap import server


@pytest.fixture(scope="module")
def hive(
    tmp_path_factory: pytest.TempPathFactory, shared_jars: None
) -> Iterator[tuple[HiveServer, Path]]:
    """The metastore, and a lake with a server on it."""
    folder = tmp_path_factory.mktemp("hive")
    with running_hive_metastore(folder) as metastore:
        lake = folder / ".lake"
        config = server.ServerConfig(lake=lake, memory="1g", catalog_uri=metastore.uri)
        server.ensure(config, print)
        yield metastore, lake
        server.stop(lake)


def output(hive: tuple[HiveServer, Path]) -> dict[str, str]:
    metastore, lake = hive
    return {
        "type": "sparkwap",
        "lake": str(lake),
        "memory": "1g",
        "catalog_uri": metastore.uri,
    }


def test_the_gate_on_a_hive_metastore(hive: tuple[HiveServer, Path], tmp_path: Path) -> None:
    metastore, lake = hive
    where = {**metastore.properties, "warehouse": f"file://{lake}/warehouse"}
    reader = load_catalog("lake", **where)
    tell(tmp_path, "shop", output(hive), reader, how="a sequential publish")


def test_names_with_capital_letters_are_refused_before_anything_is_built(
    hive: tuple[HiveServer, Path], tmp_path: Path
) -> None:
    model = "{{ config(materialized='table', alias='Orders') }} select 1 as id"
    project = Project(tmp_path, "capitals", output(hive)).write({"models/orders.sql": model})
    refused = project.dbt("build").failed()
    assert "capitals.Orders has capital letters" in refused.text
    assert load_catalog("lake", **hive[0].properties).list_tables("capitals") == []
