"""The same rows, however often a build is tried: each try starts from main."""

from __future__ import annotations

import pytest
from helpers.lake import Reader
from helpers.project import MakeProject

FILES = {
    "models/log.sql": """
        {{ config(materialized='incremental', incremental_strategy='append') }}
        select {{ var('n') }} as n
        {% if var('bad', false) %} union all select cast(null as int) {% endif %}
    """,
    "models/fresh.sql": """
        {{ config(materialized='incremental', incremental_strategy='append') }}
        select n, '{{ is_incremental() }}' as added from {{ ref('log') }} where n = {{ var('n') }}
    """,
    "models/properties.yml": """
        models:
          - name: log
            columns: [{name: n, data_tests: [{not_null: {name: log_is_known}}]}]
          - name: fresh
            columns: [{name: n, data_tests: [{unique: {name: fresh_is_unique}}]}]
    """,
}


def test_a_retry_does_not_add_to_what_was_rejected(
    make_project: MakeProject, reader: Reader
) -> None:
    project = make_project("retries", FILES)

    def log() -> list[int]:
        return sorted(row["n"] for row in reader.table(project.schema, "log").rows)

    # The first build: what is rejected is a new table in the side schema.
    project.dbt("build", n=1, bad=True).failed()
    project.write({"models/log.sql": FILES["models/log.sql"].replace("var('bad', false)", "false")})
    project.dbt("retry").succeeded()
    assert log() == [1]
    assert reader.table(project.schema, "fresh").rows == ({"n": 1, "added": "False"},)

    # A later one: what is rejected is on an Iceberg branch.
    project.write(FILES)
    project.dbt("build", n=2, bad=True).failed()
    project.write({"models/log.sql": FILES["models/log.sql"].replace("var('bad', false)", "false")})
    project.dbt("retry").succeeded()
    assert log() == [1, 2]


@pytest.mark.smoke
def test_building_twice_on_one_branch_adds_once(make_project: MakeProject, reader: Reader) -> None:
    project = make_project("twice", FILES)
    project.dbt("build", n=1).succeeded()
    project.dbt("run", n=2, wap_branch="mine").succeeded()
    project.dbt("run", n=2, wap_branch="mine").succeeded()
    project.dbt("test", n=2, wap_branch="mine").succeeded()
    assert sorted(row["n"] for row in reader.table(project.schema, "log").rows) == [1, 2]


def test_what_could_not_be_built_holds_up_the_tests_of_the_rest(
    make_project: MakeProject, reader: Reader
) -> None:
    project = make_project("partly", FILES)
    broken = "select no_such_column from {{ ref('log') }}"
    project.write({"models/fresh.sql": broken})
    project.dbt("run", n=1).failed()
    # Its tests pass, but the branch is not whole.
    tested = project.dbt("test", "--select", "log", n=1).failed()
    assert tested.verdict("fresh") == "rejected"
    assert tested.verdict("log") == "held"
    assert "keyboard interrupt" not in tested.text
    assert "log" not in reader.look(project.schema)
    branch = tested.branch
    assert "build failed" in project.operation("wap_publish", branch=branch).failed().text
    project.write({"models/fresh.sql": FILES["models/fresh.sql"]})
    project.dbt("build", "--select", "fresh", n=1, wap_branch=branch).succeeded()
    assert reader.table(project.schema, "fresh").rows == ({"n": 1, "added": "False"},)


def test_a_branch_that_is_not_there_is_not_read(make_project: MakeProject) -> None:
    project = make_project("typo", FILES)
    project.dbt("build", n=1).succeeded()
    query = "select count(*) from {{ ref('log') }}"
    shown = project.dbt("show", "--inline", query, n=1, wap_branch="typo").failed()
    assert "There is no open audit branch 'typo' (wap_branch), so nothing was read" in shown.text
