"""Statements of a project's authors that change a live table, past its tests.

The class: SQL that dbt sends by the hands of a hook, a macro, a header or a run-operation, in any
command, in any spelling; and what a macro reaches without SQL, by a method of the adapter. A
statement that is not known to be harmless is not sent, so that no pointer of a gated table moves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from dbt.adapters.contracts.connection import AdapterResponse
from dbt.task import run as run_task
from dbt.task.compile import CompileTask
from dbt_common.clients.agate_helper import empty_table
from dbt_common.exceptions import DbtRuntimeError
from helpers.lake import Reader
from helpers.project import MakeProject, Outcome, Project
from helpers.statements import LINES, Grammar, lines

from dbt.adapters.sparkwap.impl import SparkWapAdapter

TABLE = "{{ config(materialized='table'%s) }} "
MODELS = {
    # A name with capital letters is the catalog's as it is.
    "models/orders.sql": TABLE % ", alias='Orders'" + "select {{ env_var('V') }} as id",
    "models/sold.sql": TABLE % "" + "select id from {{ ref('orders') }}",
    "models/properties.yml": """
        models:
          - name: orders
            columns: [{name: id, data_tests: [not_null], config: {meta: {subject: customer}}}]
          - name: sold
            columns: [{name: id, data_tests: [not_null], config: {meta: {subject: customer}}}]
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

RELATION = "api.Relation.create(schema='{s}', identifier='Orders', type='table')"
METHODS = {
    "rollback": "{{% do wap_rollback(run='{run}', force=true) %}}",
    "erase": "{{% do wap_erase(subject='customer', keys=['2'], confirm=true) %}}",
    "accept": "{{% do wap_accept(test='not_null_sold_id', reason='x', until='2099-12-31') %}}",
    "drop_relation": "{{% do adapter.drop_relation(" + RELATION + ") %}}",
    "truncate_relation": "{{% do adapter.truncate_relation(" + RELATION + ") %}}",
    "rename_relation": "{{% do adapter.rename_relation("
    + f"{RELATION}, {RELATION.replace('Orders', 'Others')}) %}}}}",
    "drop_schema": "{{% do adapter.drop_schema(api.Relation.create(schema='{s}')) %}}",
    "drop_schema by its macro": "{{% do drop_schema(api.Relation.create(schema='{s}')) %}}",
}
"""What a macro reaches by the adapter; the last ones take most from readers."""


@dataclass
class Attacked:
    """A project with two published tables, of which each has an earlier snapshot.

    Attributes:
        last_run: the run that published last.
    """

    project: Project
    reader: Reader
    last_run: str

    @property
    def schema(self) -> str:
        return self.project.schema

    def statements(self) -> dict[str, list[str]]:
        """The statements of the issue's lines and some of the grammar's, by the name of a model."""
        snapshot = self.reader.metadata(self.schema, "Orders")["snapshots"][0]["snapshot-id"]
        found = lines(self.schema, "Orders", "sold", snapshot, "/tmp/x")
        grammar = Grammar("lake", self.schema, "Orders", free="free", snapshot=snapshot)
        for number, written in enumerate(grammar.sample(seed=12, count=60)):
            found[f"written_{number}"] = [written.sql]
        return found

    def written(self, seed: int, count: int) -> list[str]:
        """Statements of the grammar. A purge deletes files, which nobody puts back: docs/net.md."""
        snapshot = self.reader.metadata(self.schema, "Orders")["snapshots"][0]["snapshot-id"]
        grammar = Grammar("lake", self.schema, "Orders", free="free", snapshot=snapshot)
        sample = grammar.sample(seed, count)
        return [one.sql for one in sample if "purge" not in one.sql.lower()]

    def methods(self) -> dict[str, str]:
        """The Jinja of METHODS."""
        given = {"s": self.schema, "run": self.last_run}
        return {name: text.format(**given) for name, text in METHODS.items()}

    def write_methods(self) -> list[str]:
        """A model for each method; returns their names."""
        methods = {f"method_{n}": text for n, text in enumerate(self.methods().values())}
        self.project.write(
            {
                f"models/attacks/{name}.sql": TABLE % ""
                + f"{{% if execute %}}{text}{{% endif %}} select 1 as x"
                for name, text in methods.items()
            }
        )
        return [*methods]

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
        return self.project.clear("models", "macros", "dbt_packages").write(MODELS)


@pytest.fixture(scope="module")
def attacked_project(make_project: MakeProject) -> tuple[Project, str]:
    project = make_project("attacked", MODELS)
    with pytest.MonkeyPatch.context() as patch:
        for v in ("1", "2"):
            patch.setenv("V", v)
            done = project.dbt("build").succeeded()
    return project, done.run_id


@pytest.fixture
def attacked(
    attacked_project: tuple[Project, str], reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> Any:
    monkeypatch.setenv("V", "3")
    attacked = Attacked(attacked_project[0], reader, attacked_project[1])
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
    written = attacked.written(seed, count=60)
    attacked.write({f"written_{number}": [sql] for number, sql in enumerate(written)})
    before = attacked.seen()
    done = attacked.project.dbt("run", "--select", "path:models/attacks", wap_guard=False).failed()
    assert "was moved past the gate" in done.text
    assert attacked.seen() == before, done.text


SPELLINGS = tuple(
    text.replace("{t}", "Orders")
    for text in ("insert into {s}.{t} values (9)", LINES["from insert"][1], LINES["block"][0])
)


COMPILING = (("compile",), ("docs", "generate"), ("show",), ("build", "--empty"))


@pytest.fixture
def all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands that only compile go on after a node that fails, as a build does."""
    monkeypatch.setattr(CompileTask, "raise_on_first_error", lambda task: False)


@pytest.mark.usefixtures("all_nodes")
@pytest.mark.parametrize("command", COMPILING, ids=" ".join)
def test_by_what_a_node_sends_when_it_is_compiled(
    attacked: Attacked, command: tuple[str, ...]
) -> None:
    statements = attacked.statements()
    attacked.write(statements)
    before = attacked.reader.pointers(attacked.schema)
    done = attacked.project.dbt(*command, "--select", "path:models/attacks").failed()
    assert {name: done.statuses[name] for name in statements} == dict.fromkeys(statements, "error")
    assert attacked.reader.pointers(attacked.schema) == before


@pytest.mark.usefixtures("all_nodes")
@pytest.mark.parametrize("command", COMPILING, ids=" ".join)
def test_by_a_method_of_the_adapter(attacked: Attacked, command: tuple[str, ...]) -> None:
    before = attacked.seen()
    names = attacked.write_methods()
    done = attacked.project.dbt(*command, "--select", "path:models/attacks").failed()
    assert attacked.seen() == before, done.text
    assert {name: done.statuses[name] for name in names} == dict.fromkeys(names, "error")


def test_inline(attacked: Attacked) -> None:
    for text in SPELLINGS:
        sql = json.dumps([text.format(s=attacked.schema)])
        for command in ("show", "compile"):
            inline = "{{ attack(" + sql + ") }} select 1"
            assert "The guard refused" in attacked.project.dbt(command, "--inline", inline).text
        attacked.project.dbt("show", "--inline", text.format(s=attacked.schema)).failed()
    before = attacked.seen()
    for text in attacked.methods().values():
        inline = "{% if execute %}" + text + "{% endif %} select 1"
        done = attacked.project.dbt("show", "--inline", inline).failed()
        assert attacked.seen() == before, done.text


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


def test_a_held_branch_is_discarded_by_an_operation_only(attacked: Attacked) -> None:
    project = attacked.project
    held = ("run", "--select", "sold")
    project.dbt(*held, wap_branch="kept", wap_publish="never").succeeded()
    discard = "{% if execute %}{% do wap_discard(branch='kept', force=true) %}{% endif %}"
    project.write({"models/attacks/discards.sql": TABLE % "" + discard + " select 1 as x"})
    for command in (*COMPILING, ("run",)):
        project.dbt(*command, "--select", "discards").failed()
        assert "kept" in attacked.reader.metadata(attacked.schema, "sold")["refs"]
    project.operation("wap_discard", branch="kept").succeeded()


@dataclass
class AllHooks:
    """Lets dbt go on after a hook that fails.

    Attributes:
        told: what was said against a hook, by its name.
    """

    told: dict[str, str] = field(default_factory=dict)
    name: str = ""

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        compiled, executed = run_task.RunTask.get_hook_sql, run_task.get_execution_status

        def get_hook_sql(task: Any, adapter: Any, hook: Any, *given: Any) -> str:
            self.name = hook.name
            try:
                return compiled(task, adapter, hook, *given)
            except Exception as error:
                self.told[self.name] = str(error)
                return ""

        def get_execution_status(sql: str, adapter: Any) -> tuple[Any, str]:
            status, message = executed(sql, adapter)
            if status == "error":
                self.told[self.name] = message
            return run_task.RunStatus.Success, message

        monkeypatch.setattr(run_task.RunTask, "get_hook_sql", get_hook_sql)
        monkeypatch.setattr(run_task, "get_execution_status", get_execution_status)


WHEN = ("shop-on-run-start", "shop-on-run-end", "zeta-on-run-end")
"""Hooks of the project, and of a package whose hooks come after the gate's own."""


def hook_files(settings: Mapping[str, Any], hooks: list[str]) -> dict[str, str]:
    """Files of a project all of whose hooks attack."""
    package = {"name": "zeta", "version": "1.0", "config-version": 2, "on-run-end": hooks}
    return {
        "dbt_project.yml": json.dumps({**settings, "on-run-start": hooks, "on-run-end": hooks}),
        "dbt_packages/zeta/dbt_project.yml": json.dumps(package),
        "models/sources.yml": SOURCES,
    }


@pytest.mark.parametrize(
    "command", [("source", "freshness"), ("build", "--select", "sold")], ids=" ".join
)
@pytest.mark.parametrize("how", ["statements", "methods"])
def test_by_hooks_of_a_command(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], how: str
) -> None:
    project, before = attacked.project, attacked.seen()
    if how == "statements":
        spellings = [text for name, text in attacked.statements().items() if name[:7] != "written"]
        hooks = ["{{ attack(" + json.dumps(texts) + ") }}" for texts in spellings]
        hooks += [texts[0] for texts in spellings if len(texts) == 1]
    else:
        hooks = [*attacked.methods().values()]
    settings = json.loads((project.folder / "dbt_project.yml").read_text())
    all_hooks = AllHooks()
    all_hooks.patch(monkeypatch)
    try:
        done = project.write(hook_files(settings, hooks)).dbt(*command)
    finally:
        project.write({"dbt_project.yml": json.dumps(settings)})
    assert attacked.seen() == before, done.text
    tried = {f"{when}-{number}" for when in WHEN for number in range(len(hooks))}
    assert set(all_hooks.told) & tried == tried, done.text
    if how == "statements":
        other = {one: told for one, told in all_hooks.told.items() if "refused" not in told}
        assert not other


@pytest.mark.usefixtures("all_nodes")
@pytest.mark.parametrize("command", [("docs", "generate"), ("compile",)], ids=" ".join)
def test_by_hooks_that_are_only_compiled(attacked: Attacked, command: tuple[str, ...]) -> None:
    """These commands call no hooks, but dbt compiles hooks as it does models."""
    project, before = attacked.project, attacked.reader.pointers(attacked.schema)
    sent = [text.format(s=attacked.schema) for text in SPELLINGS]
    hooks = [*attacked.methods().values(), *sent, "{{ attack(" + json.dumps(sent) + ") }}"]
    settings = json.loads((project.folder / "dbt_project.yml").read_text())
    try:
        done = project.write(hook_files(settings, hooks)).dbt(*command)
    finally:
        project.write({"dbt_project.yml": json.dumps(settings)})
    assert attacked.reader.pointers(attacked.schema) == before, done.text
    ended = {name: status for name, status in done.statuses.items() if name.startswith(WHEN)}
    plain = len(METHODS), len(METHODS) + len(sent)
    assert ended == {
        f"{when}-{number}": "success" if plain[0] <= number < plain[1] else "error"
        for when in WHEN
        for number in range(len(hooks))
    }


def test_when_a_project_is_parsed(attacked: Attacked) -> None:
    texts = {name: "\n".join(one) for name, one in attacked.statements().items()}
    before = attacked.reader.pointers(attacked.schema)
    attacked.project.write(
        {
            f"models/attacks/{name}.sql": f"{{% set text = {json.dumps(text)} %}}"
            "{% do adapter.execute(text) %}{% do run_query(text) %}"
            "{% call statement('x', auto_begin=true) %}{{ text }}{% endcall %} select 1 as x"
            for name, text in texts.items()
        }
    )
    attacked.project.write(
        {
            f"models/attacks/method_{number}.sql": f"{text} select 1 as x"
            for number, text in enumerate(attacked.methods().values())
        }
    )
    for command in (("parse",), ("ls",), ("ls", "--output", "json", "--resource-type", "model")):
        attacked.project.dbt(*command, "--no-partial-parse")
    assert attacked.reader.pointers(attacked.schema) == before


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


def test_written_statements_of_an_operation(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One operation sends them all: what is said against a statement is kept, and it goes on."""
    told: list[str] = []
    execute = SparkWapAdapter.execute

    def executed(adapter: Any, sql: str, *given: Any, **named: Any) -> Any:
        try:
            return execute(adapter, sql, *given, **named)
        except DbtRuntimeError as error:
            told.append(str(error))
            return AdapterResponse("refused"), empty_table()

    monkeypatch.setattr(SparkWapAdapter, "execute", executed)
    before = attacked.reader.pointers(attacked.schema)
    written = attacked.written(seed=7, count=120)
    done = operation(attacked, *written)
    assert len(told) == len(written), done.text
    assert [text for text in told if "The guard refused" not in text] == []
    assert attacked.reader.pointers(attacked.schema) == before


SENDER = """
    def model(dbt, session):
        import json
        import os
        dbt.config(materialized="table")
        told = []
        for statement in json.loads(os.environ["STATEMENTS"]):
            try:
                session.sql(statement)
            except Exception as error:
                told.append((str(error),))
        return session.createDataFrame(told, "told string")
"""


@pytest.mark.parametrize("guard", [True, False], ids=["guard", "net alone"])
def test_written_statements_of_a_python_model(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch, guard: bool
) -> None:
    written = attacked.written(seed=9, count=80)
    monkeypatch.setenv("STATEMENTS", json.dumps(written))
    attacked.project.write({"models/sender.py": SENDER})
    before, pointers = attacked.seen(), attacked.reader.pointers(attacked.schema)
    done = attacked.project.dbt("build", "--select", "sender", wap_guard=guard)
    assert attacked.seen() == before, done.text
    if guard:
        told = attacked.reader.table(attacked.schema, "sender").values("told")
        assert len(told) == len(written), told
        assert [text for text in told if "The guard refused" not in text] == []
        now = attacked.reader.pointers(attacked.schema)
        assert {name: now[name] for name in pointers} == pointers
    else:
        assert "was moved past the gate" in done.failed().text


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
BY_PYTHON = f"""
    def model(dbt, session):
        import os
        dbt.config(materialized="table", partition_by=["part"])
        session.sql("set {DYNAMIC}=dynamic")
        parts = range(1, int(os.environ["PARTS"]) + 1)
        return session.createDataFrame([(part, "x") for part in parts], "part int, v string")
"""


def test_how_partitions_are_overwritten_is_the_materialization_s(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = f', pre_hook="set {DYNAMIC} = DYNAMIC"'
    files = {
        "models/by_profile.sql": PARTS % ("table", ""),
        "models/by_hook.sql": PARTS % ("table", hook),
        "models/by_header.sql": PARTS % ("table", f', sql_header="set `{DYNAMIC}`=dynamic"'),
        "models/by_python.py": BY_PYTHON,
        "models/parts.sql": PARTS % ("incremental", hook.replace("DYNAMIC", "static")),
    }
    output = {"server_side_parameters": {DYNAMIC: "dynamic"}}
    project = make_project("parts", files, output=output)
    for parts in ("3", "1"):
        monkeypatch.setenv("PARTS", parts)
        project.dbt("build").succeeded()
    look = reader.look(project.schema)
    for name in ("by_profile", "by_hook", "by_header", "by_python"):
        assert look[name].values("part") == [1]
    # Only an increment replaces the partitions that it touches, whatever a hook has said.
    assert look["parts"].values("part") == [1, 2, 3]
