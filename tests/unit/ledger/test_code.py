"""Names and digests of nodes."""

from __future__ import annotations

from typing import Any

from sparkwap.core.dbt_cli import VARIABLES
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
