"""Sessions are kept for the whole of a run; what they read is what is there by then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.catalogs import RunningCatalog
from helpers.lake import SparkReader
from helpers.project import MakeProject
from pyhive import hive

from sparkwap import server

Log = Any
KEEP = {"spark.sql.catalog.lake.cache-enabled": "true"}
SQL = "{{{{ config(materialized='table') }}}} select count(*) as n from {0}.log -- after {1}"
PYTHON = """
    def model(dbt, session):
        dbt.config(materialized="table")
        {1}
        return session.sql("select count(*) as n from {0}.log")
"""


@pytest.fixture
def session(
    running: RunningCatalog, config: server.ServerConfig
) -> Iterator[Callable[[dict[str, str]], SparkReader]]:
    """Opens sessions that are no run's, with settings."""
    endpoint, opened = running.endpoint(config), []

    def open_one(settings: dict[str, str]) -> SparkReader:
        configuration = {f"set:hiveconf:{key}": value for key, value in settings.items()}
        opened.append(
            SparkReader(
                lambda: hive.connect(
                    endpoint.host,
                    endpoint.thrift_port,
                    username="reader",
                    auth="NONE",
                    configuration=configuration,
                )
            )
        )
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def test_a_run_reads_main_as_it_is_whatever_the_server_keeps(
    log: Log, make_project: MakeProject, session: Callable[[dict[str, str]], SparkReader]
) -> None:
    schema = log.project.schema
    files = {
        "models/sql_1.sql": SQL.format(schema, "none"),
        "models/sql_2.sql": SQL.format(schema, "{{ ref('sql_1') }}"),
        "models/py_1.py": PYTHON.format(schema, "dbt.ref('sql_2')"),
        "models/py_2.py": PYTHON.format(schema, "dbt.ref('py_1')"),
    }
    # One thread: one session for SQL, and one for Python.
    output = {"server_side_parameters": KEEP, "threads": 1}
    project = make_project("caches", files, output=output)
    other = replace(log, project=project)
    keeping, query = session(KEEP), f"select count(*) from {schema}.log"
    before = len(log.entries())
    keeping.rows(f"cache table {schema}.log")
    assert keeping.rows(query) == [(before,)]
    with other.when("sql_1", lambda: log.append(700)), other.when("py_1", lambda: log.append(701)):
        project.dbt("build").succeeded()
    found = [reader_value(log, project.schema, name) for name in files]
    assert found == [before, before + 1, before + 1, before + 2]
    # This is what it would have read otherwise; what a session caches is its own affair.
    assert keeping.rows(query) == [(before,)]


def reader_value(log: Log, schema: str, path: str) -> int:
    (n,) = log.reader.table(schema, Path(path).stem).values("n")
    return int(n)
