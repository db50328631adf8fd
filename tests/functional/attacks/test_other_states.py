"""Reads of another state of a table, and queries that only the caller's command changes.

- a test reads a table's metadata tables, or another state of it than the one it is to vouch for;
- a Python model reads a table whose name it has put together, and is no child of it to the gate;
- a published view reads the audit branch of another run;
- the caller weakens a test by what is neither a `var` nor an `env_var` that dbt has on record;
- the caller weakens a test by the target.
"""

from __future__ import annotations

import json

import pytest
from helpers.catalogs import SPARK
from helpers.lake import Reader
from helpers.project import MakeProject

TABLE = "{{ config(materialized='table') }} "
ROWS = TABLE + "select id from range({{ env_var('ROWS') }})"
STATES = {
    "by_files": "select * from {{ ref('by_files') }}.files where record_count > 1",
    "by_branch": "select * from {{ ref('by_branch') }}.branch_main where id > 0",
    "by_version": "select * from {{ ref('by_version') }} version as of 'main' where id > 0",
    "by_option": "select * from {{ ref('by_option') }} with ('branch' = 'main') where id > 0",
    "by_view": "select * from {{ ref('view_of_main') }} where id > 0",
}


@pytest.mark.smoke
def test_a_test_that_reads_another_state_of_a_table(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project("states", {f"models/{name}.sql": ROWS for name in STATES})
    monkeypatch.setenv("ROWS", "1")
    project.dbt("build").succeeded()
    live = "select * from {{ ref('by_view') }} version as of 'main'"
    view = "{{ config(materialized='view') }} " + live
    project.write({f"tests/{name}_is_small.sql": sql for name, sql in STATES.items()})
    project.write({"models/view_of_main.sql": view})
    monkeypatch.setenv("ROWS", "5")
    built = project.dbt("build", wap_publish="lineage")
    assert {name: built.verdict(name) for name in STATES} == dict.fromkeys(STATES, "held")
    assert all("as it is on the branch" in built.reason(name) for name in STATES)
    seen = [reader.table(project.schema, name).values("id") for name in STATES]
    assert seen == [[0]] * len(STATES)


PYTHON = """
    import threading


    def model(dbt, session):
        dbt.config(materialized="table")
        name = ".".join([dbt.this.schema.split("__wap")[0], "par" + chr(101) + "nt"])
        found = []
        thread = threading.Thread(target=lambda: found.append(READ))
        thread.start()
        thread.join()
        return found[0]
"""
READS = {
    "by_table": "session.table(name)",
    "by_reader": "session.read.format('iceberg').load(name)",
    "by_sql": "session.sql(f'select * from {name}')",
}


def test_a_python_model_that_puts_a_name_together(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = TABLE + "select cast({{ env_var('VALUE') }} as int) as v"
    project = make_project(
        "together",
        {
            "models/parent.sql": value,
            "tests/parent_is_small.sql": "select v from {{ ref('parent') }} where v > 5",
            **{f"models/{name}.py": PYTHON.replace("READ", read) for name, read in READS.items()},
        },
    )
    monkeypatch.setenv("VALUE", "1")
    project.dbt("build", "--select", "parent").succeeded()
    project.dbt("build", "--select", *READS).succeeded()
    monkeypatch.setenv("VALUE", "7")
    # Apart, as nothing in the project says that the parent comes first.
    project.dbt("run", "--select", "parent").succeeded()
    built = project.dbt("build", "--select", *READS, "parent_is_small", wap_publish="lineage")
    built.failed()
    assert built.verdict("parent") == "rejected"
    assert {name: built.verdict(name) for name in READS} == dict.fromkeys(READS, "held")
    seen = [reader.table(project.schema, name).values("v") for name in READS]
    assert seen == [[1]] * len(READS)


VIEWS = {
    "by_suffix": "select id from {{ ref('t') }}.branch_BRANCH",
    "by_version": "select id from {{ ref('t') }} version as of 'BRANCH'",
    "by_option": "select id from {{ ref('t') }} with ('branch' = 'BRANCH')",
    "by_identifier": "select id from identifier('{{ target.schema }}.t.branch_BRANCH')",
}
if SPARK == "3.5":  # which has no options of a read in SQL
    del STATES["by_option"], VIEWS["by_option"]


def test_a_view_of_the_audit_branch_of_another_run(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "models/t.sql": TABLE + "select cast({{ env_var('ID') }} as int) as id",
        "tests/t_is_small.sql": "select id from {{ ref('t') }} where id > 5",
    }
    project = make_project("of_branch", files)
    monkeypatch.setenv("ID", "1")
    project.dbt("build").succeeded()
    monkeypatch.setenv("ID", "9")
    branch = f"pr_{project.schema}"
    project.dbt("build", wap_branch=branch).failed()
    view = "{{ config(materialized='view') }} "
    project.write(
        {f"models/{name}.sql": view + sql.replace("BRANCH", branch) for name, sql in VIEWS.items()}
    )
    built = project.dbt("build", "--select", *VIEWS, wap_publish="lineage").failed()
    assert {name: built.verdict(name) for name in VIEWS} == dict.fromkeys(VIEWS, "rejected")
    assert all(f"reads the audit branch {branch}" in built.reason(name) for name in VIEWS)
    assert set(reader.look(project.schema)) == {"t"}


WEAKER = """
    {% test by_flag(model, column_name) %}
        select 1 from {{ model }} where {{ column_name }} > {{ 9 if flags.FULL_REFRESH else 1 }}
    {% endtest %}
    {% test by_arguments(model, column_name) %}
        select 1 from {{ model }}
        where {{ column_name }} > {{ 9 if 'most' in (invocation_args_dict.vars | string) else 1 }}
    {% endtest %}
    {% test by_name(model, column_name) %}
        select 1 from {{ model }} where {{ column_name }} > {{ var('as_of_most', 1) }}
    {% endtest %}
    {% test at_run_time(model, column_name) %}
        select 1 from {{ model }}
        where {{ column_name }} > {% if execute %}{{ env_var('MOST', '1') }}{% else %}1{% endif %}
    {% endtest %}
"""
TESTS = ("by_flag", "by_arguments", "by_name", "at_run_time")


def test_a_test_that_its_caller_weakens_by_other_names(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    props = ", ".join(
        f"{{name: {name}, columns: [{{name: id, data_tests: [{name}]}}]}}" for name in TESTS
    )
    model = TABLE + "select cast({{ env_var('ID') }} as int) as id"
    files = {"models/all.yml": f"models: [{props}]", "macros/weaker.sql": WEAKER}
    project = make_project("names", files | {f"models/{name}.sql": model for name in TESTS})
    monkeypatch.setenv("ID", "1")
    project.dbt("build").succeeded()
    monkeypatch.setenv("ID", "5")
    monkeypatch.setenv("MOST", "9")
    built = project.dbt("build", "--full-refresh", wap_publish="lineage", most=9, as_of_most=9)
    assert {name: built.verdict(name) for name in TESTS} == dict.fromkeys(TESTS, "held")
    seen = [reader.table(project.schema, name).values("id") for name in TESTS]
    assert seen == [[1]] * len(TESTS)


def test_a_test_whose_query_is_another_one_on_another_target(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = "{{ 9 if target.name == 'weak' else 1 }}"
    project = make_project(
        "targets",
        {
            "models/t.sql": TABLE + "select cast({{ env_var('ID') }} as int) as id",
            "tests/small.sql": f"select id from {{{{ ref('t') }}}} where id > {most}",
        },
    )
    profile = json.loads((project.folder / "profiles.yml").read_text())
    outputs = profile["shop"]["outputs"]
    outputs["weak"] = outputs["test"]
    project.write({"profiles.yml": json.dumps(profile)})
    monkeypatch.setenv("ID", "1")
    first = project.dbt("build").succeeded()
    (test,) = reader.ledger("tests", run_id=first.run_id)
    assert test["code"] is not None
    monkeypatch.setenv("ID", "5")
    built = project.dbt("build", "--target", "weak")
    assert (built.verdict("t"), "its query was another" in built.reason("t")) == ("held", True)
    assert reader.table(project.schema, "t").values("id") == [1]
