"""The gate on a REST catalog (Iceberg's own test server), with multi-table commits and without.

A Spark server reaches it by ``catalog_uri``; readers reach it by PyIceberg. The server's
multi-table commit is not atomic, so that both forms go by the journal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.project import Project
from helpers.rest import RestServer, running_rest_server
from pyiceberg.catalog import load_catalog

from dbt.adapters.sparkwap import connections
from sparkwap import cli, server
from sparkwap.catalog.rest_backend import MULTI_TABLE

FILES = {
    "models/orders.sql": """
        {{ config(materialized='table') }}
        select id, id * {{ var('v') }} as amount {% if var('v') > 50 %}, 'x' as extra {% endif %}
        from range(1, 4)
    """,
    "models/totals.py": """
        def model(dbt, session):
            dbt.config(materialized="table")
            orders = dbt.ref("orders")
            return orders.groupBy().sum("amount").withColumnRenamed("sum(amount)", "total")
    """,
    "models/seen.sql": """
        {{ config(materialized='incremental', unique_key='id', incremental_strategy='merge') }}
        select id, amount from {{ ref('orders') }}
    """,
    "models/newest.sql": """
        {{ config(materialized='view') }} select max(id) as id from {{ ref('orders') }}
    """,
    "models/properties.yml": """
        models:
          - name: orders
            columns:
              - name: amount
                data_tests:
                  - not_null: {name: amounts_are_known}
                  - accepted_values: {name: amounts_are_small, values: [
                      1, 2, 3, 10, 20, 30, 100, 200, 300], quote: false}
          - name: totals
            columns: [{name: total, data_tests: [{not_null: {name: totals_are_known}}]}]
    """,
}


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


@pytest.mark.parametrize("together", ["true", pytest.param("false", marks=pytest.mark.smoke)])
def test_the_gate_on_a_rest_catalog(
    rest: tuple[RestServer, server.Endpoint], together: str, tmp_path: Path
) -> None:
    catalog, _ = rest
    schema = f"shop_{together}"
    project = Project(tmp_path, schema, profile(rest, together), {"v": 1}).write(FILES)
    reader = load_catalog("lake", **catalog.properties)

    def seen() -> tuple[list[str], int, int]:
        orders = reader.load_table((schema, "orders"))
        totals = reader.load_table((schema, "totals")).scan().to_arrow()["total"][0].as_py()
        ids = reader.load_table((schema, "seen")).scan().to_arrow().num_rows
        return orders.schema().column_names, totals, ids

    built = project.dbt("build", v=1).succeeded()
    assert "Published 4 tables in a sequential publish" in built.text
    assert seen() == (["id", "amount"], 6, 3)
    told = [json.loads(line) for line in (tmp_path / "target/sparkwap.jsonl").open()]
    events = [line["event"] for line in told if line["table"] == f"{schema}.orders"]
    assert events == ["begun", "placed", "built", "published"]
    assert {"opened", "decided", "verified", "closed"} <= {line["event"] for line in told}
    # An audit fails: nothing of the run is published.
    project.dbt("build", v=7).failed()
    assert seen() == (["id", "amount"], 6, 3)
    held = project.dbt("run", v=10).succeeded()
    assert held.verdict("totals") == "held"
    assert seen() == (["id", "amount"], 6, 3)
    project.dbt("test", v=10).succeeded()
    assert seen() == (["id", "amount"], 60, 3)
    # A schema change goes by a clone.
    changed = project.dbt("build", v=100).succeeded()
    assert seen() == (["id", "amount", "extra"], 600, 3)
    assert reader.view_exists((schema, "newest"))
    project.operation("wap_rollback", run=changed.run_id).succeeded()
    assert seen() == (["id", "amount"], 60, 3)
    # The rejected candidate waits on its branch; without it no side schema is left.
    for branch in project_branches(project):
        project.operation("wap_discard", branch=branch).succeeded()
    assert not [name for (name,) in reader.list_namespaces() if "__wap_" in name]


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
    project = Project(tmp_path, "dropped", output).write(FILES)
    refused = project.dbt("build", v=1).failed()
    assert "none of your tables was changed" in refused.text
    assert "landed on main" in refused.text
    reader = load_catalog("lake", **rest[0].properties)
    assert ("dropped",) not in reader.list_namespaces() or not reader.list_tables("dropped")
    code, told = doctor(project, capsys)
    assert code == 1, told
    assert "not safe  the server drops settings of SQL sessions" in told
    assert "landed on main" in told


def project_branches(project: Project) -> list[str]:
    """The open audit branches that `wap_status` tells of."""
    told = project.operation("wap_status").succeeded().text
    return [line.split()[0] for line in told.splitlines() if line.startswith("  wap_")]
