"""The macros that write tables, rendered without a project and Spark."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest
from dbt_common.clients.jinja import CallableMacroGenerator, MacroReturn
from dbt_common.exceptions import CompilationError
from helpers.documents import ROOT

from dbt.adapters.sparkwap.sql_helpers import SqlHelpers

FOLDER = ROOT / "macros/wap/write"
RELATION = SimpleNamespace(schema="s", identifier="t", __str__=lambda: "s.t")


class Config(dict[str, Any]):
    """dbt's `config` of a model."""

    def persist_relation_docs(self) -> bool:
        return False

    persist_column_docs = persist_relation_docs


class Macros:
    """The macros of the folder, and what they send to Spark.

    Args:
        config: The model's config.
        wap: Methods of `adapter.wap`.
        context: More names that the macros use.
    """

    def __init__(self, config: dict[str, Any], wap: dict[str, Any], **context: Any) -> None:
        self.sent: list[str] = []
        helpers = SqlHelpers()
        wap = {"list": helpers.list, "quoted": helpers.quoted, **wap}
        adapter = context.pop("adapter", {})
        self._known: dict[str, Any] = {
            "config": Config({"contract": SimpleNamespace(enforced=False), **config}),
            "adapter": SimpleNamespace(wap=SimpleNamespace(**wap), **adapter),
            "exceptions": SimpleNamespace(raise_compiler_error=refuse),
            "return": give_back,
            "statement": lambda name, caller, **_: self._send(caller()),
            "run_query": self._send,
            **context,
        }
        for path in FOLDER.glob("*.sql"):
            text = path.read_text()
            for name in re.findall(r"{%-? *macro (\w+)", text):
                if name not in context:
                    macro = cast(Any, SimpleNamespace(name=name, macro_sql=text))
                    self._known[name] = CallableMacroGenerator(macro, self._known).call_macro

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return cast(Callable[..., Any], self._known[name])

    def _send(self, sql: str) -> str:
        self.sent.append(" ".join(sql.split()))
        return ""


def give_back(value: Any = None) -> NoReturn:
    raise MacroReturn(value)


def refuse(message: str) -> NoReturn:
    raise CompilationError(message)


@pytest.mark.parametrize("is_clone", [True, False])
def test_a_table_in_a_side_schema_keeps_its_rows_on_main_and_the_shared_files(
    is_clone: bool,
) -> None:
    given = {
        "write.wap.enabled": "true",
        "gc.enabled": "true",
        "write.metadata.delete-after-commit.enabled": "true",
        "a": "b",
    }
    wap = {"live": lambda one: one if is_clone else None, "location": lambda one: "/lake/t"}
    sql = Macros({"tblproperties": given}, wap).wap_table_clauses(RELATION)
    found = dict(re.findall(r"'(\S+)' = '(\S+)'", sql))
    shared = {} if is_clone else {key: given[key] for key in list(given)[1:3]}
    assert found == {"write.wap.enabled": "false", "a": "b", **shared}


@pytest.mark.parametrize(("value", "is_refused"), [("true", False), (True, False), ("false", True)])
def test_a_model_cannot_switch_the_gate_off(value: object, is_refused: bool) -> None:
    macros = Macros({"tblproperties": {"write.wap.enabled": value}}, {})
    if not is_refused:
        macros.wap_check_config()
        return
    with pytest.raises(CompilationError, match="Nothing was built"):
        macros.wap_check_config()


def test_delete_and_insert_are_one_statement_because_the_query_may_read_the_table() -> None:
    macros = Macros({"unique_key": ["id"], "predicates": ["id != 2"]}, {})
    macros.wap_write_increment("delete+insert", "s.t", "inc", ["id", "v"])
    (sql,) = macros.sent
    assert sql.startswith("merge into s.t ") and sql.count(" inc") == 1
    assert "wap_row.id = DBT_INTERNAL_DEST.id and id != 2 when matched then delete" in sql
    assert "values (DBT_INTERNAL_SOURCE.wap_row.`id`, DBT_INTERNAL_SOURCE.wap_row.`v`)" in sql


def test_delete_and_insert_without_a_key_only_inserts() -> None:
    macros = Macros({}, {}, adapter={"valid_incremental_strategies": lambda: ["delete+insert"]})
    macros.wap_write_increment("delete+insert", "s.t", "inc", ["v"])
    assert macros.sent == ["insert into s.t (`v`) select `v` from inc"]


def test_a_merge_with_excluded_columns_leaves_a_column_that_the_model_no_longer_has() -> None:
    def updated(chosen: Any, excluded: list[str], columns: list[Any]) -> list[str]:
        return [one.name for one in columns if one.name not in excluded]

    columns = [SimpleNamespace(name=name) for name in ("id", "gone", "kept", "v")]
    macros = Macros(
        {"unique_key": "id", "merge_exclude_columns": ["kept"]},
        {},
        adapter={"get_columns_in_relation": lambda relation: columns},
        get_merge_update_columns=updated,
    )
    assert "gone" not in macros.wap_merge_sql("s.t", "inc", ["id", "kept", "v"])


def test_only_what_differs_is_altered_on_the_clone_of_a_table_that_is_extended() -> None:
    def state_of(name: str, required: bool, doc: str | None) -> Any:
        return SimpleNamespace(name=name, required=required, doc=doc)

    live = SimpleNamespace(
        columns=[
            state_of("Free", True, None),
            state_of("kept", True, "as it was"),
            state_of("undocumented", False, "old"),
            state_of("strict", False, None),
        ]
    )
    wanted = [
        {"name": "Free", "type": "int", "nullable": True, "doc": ""},
        {"name": "kept", "type": "int", "doc": "as it was"},
        {"name": "undocumented", "type": "int", "nullable": True, "doc": ""},
        {"name": "strict", "type": "int", "nullable": False, "doc": ""},
    ]
    placed: list[Any] = []
    macros = Macros(
        {},
        {
            "live": lambda one: live,
            "place_table": lambda one, columns, layout: placed.extend(columns) or "side",
        },
        adapter={
            "get_columns_in_relation": lambda one: [],
            "quote": lambda name: f"`{name}`",
        },
        wap_wanted_columns=lambda columns: wanted,
        _wap_kept_layout=lambda one: {},
        persist_docs=lambda *a, **k: "",
        model={},
    )
    macros.wap_place_kept(SimpleNamespace(render=lambda: "s.t"))
    assert macros.sent == [
        "alter table s.t alter column `Free` drop not null",
        "alter table s.t alter column `undocumented` comment ''",
    ]
    # A column that Iceberg cannot make required is no reason for a clone.
    assert [one.get("nullable") for one in placed] == [True, None, True, None]


@pytest.mark.parametrize("is_enforced", [True, False])
def test_a_contract_is_checked_before_an_increment_is_written(is_enforced: bool) -> None:
    checked: list[str] = []

    def refuse_columns(sql: str) -> None:
        checked.append(sql)
        refuse("the columns are not those of the contract")

    macros = Macros(
        {"contract": SimpleNamespace(enforced=is_enforced)},
        {"in_turn": lambda *a, caller: ""},
        get_assert_columns_equivalent=refuse_columns,
        make_temp_relation=lambda relation: "v",
    )
    if is_enforced:
        with pytest.raises(CompilationError):
            macros.wap_extend_table("s.t", "select 1", "append", "ignore")
    else:
        macros.wap_extend_table("s.t", "select 1", "append", "ignore")
    assert (checked, bool(macros.sent)) == (["select 1"] * is_enforced, not is_enforced)


def test_hooks_outside_of_transactions_are_the_first_before_and_the_last_after() -> None:
    hooks = [{"sql": "a", "transaction": True}, {"sql": "b", "transaction": False}]
    ran: list[list[str]] = []

    def run(hooks: list[dict[str, Any]]) -> None:
        ran.append([hook["sql"] for hook in hooks if hook["transaction"]])

    macros = Macros({}, {}, run_hooks=run)
    macros.wap_run_hooks(hooks)
    macros.wap_run_hooks(hooks, after=True)
    assert ran == [["b", "a"], ["a", "b"]]


@pytest.mark.parametrize("name", ["clustered_by", "buckets", "options"])
def test_configs_that_iceberg_does_not_have_are_refused(name: str) -> None:
    with pytest.raises(CompilationError, match=f"no {name}"):
        Macros({name: ["x"]}, {}).wap_check_config()


def test_the_view_of_a_python_model_has_a_plain_name() -> None:
    views: list[str] = []
    macros = Macros(
        {},
        {
            "python_view": lambda model, code, view: views.append(view),
            "split_statements": lambda text: [],
        },
        adapter={"quote": lambda name: f"`{name}`"},
        modules=SimpleNamespace(re=re),
        model={"language": "python", "alias": "daily-sales.v2", "compiled_code": ""},
    )
    assert macros.wap_model_sql() == "select * from `daily_sales_v2__dbt_py`"
    assert views == ["daily_sales_v2__dbt_py"]


def test_a_whole_build_without_a_contract_keeps_no_not_null() -> None:
    placed: list[Any] = []

    def place(relation: Any, columns: Any, layout: Any) -> str:
        placed.extend(columns)
        return "branch"

    macros = Macros(
        {},
        {"place_table": place},
        model=SimpleNamespace(columns={}),
        adapter={
            "get_column_schema_from_query": lambda sql: [SimpleNamespace(name="id", dtype="int")]
        },
        wap_layout=dict,
    )
    macros.wap_build_table(RELATION, "select 1 as id")
    assert placed == [{"name": "id", "type": "int", "nullable": True}]
