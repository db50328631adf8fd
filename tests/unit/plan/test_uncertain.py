"""What may change a node's result although its code and its inputs do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkwap.plan.uncertain import names_in, why_uncertain

ROOT = Path(__file__).parents[3]
MACROS = {
    f"macro.{package}.{name}": {
        "name": name,
        "package_name": package,
        "macro_sql": f"{{% macro {name}() %}}{text}{{% endmacro %}}",
        "depends_on": {"macros": calls},
    }
    for package, name, text, calls in (
        ("shop", "plain", "x + 1", []),
        ("shop", "outer", "{{ inner() }}", ["macro.shop.inner"]),
        ("shop", "inner", "{{ var('days') }}", []),
        ("dbt", "statement", "{{ run_query('x') }} now()", []),
        ("dbt_sparkwap", "test_recency", "{{ wap_now() }}", []),
    )
}


def node(raw_code: str = "select 1", *macros: str, **more: Any) -> dict[str, Any]:
    return {
        "resource_type": "model",
        "raw_code": raw_code,
        "language": "sql",
        "depends_on": {"macros": list(macros)},
        **more,
    }


@pytest.mark.parametrize(
    "raw_code",
    [
        "select * from {{ ref('orders') }} where at > date'2024-01-01'",
        "{{ config(materialized='table') }} select known_now, uuid as id from {{ ref('t') }}",
        "select {{ adapter.quote('a') }}, {{ plain() }} from {{ this }}",
        "select variance(x) from {{ source('s', 't') }} {% if is_incremental() %}{% endif %}",
    ],
)
def test_what_follows_from_code_and_rows(raw_code: str) -> None:
    assert why_uncertain(node(raw_code, "macro.shop.plain", "macro.dbt.statement"), MACROS) is None


@pytest.mark.parametrize(
    ("raw_code", "why"),
    [
        ("select current_timestamp", "it uses current_timestamp"),
        ("select NOW()", "it uses NOW"),
        ("select rand (7)", "it uses rand"),
        ("select uuid()", "it uses uuid"),
        ("select '{{ run_started_at }}'", "it uses run_started_at"),
        ("select {{ var('x', 1) }}", "it uses variables"),
        ("select {{ env_var('X') }}", "it uses variables"),
        ("select * from {{ target.schema }}.t", "it uses target"),
        ("{% set rows = run_query('select 1') %} select 1", "it uses run_query"),
        ("select {{ adapter.get_relation(1, 2, 3) }}", "it uses adapter.get_relation"),
    ],
)
def test_what_does_not(raw_code: str, why: str) -> None:
    assert why_uncertain(node(raw_code), MACROS) == why


def test_macros_configuration_and_arguments_count_too() -> None:
    assert why_uncertain(node("x", "macro.shop.outer"), MACROS) == "the macro inner uses variables"
    given = node(unrendered_config={"partition_by": "{{ var('by') }}"})
    assert why_uncertain(given, MACROS) == "its configuration uses variables"
    hook = node(config={"post-hook": [{"sql": "insert into log select now()"}]})
    assert why_uncertain(hook, MACROS) == "its configuration uses now"
    argument = node(
        resource_type="test", test_metadata={"kwargs": {"values": "{{ var('legal') }}"}}
    )
    assert why_uncertain(argument, MACROS) == "its configuration uses variables"


def test_an_audit_may_follow_the_clock_but_a_model_of_the_adapter_does_not() -> None:
    recency = "macro.dbt_sparkwap.test_recency"
    audit = node("x", recency, resource_type="test")
    assert why_uncertain(audit, MACROS) == "the macro test_recency uses wap_now"
    assert why_uncertain(node("x", recency), MACROS) is None


def test_what_a_model_declares() -> None:
    python = node(language="python")
    assert why_uncertain(python, MACROS) == "it is a Python model without wap_reuse: true"
    for path in (ROOT / "models").rglob("*.py"):
        own = node(path.read_text(), language="python", unrendered_config="{{ var('until') }}")
        assert why_uncertain(own, MACROS) is None
        own["raw_code"] += "  # and more"
        assert why_uncertain(own, MACROS) is not None
    for config in ({"wap_reuse": True}, {"meta": {"wap_reuse": True}}):
        assert why_uncertain(node("select now()", config=config), MACROS) is None
    assert why_uncertain(node(config={"wap_reuse": False}), MACROS) == "wap_reuse is false"
    batches = node(config={"incremental_strategy": "microbatch"})
    assert why_uncertain(batches, MACROS) == "its batches follow the clock"
    large = node(checksum={"name": "path"}, resource_type="seed")
    assert why_uncertain(large, MACROS) == "its file is too large for dbt to detect changes"


def test_the_text_that_may_name_tables() -> None:
    text = names_in(
        node("select * from {{ ref('t') }} join shop.other", "macro.shop.plain"), MACROS
    )
    assert "shop.other" in text
    assert "ref(" not in text
    assert "x + 1" in text
