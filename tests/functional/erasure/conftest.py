"""A separate lake with three people, in all places where personal data can be."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.catalogs import RunningCatalog, running_catalog
from helpers.lake import Reader, SparkReader
from helpers.project import Project
from pyhive import hive

from sparkwap import server
from sparkwap.publish.lake import Lake

MEMORY = "1g"
ANNA = "anna.berg@mail.example"
FORMER = "anna.former@mail.example"
BO = "bo.lund@mail.example"

FILES = {
    "models/raw_shop__customers.sql": """
        {{ config(materialized='table') }}
        select cast(null as string) as customer_id, cast(null as string) as email,
            'one.csv' as _file_path, cast(null as bigint) as _row, 'file' as _kind,
            cast(null as string) as _raw, cast(5 as bigint) as _file_rows
        union all
        select id, email, 'one.csv', row, kind, raw, null
        from values
            ('41', 'bo.lund@mail.example', 1, 'row', null),
            ('42', 'anna.berg@mail.example', 2, 'row', null),
            ('43', 'cleo@mail.example', 3, 'row', null),
            (null, null, 4, 'bad', '42;anna.berg@mail'),
            (null, null, 5, 'bad', '43;cleo;;;')
            as rows(id, email, row, kind, raw)
    """,
    "models/quarantine_shop__customers.sql": """
        {{ config(materialized='table') }}
        select _file_path as file_path, _row as line, 'wrong' as reason, _raw as raw_text
        from {{ ref('raw_shop__customers') }} where _kind = 'bad'
    """,
    "models/stg_shop__customers.sql": """
        {{ config(materialized='table', partition_by='city') }}
        select cast(customer_id as bigint) as customer_id,
            {% if env_var('ERASURE_V', '1') == '1' %}
            replace(email, 'anna.berg', 'anna.former') as email,
            {% else %}
            email,
            {% endif %}
            if(customer_id = '43', 'Bergen', 'Oslo') as city
        from {{ ref('raw_shop__customers') }} where _kind = 'row'
    """,
    "snapshots/snp_shop__customers.yml": """
        snapshots:
          - name: snp_shop__customers
            relation: ref('stg_shop__customers')
            config: {unique_key: customer_id, strategy: check, check_cols: all}
            columns:
              - {name: customer_id, config: {meta: {subject: customer}}}
              - {name: email, config: {meta: {personal: customer}}}
    """,
    "models/fct_visits.sql": """
        {{ config(materialized='table') }}
        select customer_id, count(email) as visits from {{ ref('stg_shop__customers') }}
        group by customer_id
    """,
    "models/totals.sql": """
        {{ config(materialized='table') }}
        select count(customer_id) as customers, 42 as amount
        from {{ ref('stg_shop__customers') }}
    """,
    "models/properties.yml": """
        models:
          - name: raw_shop__customers
            columns:
              - {name: customer_id, config: {meta: {subject: customer}}}
              - {name: email, config: {meta: {personal: customer}}}
          - name: stg_shop__customers
            columns:
              - name: customer_id
                config: {meta: {subject: customer}}
                data_tests: [not_null]
              - name: email
                config: {meta: {personal: customer}}
                data_tests:
                  - unique:
                      config: {store_failures: true}
                  - accepted_values:
                      arguments: {values: ['cleo@mail.example']}
                      config: {store_failures: true, severity: warn}
              - {name: city, config: {meta: {personal: customer}}}
          - name: fct_visits
            columns:
              - {name: customer_id, config: {meta: {subject: customer, on_erase: clear}}}
    """,
}


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
    lake = tmp_path_factory.mktemp("people") / ".lake"
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
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Project]:
    """The shop, built twice: Anna has changed her e-mail address. Dropped after the test."""
    endpoint = catalog_of_people.endpoint(people_config)
    output = catalog_of_people.output(lake_of_people, MEMORY, endpoint)
    folder = tmp_path_factory.mktemp("shop")
    project = Project(folder, f"shop_{secrets.token_hex(2)}", output).write(FILES)
    monkeypatch.setenv("ERASURE_V", "1")
    project.dbt("build").succeeded()
    monkeypatch.setenv("ERASURE_V", "2")
    project.dbt("build").succeeded()
    yield project
    lake = Lake("lake", catalog_of_people.properties(people_config))
    for schema in lake.schemas():
        if schema.startswith(project.schema):
            lake.drop_schema(schema, purge=True)
            shutil.rmtree(lake_of_people / "warehouse" / schema, ignore_errors=True)
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
