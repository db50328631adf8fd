"""The names that relations render to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dbt.adapters.sparkwap.relation import SparkWapRelation, is_as_of
from sparkwap.runs import relation_overlay


@pytest.fixture
def names() -> Iterator[relation_overlay.Overlay]:
    names = relation_overlay.Overlay()
    relation_overlay.activate(names)
    yield names
    relation_overlay.activate(None)


ORDERS = SparkWapRelation.create(schema="shop", identifier="orders")


def test_a_pinned_table_is_read_at_its_snapshot(names: relation_overlay.Overlay) -> None:
    names.pin({("shop", "orders"): 7})
    assert str(ORDERS) == "shop.orders version as of 7"
    assert is_as_of(str(ORDERS))
    assert str(SparkWapRelation.create(schema="shop", identifier="other")) == "shop.other"


def test_a_pin_is_inside_the_subquery_of_a_limit(names: relation_overlay.Overlay) -> None:
    names.pin({("shop", "orders"): 7})
    limited = SparkWapRelation.create(schema="shop", identifier="orders", limit=0)
    assert "from shop.orders version as of 7 where false" in str(limited)


def test_a_built_table_is_read_in_its_side_schema(names: relation_overlay.Overlay) -> None:
    names.pin({("shop", "orders"): 7})
    names.add(("shop", "orders"), "shop__dev")
    assert str(ORDERS) == "shop__dev.orders"
    assert not is_as_of(str(ORDERS))


def test_a_name_without_a_schema_is_a_temporary_view(names: relation_overlay.Overlay) -> None:
    names.pin({("shop", "orders"): 7})
    assert str(ORDERS.include(schema=False)) == "orders"
