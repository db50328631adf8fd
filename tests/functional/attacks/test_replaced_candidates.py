"""Candidates that are built anew, rolled back or taken over after something has read them.

- the side schema of a branch is a schema that readers read;
- a table is built on a candidate that another build replaces;
- a second command builds a table anew on the branch that the first one left;
- a test reads a table by another way than ref(), before the run has built it;
- a variable weakens a test from outside of the test;
- a publish that was rolled back is what later tests are compared with;
- a clone takes the place of a table that has tests;
- another project builds the table and has none of its tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.catalogs import KIND
from helpers.lake import Reader
from helpers.project import MakeProject, Project

ROOT = Path(__file__).parents[3]
TABLE = "{{ config(materialized='table') }} "
BY_ENV = TABLE + "select cast({{ env_var('V') }} as int) as id"
APPEND = "{{ config(materialized='incremental', incremental_strategy='append') }} "


def props_of(name: str, test: str = "not_null", kind: str = "models") -> str:
    return f"{kind}: [{{name: {name}, columns: [{{name: id, data_tests: [{test}]}}]}}]"


ONLY_1_2 = "{accepted_values: {arguments: {values: [1, 2], quote: false}}}"
ONLY_1 = "{accepted_values: {arguments: {values: [1], quote: false}}}"


def ids(reader: Reader, project: Project, name: str) -> list[Any]:
    return list(reader.table(project.schema, name).values("id"))


# The side schema of a branch is a schema that readers read.
DOUBLE = """
    {% macro generate_schema_name(custom, node) %}
        {{- target.schema }}{{ '__' ~ custom if custom else '' -}}
    {% endmacro %}
"""


@pytest.fixture
def two_schemas(make_project: MakeProject) -> Project:
    """Models in <schema> and in <schema>__staging, as many projects have them."""
    project = make_project(
        "two",
        {
            "macros/schemas.sql": DOUBLE,
            "models/orders.sql": "{{ config(materialized='table', schema='staging') }}"
            "select 1 as id",
            "models/seen.sql": "{{ config(materialized='view', schema='staging') }}"
            "select id from {{ ref('orders') }}",
        },
    )
    project.dbt("build").succeeded()
    return project


@pytest.mark.parametrize("alias", ["orders", "fresh"])
def test_a_branch_with_the_name_of_a_schema(
    two_schemas: Project, reader: Reader, alias: str
) -> None:
    project, live = two_schemas, two_schemas.schema + "__staging"
    before = {name: one.seen() for name, one in reader.look(live).items()}
    project.write(
        {
            "models/main_orders.sql": "{{ config(materialized='table', alias='ALIAS') }}".replace(
                "ALIAS", alias
            )
            + "select cast(null as int) as id",
            "models/m.yml": props_of("main_orders"),
        }
    )
    project.dbt("build", "--select", "main_orders", wap_branch="staging").failed()
    assert {name: one.seen() for name, one in reader.look(live).items()} == before


@pytest.mark.smoke
def test_a_discard_of_a_branch_with_the_name_of_a_schema(
    two_schemas: Project, reader: Reader
) -> None:
    project, live = two_schemas, two_schemas.schema + "__staging"
    before = {name: one.seen() for name, one in reader.look(live).items()}
    project.write({"models/more.sql": TABLE + "select 1 as id"})
    project.dbt("run", "--select", "more", wap_branch="staging", wap_publish="never")
    project.operation("wap_discard", branch="staging")
    assert {name: one.seen() for name, one in reader.look(live).items()} == before


def test_a_publish_of_a_branch_with_the_name_of_a_schema(
    two_schemas: Project, reader: Reader
) -> None:
    project, live = two_schemas, two_schemas.schema + "__staging"
    project.write(
        {"models/v.sql": "{{ config(materialized='view', alias='orders') }} select 2 as id"}
    )
    project.dbt("build", "--select", "v", wap_branch="staging")
    assert reader.table(live, "orders").values("id") == [1]


# What was built on a candidate that has been superseded is published with its successor.
CHAIN = {
    "models/b.sql": BY_ENV,
    "models/c.sql": TABLE + "select id from {{ ref('b') }}",
    "models/m.yml": props_of("b", ONLY_1_2),
}


@pytest.mark.parametrize(
    "way",
    [
        "run run test",
        "run test build",
        pytest.param("run test build lineage", marks=pytest.mark.smoke),
    ],
)
def test_a_child_of_a_superseded_candidate(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    project = make_project("child", CHAIN)
    monkeypatch.setenv("V", "1")
    project.dbt("build").succeeded()
    monkeypatch.setenv("V", "9")
    held = project.dbt("run").succeeded()
    if way == "run run test":
        monkeypatch.setenv("V", "2")
        project.dbt("run", "--select", "b").succeeded()
        project.dbt("test")
    else:
        project.dbt("test").failed()
        monkeypatch.setenv("V", "2")
        mode = "lineage" if way.endswith("lineage") else "run"
        project.dbt("build", "--select", "b", wap_branch=held.branch, wap_publish=mode)
    assert ids(reader, project, "c") in ([1], [2])


def test_a_snapshot_keeps_rejected_rows(make_project: MakeProject, reader: Reader) -> None:
    snapshot = """
        {% snapshot h %}{{ config(strategy='check', unique_key='id', check_cols=['id']) }}
        select id from {{ ref('s') }} {% endsnapshot %}
    """
    project = make_project(
        "kept", {"seeds/s.csv": "id\n1\n", "snapshots/h.sql": snapshot,
                 "seeds/m.yml": props_of("s", ONLY_1_2, "seeds")},
    )  # fmt: skip
    project.dbt("build").succeeded()
    for rows, commands in (("9", ("seed", "snapshot")), ("2", ("seed", "test"))):
        project.write({"seeds/s.csv": f"id\n{rows}\n"})
        for command in commands:
            project.dbt(command)
    assert 9 not in ids(reader, project, "h")


@pytest.mark.parametrize("flag", [("--empty",), ("--sample", "1 day")])
def test_children_of_a_parent_without_its_rows(
    make_project: MakeProject, reader: Reader, flag: tuple[str, ...]
) -> None:
    """On a named branch: the parent is built whole and tested later, its children are not."""
    at = "{{ config(materialized='table', event_time='ts') }}"
    snapshot = """
        {% snapshot h %}{{ config(strategy='check', unique_key='id', check_cols=['v'],
                                  hard_deletes='invalidate') }}
        select id, v from {{ ref('b') }} {% endsnapshot %}
    """
    files = {
        "models/a.sql": at + "select 1 as id, 2 as v, timestamp '2020-01-01' as ts",
        "models/b.sql": TABLE + "select id, v from {{ ref('a') }}",
        "models/c.sql": TABLE + "select id from {{ ref('b') }}",
        "models/m.yml": props_of("b"),
        "snapshots/h.sql": snapshot,
    }
    project = make_project("empty", files)
    project.dbt("build").succeeded()
    branch = f"{project.schema}_n"
    for command in (("run", "--select", "b", *flag), ("run", "--select", "c"), ("snapshot",),
                    ("run", "--select", "b"), ("test",)):  # fmt: skip
        project.dbt(*command, wap_branch=branch)
    assert ids(reader, project, "c") == [1]
    assert reader.table(project.schema, "h").values("dbt_valid_to") == [None]


def test_batches_of_a_rejected_parent_beside_those_of_a_good_one(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = """
        {{ config(materialized='incremental', incremental_strategy='microbatch', event_time='ts',
                  batch_size='year', begin='2023-01-01') }}
        select ts, id, cast(if(year(ts) = 2024, '{{ env_var('BAD') }}', '1') as int) as v
        from (select explode(array(timestamp '2023-02-01', timestamp '2024-02-01')) as ts)
        cross join {{ ref('b') }}
        where ts >= timestamp '{{ model.batch.event_time_start }}'
            and ts < timestamp '{{ model.batch.event_time_end }}'
    """
    files = {"models/b.sql": BY_ENV, "models/m.sql": model, "models/m.yml": props_of("b", ONLY_1_2)}
    project = make_project("mixed", files)
    window = ("--event-time-start", "2023-01-01", "--event-time-end", "2025-01-01")
    branch = ""
    for value, bad, commands in (
        ("1", "1", (("build", *window),)),
        ("9", "x", (("run", *window),)),
        ("2", "1", (("run", "--select", "b", "--target-path", "target/2"), ("retry",), ("test",))),
    ):
        monkeypatch.setenv("V", value)
        monkeypatch.setenv("BAD", bad)
        for command in commands:
            named = {"wap_branch": branch} if value == "2" and command[0] != "retry" else {}
            done = project.dbt(*command, **named)
            branch = done.branch if value == "9" else branch
    assert 9 not in ids(reader, project, "m")


# A second command on a held branch takes back what the first one has built there.
@pytest.mark.parametrize("strategy", ["append", "merge", "insert_overwrite"])
def test_days_that_were_built_one_by_one(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    config = f"incremental_strategy='{strategy}', unique_key='id', partition_by='id'"
    model = "{{ config(materialized='incremental', CONFIG) }} select {{ env_var('V') }} as id"
    model = model.replace("CONFIG", config)
    project = make_project("days", {"models/b.sql": model, "models/m.yml": props_of("b")})
    monkeypatch.setenv("V", "1")
    project.dbt("build").succeeded()
    for day in ("2", "3"):
        monkeypatch.setenv("V", day)
        project.dbt("run").succeeded()
    project.dbt("test").succeeded()
    assert ids(reader, project, "b") == [1, 2, 3]


@pytest.mark.smoke
def test_windows_that_were_built_one_by_one(make_project: MakeProject, reader: Reader) -> None:
    model = """
        {{ config(materialized='incremental', incremental_strategy='microbatch', event_time='id',
                  batch_size='year', begin='2020-01-01') }}
        select id from (select explode(array(timestamp '2020-02-01', timestamp '2021-02-01',
                                             timestamp '2022-02-01')) as id)
        where id >= timestamp '{{ model.batch.event_time_start }}'
            and id < timestamp '{{ model.batch.event_time_end }}'
    """
    project = make_project("windows", {"models/b.sql": model, "models/m.yml": props_of("b")})
    for year in (2020, 2021, 2022):
        window = ("--event-time-start", f"{year}-01-01", "--event-time-end", f"{year + 1}-01-01")
        project.dbt("run", *window).succeeded()
    project.dbt("test").succeeded()
    assert [one.year for one in ids(reader, project, "b")] == [2020, 2021, 2022]


def test_a_full_refresh_that_the_next_run_takes_back(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = APPEND + "select {{ env_var('V') }} as id"
    project = make_project("refresh", {"models/b.sql": model, "models/m.yml": props_of("b")})
    for day, flags in (("1", ()), ("2", ("--full-refresh",)), ("3", ())):
        monkeypatch.setenv("V", day)
        project.dbt("build" if day == "1" else "run", *flags).succeeded()
    project.dbt("test").succeeded()
    assert ids(reader, project, "b") == [2, 3]


# A test reads a table by another way than ref(), before this run has built it.
@pytest.mark.parametrize("how", ["source", "text", "of a source", "relationships"])
def test_a_test_that_read_the_old_table(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setenv("V", "1")
    project = make_project("early", {"models/t.sql": BY_ENV})
    project.dbt("build").succeeded()
    columns = props_of("t", ONLY_1)[len("models: [{name: t") : -2] if how == "of a source" else ""
    sources = "sources: [{name: same, schema: '%s', tables: [{name: t%s}]}]"
    files = {"models/s.yml": sources % (project.schema, columns)}
    # Half a second of other work before `t`, so that the test comes first.
    files["models/a.sql"] = TABLE + "select 1 as id"
    files["models/t.sql"] = BY_ENV + " -- {{ ref('a') }}"
    if how == "source":
        files["tests/x.sql"] = "select * from {{ source('same', 't') }} where id = 9"
    elif how == "text":
        files["tests/x.sql"] = "select * from {{ target.schema }}.t where id = 9"
    elif how == "relationships":
        to = "{relationships: {arguments: {to: \"source('same', 't')\", field: id}}}"
        files["models/m.yml"] = props_of("a", to)
        slow = "select count(*) as n from range(30000000) where id % 7 = hash(id) % 5"
        files["models/slow.sql"] = TABLE + slow
        files["models/t.sql"] = BY_ENV + " -- {{ ref('slow') }}"
    project.write(files)
    project.dbt("build").succeeded()
    monkeypatch.setenv("V", "9")
    project.dbt("build")
    assert ids(reader, project, "t") == [1]


def test_a_test_of_a_view_over_a_source_of_the_same_name(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("V", "1")
    project = make_project("viewed", {"models/t.sql": BY_ENV})
    project.dbt("build").succeeded()
    project.write(
        {
            "models/s.yml": f"sources: [{{name: same, schema: {project.schema},"
            " tables: [{name: t}]}]\n" + props_of("v"),
            "models/v.sql": "{{ config(materialized='view') }}"
            " select nullif(id, 9) as id from {{ source('same', 't') }}",
        }
    )
    project.dbt("build", "--select", "v").succeeded()
    monkeypatch.setenv("V", "9")
    project.dbt("build", "--select", "t")
    assert ids(reader, project, "t") == [1]


# A variable of the command line weakens a test from outside of the test.
OUTSIDE: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "ephemeral": (
        {
            "models/e.sql": "{{ config(materialized='ephemeral') }}"
            " select id from {{ ref('t') }} where id < {{ var('x', 100) }}",
            "models/m.yml": props_of("e", ONLY_1),
        },
        {"x": 5},
    ),
    "ephemeral parent of relationships": (
        {
            "models/known.sql": "{{ config(materialized='ephemeral') }}"
            " select 1 as id {% if var('x', 0) %} union all select 9 {% endif %}",
            "models/m.yml": props_of(
                "t", "{relationships: {arguments: {to: ref('known'), field: id}}}"
            ),
        },
        {"x": 1},
    ),
    "identifier of a source": (
        {
            "models/lax.sql": TABLE + "select explode(array(1, 9)) as id",
            "models/good.sql": TABLE + "select 1 as id -- {{ ref('lax') }}",
            "models/s.yml": "sources: [{name: src, schema: '{{ target.schema }}', tables:"
            " [{name: known, identifier: \"{{ var('x', 'good') }}\"}]}]",
            "models/t.sql": BY_ENV + " -- {{ ref('good') }}",
            "models/m.yml": props_of(
                "t", "{relationships: {arguments: {to: \"source('src', 'known')\", field: id}}}"
            ),
        },
        {"x": "lax"},
    ),
    "a model between, enabled": (
        {
            "models/v.sql": "{{ config(materialized='view', enabled=var('x', true)) }}"
            " select id from {{ ref('t') }}",
            "models/m.yml": props_of("v", ONLY_1),
        },
        {"x": False},
    ),
    "get_test_sql": (
        {
            "macros/m.sql": "{% macro get_test_sql(main_sql, fail_calc, warn_if, error_if,"
            " limit) %}"
            " select {{ fail_calc }} as failures, {{ fail_calc }} {{ warn_if }} as should_warn,"
            " {{ fail_calc }} {{ error_if }} as should_error from ({{ main_sql }}) as q"
            " {% if var('x', false) %} where 1 = 0 {% endif %} {% endmacro %}",
            "models/m.yml": props_of("t", ONLY_1),
        },
        {"x": True},
    ),
}


@pytest.mark.parametrize("where", OUTSIDE)
def test_a_variable_outside_of_the_test(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    files, given = OUTSIDE[where]
    project = make_project("outside", {"models/t.sql": BY_ENV, **files})
    monkeypatch.setenv("V", "1")
    project.dbt("build").succeeded()
    monkeypatch.setenv("V", "9")
    project.dbt("build").failed()
    assert ids(reader, project, "t") == [1]
    project.dbt("build", **given)
    assert ids(reader, project, "t") == [1]


def test_a_unit_test_that_expects_a_variable(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = """
        unit_tests:
          - name: ut
            model: u
            given: [{input: ref('s'), rows: [{id: 1}]}]
            expect: {rows: [{id: "{{ var('x', 1) }}"}]}
    """
    model = TABLE + "select id {{ env_var('V') }} as id from {{ ref('s') }}"
    files = {"models/s.sql": TABLE + "select 1 as id", "models/u.sql": model, "models/m.yml": unit}
    project = make_project("expects", files)
    monkeypatch.setenv("V", "")
    project.dbt("build").succeeded()
    monkeypatch.setenv("V", "+ 1")
    project.dbt("build", x=2)
    assert ids(reader, project, "u") == [1]


# What was accepted once, and rolled back, is what later tests are compared with.
@pytest.mark.parametrize("how", ["severity", "where"])
def test_a_rolled_back_publish_is_no_measure(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    value, weak = {"severity": ("'error'", "warn"), "where": ("'1 = 1'", "id > 0")}[how]
    test = "not_null: {config: {HOW: \"{{ var('x', VALUE) }}\"}}"
    test = test.replace("HOW", how).replace("VALUE", value)
    project = make_project("back", {"models/t.sql": BY_ENV, "models/m.yml": props_of("t", test)})
    monkeypatch.setenv("V", "1")
    project.dbt("build").succeeded()
    monkeypatch.setenv("V", "null")
    project.dbt("build", x=weak)
    assert ids(reader, project, "t") == [1]
    accepted = project.dbt("build", x=weak, wap_warnings="publish").succeeded()
    project.operation("wap_rollback", run=accepted.run_id[:8]).succeeded()
    assert ids(reader, project, "t") == [1]
    project.dbt("build", x=weak)
    assert ids(reader, project, "t") == [1]


# `dbt clone` publishes over a table that has tests, also with wap_require_tests.
def test_a_clone_over_a_table_with_tests(make_project: MakeProject, reader: Reader) -> None:
    dev = make_project("dev", {"models/t.sql": TABLE + "select cast(null as int) as id"})
    dev.dbt("build").succeeded()
    files = {"models/t.sql": TABLE + "select 1 as id", "models/m.yml": props_of("t")}
    prod = make_project("prod", files)
    prod.dbt("build").succeeded()
    state = ("--state", str(dev.folder / "target"))
    done = prod.dbt("clone", *state, "--full-refresh", wap_require_tests=True)
    assert ids(reader, prod, "t") == [1], done.text


# Another project builds the table, and has none of its tests.
SNAPSHOT = """
    snapshots:
      - name: t
        relation: ref('rows')
        config: {unique_key: id, strategy: check, check_cols: [id]}
        columns: [{name: id, data_tests: [not_null]}]
"""
BUILDERS = {
    "model": {"models/t.sql": TABLE + "select 1 as id", "models/m.yml": props_of("t")},
    "seed": {"seeds/t.csv": "id\n1\n", "seeds/m.yml": props_of("t", kind="seeds")},
    "snapshot": {"models/rows.sql": TABLE + "select 1 as id", "snapshots/t.yml": SNAPSHOT},
}
GUESTS = {
    "model": {"models/t.sql": TABLE + "select cast(null as int) as id"},
    "seed": {"seeds/t.csv": "id,v\n,1\n"},
    "incremental model": {"models/t.sql": APPEND + "select cast(null as int) as id"},
    "model in another case": {
        "models/t.sql": "{{ config(materialized='table', alias='T') }} select null as id"
    },
}


@pytest.fixture(scope="module", params=BUILDERS)
def owner(request: pytest.FixtureRequest, make_project: MakeProject) -> Project:
    owner = make_project("owner", BUILDERS[request.param])
    owner.dbt("build").succeeded()
    return owner


@pytest.mark.parametrize("guest", GUESTS)
def test_another_project_builds_the_table(
    owner: Project, make_project: MakeProject, reader: Reader, guest: str
) -> None:
    before = {name: one.seen() for name, one in reader.look(owner.schema).items()}
    other = make_project("guest", GUESTS[guest], settings={"name": "guest"})
    profile = json.loads((other.folder / "profiles.yml").read_text())
    profile["shop"]["outputs"]["test"]["schema"] = owner.schema
    other.write({"profiles.yml": json.dumps(profile)})
    for options in ({}, {"wap_publish": "lineage", "wap_branch": "theirs"}):
        done = other.dbt("build", **options)
        look = {name: one.seen() for name, one in reader.look(owner.schema).items()}
        assert look == before, done.text
    other.operation("wap_publish", branch="theirs")
    assert {name: one.seen() for name, one in reader.look(owner.schema).items()} == before


@pytest.mark.skipif(KIND != "sqlite", reason="the example is called with the catalog of a folder")
def test_a_file_is_loaded_into_the_table(
    owner: Project, reader: Reader, lake_dir: Path, tmp_path: Path
) -> None:
    before = reader.table(owner.schema, "t").seen()
    kind = reader.catalog.load_table((owner.schema, "t")).schema().as_arrow()
    rows = [{**dict.fromkeys(kind.names), "id": None}]
    pq.write_table(pa.Table.from_pylist(rows, kind), tmp_path / "rows.parquet")
    (tmp_path / "audits.sql").write_text("select * from candidate where id > 5")
    done = subprocess.run(
        [
            *(sys.executable, ROOT / "examples/load/load.py"),
            *(tmp_path / "rows.parquet", f"{owner.schema}.t"),
            *("--catalog", f"sqlite:///{lake_dir}/catalog.db"),
            *("--warehouse", f"file://{lake_dir}/warehouse"),
            *("--audits", tmp_path / "audits.sql", "--publish"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{owner.schema}.t is built by" in done.stderr
    assert reader.table(owner.schema, "t").seen() == before
