"""The node of a Python model while it is built."""

import pytest

from sparkwap.core import node
from sparkwap.core.errors import SparkwapError


def test_the_node_is_available_while_it_is_built() -> None:
    one = node.Node("model.shop.raw_orders", meta={"landing": {}})
    with node.building(one):
        assert node.current() is one
    with pytest.raises(SparkwapError, match="No Python model is being built"):
        node.current()


def test_a_setting_of_a_parent_is_found() -> None:
    metas = {"model.shop.raw_orders": {"landing": {"key": ["id"]}}}
    one = node.Node(
        "model.shop.cdc_orders",
        parents=("seed.shop.codes", "model.shop.raw_orders"),
        meta_of=lambda node_id: metas.get(node_id, {}),
    )
    assert one.parent_meta("landing") == {"key": ["id"]}
    assert one.parent_meta("drop") is None
