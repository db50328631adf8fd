"""A separate lake with three people, in all places where personal data can be."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.catalogs import RunningCatalog, running_catalog
from helpers.lake import Reader, SparkReader
from helpers.people import SHOP, LakeFiles
from helpers.project import Project
from pyhive import hive

from sparkwap import server
from sparkwap.publish.lake import Lake

MEMORY = "1g"


@pytest.fixture(scope="module")
def catalog_of_people(
    tmp_path_factory: pytest.TempPathFactory, shared_jars: None
) -> Iterator[RunningCatalog]:
    """A catalog without tables of other lakes."""
    with running_catalog(tmp_path_factory.mktemp("people_catalog")) as catalog:
        yield catalog


@pytest.fixture(scope="module")
def people_config(
    catalog_of_people: RunningCatalog, tmp_path_factory: pytest.TempPathFactory
) -> server.ServerConfig:
    """The server of the people's lake."""
    lake = catalog_of_people.lake(tmp_path_factory.mktemp("people") / ".lake")
    return server.ServerConfig(lake=lake, memory=MEMORY, catalog_uri=catalog_of_people.uri)


@pytest.fixture(scope="module")
def lake_of_people(
    people_config: server.ServerConfig, catalog_of_people: RunningCatalog
) -> Iterator[Path]:
    """A separate lake, because the proof reads the whole lake."""
    catalog_of_people.endpoint(people_config)
    yield people_config.lake
    server.stop(people_config.lake)


@pytest.fixture
def people(
    lake_of_people: Path,
    people_config: server.ServerConfig,
    catalog_of_people: RunningCatalog,
    lake_files: LakeFiles,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Project]:
    """The shop, built twice: Anna has changed her e-mail address. Dropped after the test."""
    endpoint = catalog_of_people.endpoint(people_config)
    output = catalog_of_people.output(lake_of_people, MEMORY, endpoint)
    folder = tmp_path_factory.mktemp("shop")
    project = Project(folder, f"shop_{secrets.token_hex(2)}", output).write(SHOP)
    monkeypatch.setenv("ERASURE_V", "1")
    project.dbt("build").succeeded()
    monkeypatch.setenv("ERASURE_V", "2")
    project.dbt("build").succeeded()
    yield project
    lake = Lake("lake", catalog_of_people.properties(people_config))
    for schema in lake.schemas():
        if schema.startswith(project.schema):
            lake.drop_schema(schema, purge=True)
            lake_files.remove(schema)
    lake.close()


@pytest.fixture
def people_spark(
    lake_of_people: Path, people_config: server.ServerConfig, catalog_of_people: RunningCatalog
) -> Iterator[SparkReader]:
    """A plain Spark session on that lake."""

    def connect() -> hive.Connection:
        endpoint = catalog_of_people.endpoint(people_config)
        return hive.connect(endpoint.host, endpoint.thrift_port, username="reader", auth="NONE")

    session = SparkReader(connect)
    yield session
    session.close()


@pytest.fixture
def people_reader(lake_of_people: Path, catalog_of_people: RunningCatalog) -> Reader:
    """A reader of that lake."""
    return Reader(lake_of_people, catalog_of_people.source(lake_of_people))


@pytest.fixture
def lake_files(people_reader: Reader) -> LakeFiles:
    """The files of that lake."""
    return LakeFiles(people_reader.lake, people_reader.store)
