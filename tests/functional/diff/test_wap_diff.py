"""``wap_diff`` on the branch of a pull request equals the difference by pandas."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from helpers.lake import Reader
from helpers.project import MakeProject, Project

from sparkwap.core.errors import SparkwapError
from sparkwap.diff import comment

from .conftest import Truth

# Other tests use the lake too.
BRANCH, OTHER = (f"pr_{secrets.token_hex(2)}" for _ in range(2))

FILES = {
    "models/orders.sql": """
        {{ config(materialized='table') }}
        {% if env_var('DIFF_V') == '1' %}
        select id, 'o' || id || '@mail.example' as email, id * 2 as amount from range(20)
        {% else %}
        select id, 'o' || id || '@mail.example' as email, if(id = 7, 1, id * 2) as amount
        from range(2, 25)
        {% endif %}
    """,
    "models/log.sql": """
        {{ config(materialized='incremental') }}
        select id from range(10) {% if is_incremental() %} where false {% endif %}
    """,
    "models/bag.sql": """
        {{ config(materialized='table') }}
        select id % 3 as v from range({{ 9 if env_var('DIFF_V') == '1' else 11 }})
    """,
    "models/wide.sql": """
        {{ config(materialized='table') }}
        select id, {% if env_var('DIFF_V') == '1' %} 'a' as gone, cast(id as int) as n
        {% else %} cast(id as bigint) as n, if(id = 1, 'x', null) as come {% endif %}
        from range(4)
    """,
    "models/totals.sql": """
        {{ config(materialized='view', meta={'diff_key': 'half'}) }}
        select id > 9 as half, count(*) as orders
            {% if env_var('DIFF_V') == '2' %}, max(amount) as most {% endif %}
        from {{ ref('orders') }} group by 1
    """,
    "models/properties.yml": """
        models:
          - name: orders
            columns:
              - {name: id, data_tests: [unique]}
              - {name: email, config: {meta: {personal: customer}}}
    """,
}
NEW = {
    "models/fresh.sql": "{{ config(materialized='table') }} select id, 'f' as f from range(3)",
    "models/glance.sql": "select count(*) as n from {{ ref('fresh') }}",
}


@dataclass
class PullRequest:
    """A pull request: the project, and ``main`` as it was before."""

    project: Project
    reader: Reader
    before: dict[str, Any]

    def diff(self, **arguments: Any) -> dict[str, Any]:
        """Return the result as JSON, by table name."""
        output = self.project.folder / "target/diff.json"
        given = {"branch": BRANCH, "format": "json", "file": str(output), **arguments}
        self.project.operation("wap_diff", **given).succeeded()
        return {one["name"]: one for one in json.loads(output.read_text())["tables"]}

    def rows(self, name: str) -> tuple[list[tuple[Any, ...]], list[str]]:
        """Return the rows of a table on the branch, or in the side schema."""
        schema = self.project.schema
        side = self.reader.pointers(f"{schema}__{BRANCH}")
        where = f"{schema}__{BRANCH}" if name in side else schema
        table = self.reader.catalog.load_table((where, name))
        scan = table.scan() if name in side else table.scan().use_ref(BRANCH)
        found = scan.to_arrow()
        columns = list(found.column_names)
        return [tuple(row[c] for c in columns) for row in found.to_pylist()], columns

    def truth(self, name: str, *key: str) -> Truth:
        """Return the difference of a table by pandas, in the columns of both states."""
        after, names = self.rows(name)
        look = self.before[name]
        common = [c for c in names if c in look.columns]
        old = [tuple(row[c] for c in common) for row in look.rows]
        new = [tuple(row[names.index(c)] for c in common) for row in after]
        return Truth.of(old, new, common, key)


def told(one: dict[str, Any]) -> Truth:
    rows = one["rows"]
    return Truth(rows["added"], rows["removed"], rows["changed"], one["columns"]["changed"])


@pytest.fixture(scope="module")
def pull_request(make_project: MakeProject, reader: Reader) -> Iterator[PullRequest]:
    project = make_project("diffed", FILES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIFF_V", "1")
        project.dbt("build").succeeded()
        before = reader.look(project.schema)
        patch.setenv("DIFF_V", "2")
        project.write(NEW)
        project.dbt("build", wap_branch=BRANCH, wap_publish="never").succeeded()
        yield PullRequest(project, reader, before)
        for branch in (BRANCH, OTHER):
            project.operation("wap_discard", branch=branch)


@pytest.fixture(scope="module")
def found(pull_request: PullRequest) -> dict[str, Any]:
    return pull_request.diff()


def test_every_table_of_the_branch_is_listed(
    pull_request: PullRequest, found: dict[str, Any]
) -> None:
    assert {name: one["change"] for name, one in found.items()} == {
        "orders": "changed",
        "log": "unchanged",
        "bag": "changed",
        "wide": "changed",
        "totals": "changed",
        "fresh": "new",
        "glance": "new",
    }
    # Readers of main see no change.
    now = pull_request.reader.look(pull_request.project.schema)
    assert {n: one.seen() for n, one in now.items()} == {
        n: one.seen() for n, one in pull_request.before.items()
    }


@pytest.mark.smoke
def test_rows_equal_the_difference_by_pandas(
    pull_request: PullRequest, found: dict[str, Any]
) -> None:
    assert (
        told(found["orders"]) == pull_request.truth("orders", "id") == Truth(5, 2, 1, {"amount": 1})
    )
    assert found["orders"]["key"] == ["id"]
    assert told(found["bag"]) == pull_request.truth("bag")
    assert found["log"]["how"] == "metadata"


def test_columns_that_differ_are_listed(pull_request: PullRequest, found: dict[str, Any]) -> None:
    columns = found["wide"]["columns"]
    assert columns["added"] == [{"name": "come", "type": "string", "nulls": 3, "values": 1}]
    assert [c["name"] for c in columns["removed"]] == ["gone"]
    assert [(c["name"], c["before"], c["after"]) for c in columns["retyped"]] == [
        ("n", "int", "bigint")
    ]
    assert found["wide"]["rows"]["added"] == found["wide"]["rows"]["removed"] == 0


def test_a_view_is_compared_by_its_rows_on_both_branches(found: dict[str, Any]) -> None:
    # 10 and 10 orders before; 8 and 15 on the branch.
    assert told(found["totals"]) == Truth(0, 0, 2, {"orders": 2})
    assert [c["name"] for c in found["totals"]["columns"]["added"]] == ["most"]
    assert found["totals"]["columns"]["added"][0]["values"] == 2


def test_new_tables_and_views_have_all_their_rows_added(found: dict[str, Any]) -> None:
    assert (found["fresh"]["rows"]["added"], found["fresh"]["kind"]) == (3, "table")
    assert (found["glance"]["rows"]["added"], found["glance"]["kind"]) == (1, "view")
    assert found["glance"]["samples"][0]["after"] == {"n": "3"}


@pytest.mark.smoke
def test_personal_values_are_not_shown(pull_request: PullRequest, found: dict[str, Any]) -> None:
    assert found["orders"]["columns"]["hidden"] == ["email"]
    assert found["orders"]["samples"]
    assert "mail.example" not in json.dumps(found)


def test_some_tables_against_other_states(pull_request: PullRequest, found: dict[str, Any]) -> None:
    base = pull_request.diff(against="base", tables=["orders", "fresh"])
    assert {name: told(one) for name, one in base.items()} == {
        name: told(found[name]) for name in ("orders", "fresh")
    }
    pull_request.project.dbt(
        "run", "--select", "orders", wap_branch=OTHER, wap_publish="never"
    ).succeeded()
    other = pull_request.diff(against=OTHER, tables=["orders", "bag"])
    assert other["orders"]["change"] == "unchanged"
    # The branch has no bag, so the bag of main is compared.
    assert told(other["bag"]) == told(found["bag"])


def test_a_comment_and_a_page(pull_request: PullRequest) -> None:
    folder = pull_request.project.folder
    text = comment(BRANCH, project_dir=folder, dbt_arguments=["--profiles-dir", str(folder)])
    named = BRANCH.replace("_", "&#95;")
    assert text.startswith(f"### Data diff: <code>{named}</code> against <code>main</code>")
    assert "6 of 7 tables differ" in text
    assert "| changed | <code>" not in text, "no rows unless they are asked for"
    with pytest.raises(SparkwapError, match="pr_404"):
        comment("pr_404", project_dir=folder, dbt_arguments=["--profiles-dir", str(folder)])
    output = folder / "target/diff.html"
    pull_request.project.operation(
        "wap_diff", branch=BRANCH, format="html", file=str(output)
    ).succeeded()
    assert "<table>" in output.read_text()
    printed = pull_request.project.operation("wap_diff", branch=BRANCH, tables=["bag"]).succeeded()
    assert f"{pull_request.project.schema}.bag   rows: 2 added" in printed.text
    wrong = pull_request.project.operation("wap_diff", branch=BRANCH, fromat="json").failed()
    assert "unknown argument: fromat" in wrong.text
