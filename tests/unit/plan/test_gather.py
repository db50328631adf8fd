"""What is known of nodes and tests, from a manifest and a ledger made by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from dbt.adapters.sparkwap.reuse import Reuse
from sparkwap.ledger.manifests import pack
from sparkwap.plan.decide import Facts, Plan
from sparkwap.plan.gather import Gatherer

AT = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


def node(key: str, raw_code: str = "select 1", *macros: str, **more: Any) -> dict[str, Any]:
    kind, package, name = key.split(".")[:3]
    return {
        "resource_type": kind,
        "package_name": package,
        "name": name,
        "schema": "shop",
        "alias": name,
        "fqn": [package, name],
        "original_file_path": f"models/{name}.sql",
        "raw_code": raw_code,
        "language": "sql",
        "unrendered_config": {},
        **more,
        "config": {"materialized": "test" if kind == "test" else "table"} | more.get("config", {}),
        "depends_on": {"macros": list(macros), "nodes": more.get("reads", [])},
    }


def macro(text: str, *calls: str) -> dict[str, Any]:
    return {"macro_sql": text, "depends_on": {"macros": list(calls)}}


def manifest(
    nodes: dict[str, dict[str, Any]], macros: dict[str, dict[str, Any]] | None = None
) -> dict[str, Any]:
    for key, one in (macros or {}).items():
        one |= {"name": key.split(".")[2], "package_name": key.split(".")[1]}
    return {
        "metadata": {"project_name": "shop"},
        "nodes": nodes,
        "macros": macros or {},
        "sources": {},
        "unit_tests": {},
    }


def facts(found: dict[str, Any], key: str = "model.shop.a") -> Facts:
    return Gatherer(found, None, {})._facts(key, None)


def planned(found: dict[str, Any], **tables: list[dict[str, Any]]) -> Plan:
    """Return the plan, with rows of the ledger of this code."""
    code = pack(found)
    runs = [{"run_id": "r1", "manifest_hash": code.hash, "session": "None"}]
    ledger = SimpleNamespace(
        read=lambda table, condition, columns: {"runs": runs, **tables}.get(table, []),
        recent=lambda table, since, columns: tables.get(table, []),
        last_publishes=lambda wanted: [],
        manifest=lambda one: ("shop", code) if one == code.hash else None,
    )
    lake: Any = SimpleNamespace(ledger=ledger, read=lambda names: [], states=lambda names: {})
    return Gatherer(found, lake, {}).plan()


def test_a_macro_that_dbt_calls_by_another_name_is_code_and_searched() -> None:
    macros = {
        "macro.shop.default__rate_eu": macro("{{ inner() }}"),
        "macro.shop.inner": macro("{{ var('rate') }}"),
        "macro.dbt.statement": macro("now()", "macro.shop.default__rate_eu"),
    }
    for raw_code, *calls in (
        ("select {{ plain }} as r", "macro.dbt.statement"),
        ("{% if execute %}{{ shop.default__rate_eu() }}{% endif %}",),
    ):
        found = facts(manifest({"model.shop.a": node("model.shop.a", raw_code, *calls)}, macros))
        assert {"macro macro.shop.default__rate_eu", "macro macro.shop.inner"} <= found.code.keys()
        assert found.uncertain


@pytest.mark.parametrize(
    ("package", "dispatch", "why"),
    [
        ("shop", [], None),
        ("shop", [{"macro_namespace": "other", "search_order": ["shim"]}], None),
        ("shop", [{"macro_namespace": "dbt", "search_order": ["shop", "shim", "dbt"]}], "uses now"),
        ("shim", [], "uses now"),
    ],
)
def test_a_macro_of_dbt_that_a_package_replaces_is_searched(
    package: str, dispatch: list[dict[str, Any]], why: str | None
) -> None:
    macros = {
        "macro.dbt.create_view_as": macro(""),
        "macro.shim.sparkwap__create_view_as": macro("select now()"),
    }
    key = f"model.{package}.a"
    found = Gatherer(manifest({key: node(key)}, macros), None, {}, dispatch=dispatch)
    uncertain = found._facts(key, None).uncertain
    assert uncertain is None if why is None else why in str(uncertain)


def test_the_landing_entries_of_what_a_node_names_or_reads_are_code() -> None:
    def parts(column: str) -> dict[str, dict[str, str]]:
        entry = {"meta": {"landing": {"columns": {column: "string"}}}}
        nodes = {
            "model.shop.raw": node("model.shop.raw", unrendered_config=entry),
            "model.shop.cdc": node("model.shop.cdc", reads=["model.shop.raw"]),
            "model.shop.stg": node("model.shop.stg", reads=["model.shop.cdc"]),
            "model.shop.a": node("model.shop.a", "select {{ added_columns('raw') }}"),
            "model.shop.b": node("model.shop.b"),
        }
        return {key[11:]: dict(facts(manifest(nodes), key).code) for key in nodes}

    one, other = parts("id"), parts("mail")
    assert {key for key in one if one[key] != other[key]} == {"raw", "cdc", "stg", "a"}


def hooked(text: str, body: str = "", *, when: str = "on-run-start", **config: Any) -> Facts:
    key = "operation.shop.shop-on-run-start-0"
    hook = node(key, text, tags=[when], config={"materialized": "view"})
    macros = {"macro.shop.udf": macro("{{ body() }}"), "macro.shop.body": macro(body)}
    one = node("model.shop.a", config=config)
    return facts(manifest({key: hook, "model.shop.a": one}, macros))


def test_the_macros_of_a_hook_are_code() -> None:
    one, other = hooked("{{ udf() }}", "1"), hooked("{{ udf() }}", "2")
    assert one.uncertain is other.uncertain is None
    assert one.code != other.code
    assert hooked("{{ udf() }}", "1") == one


@pytest.mark.parametrize(
    ("text", "body", "why"),
    [
        ("set x = 1", "", None),
        ("create or replace function f() returns int return 1", "", None),
        ("{{ udf() }}", "{{ var('rate') }}", "on-run-start: the macro body uses variables"),
        ("set x = {{ now() }}", "", "on-run-start: it uses now"),
        ("insert into t values (1)", "", "on-run-start: it uses tables (insert)"),
        ("{{ udf() }}", "create table t", "on-run-start: the macro body uses tables (table)"),
        ("create function f as 'x.Y' using jar 'y.jar'", "", "on-run-start: it uses tables (using"),
    ],
)
def test_a_hook_that_may_change_what_nodes_read(text: str, body: str, why: str | None) -> None:
    found = hooked(text, body).uncertain
    assert found == why if why is None else str(found).startswith(why)
    assert hooked(text, body, wap_reuse=True).uncertain is None
    assert hooked(text, body, when="on-run-end").uncertain is None


@pytest.mark.parametrize(
    ("status", "failures", "known"), [("pass", 0, True), ("pass", 1, False), ("warn", 0, False)]
)
def test_only_a_test_that_has_passed_without_a_row_has_a_known_result(
    status: str, failures: int, known: bool
) -> None:
    result = {
        "test_id": "test.shop.t.1a", "run_id": "r1", "executed_at": AT, "status": status,
        "failures": failures, "named": [], "audited": {}, "reads": {}, "seconds": 0.5,
    }  # fmt: skip
    plan = planned(manifest({"test.shop.t.1a": node("test.shop.t.1a")}), tests=[result])
    assert plan.tests[0].action == "reuse"
    runs: Any = SimpleNamespace(command=None)
    assert Reuse(runs)._found(plan) == (frozenset({"test.shop.t.1a"} if known else ()))
