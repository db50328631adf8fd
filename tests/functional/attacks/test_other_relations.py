"""Tests and models that read another relation than the candidate.

- a test reads the table of another target, schema or alias, and vouches for the candidate;
- a test, or a model, reads a live view over a table whose candidate stands in a side schema;
- a manifest that is handed on was parsed with other variables than the command has.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from dbt.cli.main import dbtRunner
from helpers.lake import Reader, SparkReader
from helpers.project import MakeProject, Project

TABLE = "{{ config(materialized='table') }} "
VIEW = "{{ config(materialized='view') }} "
BY_ENV = TABLE + "select cast({{ env_var('V') }} as int) as id"
APPEND = "{{ config(materialized='incremental', incremental_strategy='append') }} "
ONLY_1_2 = "{accepted_values: {arguments: {values: [1, 2], quote: false}}}"
ONLY_1 = "{accepted_values: {arguments: {values: [1], quote: false}}}"


def props_of(name: str, test: str = "not_null", kind: str = "models") -> str:
    return f"{kind}: [{{name: {name}, columns: [{{name: id, data_tests: [{test}]}}]}}]"


def ids(reader: Reader, project: Project, name: str) -> list[Any]:
    return list(reader.table(project.schema, name).values("id"))


def second_target(project: Project, schema: str, name: str = "other") -> None:
    profile = json.loads((project.folder / "profiles.yml").read_text())
    outputs = profile["shop"]["outputs"]
    outputs[name] = {**outputs["test"], "schema": schema}
    project.write({"profiles.yml": json.dumps(profile)})


# A test counts for the table that it has read, not for its id.


@pytest.mark.parametrize("way", ["test", "retry", "wap_publish"])
def test_tests_of_another_target(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    project = make_project("tgt", {"models/t.sql": BY_ENV, "models/m.yml": props_of("t", ONLY_1)})
    second_target(project, project.schema + "_b")
    monkeypatch.setenv("V", "1")
    project.dbt("build").succeeded()
    project.dbt("build", "--target", "other").succeeded()
    monkeypatch.setenv("V", "9")
    first = project.dbt("build" if way == "retry" else "run")
    if way == "test":
        project.dbt("test", "--target", "other", wap_branch=first.branch)
    elif way == "wap_publish":
        project.dbt("test", "--target", "other", wap_branch=first.branch, wap_publish="never")
        project.operation("wap_publish", branch=first.branch)
    else:
        monkeypatch.setenv("V", "1")
        project.dbt("retry", "--target", "other")
    assert ids(reader, project, "t") == [1]


def test_the_advice_after_a_run_of_another_target(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project("adv", {"models/t.sql": BY_ENV, "models/m.yml": props_of("t", ONLY_1)})
    second_target(project, project.schema + "_b")
    monkeypatch.setenv("V", "1")
    project.dbt("build").succeeded()
    project.dbt("build", "--target", "other").succeeded()
    monkeypatch.setenv("V", "9")
    held = project.dbt("run", "--target", "other").succeeded()
    monkeypatch.setenv("SPARKWAP_BRANCH", held.branch)
    project.dbt("test")
    assert reader.table(project.schema + "_b", "t").values("id") == [1]


@pytest.mark.parametrize("way", ["profile", "plain profile"])
def test_the_profile_is_edited_between_run_and_test(
    make_project: MakeProject, reader: Reader, way: str
) -> None:
    files = {"models/t.sql": TABLE + "select 1 as id", "models/m.yml": props_of("t", ONLY_1)}
    project = make_project("prof", files)
    live = project.schema
    project.dbt("build").succeeded()
    old = (project.folder / "profiles.yml").read_text()
    new = old.replace(live, live + "_b")
    project.write({"profiles.yml": new}).dbt("build").succeeded()
    held = project.write({"profiles.yml": old, "models/t.sql": TABLE + "select 9 as id"}).dbt("run")
    project.write({"profiles.yml": new})
    project.dbt("test", **({} if way == "plain profile" else {"wap_branch": held.branch}))
    assert reader.table(live, "t").values("id") == [1]


@pytest.mark.parametrize("what", ["schema", "alias"])
def test_names_that_change_in_the_files(
    make_project: MakeProject, reader: Reader, what: str
) -> None:
    macro = """
        {% macro generate_WHAT_name(custom, node) %}
            {{- (target.schema if 'WHAT' == 'schema' else node.name) ~ 'SUFFIX' -}}
        {% endmacro %}
    """.replace("WHAT", what)

    def files(suffix: str, v: int) -> dict[str, str]:
        return {
            "macros/n.sql": macro.replace("SUFFIX", suffix),
            "models/t.sql": TABLE + f"select {v} as id",
            "models/m.yml": props_of("t", ONLY_1),
        }

    project = make_project("namesf", files("", 1))
    project.dbt("build").succeeded()
    project.write(files("_x", 1)).dbt("build").succeeded()
    held = project.write(files("", 9)).dbt("run").succeeded()
    project.write(files("_x", 9)).dbt("test", wap_branch=held.branch)
    assert ids(reader, project, "t") == [1]


def test_aliases_that_are_swapped_in_the_files(make_project: MakeProject, reader: Reader) -> None:
    def files(x: str, y: str, v: int) -> dict[str, str]:
        head = "{{ config(materialized='table', alias='%s') }} select %d as id"
        return {
            "models/a.sql": head % (x, v),
            "models/b.sql": head % (y, 1),
            "models/m.yml": props_of("a", ONLY_1),
        }

    project = make_project("swapf", files("x", "y", 1))
    project.dbt("build").succeeded()
    held = project.write(files("x", "y", 9)).dbt("run").succeeded()
    project.write(files("y", "x", 9)).dbt("test", wap_branch=held.branch)
    assert ids(reader, project, "x") == [1]


# What stands in the side schema is not what a live name, or a live view, reads.


@pytest.mark.smoke
def test_a_column_is_added_and_the_advice_followed(
    make_project: MakeProject, reader: Reader, spark: SparkReader
) -> None:
    files = {
        "models/t.sql": TABLE + "select 1 as id",
        "models/v.sql": VIEW + "select id from {{ ref('t') }}",
        "models/m.yml": props_of("v", ONLY_1),
    }
    project = make_project("advv", files)
    project.dbt("build").succeeded()
    project.write({"models/t.sql": TABLE + "select 9 as id, 2 as more"})
    held = project.dbt("build", "--select", "t")
    project.dbt("test", wap_branch=held.branch)
    assert spark.rows(f"select id from {project.schema}.v") == [(1,)]


@pytest.mark.parametrize(
    "how", ["view", "text", "full refresh", "seed", "relationships", "branch", "table to view"]
)
def test_a_live_view_over_a_table_in_the_side_schema(
    make_project: MakeProject, reader: Reader, spark: SparkReader, how: str
) -> None:
    inc = "{{ config(materialized='incremental', partition_by='PART') }} select "
    files = {
        "models/t.sql": TABLE + "select 1 as id",
        "models/v.sql": VIEW + "select id from {{ ref('t') }}",
        "models/m.yml": props_of("v", ONLY_1),
    }
    bad = TABLE + "select 9 as id, 2 as more"
    flags: tuple[str, ...] = ()
    if how == "text":
        del files["models/m.yml"]
    elif how == "full refresh":
        files["models/t.sql"] = inc.replace("PART", "id") + "1 as id, 1 as p"
        bad = inc.replace("PART", "p") + "9 as id, 1 as p"
        flags = ("--full-refresh",)
    elif how == "branch":
        bad = TABLE + "select 9 as id"
    elif how == "table to view":
        bad = VIEW + "select 9 as id"
    elif how == "relationships":
        files["models/o.sql"] = TABLE + "select 1 as id"
        files["models/m.yml"] = props_of(
            "o", "{relationships: {arguments: {to: ref('v'), field: id}}}"
        )
    elif how == "seed":
        files["seeds/t.csv"] = "id\n1\n"
        del files["models/t.sql"]
    project = make_project("livev", files)
    project.dbt("build").succeeded()
    if how == "text":
        project.write({"tests/x.sql": "select * from {{ target.schema }}.v where id = 9"})
        project.dbt("build").succeeded()
    if how == "seed":
        project.write({"seeds/t.csv": "id,more\n9,2\n"})
        project.dbt("seed", "--full-refresh")
    else:
        project.write({"models/t.sql": bad})
        project.dbt("run", "--select", "t", *flags)
    project.dbt("test")
    assert [r[0] for r in spark.rows(f"select id from {project.schema}.t")] == [1]


@pytest.mark.parametrize("way", ["select t and test of view", "run, test view", "select t"])
def test_a_view_that_is_not_built(
    make_project: MakeProject,
    reader: Reader,
    spark: SparkReader,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    model = TABLE + "select cast({{ env_var('V') }} as int) as id {{ env_var('MORE', '') }}"
    files = {
        "models/t.sql": model,
        "models/v.sql": VIEW + "select id from {{ ref('t') }}",
        "models/w.sql": VIEW + "select id from {{ ref('v') }}",
        "models/m.yml": props_of("w", ONLY_1),
    }
    project = make_project("clone", files)
    monkeypatch.setenv("V", "1")
    project.dbt("build").succeeded()
    monkeypatch.setenv("V", "9")
    monkeypatch.setenv("MORE", ", 1 as more")
    if way.startswith("select t and"):
        done = project.dbt("build", "--select", "t", "test_type:data")
    elif way == "select t":
        done = project.dbt("build", "--select", "t")
    else:
        project.dbt("run", "--select", "t")
        done = project.dbt("test", "--select", "w")
    rows = spark.rows(f"select id from {project.schema}.w")
    assert rows == [(1,)], done.text


@pytest.mark.parametrize("more", ["", ", 2 as more"])
@pytest.mark.parametrize("select", ["t", "views"])
def test_a_test_of_a_live_view_comes_first(
    make_project: MakeProject, reader: Reader, more: str, select: str
) -> None:
    files = {
        "models/a.sql": TABLE + "select 1 as id",
        "models/t.sql": TABLE + "select 1 as id -- {{ ref('a') }}",
        "models/v.sql": VIEW + "select id from {{ ref('t') }}",
        "models/w.sql": VIEW + "select id from {{ ref('v') }}",
        "models/m.yml": props_of("w", ONLY_1),
    }
    project = make_project("first", files)
    project.dbt("build").succeeded()
    project.write({"models/t.sql": TABLE + f"select 9 as id {more} -- {{{{ ref('a') }}}}"})
    chosen = ("a", "t", "test_type:data") if select == "t" else ("a", "t", "w")
    project.dbt("build", "--select", *chosen)
    assert ids(reader, project, "t") == [1]


NODE_OF_GRAPH = "{% set n = graph.nodes.values() | selectattr('name', 'equalto', 't') | first %}"
RELATION = "{% set m = ref('t') %}"
BAD = "where id = 9 -- {{ ref('t') }}"
BY_HAND = {
    "text": f"select * from {{{{ target.schema }}}}.t {BAD}",
    "graph": f"{NODE_OF_GRAPH} select * from {{{{ n.schema }}}}.{{{{ n.alias }}}} {BAD}",
    "relation_name": f"{NODE_OF_GRAPH} select * from {{{{ n.relation_name }}}} {BAD}",
    "get_relation": RELATION
    + "select * from {{ adapter.get_relation(m.database, m.schema, m.identifier) or m }} "
    + BAD,
    "create": RELATION
    + "select * from {{ api.Relation.create(schema=m.schema, identifier=m.identifier) }} "
    + BAD,
    "create by target": RELATION
    + "select * from {{ api.Relation.create(schema=target.schema, identifier=m.identifier) }} "
    + BAD,
    "run_query": RELATION
    + "{% set n = [] %}{% if execute %}{% set n = run_query('select id from ' ~ target.schema ~"
    " '.t where id = 9').rows %}{% endif %}"
    " select * from (select {{ n | length }} as n) where n > 0",
}


@pytest.mark.parametrize("how", BY_HAND)
def test_a_test_that_names_the_live_table(
    make_project: MakeProject, reader: Reader, how: str
) -> None:
    project = make_project("text", {"models/t.sql": TABLE + "select 1 as id"})
    project.dbt("build").succeeded()
    project.write({"tests/x.sql": BY_HAND[how]}).dbt("build").succeeded()
    project.write({"models/t.sql": TABLE + "select 9 as id, 2 as more"})
    project.dbt("run")
    project.dbt("test")
    assert ids(reader, project, "t") == [1]
    project.dbt("build")
    assert ids(reader, project, "t") == [1]


@pytest.mark.parametrize("more", ["", ", 2 as more"])
def test_a_child_through_a_view_that_is_not_built(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    files = {
        "models/t.sql": TABLE
        + "select cast({{ env_var('V') }} as int) as id {{ env_var('MORE', '') }}",
        "models/v.sql": VIEW + "select id from {{ ref('t') }}",
        "models/c.sql": TABLE + "select id from {{ ref('v') }}",
    }
    project = make_project("thru", files)
    monkeypatch.setenv("V", "1")
    project.dbt("build").succeeded()
    monkeypatch.setenv("V", "2")
    monkeypatch.setenv("MORE", more)
    project.dbt("run", "--select", "t", wap_branch=f"{project.schema}_n", wap_publish="never")
    project.dbt("run", "--select", "c", wap_branch=f"{project.schema}_n")
    assert (ids(reader, project, "t"), ids(reader, project, "c")) in (([2], [2]), ([1], [1]))


@pytest.mark.smoke
def test_views_are_left_out(make_project: MakeProject, reader: Reader) -> None:
    files = {
        "models/t.sql": TABLE + "select 1 as id",
        "models/v.sql": VIEW + "select id from {{ ref('t') }}",
        "models/c.sql": TABLE + "select id from {{ ref('v') }}",
        "models/m.yml": props_of("c", ONLY_1),
    }
    project = make_project("nov", files)
    project.dbt("build").succeeded()
    project.write({"models/t.sql": TABLE + "select 9 as id, 2 as more"})
    project.dbt("build", "--exclude", "config.materialized:view")
    assert (ids(reader, project, "t"), ids(reader, project, "c")) == ([1], [1])


def test_python_over_a_live_view(make_project: MakeProject, reader: Reader) -> None:
    py = """
        def model(dbt, session):
            dbt.config(materialized="table")
            return dbt.ref("v")
    """
    files = {
        "models/t.sql": TABLE + "select 1 as id",
        "models/v.sql": VIEW + "select id from {{ ref('t') }}",
        "models/p.py": py,
        "models/m.yml": props_of("p", ONLY_1),
    }
    project = make_project("pyv", files)
    project.dbt("build").succeeded()
    project.write({"models/t.sql": TABLE + "select 9 as id, 2 as more"})
    project.dbt("build", "--select", "t", "p")
    assert (ids(reader, project, "t"), ids(reader, project, "p")) == ([1], [1])


# Variables count as the manifest was parsed with them.


@pytest.mark.parametrize("how", ["var", "env"])
def test_a_manifest_that_is_handed_on(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    where = "{{ var('x', '1 = 1') }}" if how == "var" else "{{ env_var('X_WHERE', '1 = 1') }}"
    given = "arguments: {values: [1], quote: false}"
    test = f'{{accepted_values: {{{given}, config: {{where: "{where}"}}}}}}'
    project = make_project(
        "mani", {"models/t.sql": TABLE + "select 1 as id", "models/m.yml": props_of("t", test)}
    )
    project.dbt("build").succeeded()
    project.write({"models/t.sql": TABLE + "select 9 as id"})
    if how == "env":
        monkeypatch.setenv("X_WHERE", "id < 5")
    manifest = (
        dbtRunner()
        .invoke(project._command(("parse",), {"x": "id < 5"} if how == "var" else {}))
        .result
    )
    monkeypatch.delenv("X_WHERE", raising=False)
    dbtRunner(manifest=manifest).invoke(project._command(("build",), {}))
    assert ids(reader, project, "t") == [1]


# What was repelled before, too.


@pytest.mark.parametrize("how", ["relationships", "singular", "through a view"])
def test_lineage_of_a_test_over_two_tables(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    rel = "{relationships: {arguments: {to: ref('TO'), field: id}}}"
    rel = rel.replace("TO", "kv" if how == "through a view" else "k")
    files = {
        "models/o.sql": BY_ENV,
        "models/k.sql": TABLE
        + "select explode(array(1, {{ env_var('V') }})) as id, {{ env_var('BAD') }} as x",
        "models/kv.sql": VIEW + "select id from {{ ref('k') }}",
        "models/m.yml": (
            "models: [{name: k, columns: [{name: x, data_tests: [not_null]}]}"
            + (
                f", {{name: o, columns: [{{name: id, data_tests: [{rel}]}}]}}"
                if how != "singular"
                else ""
            )
            + "]"
        ),
    }
    if how == "singular":
        files["tests/s.sql"] = (
            "select id from {{ ref('o') }} where id not in (select id from {{ ref('k') }})"
        )
    project = make_project("lin", files)
    monkeypatch.setenv("V", "1")
    monkeypatch.setenv("BAD", "1")
    project.dbt("build").succeeded()
    monkeypatch.setenv("V", "2")
    monkeypatch.setenv("BAD", "null")
    project.dbt("run", wap_branch=f"{project.schema}_n", wap_publish="lineage")
    project.dbt("test", wap_branch=f"{project.schema}_n", wap_publish="lineage")
    assert ids(reader, project, "o") == [1]


def test_a_chain_of_retries(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "models/a.sql": TABLE + "select {{ env_var('A') }} as id",
        "models/b.sql": APPEND + "select id from {{ ref('a') }} where {{ env_var('B') }} = 1",
        "models/c.sql": TABLE + "select id from {{ ref('b') }}",
        "models/z.sql": TABLE + "select {{ env_var('Z') }} as id",
        "models/m.yml": f"models: [{{name: a, columns: [{{name: id, data_tests: [{ONLY_1_2}]}}]}},"
        "{name: c, columns: [{name: id, data_tests: [not_null, unique]}]},"
        "{name: z, columns: [{name: id, data_tests: [not_null]}]}]",
    }
    project = make_project("chain", files)
    for k, v in (("A", "1"), ("B", "1"), ("Z", "1")):
        monkeypatch.setenv(k, v)
    project.dbt("build").succeeded()
    steps = [
        ("9", "1", "1", "build"),
        ("2", "nope", "1", "retry"),
        ("2", "1", "null", "retry"),
        ("9", "1", "null", "retry"),
        ("2", "1", "1", "retry"),
        ("2", "1", "1", "retry"),
    ]
    for a, b, z, command in steps:
        for k, v in (("A", a), ("B", b), ("Z", z)):
            monkeypatch.setenv(k, v)
        project.dbt(command)
        seen = {n: ids(reader, project, n) for n in "abcz"}
        assert 9 not in seen["a"] + seen["b"] + seen["c"]
        assert seen in (
            {"a": [1], "b": [1], "c": [1], "z": [1]},
            {"a": [2], "b": [1, 2], "c": [1, 2], "z": [1]},
        )
    assert ids(reader, project, "c") == [1, 2]


SLOW = "select max(hash(a.id, b.id)) % 1 as z from range(200000) a cross join range(60000) b"


def killed(project: Project, until: str, *arguments: str, **variables: Any) -> None:
    log = project.folder / "logs" / "dbt.log"
    log.unlink(missing_ok=True)
    process = project.start(*arguments, **variables)
    import time

    for _ in range(600):
        if log.exists() and until in log.read_text():
            break
        assert process.poll() is None, project.errors.read_text()
        time.sleep(0.1)
    time.sleep(1)
    process.kill()
    process.wait()


@pytest.mark.parametrize("then", ["test", "publish", "test lineage", "test plain"])
def test_a_run_that_is_killed_between_its_tables(
    make_project: MakeProject, reader: Reader, then: str
) -> None:
    files = {
        "models/a.sql": TABLE + "select 1 as id",
        "models/c.sql": TABLE + "select id from {{ ref('a') }}",
        "models/m.yml": props_of("a"),
    }
    project = make_project("half", files, output={"threads": 1})
    project.dbt("build").succeeded()
    files["models/a.sql"] = TABLE + "select 2 as id"
    files["models/c.sql"] = (
        TABLE + f"select id + s.z as id from {{{{ ref('a') }}}} cross join ({SLOW}) s"
    )
    project.write(files)
    branch = f"{project.schema}_n"
    named = {} if then == "test plain" else {"wap_branch": branch}
    killed(project, "START sql table model " + project.schema + ".c", "run", **named)
    if then == "publish":
        project.dbt("test", wap_branch=branch, wap_publish="never")
        done = project.operation("wap_publish", branch=branch)
    elif then == "test lineage":
        done = project.dbt("test", wap_branch=branch, wap_publish="lineage")
    else:
        done = project.dbt("test", **named)
    seen = ids(reader, project, "a"), ids(reader, project, "c")
    assert seen in (([1], [1]), ([2], [2])) or then == "test lineage", done.text
