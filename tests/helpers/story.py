"""One short story of the gate, which the tests of each kind of catalog tell: what readers see."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog

from helpers.project import Outcome, Project

_FILES = {
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
_VIEW = {
    "models/newest.sql": """
        {{ config(materialized='view') }} select max(id) as id from {{ ref('orders') }}
    """
}


def tell(
    folder: Path,
    schema: str,
    output: dict[str, Any],
    reader: Catalog,
    *,
    how: str,
    views: bool = True,
    change: Callable[[Project], Outcome] = lambda project: project.dbt("build", v=100),
    drops_schemas: bool = True,
) -> None:
    """Build, reject, hold and audit, change columns, roll back and discard; check each by a reader.

    Args:
        folder: An empty folder for the project.
        schema: A free name.
        output: The profile's output.
        reader: The catalog, by PyIceberg.
        how: How the summary calls a publish, such as ``one transaction``.
        views: Whether the catalog has views.
        change: Builds with ``v`` 100, which adds a column.
        drops_schemas: Whether the catalog drops a schema whose tables have been dropped.
    """
    files = {**_FILES, **(_VIEW if views else {})}
    project = Project(folder, schema, output, {"v": 1}).write(files)

    def seen() -> tuple[list[str], int, int]:
        orders = reader.load_table((schema, "orders"))
        totals = reader.load_table((schema, "totals")).scan().to_arrow()["total"][0].as_py()
        ids = reader.load_table((schema, "seen")).scan().to_arrow().num_rows
        return orders.schema().column_names, totals, ids

    built = project.dbt("build", v=1).succeeded()
    assert f"Published {3 + views} tables in {how}" in built.text
    assert seen() == (["id", "amount"], 6, 3)
    told = [json.loads(line) for line in (folder / "target/sparkwap.jsonl").open()]
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
    changed = change(project).succeeded()
    assert seen() == (["id", "amount", "extra"], 600, 3)
    project.operation("wap_rollback", run=changed.run_id).succeeded()
    assert seen() == (["id", "amount"], 60, 3)
    # PyIceberg knows views of REST catalogs only.
    assert not isinstance(reader, RestCatalog) or reader.view_exists((schema, "newest"))
    # The rejected candidate waits on its branch; without it no side schema is left.
    for branch in open_branches(project):
        project.operation("wap_discard", branch=branch).succeeded()
    assert open_branches(project) == []
    assert seen() == (["id", "amount"], 60, 3)
    left = [name for (name,) in reader.list_namespaces() if "__wap_" in name]
    assert not drops_schemas or not left


def open_branches(project: Project) -> list[str]:
    """The open audit branches that `wap_status` tells of."""
    told = project.operation("wap_status").succeeded().text
    return [line.split()[0] for line in told.splitlines() if line.startswith("  wap_")]
