"""Two dbt projects of two teams in one lake, one of which reads the tables of the other."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from helpers.lake import Reader
from helpers.project import MakeProject, Outcome, Project

from sparkwap.core import command_end

from .conftest import when_built

MINUTES = 5 * 60
ORDERS = {
    "models/orders.sql": """
        {{ config(materialized='table') }}
        select id, {{ env_var('AMOUNT', '1') }} as amount from range(3)
    """,
    "models/late.sql": """
        {{ config(materialized='table') }} select count(*) as entries from {{ ref('orders') }}
    """,
    "models/properties.yml": """
        models:
          - name: orders
            columns: [{name: amount, data_tests: [not_null]}]
    """,
}
MARTS = {
    "models/totals.sql": """
        {{ config(materialized='table') }}
        select sum(amount) as total from {{ source('sales', 'orders') }}
    """,
    "models/averages.sql": """
        {{ config(materialized='table', schema='marts') }}
        select avg(amount) as average from {{ source('sales', 'orders') }}
    """,
    "models/properties.yml": """
        sources:
          - name: sales
            schema: "{{ target.schema }}"
            tables: [{name: orders, columns: [{name: id, data_tests: [unique]}]}]
        models:
          - name: totals
            columns: [{name: total, data_tests: [not_null]}]
    """,
}


@dataclass
class Teams:
    """The project ``sales``, the project ``finance`` that reads its table, and a reader."""

    sales: Project
    finance: Project
    reader: Reader

    def value(self, table: str) -> list[Any]:
        """Return the rows of a table of main."""
        schema = f"{self.sales.schema}{'_marts' if table == 'averages' else ''}"
        columns = {"orders": "amount", "totals": "total", "averages": "average"}
        return self.reader.table(schema, table).values(columns[table])


@pytest.fixture
def teams(make_project: MakeProject, reader: Reader, tmp_path: Path) -> Teams:
    sales = make_project("teams", ORDERS, settings={"name": "sales"})
    # Other tables in the same schema, and one in a schema of its own.
    finance = replace(sales, folder=tmp_path, settings={"name": "finance"}, listeners=[])
    teams = Teams(sales, finance.write(MARTS), reader)
    sales.dbt("build").succeeded()
    teams.finance.dbt("build").succeeded()
    return teams


def elsewhere(project: Project, *arguments: str) -> dict[str, Any]:
    """Run a command in another process; returns the document that it leaves."""
    process = project.start(*arguments)
    assert process.wait(MINUTES) == 0, project.errors.read_text()
    found = command_end.read(project.document)
    assert found is not None
    return found


def branches(project: Project, name: str) -> dict[str, Any]:
    """Return what ``wap_status`` tells of each branch of another project."""
    told = elsewhere(project, "run-operation", "wap_status")["result"]["found"]["branches"]
    return {one["branch"]: one for one in told if one["project"] in (name, None)}


def during(project: Project, node: str, action: Callable[[], None], *command: str) -> Outcome:
    with when_built(project, node, action):
        return project.dbt(*command)


def test_each_continues_and_publishes_its_own(teams: Teams, monkeypatch: Any) -> None:
    monkeypatch.setenv("AMOUNT", "2")
    sales = teams.sales.dbt("run").succeeded()
    finance = teams.finance.dbt("run").succeeded()
    assert {sales.verdict("orders"), finance.verdict("totals")} == {"held"}
    # Both see both branches, and whose they are.
    for project in (teams.sales, teams.finance):
        shown = project.operation("wap_status").succeeded().text
        assert f"  {sales.branch}   2 tables" in shown
        assert "last run: project sales" in shown
        assert "last run: project finance" in shown
    # Each continues on its own branch by itself, and publishes that alone.
    assert teams.finance.dbt("test").succeeded().branch == finance.branch
    assert (teams.value("orders"), teams.value("totals")) == ([1, 1, 1], [3])
    assert teams.sales.dbt("test").succeeded().branch == sales.branch
    assert (teams.value("orders"), teams.value("totals")) == ([2, 2, 2], [3])
    teams.finance.dbt("build").succeeded()
    assert (teams.value("totals"), teams.value("averages")) == ([6], [2.0])


def test_runs_at_the_same_time(teams: Teams, monkeypatch: Any) -> None:
    monkeypatch.setenv("AMOUNT", "3")
    seen: dict[str, Any] = {}

    def meanwhile() -> None:
        seen["build"] = elsewhere(teams.finance, "build")
        arguments = json.dumps({"older_than": 0, "named_older_than": 0})
        seen["sweep"] = elsewhere(teams.finance, "run-operation", "wap_sweep", "--args", arguments)
        seen["status"] = branches(teams.finance, "sales")
        # What is not published is not read.
        assert (teams.value("orders"), teams.value("totals")) == ([1, 1, 1], [3])

    ended = during(teams.sales, "orders", meanwhile, "build").succeeded()
    assert seen["build"]["outcome"] == "published"
    assert seen["status"][ended.branch]["in_use"]
    assert ended.branch not in seen["sweep"]["result"]["found"]["branches"]
    assert teams.value("orders") == [3, 3, 3]
    runs = {row["run_id"]: row for row in teams.reader.ledger("runs")}
    inner, outer = runs[seen["build"]["result"]["run_id"]], runs[ended.run_id]
    assert (inner["project"], outer["project"]) == ("finance", "sales")
    assert outer["started_at"] < inner["started_at"] < inner["ended_at"] < outer["ended_at"]


def test_a_read_table_that_the_other_project_publishes_meanwhile(
    teams: Teams, monkeypatch: Any
) -> None:
    monkeypatch.setenv("AMOUNT", "4")

    def meanwhile() -> None:
        elsewhere(teams.sales, "build")

    with when_built(teams.finance, "totals", meanwhile):
        told = teams.finance.dbt("build").succeeded()
    # A warning is the default: the totals are of the state that they have read.
    assert "orders was read at" in told.text
    assert (teams.value("orders"), teams.value("totals")) == ([4, 4, 4], [3])
    monkeypatch.setenv("AMOUNT", "5")
    with when_built(teams.finance, "totals", meanwhile):
        teams.finance.dbt("build", wap_reads="strict", wap_rebuild_wait=0.1).succeeded()
    assert (teams.value("orders"), teams.value("totals")) == ([5, 5, 5], [15])


def test_one_name_of_a_branch_for_both(teams: Teams, monkeypatch: Any) -> None:
    monkeypatch.setenv("AMOUNT", "6")
    teams.sales.dbt("build", wap_branch="pr_7", wap_publish="never").succeeded()
    ended = teams.finance.dbt("build", wap_branch="pr_7")
    assert ended.verdict("totals") == "held"
    assert "it is not in the project of this command" in ended.reason("orders")
    assert (teams.value("orders"), teams.value("totals")) == ([1, 1, 1], [3])
    # A sweep is of the whole lake. Then each builds on its own branch, and both go on.
    swept = teams.finance.operation("wap_sweep", older_than=0, named_older_than=0).succeeded()
    assert swept.document is not None
    assert "pr_7" in swept.document["result"]["found"]["branches"]
    teams.sales.dbt("build").succeeded()
    teams.finance.dbt("build").succeeded()
    assert (teams.value("orders"), teams.value("totals")) == ([6, 6, 6], [18])
