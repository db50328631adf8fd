"""Statements of a project's authors that change a live table, past its tests.

The class: SQL that dbt sends by the hands of a hook, a macro, a header or a run-operation, in any
command, in any spelling. A statement that is not known to be harmless is not sent, so that no
pointer of a gated table moves.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from helpers.lake import Reader
from helpers.project import MakeProject, Outcome, Project
from helpers.statements import Grammar

TABLE = "{{ config(materialized='table'%s) }} "
MODELS = {
    # A name with capital letters is the catalog's as it is.
    "models/orders.sql": TABLE % ", alias='Orders'" + "select {{ env_var('V') }} as id",
    "models/sold.sql": TABLE % "" + "select id from {{ ref('orders') }}",
    "models/properties.yml": """
        models:
          - {name: orders, columns: [{name: id, data_tests: [not_null]}]}
          - {name: sold, columns: [{name: id, data_tests: [not_null]}]}
    """,
    "macros/attack.sql": """
        {% macro attack(statements) %}
            {% if execute %}
                {% for one in statements %}{% do run_query(one) %}{% endfor %}
            {% endif %}
        {% endmacro %}
    """,
}
SOURCES = """
    sources:
      - name: raw
        schema: "{{ target.schema }}"
        loaded_at_field: cast('2020-01-01' as timestamp)
        freshness: {warn_after: {count: 1, period: day}}
        tables: [{name: free}]
"""

LINES = {
    "from insert": (
        "from (select 9 as id) insert into {s}.Orders select id",
        "with a as (select 9 as id) from a insert overwrite {s}.`Orders` select id",
        "FROM {s}.sold INSERT INTO lake.{s}.Orders SELECT id WHERE id > 0 INSERT INTO {s}.sold"
        " SELECT id",
    ),
    "execute immediate": (
        "execute immediate 'insert into {s}.Orders values (9)'",
        "EXECUTE IMMEDIATE r'truncate table {s}.Orders'",
        "explain execute immediate 'drop table {s}.Orders'",
    ),
    "block": (
        "begin insert into {s}.Orders values (9); end",
        "/* a */ BEGIN\n declare x = 1;\n delete from {s}.Orders;\nEND",
        "begin if true then truncate table {s}.Orders; end if; end",
    ),
    "identifier": (
        "insert into identifier('{s}.Orders') values (9)",
        "insert overwrite IDENTIFIER ('{s}' || '.Orders') values (9)",
        "delete from identifier(r'lake.{s}.`Orders`')",
    ),
    "call": (
        "call lake.system.add_files(table => '{s}.Orders', source_table => '`parquet`.`/tmp/x`')",
        "CALL `lake`.system.rollback_to_snapshot('{s}.Orders', {id})",
        "call system.rewrite_data_files(table => '{s}.Orders', options => map('a', 'b'))",
    ),
    "use": (
        "use {s} | insert into Orders values (9)",
        "use lake.{s} | delete from `Orders`",
        "USE SCHEMA {s} | truncate table Orders",
    ),
    "snapshot by a property": (
        "alter table {s}.Orders set tblproperties ('current-snapshot-id' = '{id}')",
        "ALTER TABLE `{s}`.`Orders` SET TBLPROPERTIES ('a' = 'b', 'current-snapshot-id' '{id}')",
        "alter table lake.{s}.Orders set tblproperties (`write.wap.enabled` = false)",
    ),
    "branch": (
        "insert into {s}.Orders with ('branch' = 'main') values (9)",
        "insert into {s}.Orders.branch_main values (9)",
        "delete from lake.{s}.Orders.`branch_main`",
    ),
    "drop": (
        "drop table identifier('{s}.Orders')",
        "drop table if exists lake . {s} -- `\n . `Orders` purge",
        "drop view {s}.Orders",
    ),
    "capital letters": (
        "insert into {s}.Orders values (9)",
        "create or replace table {s}.Orders using iceberg as select cast(null as int) as id",
        "alter table {s}.Orders rename to {s}.orders",
    ),
    "session": (
        "set spark.wap.branch = main | insert into {s}.Orders values (9)",
        "reset | insert into {s}.Orders values (9)",
        "set `spark.sql.variable.substitute` = true | ${{spark.app.name}}",
    ),
}


@dataclass
class Attacked:
    """A project with two published tables, of which each has an earlier snapshot."""

    project: Project
    reader: Reader

    @property
    def schema(self) -> str:
        return self.project.schema

    def statements(self) -> dict[str, list[str]]:
        """The statements of the issue's lines and some of the grammar's, by the name of a model."""
        snapshot = self.reader.metadata(self.schema, "Orders")["snapshots"][0]["snapshot-id"]
        found = {}
        for line, spellings in LINES.items():
            for number, text in enumerate(spellings):
                name = f"{line.replace(' ', '_')}_{number}"
                found[name] = text.format(s=self.schema, id=snapshot).split(" | ")
        grammar = Grammar("lake", self.schema, "Orders", free="free", snapshot=snapshot)
        for number, written in enumerate(grammar.sample(seed=12, count=60)):
            found[f"written_{number}"] = [written.sql]
        return found

    def write(self, statements: dict[str, list[str]]) -> None:
        """A model for each attack, sent while it is compiled."""
        self.project.write(
            {
                f"models/attacks/{name}.sql": TABLE % ""
                + "{{ attack("
                + json.dumps(texts)
                + ") }} select 1 as x"
                for name, texts in statements.items()
            }
        )

    def seen(self) -> dict[str, Any]:
        """What readers see of them; a run may open its branch of a table and hold it."""
        look = self.reader.look(self.schema)
        return {name: look[name].seen() if name in look else None for name in ("Orders", "sold")}

    def restore(self) -> Project:
        return self.project.clear("models", "macros").write(MODELS)


@pytest.fixture(scope="module")
def attacked_project(make_project: MakeProject) -> Project:
    project = make_project("attacked", MODELS)
    with pytest.MonkeyPatch.context() as patch:
        for v in ("1", "2"):
            patch.setenv("V", v)
            project.dbt("build").succeeded()
    return project


@pytest.fixture
def attacked(attacked_project: Project, reader: Reader, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("V", "3")
    attacked = Attacked(attacked_project, reader)
    attacked.restore()
    before = attacked.seen()
    assert None not in before.values()
    yield attacked
    assert attacked.seen() == before


@pytest.mark.smoke
def test_in_a_run(attacked: Attacked) -> None:
    statements = attacked.statements()
    attacked.write(statements)
    before = attacked.reader.pointers(attacked.schema)
    done = attacked.project.dbt("run", "--select", "path:models/attacks").failed()
    assert {name: done.statuses[name] for name in statements} == dict.fromkeys(statements, "error")
    assert done.text.count("The guard refused") >= len(statements)
    assert "PARSE_SYNTAX_ERROR" not in done.text
    assert attacked.reader.pointers(attacked.schema) == before


@pytest.mark.parametrize("seed", [6, 8, 12])
def test_in_a_run_by_the_net_alone(attacked: Attacked, seed: int) -> None:
    """With the guard switched off the statements are sent, one after the other, on one table."""
    snapshot = attacked.reader.metadata(attacked.schema, "Orders")["snapshots"][0]["snapshot-id"]
    grammar = Grammar("lake", attacked.schema, "Orders", free="free", snapshot=snapshot)
    # A purge deletes files, which nobody puts back: docs/net.md.
    written = [one for one in grammar.sample(seed, count=60) if "purge" not in one.sql.lower()]
    attacked.write({f"written_{number}": [one.sql] for number, one in enumerate(written)})
    before = attacked.seen()
    done = attacked.project.dbt("run", "--select", "path:models/attacks", wap_guard=False).failed()
    assert "was moved past the gate" in done.text
    assert attacked.seen() == before, done.text


SPELLINGS = ("insert into {s}.Orders values (9)", LINES["from insert"][1], LINES["block"][0])


@pytest.mark.parametrize(
    "command", [("compile",), ("docs", "generate"), ("show",), ("build", "--empty")]
)
def test_by_what_a_node_sends_when_it_is_compiled(
    attacked: Attacked, command: tuple[str, ...]
) -> None:
    for number, text in enumerate(SPELLINGS):
        attacked.write({f"compiled_{number}": [text.format(s=attacked.schema)]})
        done = attacked.project.dbt(*command, "--select", f"compiled_{number}").failed()
        assert "The guard refused" in done.text


def test_inline(attacked: Attacked) -> None:
    for text in SPELLINGS:
        sql = json.dumps([text.format(s=attacked.schema)])
        for command in ("show", "compile"):
            inline = "{{ attack(" + sql + ") }} select 1"
            assert "The guard refused" in attacked.project.dbt(command, "--inline", inline).text
        attacked.project.dbt("show", "--inline", text.format(s=attacked.schema)).failed()


def test_by_hooks_and_headers(attacked: Attacked) -> None:
    s = attacked.schema
    own = {
        "pre": f'pre_hook="insert into {s}.Orders values (9)"',
        "post": f'post_hook="from {s}.sold insert into {s}.Orders select id"',
        "header": f'sql_header="set spark.sql.ansi.enabled=false; truncate table {s}.Orders"',
        "other": "post_hook=\"merge into {{ ref('orders') }} using {{ this }} on true"
        ' when matched then delete"',
    }
    attacked.project.write(
        {
            f"models/attacks/{name}.sql": TABLE % f", {config}"
            + "-- depends_on: {{ ref('orders') }}\nselect 1 as x"
            for name, config in own.items()
        }
    )
    done = attacked.project.dbt("run", "--select", "path:models/attacks").failed()
    assert {name: done.statuses[name] for name in own} == dict.fromkeys(own, "error")
    assert done.text.count("The guard refused") >= len(own)


@pytest.mark.parametrize("when", ["on-run-start", "on-run-end"])
def test_by_hooks_of_a_command(attacked: Attacked, when: str) -> None:
    project = attacked.project
    file = project.folder / "dbt_project.yml"
    settings = file.read_text()
    project.write({"models/sources.yml": SOURCES})
    commands = (("source", "freshness"), ("run", "--select", "sold"), ("docs", "generate"))
    try:
        for command, text in zip(commands, SPELLINGS, strict=True):
            hook = {when: text.format(s=attacked.schema)}
            file.write_text(json.dumps({**json.loads(settings), **hook}))
            done = project.dbt(*command)
            # `docs generate` calls no hooks.
            assert command[0] == "docs" or "The guard refused" in done.failed().text
    finally:
        file.write_text(settings)


def test_when_a_project_is_parsed(attacked: Attacked) -> None:
    insert = f"insert into {attacked.schema}.Orders values (9)"
    attacked.project.write(
        {
            "models/attacks/parsed.sql": "{% do adapter.execute('" + insert + "') %}"
            "{% do run_query('" + insert + "') %}"
            "{% call statement('x', auto_begin=true) %}" + insert + "{% endcall %} select 1 as x"
        }
    )
    for command in (("parse", "--no-partial-parse"), ("ls", "--no-partial-parse")):
        attacked.project.dbt(*command)


def operation(attacked: Attacked, *statements: str, **variables: Any) -> Outcome:
    arguments = json.dumps({"statements": statements})
    return attacked.project.dbt("run-operation", "attack", "--args", arguments, **variables)


def test_by_operations_of_the_user(attacked: Attacked) -> None:
    s = attacked.schema
    named = {"wap_writes": [f"{s}.Orders", f"lake.{s}.Orders", f"{s}.log", f"{s}.shown"]}
    for text in SPELLINGS:
        assert "The guard refused" in operation(attacked, text.format(s=s)).failed().text
        assert "The guard refused" in operation(attacked, text.format(s=s), **named).failed().text
    log = (f"create table {s}.log (id int)", f"insert into {s}.log values (1)")
    refused = operation(attacked, *log).failed()
    assert "this command opens no run, so it only reads" in refused.text
    assert "wap_writes: [schema.table]" in refused.text
    operation(attacked, *log, f"create or replace view {s}.shown as select 1", **named).succeeded()
    assert attacked.reader.table(s, "log").values("id") == [1]
    operation(
        attacked,
        f"select * from {s}.log",
        "set spark.sql.shuffle.partitions = 3",
        "create temporary view v as select 1",
        "drop view if exists v",
    ).succeeded()


@pytest.mark.smoke
def test_a_log_table_of_the_user_s_is_written_to(attacked: Attacked) -> None:
    log = f"{attacked.schema}.done"
    hooked = TABLE % (
        f', pre_hook="create table if not exists {log} (name string)",'
        f" post_hook=[\"insert into {log} select '{{{{ this.name }}}}'\","
        f' "alter table {log} write ordered by name", "delete from {{{{ this }}}} where x = 2"]'
    )
    attacked.project.write({"models/hooked.sql": hooked + "select explode(array(1, 2)) as x"})
    attacked.project.dbt("build", "--select", "hooked").succeeded()
    assert attacked.reader.table(attacked.schema, "done").values("name") == ["hooked"]
    assert attacked.reader.table(attacked.schema, "hooked").values("x") == [1]
    # A view is somebody's, until it is named.
    view = f"create or replace view {attacked.schema}.all_done as select 1 as x"
    for config, ok in (("", True), ("", False), (", wap_writes='{{ target.schema }}.all_done'", 1)):
        model = TABLE % f', post_hook="{view}"{config}' + "select 1 as x"
        model = model.replace("'{{ target.schema }}.all_done'", f"'{attacked.schema}.all_done'")
        attacked.project.write({"models/hooked.sql": model})
        assert attacked.project.dbt("build", "--select", "hooked").ok == bool(ok)


PARTS = """
    {{ config(materialized='%s', partition_by=['part'],
              incremental_strategy='insert_overwrite'%s) }}
    select explode(sequence(1, {{ env_var('PARTS') }})) as part, 'x' as v
"""
DYNAMIC = "spark.sql.sources.partitionOverwriteMode"


def test_how_partitions_are_overwritten_is_the_materialization_s(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = f', pre_hook="set {DYNAMIC} = DYNAMIC"'
    files = {
        "models/by_profile.sql": PARTS % ("table", ""),
        "models/by_hook.sql": PARTS % ("table", hook),
        "models/by_header.sql": PARTS % ("table", f', sql_header="set `{DYNAMIC}`=dynamic"'),
        "models/parts.sql": PARTS % ("incremental", hook.replace("DYNAMIC", "static")),
    }
    output = {"server_side_parameters": {DYNAMIC: "dynamic"}}
    project = make_project("parts", files, output=output)
    for parts in ("3", "1"):
        monkeypatch.setenv("PARTS", parts)
        project.dbt("build").succeeded()
    look = reader.look(project.schema)
    for name in ("by_profile", "by_hook", "by_header"):
        assert look[name].values("part") == [1]
    # Only an increment replaces the partitions that it touches, whatever a hook has said.
    assert look["parts"].values("part") == [1, 2, 3]
