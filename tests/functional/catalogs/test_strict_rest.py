"""The gate on a REST server as strict as Lakekeeper and Apache Polaris (`helpers.strict_rest`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from functional.catalogs.test_rest import doctor, profile
from helpers.project import Outcome, Project
from helpers.rest import running_rest_server
from helpers.story import tell
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
    reader = load_catalog("lake", **catalog.server.properties)

    def change(project: Project) -> Outcome:
        """A schema change goes by a clone, where the server allows one."""
        changed = project.dbt("build", v=100)
        code, told = doctor(project, capsys)
        assert code == 0, told
        if not rules.structured:
            assert "ok        the catalog takes clones" in told
            return changed
        changed.failed()
        assert "orders cannot be cloned, because the catalog does not let" in changed.text
        assert reader.load_table((schema, "orders")).schema().column_names == ["id", "amount"]
        assert "warning   the catalog refuses clones of tables: 403" in told
        # The catalog's owner has let tables lie outside of their schema's folder.
        catalog.rules = replace(rules, structured=False)
        try:
            return project.dbt("build", v=100)
        finally:
            catalog.rules = rules

    how = "a sequential publish"
    tell(tmp_path, schema, output, reader, how=how, change=change, drops_schemas=False)
