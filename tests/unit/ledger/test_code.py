"""Names of nodes."""

from __future__ import annotations

from sparkwap.ledger.code import name_of


def test_names_have_no_project_and_no_hash() -> None:
    assert name_of("model.shop.orders.v2") == "orders.v2"
    assert name_of("test.shop.not_null_orders_id.0a1b2c") == "not_null_orders_id"
