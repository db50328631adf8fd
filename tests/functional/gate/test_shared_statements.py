"""Tests that share a statement have the results that they have alone."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from helpers.audited_queries import QUERIES
from helpers.lake import Reader, SparkReader
from helpers.project import MakeProject, Outcome, Project

from dbt.adapters.sparkwap.shared_statements import MOST_TESTS
from sparkwap.audits.shared_statement import statement

TABLE = "{{ config(materialized='table') }} "
ROWS = """
    select * from values (1, 1, 'a', 1), (2, 2, 'b', 1), (3, 3, 'a', 2), (null, 3, 'c', 9)
    as t (id, twice, kind, parent)
"""
SCHEMA = """
models:
  - name: parent
    columns:
      - {name: id, data_tests: [not_null, unique]}
  - name: bad
    columns:
      - name: id
        data_tests:
          - not_null
          - not_null: {name: not_null_of_some, config: {where: "twice < 3"}}
          - not_null: {name: warns, config: {severity: warn}}
          - not_null: {name: within_limits, config: {warn_if: "> 1", error_if: "> 2"}}
          - not_null: {name: kept, config: {store_failures: true}}
          - not_null: {name: summed, config: {fail_calc: "sum(twice)"}}
          - not_null: {name: few, config: {limit: 1}}
      - {name: twice, data_tests: [unique, not_null, above: {arguments: {least: 0}}]}
      - name: kind
        data_tests:
          - accepted_values: {arguments: {values: [a, b]}}
          - accepted_values: {name: all_kinds, arguments: {values: [a, b, c]}}
      - name: parent
        data_tests:
          - relationships: {arguments: {to: ref('parent'), field: id}}
  - name: good
    columns:
      - {name: id, data_tests: [not_null, unique, above: {arguments: {least: 0}}]}
      - {name: parent, data_tests: [relationships: {arguments: {to: ref('parent'), field: id}}]}
  - name: broken
    columns:
      - name: id
        data_tests: [not_null, unique, accepted_values: {arguments: {values: [a, b]}}]
      - {name: gone, data_tests: [not_null]}
"""
FILES = {
    "models/parent.sql": TABLE + "select id from values (1), (2) as t (id)",
    "models/bad.sql": TABLE + ROWS + " -- {{ ref('parent') }}",
    "models/good.sql": TABLE + f"select * from ({ROWS}) where id < 3 -- {{{{ ref('parent') }}}}",
    "models/broken.sql": TABLE + "select 1 as id -- {{ ref('parent') }}",
    "models/schema.yml": SCHEMA,
    "macros/above.sql": """
        {% test above(model, column_name, least) %}
            select * from {{ model }} where not ({{ column_name }} > {{ least }})
        {% endtest %}
    """,
    "tests/alone.sql": "select id from {{ ref('good') }} where id > 7",
}


def results(project: Project) -> dict[str, tuple[Any, ...]]:
    """Status, failures, message and the adapter's response of each test, from dbt's artifact.

    Of an error of Spark, without the plan, which has numbers of its own.
    """
    found = json.loads((project.folder / "target/run_results.json").read_text())
    return {
        one["unique_id"].split(".")[2]: (
            one["status"],
            one["failures"],
            (one["message"] or "").partition("SQLSTATE")[0],
            one["adapter_response"],
        )
        for one in found["results"]
        if one["unique_id"].startswith("test.")
    }


def build(make_project: MakeProject, audits: str, *arguments: str) -> tuple[Project, Outcome]:
    project = make_project(audits, FILES)
    return project, project.dbt("build", *arguments, wap_audits=audits)


def test_a_shared_statement_gives_the_results_of_single_ones(
    make_project: MakeProject, reader: Reader
) -> None:
    single, alone = build(make_project, "single")
    fused, shared = build(make_project, "fused")
    assert results(fused) == results(single)
    # dbt reports tests of rejected rows as skipped; the ledger keeps what they found.
    found = [
        {
            (row["test_name"], row["status"], row["failures"])
            for row in reader.ledger("tests", run_id=one.run_id)
        }
        for one in (alone, shared)
    ]
    assert found[0] == found[1]
    assert len(found[0]) > 15
    answered = {r["test_name"]: r["answered"] for r in reader.ledger("tests", run_id=shared.run_id)}
    of_good = {name for name in answered if "good_id" in name or "relationships_good" in name}
    assert {answered[name] for name in of_good} == {"shared"}
    for name in ("not_null_bad_id", "not_null_broken_gone", "kept", "summed", "few"):
        assert answered[name] == "alone"
    assert {r["answered"] for r in reader.ledger("tests", run_id=alone.run_id)} == {"alone"}


@pytest.mark.smoke
def test_a_failing_test_stops_its_table_also_in_a_shared_statement(
    make_project: MakeProject, reader: Reader
) -> None:
    project = make_project(
        "stopped",
        {
            "models/t.sql": TABLE + "select id, id as k from range({{ env_var('ROWS') }})",
            "models/t.yml": "models: [{name: t, columns: ["
            "{name: id, data_tests: [not_null, unique]}, "
            "{name: k, data_tests: [not_null, {accepted_values: {arguments: "
            "{values: [0, 1], quote: false}}}]}]}]",
        },
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROWS", "2")
        first = project.dbt("build", wap_audits="fused").succeeded()
        answered = [row["answered"] for row in reader.ledger("tests", run_id=first.run_id)]
        assert answered == ["shared"] * 4
        assert "Shared statements answered 4 of 4 tests." in first.text
        patch.setenv("ROWS", "3")
        assert project.dbt("build", wap_audits="fused").failed().verdict("t") == "rejected"
    assert sorted(reader.table(project.schema, "t").values("id")) == [0, 1]


def test_artifacts_messages_and_hooks_are_the_same(make_project: MakeProject) -> None:
    files = {
        "models/t.sql": TABLE + "select id, id as k from range(3)",
        "models/t.yml": "models: [{name: t, columns: [{name: id, data_tests: [told, not_null]}, "
        "{name: k, data_tests: [told, unique]}]}]",
        "macros/told.sql": """
            {% test told(model, column_name) %}
                {% if execute %}
                    {% do log("LOG of " ~ column_name, info=true) %}
                    {% do print("PRINT of " ~ column_name) %}
                    {% do exceptions.warn("WARNING of " ~ column_name) %}
                {% endif %}
                select * from {{ model }} where {{ column_name }} < 0
            {% endtest %}
            {% macro show(results) %}
                {% for one in results %}
                    {% do log("SEEN " ~ one.node.name ~ " " ~ one.node.build_path ~ " "
                        ~ (one.node.depends_on.macros | sort), info=true) %}
                {% endfor %}
            {% endmacro %}
        """,
    }
    seen = []
    for audits in ("single", "fused"):
        project = make_project(audits, files, settings={"on-run-end": "{{ show(results) }}"})
        text = project.dbt("build", wap_audits=audits).succeeded().text
        folder = project.folder / "target"
        written = [file.relative_to(folder) for file in folder.rglob("*.sql")]
        words = [f"{what} of {column}" for what in ("LOG", "WARNING") for column in ("id", "k")]
        shown = [line for line in text.splitlines() if line.startswith("SEEN")]
        seen.append(
            (
                sorted(map(str, written)),
                [text.count(word) for word in words],
                sorted(line.replace(project.schema, "").replace(audits, "") for line in shown),
            )
        )
    single, fused = seen
    assert fused == single
    assert fused[1] == [1] * 4
    assert len(fused[2]) == 5


@pytest.mark.smoke
def test_the_prediction_changes_nothing_that_a_test_reads(
    make_project: MakeProject, reader: Reader
) -> None:
    # A macro that checks each column once, and remembers it in the list of a variable or of `meta`.
    files = {
        "models/t.sql": TABLE + "select id, if(id < 2, id, null) as k from range(3)",
        "models/t.yml": "models: [{name: t, columns: [{name: id, data_tests: [{not_null: "
        "{name: a_first}}, unique]}, {name: k, data_tests: [once, {once: {name: z_by_meta, "
        "arguments: {by_meta: true}, config: {meta: {seen: []}}}}]}]}]",
        "macros/once.sql": """
            {% test once(model, column_name, by_meta=false) %}
                {% set seen = config.get('meta')['seen'] if by_meta and execute else var('seen') %}
                {% if column_name in seen %}
                    select 1 as checked from {{ model }} where false
                {% else %}
                    {% if execute %}{% do seen.append(column_name) %}{% endif %}
                    select * from {{ model }} where {{ column_name }} is null
                {% endif %}
            {% endtest %}
        """,
    }
    project = make_project("once", files)
    rejected = project.dbt("build", "--threads", "1", wap_audits="fused", seen=[]).failed()
    assert rejected.verdict("t") == "rejected"
    found = {r["test_name"]: r for r in reader.ledger("tests", run_id=rejected.run_id)}
    assert found["z_by_meta"]["failures"] == found["once_t_k"]["failures"] == 1
    assert "t" not in reader.look(project.schema)


def test_a_shared_statement_leaves_no_trace_in_the_code(
    make_project: MakeProject, reader: Reader
) -> None:
    project = make_project("code", {"models/t.sql": TABLE + "select 1 as id"}).write(
        {
            "models/t.yml": "models: [{name: t, columns: "
            "[{name: id, data_tests: [not_null, unique]}]}]"
        }
    )
    runs = [project.dbt("build", wap_audits="fused").succeeded().run_id for _ in range(2)]
    answered = [row["answered"] for run in runs for row in reader.ledger("tests", run_id=run)]
    assert answered == ["shared"] * 4
    (first,), (second,) = (reader.ledger("publishes", run_id=run) for run in runs)
    assert first["manifest_hash"] == second["manifest_hash"]


def test_a_test_that_reads_a_table_without_ref_runs_alone(
    make_project: MakeProject, reader: Reader
) -> None:
    # dbt may build that table between the shared statement and the turn of the test.
    project = make_project("by_name", {"models/t.sql": TABLE + "select 1 as id"})
    to = f"{project.schema}.other"
    project.write(
        {
            "models/other.sql": TABLE + "select 1 as id",
            "models/t.yml": "models: [{name: t, columns: [{name: id, data_tests: [not_null, "
            f"unique, {{relationships: {{arguments: {{to: {to}, field: id}}}}}}]}}]}}]",
        }
    )
    project.dbt("build", "--select", "other").succeeded()
    built = project.dbt("build", "--select", "t", wap_audits="fused").succeeded()
    answered = {r["test_name"]: r["answered"] for r in reader.ledger("tests", run_id=built.run_id)}
    assert answered.pop(next(name for name in answered if "relationships" in name)) == "alone"
    assert set(answered.values()) == {"shared"}


def test_later_tests_are_answered_ahead(make_project: MakeProject, reader: Reader) -> None:
    columns = [f"c{number}" for number in range(2 * MOST_TESTS)]
    listed = ", ".join(f"{{name: {name}, data_tests: [not_null]}}" for name in columns)
    values = ", ".join(
        f"if(id = 7, null, id) as {c}" if c == "c99" else f"id as {c}" for c in columns
    )
    project = make_project(
        "ahead",
        {
            "models/t.sql": TABLE + f"select {values} from range(10)",
            "models/t.yml": f"models: [{{name: t, columns: [{listed}]}}]",
        },
    )
    built = project.dbt("build", wap_audits="fused").failed()
    assert built.verdict("t") == "rejected"
    rows = reader.ledger("tests", run_id=built.run_id)
    failed = [row for row in rows if row["answered"] == "alone"]
    assert [(row["test_name"], row["failures"]) for row in failed] == [("not_null_t_c99", 1)]
    assert len(rows) == len(columns)
    # The second statement is sent before the tests of the first one have ended.
    log = (project.folder / "logs/dbt.log").read_text()
    events = re.findall(r"\d PASS not_null|sends a shared statement of 60", log)
    sent = [at for at, event in enumerate(events) if event.startswith("sends")]
    assert len(sent) == 2
    assert sent[1] < MOST_TESTS // 2


def test_a_test_that_changes_the_session_neither_gives_nor_takes_an_answer(
    make_project: MakeProject, reader: Reader
) -> None:
    # Each has the same query, of a view that its macro has made for its own column.
    project = make_project(
        "session",
        {
            "models/t.sql": TABLE + "select id, if(id > 0, id, null) as k from range(2)",
            "models/t.yml": "models: [{name: t, columns: [{name: id, data_tests: [not_null, "
            "unique, by_view]}, {name: k, data_tests: [by_view]}]}]",
            "macros/by_view.sql": """
                {% test by_view(model, column_name) %}
                    {% do run_query("create or replace temporary view rows_of as select "
                        ~ column_name ~ " as v from " ~ model) %}
                    select * from rows_of where v is null
                {% endtest %}
            """,
        },
    )
    built = project.dbt("build", wap_audits="fused").failed()
    assert built.verdict("t") == "rejected"
    found = {
        row["test_name"]: (row["status"], row["answered"])
        for row in reader.ledger("tests", run_id=built.run_id)
    }
    assert found["by_view_t_k"] == ("fail", "alone")
    assert found["by_view_t_id"][1] == "alone"


def test_a_table_that_changes_after_the_statement_is_audited_again(
    make_project: MakeProject, reader: Reader
) -> None:
    # The audit branch is written past dbt's order: by the first test, after the shared statement.
    project = make_project(
        "moved",
        {
            "models/t.sql": TABLE + "select id from range(2)",
            "models/t.yml": "models: [{name: t, columns: [{name: id, data_tests: "
            "[not_null, unique, zz_last]}]}]",
            "macros/zz_last.sql": """
                {% test zz_last(model, column_name) %}
                    select * from {{ model }} where {{ column_name }} < 0
                {% endtest %}
            """,
            "models/writer.sql": "{{ config(materialized='table', post_hook="
            "\"insert into {{ ref('t') }} values (null)\", wap_writes='*') }} "
            "select 1 as x -- {{ ref('t') }}",
        },
    )
    built = project.dbt("build", "--threads", "1", wap_audits="fused")
    assert built.verdict("t") != "published" or None not in reader.table(
        project.schema, "t"
    ).values("id")


COLUMNS = {
    "int": ("int", ["null", "0", "1", "2"]),
    "double": ("double", ["null", "0.0", "-0.0", "double('NaN')", "1.5"]),
    "decimal": ("decimal(9, 2)", ["null", "0", "1.50", "1.5", "-2"]),
    "string": ("string", ["null", "'1'", "'1 '", "'2'"]),
}


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("table", ["t", "global_temp.t"], ids=["one by one", "in one scan"])
def test_on_spark_a_statement_knows_which_queries_have_no_row(
    spark: SparkReader, table: str, kind: str
) -> None:
    sql_type, values = COLUMNS[kind]
    # A range and an expression have a number.
    names = [name for name in QUERIES if kind != "string" or "a range" not in name]
    queries = [QUERIES[name].replace("from t", f"from {table}") for name in names]
    scans = statement(dict(enumerate(queries))).count("select inline(array(")
    assert scans == (0 if table == "t" else 1)
    chance = random.Random(7)
    seen = set()
    for _ in range(8):
        rows = [
            f"select cast({chance.choice(values)} as {sql_type}) as id, "
            f"cast({chance.choice(values)} as {sql_type}) as other, "
            f"{chance.choice(['null', *(repr(one) for one in 'abc')])} as s"
            for _ in range(chance.randint(1, 4))
        ]
        empty = " where false" * chance.choice([0, 0, 0, 1])
        union = "\nunion all\n".join(rows)
        of_all = "global" if "." in table else ""
        spark.run(f"create or replace {of_all} temporary view t as select * from ({union}){empty}")
        found = dict(spark.rows(statement(dict(enumerate(queries)))))
        alone = (spark.rows(f"select count(*) from (\n{sql}\n) as test") for sql in queries)
        expected = {str(at): count for at, ((count,),) in enumerate(alone)}
        assert {at for at in found if not found[at]} == {
            at for at in expected if not expected[at]
        }, union
        seen |= {(at, count == 0) for at, count in expected.items()}
    # Most queries have returned rows of one table, and none of another.
    assert len(seen) > 1.5 * len(queries)
