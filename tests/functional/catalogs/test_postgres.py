"""A lake whose catalog is in PostgreSQL, and a server that is already there.

One test for both: an embedded server on a PostgreSQL catalog is reached by ``method: thrift``, as
a cluster's would be. Only the profile differs from the other tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from helpers.postgres import running_postgres
from helpers.project import Project
from helpers.story import tell
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import text

from sparkwap import server


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Any], SqlCatalog]]:
    """A profile's output for a running server, and a reader's catalog."""
    with running_postgres() as database:
        lake = tmp_path_factory.mktemp("pg") / ".lake"
        config = server.ServerConfig(lake=lake, memory="1g", catalog_uri=database.uri)
        endpoint = server.ensure(config, print)
        catalog = {key: str(value) for key, value in server.catalog_properties(config).items()}
        output = {
            "type": "sparkwap",
            "method": "thrift",
            "host": endpoint.host,
            "port": endpoint.thrift_port,
            "user": "dbt",
            "connect_url": endpoint.connect_url,
            "catalog": catalog,
        }
        yield output, SqlCatalog("lake", uri=database.uri, warehouse=catalog["warehouse"])
        server.stop(lake)


def test_the_gate_on_postgresql_and_a_server_that_is_there(
    remote: tuple[dict[str, Any], SqlCatalog], tmp_path: Path
) -> None:
    output, reader = remote
    tell(tmp_path, "shop", output, reader, how="one transaction")
    # Iceberg's own tables only.
    assert set(reader.list_namespaces()) == {("default",), ("shop",), ("wap_ledger",)}


def test_a_person_is_erased_on_postgresql(
    remote: tuple[dict[str, Any], SqlCatalog], tmp_path: Path
) -> None:
    output, reader = remote
    files = {
        "models/people.sql": """
            {{ config(materialized='table') }}
            select * from values (41, 'bo@mail.example'), (42, '{{ var("email") }}')
                as people(id, email)
        """,
        "models/properties.yml": """
            models:
              - name: people
                columns:
                  - {name: id, config: {meta: {subject: person}}}
                  - {name: email, config: {meta: {personal: person}}}
        """,
    }
    project = Project(tmp_path, "club", output).write(files)
    project.dbt("build", email="anna@mail.example").succeeded()
    project.dbt("build", email="anna@new.example").succeeded()
    done = project.operation("wap_erase", subject="person", keys=["42"], confirm=True).succeeded()
    assert "none holds the subject" in done.text
    table = reader.load_table("club.people")
    assert table.scan().to_arrow()["id"].to_pylist() == [41]
    assert len(table.snapshots()) == 1
    left = list((Path(output["catalog"]["warehouse"].removeprefix("file:")) / "club").rglob("*"))
    data = [pq.read_table(path, partitioning=None) for path in left if path.suffix == ".parquet"]
    assert {email for one in data for email in one["email"].to_pylist()} == {"bo@mail.example"}
    with reader.engine.connect() as database:
        former = text(
            "select previous_metadata_location from iceberg_tables where table_name = 'people'"
        )
        assert database.execute(former).scalar_one() is None
