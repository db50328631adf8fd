"""Names and digests of nodes."""

from __future__ import annotations

from typing import Any

import pytest

from sparkwap.core.dbt_cli import VARIABLES, project_variables
from sparkwap.ledger.code import digests, name_of, same
from sparkwap.ledger.manifests import pack, unpack


def test_names_have_no_project_and_no_hash() -> None:
    assert name_of("model.shop.orders.v2") == "orders.v2"
    assert name_of("test.shop.not_null_orders_id.0a1b2c") == "not_null_orders_id"


def test_an_absent_variable_differs_and_a_manifest_without_variables_does_not() -> None:
    def digest(text: str = "least", **more: Any) -> str:
        node = {"resource_type": "model", "raw_code": text, "depends_on": {"macros": []}}
        whole = {"metadata": {}, "nodes": {"model.s.a": node}, "macros": {}, "unit_tests": {}}
        return digests(unpack(pack({**whole, **more})))["model.s.a"]

    older, empty = digest(), digest(**{VARIABLES: {}})
    five, six = (digest(**{VARIABLES: {"least": {"": one}}}) for one in ("5", "6"))
    assert all(same(older, one) and same(one, older) for one in (older, empty, five))
    assert not any(same(five, one) for one in (empty, six, digest("x"), None))
    assert same(empty, digest(**{VARIABLES: {"other": {"": "5"}}}))
    assert same(None, None)


def digest_of(
    text: str, variables: dict[str, Any] | None = None, identifier: str = "orders", **more: Any
) -> str:
    """The digest of a model of the project `shop` that reads a source and calls one macro."""
    source = {"database": None, "schema": "raw", "identifier": identifier, "name": "orders"}
    macro = {"name": "m", "package_name": "shop", "macro_sql": more.pop("macro", "")}
    node = {
        "resource_type": "model",
        "package_name": "shop",
        "raw_code": text,
        "depends_on": {"macros": [], "nodes": ["source.shop.raw.orders"]},
    }
    whole = {
        "metadata": {"project_name": "shop"},
        "nodes": {"model.shop.a": node},
        "sources": {"source.shop.raw.orders": source},
        "macros": {"macro.shop.m": {**macro, "depends_on": {"macros": []}}},
        "unit_tests": {},
        VARIABLES: project_variables(variables or {}),
    }
    return digests(unpack(pack({**whole, **more})))["model.shop.a"]


def test_the_table_of_a_source_is_code_of_its_readers() -> None:
    """As with `identifier: "{{ var('active') }}"`, whose variable no text of the node names."""
    assert digest_of("x") == digest_of("x")
    assert digest_of("x", identifier="orders_v2") != digest_of("x")


@pytest.mark.parametrize("name", ["min-amount", "shop.least", "größe"])
def test_a_variable_with_any_name_is_found(name: str) -> None:
    for text, macro in (
        (f"{{{{ var('{name}') }}}}", ""),
        ("{{ m() }}", f"{{{{ var('{name}') }}}}"),
    ):
        five, six = (digest_of(text, {name: value}, macro=macro) for value in (5, 6))
        assert not same(five, six)


def test_the_variables_of_another_package_and_the_names_of_packages_are_no_code() -> None:
    text = "select least from {{ source('shop', 'orders') }}"
    plain = digest_of(text, {"least": 5, "shop": {"other": 1}})
    assert plain == digest_of(text, {"least": 5, "shop": {"other": 2}})
    assert plain == digest_of(text, {"least": 5, "shop": {"other": 1}, "dbt_utils": {"least": 2}})
    assert plain != digest_of(text, {"least": 5, "shop": {"other": 1, "least": 2}})
