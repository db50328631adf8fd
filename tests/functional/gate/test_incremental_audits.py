"""A test that has passed reads only the rows that were added since, with the same verdict."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers.lake import Reader, SparkReader
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
    assert "4 of them from the changed rows alone" in second.text
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
    undo = f"{{run: '{second.run_id}'}}"
    project.dbt("run-operation", "wap_rollback", "--args", undo).succeeded()
    # The key that the rollback has removed is new again; another one is not.
    again = project.dbt("build").succeeded()
    assert answered(reader, again)["unique"] == "incremental"
    env.setenv("NEW", f"select {ROWS}L as id, 'a' as kind")
    assert project.dbt("build").failed().verdict("t") == "rejected"


def test_a_compaction_leaves_nothing_to_audit(
    make_project: MakeProject, reader: Reader, spark: SparkReader, env: pytest.MonkeyPatch
) -> None:
    project = project_of(make_project, "added_compacted", APPENDED)
    project.dbt("build").succeeded()
    table = f"{project.schema}.t"
    spark.rows(
        f"call lake.system.rewrite_data_files(table => '{table}', "
        "options => map('rewrite-all', 'true'))"
    )
    env.setenv("NEW", f"select {ROWS}L as id, 'a' as kind")
    after = project.dbt("build").succeeded()
    assert answered(reader, after) == dict.fromkeys(ALL, "incremental")
    env.setenv("NEW", "select 5L as id, 'z' as kind")
    run = project.dbt("build").failed()
    found = answered(reader, run)
    assert (found["unique"], found["accepted_values"]) == ("alone", "alone")
    assert (found["not_null"], found["above"]) == ("incremental", "incremental")


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


RELATED_SCHEMA = """
models:
  - name: c
    columns:
      - name: p_id
        data_tests: [relationships: {arguments: {to: ref('p'), field: id}}]
  - name: p
    columns: [{name: id, data_tests: [not_null]}]
"""
CHILD = """
{{ config(materialized='incremental', incremental_strategy='append') }}
{% if is_incremental() %}
{{ env_var('NEW') }}
{% else %}
select id as p_id from range(1000)
{% endif %}
"""
PARENT = """
{{ config(materialized='incremental', incremental_strategy='delete+insert', unique_key='id',
    tblproperties={'write.delete.mode': 'merge-on-read'},
    post_hook=["delete from {{ this }} where id in (" ~ env_var('LOST') ~ ")"]) }}
{% if is_incremental() %}
select id from range(1200000, 1200000 + 10)
{% else %}
select id from range(0, 1200000, 1, 8)
{% endif %}
"""


def test_of_a_relationship_both_sides_count(
    make_project: MakeProject, reader: Reader, env: pytest.MonkeyPatch
) -> None:
    files = {"models/c.sql": CHILD, "models/p.sql": PARENT, "models/s.yml": RELATED_SCHEMA}
    project = make_project("related", files)

    def build(new: str, lost: str = "-1") -> tuple[Outcome, str]:
        env.setenv("NEW", new)
        env.setenv("LOST", lost)
        run = project.dbt("build")
        (how,) = (
            row["answered"]
            for row in reader.ledger("tests", run_id=run.run_id)
            if row["test_name"].startswith("relationships")
        )
        return run, how

    def rejected(new: str, lost: str = "-1") -> None:
        run, how = build(new, lost)
        assert (run.failed().verdict("c"), how) == ("rejected", "alone")
        project.dbt("run-operation", "wap_discard", "--args", f"{{branch: {run.branch}}}")

    assert build("")[1] == "shared"
    run, how = build("select 1100000L as p_id", lost="1150000")
    assert (run.succeeded().verdict("c"), how) == ("published", "incremental")
    rejected("select 1150000L as p_id")
    rejected("select 7L as p_id", lost="12")
    # The row that it needs was published by the run before.
    rejected("select 7L as p_id", lost="1100000")
    run, how = build("select null as p_id", lost="1150001")
    assert (run.succeeded().verdict("c"), how) == ("published", "incremental")
    assert reader.table(project.schema, "c").values("p_id").count(None) == 1


HISTORY = """
{{ config(materialized='incremental', incremental_strategy='append') }}
{% if is_incremental() %}
select k, cast(began as date) as valid_from, cast(ended as date) as valid_to
from ({{ env_var('NEW') }})
{% else %}
select id as k, date '2026-01-01' as valid_from, date '2026-02-01' as valid_to from range(1100000)
{% endif %}
"""
HISTORY_SCHEMA = """
models:
  - name: h
    data_tests:
      - scd2_no_overlap: {arguments: {key: k, valid_from: valid_from, valid_to: valid_to}}
      - scd2_no_gap: {arguments: {key: k, valid_from: valid_from, valid_to: valid_to}}
      - scd2_one_current: {arguments: {key: k, valid_to: valid_to}}
      - scd2_in_order: {arguments: {valid_from: valid_from, valid_to: valid_to}}
"""


def test_a_history_is_audited_by_its_changed_keys(
    make_project: MakeProject, reader: Reader, env: pytest.MonkeyPatch
) -> None:
    project = make_project("histories", {"models/h.sql": HISTORY, "models/h.yml": HISTORY_SCHEMA})

    def build(began: str, ended: str) -> tuple[Outcome, dict[str, str]]:
        env.setenv("NEW", f"select 5L as k, '{began}' as began, {ended} as ended")
        run = project.dbt("build")
        rows = reader.ledger("tests", run_id=run.run_id)
        return run, {row["test_name"].partition("_h_")[0]: row["answered"] for row in rows}

    build("", "null")[0].succeeded()
    run, how = build("2026-02-01", "null")
    run.succeeded()
    assert how == dict.fromkeys(
        ("scd2_no_gap", "scd2_no_overlap", "scd2_one_current", "scd2_in_order"), "incremental"
    )
    for began, ended, broken in (
        ("2026-01-20", "'2026-01-21'", {"scd2_no_overlap", "scd2_no_gap"}),
        ("2026-04-01", "null", {"scd2_no_overlap", "scd2_one_current"}),
        ("2025-10-01", "'2025-11-01'", {"scd2_no_gap"}),
        ("2026-01-01", "'2026-01-01'", {"scd2_in_order"}),
    ):
        run, how = build(began, ended)
        assert run.failed().verdict("h") == "rejected"
        assert {name for name, one in how.items() if one == "alone"} == broken
        project.dbt("run-operation", "wap_discard", "--args", f"{{branch: {run.branch}}}")
    assert len(reader.table(project.schema, "h").values("k")) == 1_100_001
