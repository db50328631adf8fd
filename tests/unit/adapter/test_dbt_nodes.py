"""Single nodes of dbt in the gate's terms."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from dbt.artifacts.resources.v1.model import ModelConfig
from dbt_common.contracts.config import base

from dbt.adapters.sparkwap.dbt_nodes import maintenance_rules


@pytest.mark.parametrize(
    "config",
    [{"wap_maintain": False}, {"meta": {"wap_maintain": False}},
     {"wap_maintain": False, "meta": {"wap_maintain": {"keep_days": 1}}}],
)  # fmt: skip
def test_a_rule_of_maintenance_is_in_the_config_or_its_meta(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(base, "fire_event", told.append)
    node = SimpleNamespace(
        unique_id="model.a", resource_type="model", schema="s", alias="a",
        config=ModelConfig.from_dict(config), depends_on=SimpleNamespace(macros=[], nodes=[]),
    )  # fmt: skip
    (rule,) = maintenance_rules(SimpleNamespace(nodes={"x": node}, sources={})).values()
    assert not rule.compact
    assert not told, "dbt warns of keys of `meta` that are read as config"
