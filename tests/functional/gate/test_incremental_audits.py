"""A test that has passed reads only the rows that were added since, with the same verdict."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers.lake import Reader
from helpers.project import MakeProject, Outcome, Project

ROWS = 1_100_000
SCHEMA = """
models:
  - name: t
    columns:
      - {name: id, data_tests: [not_null, unique, above: {arguments: {least: -1}}]}
      - {name: kind, data_tests: [accepted_values: {arguments: {values: [a, b]}}]}
"""
ABOVE = """
{% test above(model, column_name, least) %}
    select * from {{ model }} where not ({{ column_name }} > {{ least }})
{% endtest %}
"""
APPENDED = "incremental_strategy='append'"
MERGED = (
    "incremental_strategy='merge', unique_key='id', tblproperties={'format-version': '3', "
    "'write.merge.mode': 'merge-on-read', 'write.update.mode': 'merge-on-read'}"
)
MODEL = """
{{{{ config(materialized='incremental', {how}) }}}}
{{% if is_incremental() %}}
{{{{ env_var('NEW') }}}}
{{% else %}}
select id, if(id % 2 = 0, 'a', 'b') as kind from range({rows})
{{% endif %}}
"""


def project_of(make_project: MakeProject, name: str, how: str) -> Project:
    return make_project(
        name,
        {
            "models/t.sql": MODEL.format(how=how, rows=ROWS),
            "models/t.yml": SCHEMA,
            "macros/above.sql": ABOVE,
        },
    )


@pytest.fixture
def env() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEW", "")
        yield patch


def answered(reader: Reader, run: Outcome) -> dict[str, str]:
    """How each test was answered, by the kind of the test."""
    return {
        row["test_name"].partition("_t_")[0]: row["answered"]
        for row in reader.ledger("tests", run_id=run.run_id)
    }


ALL = ("above", "accepted_values", "not_null", "unique")


@pytest.mark.parametrize("how", [APPENDED, MERGED], ids=["append", "merge on read"])
def test_only_added_rows_are_read(
    make_project: MakeProject, reader: Reader, env: pytest.MonkeyPatch, how: str
) -> None:
    project = project_of(make_project, "added_append" if how == APPENDED else "added_merge", how)

    def build(new: str, **settings: object) -> Outcome:
        env.setenv("NEW", new)
        return project.dbt("build", **settings)

    first = build("").succeeded()
    assert answered(reader, first) == dict.fromkeys(ALL, "shared")
    good = f"select id, 'a' as kind from range({ROWS}, {ROWS + 100})"
    second = build(good).succeeded()
    assert answered(reader, second) == dict.fromkeys(ALL, "incremental")
    assert "4 of them from the added rows alone" in second.text
    assert len(reader.table(project.schema, "t").values("id")) == ROWS + 100

    bad = {
        "not_null": "select cast(null as bigint) as id, 'a' as kind",
        "above": "select -7L as id, 'a' as kind",
        "accepted_values": f"select {ROWS + 100}L as id, 'z' as kind",
    }
    if how == APPENDED:
        # The other row with this key has been there from the first.
        bad["unique"] = "select 5L as id, 'a' as kind"
    else:
        bad["accepted_values"] = "select 5L as id, 'z' as kind"
    for kind, sql in bad.items():
        run = build(sql).failed()
        assert run.verdict("t") == "rejected"
        found = answered(reader, run)
        assert found.pop(kind) == "alone"
        assert set(found.values()) == {"incremental"}
        project.dbt("run-operation", "wap_discard", "--args", f"{{branch: {run.branch}}}")
    assert len(reader.table(project.schema, "t").values("id")) == ROWS + 100

    third = build(f"select {ROWS + 200}L as id, 'b' as kind", wap_audits_whole_every=1)
    assert answered(reader, third.succeeded()) == dict.fromkeys(ALL, "shared")
    fourth = build(f"select {ROWS + 201}L as id, 'b' as kind", wap_audits_incremental="never")
    assert answered(reader, fourth.succeeded()) == dict.fromkeys(ALL, "shared")
    assert len(reader.table(project.schema, "t").values("id")) == ROWS + 102


def test_after_a_rollback_the_state_before_it_counts(
    make_project: MakeProject, reader: Reader, env: pytest.MonkeyPatch
) -> None:
    project = project_of(make_project, "added_rollback", APPENDED)
    project.dbt("build").succeeded()
    env.setenv("NEW", f"select {ROWS}L as id, 'a' as kind")
    second = project.dbt("build").succeeded()
    project.dbt("run-operation", "wap_rollback", "--args", f"{{run: {second.run_id}}}").succeeded()
    # The key that the rollback has removed is new again; another one is not.
    again = project.dbt("build").succeeded()
    assert answered(reader, again)["unique"] == "incremental"
    env.setenv("NEW", f"select {ROWS}L as id, 'a' as kind")
    assert project.dbt("build").failed().verdict("t") == "rejected"


def test_a_changed_test_or_column_is_audited_whole(
    make_project: MakeProject, reader: Reader, env: pytest.MonkeyPatch
) -> None:
    project = project_of(make_project, "added_changed", APPENDED)
    project.dbt("build").succeeded()
    env.setenv("NEW", f"select {ROWS}L as id, 'a' as kind")
    # An old row fails the new limit.
    project.write({"models/t.yml": SCHEMA.replace("least: -1", "least: 0")})
    run = project.dbt("build").failed()
    assert run.verdict("t") == "rejected"
    assert answered(reader, run)["above"] == "alone"
    project.write({"models/t.yml": SCHEMA, "macros/above.sql": ABOVE.replace("not (", "not (2 + ")})
    other = project.dbt("build").succeeded()
    assert answered(reader, other)["above"] == "shared"
    assert answered(reader, other)["not_null"] == "incremental"
