"""The gate on a REST server as strict as Lakekeeper and Apache Polaris (`helpers.strict_rest`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from functional.catalogs.test_rest import FILES, doctor, profile, project_branches
from helpers.project import Project
from helpers.rest import running_rest_server
from helpers.strict_rest import (
    LAKEKEEPER_SOFT,
    POLARIS,
    POLARIS_OPTIMIZED,
    Rules,
    StrictServer,
    running_strict_server,
)
from pyiceberg.catalog import load_catalog

from sparkwap import server


@pytest.fixture(scope="module")
def strict(
    tmp_path_factory: pytest.TempPathFactory, shared_jars: None
) -> Iterator[tuple[StrictServer, server.Endpoint]]:
    """The strict server, and an embedded Spark server on it."""
    folder = tmp_path_factory.mktemp("rest")
    with running_rest_server(folder) as behind, running_strict_server(behind) as catalog:
        lake = folder / ".lake"
        config = server.ServerConfig(lake=lake, memory="1g", catalog_uri=catalog.server.uri)
        endpoint = server.ensure(config, print)
        yield catalog, endpoint
        server.stop(lake)


@pytest.mark.parametrize(
    "rules",
    [LAKEKEEPER_SOFT, POLARIS, POLARIS_OPTIMIZED],
    ids=["lakekeeper", "polaris", "polaris_optimized"],
)
def test_the_gate_on_a_strict_catalog(
    strict: tuple[StrictServer, server.Endpoint],
    rules: Rules,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    catalog, endpoint = strict
    catalog.reset(rules)
    schema = f"shop_{request.node.callspec.id}"
    output: dict[str, Any] = profile((catalog.server, endpoint))
    project = Project(tmp_path, schema, output, {"v": 1}).write(FILES)
    reader = load_catalog("lake", **catalog.server.properties)

    def seen() -> tuple[list[str], int, int]:
        orders = reader.load_table((schema, "orders"))
        totals = reader.load_table((schema, "totals")).scan().to_arrow()["total"][0].as_py()
        ids = reader.load_table((schema, "seen")).scan().to_arrow().num_rows
        return orders.schema().column_names, totals, ids

    project.dbt("build", v=1).succeeded()
    assert seen() == (["id", "amount"], 6, 3)
    # An audit fails: nothing of the run is published.
    project.dbt("build", v=7).failed()
    assert seen() == (["id", "amount"], 6, 3)
    held = project.dbt("run", v=10).succeeded()
    assert held.verdict("totals") == "held"
    assert seen() == (["id", "amount"], 6, 3)
    project.dbt("test", v=10).succeeded()
    assert seen() == (["id", "amount"], 60, 3)
    # A schema change goes by a clone, where the server allows one.
    changed = project.dbt("build", v=100)
    code, told = doctor(project, capsys)
    assert code == 0, told
    if rules.structured:
        changed.failed()
        assert "orders cannot be cloned, because the catalog does not let" in changed.text
        assert seen() == (["id", "amount"], 60, 3)
        assert "warning   the catalog refuses clones of tables: 403" in told
        # The catalog's owner has let tables lie outside of their schema's folder.
        catalog.rules = replace(rules, structured=False)
        changed = project.dbt("build", v=100)
        catalog.rules = rules
    else:
        assert "ok        the catalog takes clones" in told
    changed.succeeded()
    assert seen() == (["id", "amount", "extra"], 600, 3)
    project.operation("wap_rollback", run=changed.run_id).succeeded()
    assert seen() == (["id", "amount"], 60, 3)
    assert reader.view_exists((schema, "newest"))
    for branch in project_branches(project):
        project.operation("wap_discard", branch=branch).succeeded()
    assert project_branches(project) == []
    assert seen() == (["id", "amount"], 60, 3)
