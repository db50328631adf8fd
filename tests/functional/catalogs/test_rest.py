"""The gate on a REST catalog (Iceberg's own test server), with multi-table commits and without.

A Spark server reaches it by ``catalog_uri``; readers reach it by PyIceberg. The server's
multi-table commit is not atomic, so that both forms go by the journal.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.project import Project
from helpers.rest import RestServer, running_rest_server
from helpers.story import tell
from pyiceberg.catalog import load_catalog

from dbt.adapters.sparkwap import connections
from sparkwap import cli, server
from sparkwap.catalog.rest_backend import MULTI_TABLE

MODEL = {"models/orders.sql": "{{ config(materialized='table') }} select 1 as id"}


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory, shared_jars: None) -> Iterator[Any]:
    """The REST server, and an embedded Spark server on it."""
    folder = tmp_path_factory.mktemp("rest")
    with running_rest_server(folder) as catalog:
        lake = folder / ".lake"
        config = server.ServerConfig(lake=lake, memory="1g", catalog_uri=catalog.uri)
        endpoint = server.ensure(config, print)
        yield catalog, endpoint
        server.stop(lake)


@pytest.mark.parametrize("together", ["true", "false"])
def test_the_gate_on_a_rest_catalog(
    rest: tuple[RestServer, server.Endpoint], together: str, tmp_path: Path
) -> None:
    reader = load_catalog("lake", **rest[0].properties)
    output = profile(rest, together)
    tell(tmp_path, f"shop_{together}", output, reader, how="a sequential publish")


def profile(rest: tuple[RestServer, server.Endpoint], together: str = "true") -> dict[str, Any]:
    """The profile's output: both servers as they would be a user's own."""
    catalog, endpoint = rest
    return {
        "type": "sparkwap",
        "method": "thrift",
        "host": endpoint.host,
        "port": endpoint.thrift_port,
        "user": "dbt",
        "connect_url": endpoint.connect_url,
        "catalog": {**catalog.properties, MULTI_TABLE: together},
    }


def doctor(project: Project, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """What `sparkwap doctor` says of the project's target, and its exit code."""
    capsys.readouterr()
    code = cli.main(["doctor", "--project-dir", str(project.folder), "--target", "test"])
    return code, capsys.readouterr().out


def test_the_doctor_tells_what_holds_here(
    rest: tuple[RestServer, server.Endpoint], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = doctor(Project(tmp_path, "well", profile(rest, "false")), capsys)
    assert code == 0, told
    assert "ok        a row written on an audit branch stays there" in told
    assert "ok        SQL sessions keep their settings" in told
    assert "ok        Connect sessions keep their settings" in told
    assert "warning   the catalog commits one table at a time" in told
    assert "not safe" not in told
    # Its table is gone again.
    reader = load_catalog("lake", **rest[0].properties)
    assert not [n for _, n in reader.list_tables("wap_ledger") if n.startswith("probe_")]


def test_a_server_that_drops_settings_is_refused_before_the_first_table(
    rest: tuple[RestServer, server.Endpoint],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Spark's Thrift server drops all settings that come without this prefix.
    monkeypatch.setattr(connections, "CONF_PREFIX", "")
    # The address by another name, so that what was found safe before is not taken for this one.
    output = {**profile(rest), "host": "localhost"}
    project = Project(tmp_path, "dropped", output).write(MODEL)
    refused = project.dbt("build").failed()
    assert "none of your tables was changed" in refused.text
    assert "landed on main" in refused.text
    reader = load_catalog("lake", **rest[0].properties)
    assert ("dropped",) not in reader.list_namespaces() or not reader.list_tables("dropped")
    code, told = doctor(project, capsys)
    assert code == 1, told
    assert "not safe  the server drops settings of SQL sessions" in told
    assert "landed on main" in told
