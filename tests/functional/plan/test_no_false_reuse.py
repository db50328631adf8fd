"""What `sparkwap plan` must not reuse: after each change here, a rebuild may give other rows.

One build for most tests; each changes one thing, asks for the plan, and undoes the change.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from helpers.lake import Reader
from helpers.project import MakeProject, Project
from pyiceberg.types import LongType

from sparkwap.cli import main
from sparkwap.core.dbt_cli import parse_call
from sparkwap.ledger.tables import LedgerTables
from sparkwap.plan.command import selection
from sparkwap.plan.decide import Plan, Step

TABLE = "{{ config(materialized='table') }} "
# Clock, chance, values of the command, and tables that dbt knows nothing of.
UNKNOWN = {
    "now_dbt": "select {{ dbt.current_timestamp() }} as at",
    "now_string": "{% set now = 'current_timestamp()' %}select {{ now }} as at",
    "now_macro": "select {{ stamp() }} as at",
    "now_spine": "{{ dbt.date_spine('day', \"date'2026-11-01'\", 'current_date()') }}",
    "now_literal": "select date'today' as at",
    "now_python": "select '{{ py_current_timestring() }}' as at",
    "uniform": "select uniform(1, 1000000) as at",
    "names_schema": "select '{{ schema }}' as s",
    "braces": "select '{{ pick({'a': {'b': 1}}, target.name) }}' as s",
    "var_alias": "{% set v = var %}select {{ v('n', 1) }} as n",
    "columns": "select {% for c in model.columns %}1 as {{ c }},{% endfor %} 2 as z",
    "described": "select '{{ model.description }}' as x",
    "hidden": "select * from {{ this.schema }}.secret",
    "hidden_api": "select * from {{ api.Relation.create(schema=this.schema, "
    "identifier='secret') }}",
    "hidden_set": "{% set t = this.schema ~ '.secret' %}select * from {{ t }}",
    "of_view": "select * from {{ source('mesh', 'v') }}",
    "of_tag": "select * from {{ source('out', 'raw') }} version as of 'eod'",
}
KNOWN = {
    "inc": "{{ config(materialized='incremental', unique_key='id', incremental_strategy='merge', "
    "wap_reuse=true) }}"
    "select 1 as id {% if is_incremental() %}where {{ only() }}{% endif %}",
    "executed": TABLE + "select {% if execute %}{{ num() }}{% else %}1{% endif %} as x",
    "passed": TABLE + "select {{ outer() }} as x",
    "metas": TABLE + "select {{ config.get('meta', {}).get('k', 0) }} as x",
    "kept": TABLE + "select 1 as id, 2 as b",
    "own": "{{ config(materialized='mine') }} select 1 as id",
    "of_raw": TABLE + "select * from {{ source('out', 'raw') }}",
    "plain": TABLE + "select 1 as id",
}
MACROS = """
    {% macro pick(d, t) %}{{ t }}{% endmacro %}
    {% macro stamp() %}{{ return('current_timestamp()') }}{% endmacro %}
    {% macro inner() %}1{% endmacro %}
    {% macro apply(f) %}{{ f() }}{% endmacro %}
    {% macro outer() %}{{ apply(inner) }}{% endmacro %}
    {% macro only() %}1 = 1{% endmacro %}
    {% macro num() %}1{% endmacro %}
    {% test holds(model, expression) %}
        select * from {{ model }} where not ({{ expression }})
    {% endtest %}
"""
MINE = """
    {% materialization mine, adapter='sparkwap' %}
        {{ return(materialization_table_sparkwap()) }}
    {% endmaterialization %}
"""
SCHEMA = """
sources:
  - {{name: out, schema: {schema}, tables: [{{name: raw}}]}}
  - {{name: mesh, schema: {mesh}, tables: [{{name: v}}]}}
models:
  - {{name: columns, columns: [{{name: a}}]}}
  - {{name: metas, meta: {{k: 1}}}}
  - {{name: described, description: one}}
  - name: kept
    config: {{contract: {{enforced: true}}}}
    columns: [{{name: id, data_type: int}}, {{name: b, data_type: int}}]
  - name: plain
    columns:
      - name: id
        data_tests:
          - not_null: {{config: {{where: "id in (select id from {schema}.secret)"}}}}
          - unique
    data_tests:
      - holds:
          name: holds_hidden
          arguments: {{expression: "id not in (select id from {schema}.secret)"}}
unit_tests:
  - {{name: unit, model: plain, given: [], expect: {{rows: [{{id: 1}}]}}}}
"""
FILES = {
    **{f"models/{name}.sql": TABLE + text for name, text in UNKNOWN.items()},
    **{f"models/{name}.sql": text for name, text in KNOWN.items()},
    "macros/all.sql": MACROS,
    "macros/mine.sql": MINE,
}


class Shop:
    """A project, its lake, and its plan."""

    def __init__(self, project: Project, reader: Reader) -> None:
        self.project, self.reader = project, reader
        reader.catalog.create_namespace_if_not_exists(project.schema)
        folder = str(project.folder)
        self.folders = ("--project-dir", folder, "--profiles-dir", folder)

    def append(self, name: str, number: int) -> None:
        rows = pa.table({"id": pa.array([number], pa.int64())})
        key = (self.project.schema, name)
        self.reader.catalog.create_table_if_not_exists(key, rows.schema).append(rows)

    def add_column(self, name: str) -> None:
        with self.reader.catalog.load_table((self.project.schema, name)).update_schema() as update:
            update.add_column("more", LongType())

    def plan(self) -> dict[str, str]:
        """Return the reasons by node or test; empty if it is reused."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            assert main(["plan", "--output", "json", *self.folders]) == 0
        found: dict[str, Any] = json.loads(out.getvalue())["result"]
        steps = [*found["nodes"], *found["tests"]]
        return {one["unique_id"].split(".")[2]: "; ".join(one["reasons"]) for one in steps}

    @contextlib.contextmanager
    def changed(self, path: str, old: str, new: str) -> Iterator[None]:
        """Change a file, or write one if there is none, and undo it."""
        file = self.project.folder / path
        before = file.read_text() if file.exists() else None
        assert before is None or old in before
        file.write_text(new if before is None else before.replace(old, new, 1))
        try:
            yield
        finally:
            file.unlink() if before is None else file.write_text(before)


@pytest.fixture(scope="module")
def shop(make_project: MakeProject, reader: Reader) -> Shop:
    found = Shop(make_project("shop", FILES), reader)
    mesh, schema = make_project("mesh", {}), found.project.schema
    found.project.write({"models/schema.yml": SCHEMA.format(schema=schema, mesh=mesh.schema)})
    found.append("raw", 1)
    found.append("secret", 7)
    raw = reader.catalog.load_table((schema, "raw"))
    raw.manage_snapshots().create_tag(raw.current_snapshot().snapshot_id, "eod").commit()
    mesh.write(
        {
            "models/v.sql": "select * from {{ source('o', 'secret') }}",
            "models/s.yml": f"sources: [{{name: o, schema: {schema}, tables: [{{name: secret}}]}}]",
        }
    )
    mesh.dbt("build").succeeded()
    found.project.dbt("build").succeeded()
    return found


@pytest.fixture(scope="module")
def unchanged(shop: Shop) -> dict[str, str]:
    found = shop.plan()
    assert {name: found[name] for name in KNOWN} == dict.fromkeys(KNOWN, "")
    return found


@pytest.mark.parametrize("name", [*UNKNOWN, "holds_hidden", "not_null_plain_id"])
def test_what_may_change_by_itself(unchanged: dict[str, str], name: str) -> None:
    assert unchanged[name]


@pytest.mark.parametrize(
    ("name", "path", "old", "new"),
    [
        ("inc", "macros/all.sql", "1 = 1", "1 = 2"),
        ("executed", "macros/all.sql", "num() %}1", "num() %}2"),
        ("passed", "macros/all.sql", "inner() %}1", "inner() %}2"),
        ("metas", "models/schema.yml", "{k: 1}", "{k: 2}"),
        ("kept", "models/schema.yml", "int}]", "int, constraints: [{type: not_null}]}]"),
        (
            "kept",
            "models/schema.yml",
            "{name: id, data_type: int}, {name: b, data_type: int}",
            "{name: b, data_type: int}, {name: id, data_type: int}",
        ),
        ("own", "macros/mine.sql", "{{ return(", "{% do log('x') %}{{ return("),
        ("plain", "models/schema.yml", "rows: [{id: 1}]", "rows: [{id: 2}]"),
        ("plain", "dbt_project.yml", '"name"', '"on-run-start": ["select 1"], "name"'),
        ("plain", "models/plain.sql", "1 as id", "2 as id"),
    ],
)
def test_a_change_of_the_code(
    shop: Shop, unchanged: dict[str, str], name: str, path: str, old: str, new: str
) -> None:
    with shop.changed(path, old, new):
        assert shop.plan()[name]


OVERRIDES = {
    "get_where_subquery": "macro get_where_subquery(relation) %}x{% endmacro",
    "default__get_test_sql": "macro default__get_test_sql(sql, a, b, c, d) %}x{% endmacro",
    "sparkwap__create_table_as": "macro sparkwap__create_table_as(a, b, c, d) %}x{% endmacro",
    "table": "materialization table, adapter='sparkwap' %}x{% endmaterialization",
    "is_incremental": "macro is_incremental() %}{{ return(false) }}{% endmacro",
    "test_unique": "test unique(model, column_name) %}select 1{% endtest",
    "ref": "macro ref(x) %}{{ return(builtins.ref(x)) }}{% endmacro",
}


@pytest.mark.parametrize("override", OVERRIDES)
def test_an_override_of_a_macro_of_dbt(
    shop: Shop, unchanged: dict[str, str], override: str
) -> None:
    name = "unique_plain_id" if "test" in override or "where" in override else "inc"
    assert not unchanged[name]
    with shop.changed("macros/override.sql", "", f"{{% {OVERRIDES[override]} %}}"):
        assert shop.plan()[name]


def test_dbt_writes_no_manifest(shop: Shop, unchanged: dict[str, str]) -> None:
    no_manifest = shop.changed("dbt_project.yml", '"flags": {', '"flags": {"write_json": false, ')
    with no_manifest, shop.changed("models/plain.sql", "1 as id", "3 as id"):
        assert shop.plan()["plain"]


def test_a_ledger_of_an_older_version(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    read = LedgerTables.read
    new = ("reads", "seconds", "manifest_hash", "built_on", "named")

    def older(self: Any, table: str, *more: Any, **other: Any) -> Any:
        rows = read(self, table, *more, **other)
        return [{key: row[key] for key in row if key not in new} for row in rows]

    monkeypatch.setattr(LedgerTables, "read", older)
    assert shop.plan()["plain"]


def test_another_column_has_no_snapshot(shop: Shop, unchanged: dict[str, str]) -> None:
    shop.add_column("raw")
    assert "raw has changed" in shop.plan()["of_raw"]
    shop.add_column("plain")
    assert shop.plan()["plain"] == "its columns have changed since its last publish"


def test_a_branch_that_is_published_later(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "models/t.sql": TABLE + "select 1 as id",
        "models/u.sql": TABLE + "select * from {{ ref('t') }}",
        "models/y.yml": "models: [{name: t, columns: [{name: id, data_tests: [not_null]}]}]",
    }
    shop = Shop(make_project("later", files), reader)
    shop.project.dbt("build").succeeded()
    assert not any(shop.plan().values())
    monkeypatch.setenv("SPARKWAP_BRANCH", "dev")
    with shop.changed("models/t.sql", "1 as id", "5 as id"):
        shop.project.dbt("build", "--select", "t", wap_publish="never")
        # Its test has passed on the candidate, which is not live.
        assert all(shop.plan().values())
    assert not any(shop.plan().values())
    shop.project.operation("wap_publish", branch="dev").succeeded()
    assert reader.table(shop.project.schema, "t").values("id") == [5]
    monkeypatch.delenv("SPARKWAP_BRANCH")
    found = shop.plan()
    assert found["t"]
    assert found["u"]
    with shop.changed("models/t.sql", "1 as id", "5 as id"):
        assert shop.plan()["u"]


def test_a_clone_of_a_table_of_other_code(make_project: MakeProject, reader: Reader) -> None:
    prod = make_project("prod", {"models/t.sql": TABLE + "select 1 as id"})
    prod.dbt("build").succeeded()
    dev = make_project("dev", {"models/t.sql": TABLE + "select 2 as id"})
    dev.dbt("clone", "--state", str(prod.folder / "target"))
    assert reader.table(dev.schema, "t").values("id") == [1]
    assert Shop(dev, reader).plan()["t"]


ODD = {
    **{
        f"models/{path}.sql": TABLE + "select 1 as id"
        for path in ("a b/spaced", "a,b/comma", "p+q/plus", "br[1]/bracket", "same", "same/inner")
    },
    **{f"models/ver_v{number}.sql": TABLE + "select 1 as id" for number in (1, 2)},
    "tests/o d/single.sql": "select * from {{ ref('same') }} where id > 1",
    "models/my props.yml": """
        models:
          - name: ver
            latest_version: 2
            versions: [{v: 1}, {v: 2}]
            columns: [{name: id, data_tests: [not_null]}]
          - name: same
            columns: [{name: id, data_tests: [not_null: {name: "no,null"}, unique: {name: "un*"}]}]
        """,
}


def test_each_name_is_selected(
    make_project: MakeProject, capsys: pytest.CaptureFixture[str]
) -> None:
    project = make_project("odd", ODD)
    folder = str(project.folder)
    manifest = parse_call(["--project-dir", folder, "--profiles-dir", folder]).manifest()
    keys = [key for key in manifest["nodes"] if key.startswith(("model.shop", "test.shop"))]
    assert len(keys) == 13
    steps = tuple(Step(key, "build", ("new",), None, None) for key in keys)
    plan = Plan(steps[:0], steps)
    capsys.readouterr()
    shown = ("--output", "json", "--output-keys", "unique_id", "--indirect-selection", "empty")
    listed = project.dbt("ls", *shown, "--select", *selection(plan, manifest))
    text = listed.text + capsys.readouterr().out
    assert [key for key in keys if f'"{key}"' not in text] == []
