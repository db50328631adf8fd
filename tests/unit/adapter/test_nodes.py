"""The begin of nodes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dbt.adapters.sparkwap.nodes import Nodes
from sparkwap.core.errors import CatalogError


def test_a_node_whose_earlier_rows_cannot_be_kept_is_not_begun() -> None:
    begun: list[str] = []

    def refuse(node_id: str, table: object) -> None:
        raise CatalogError("can no longer be published")

    run = SimpleNamespace(
        branch="wap_1",
        candidates=SimpleNamespace(require_publishable=refuse, found={"snapshot.s": "1"}),
        may_add_to_candidate=lambda node_id, table: False,
        begin=lambda node_id, table: begun.append(node_id),
    )
    runs = SimpleNamespace(
        active=run, command=SimpleNamespace(is_retry=False), continues_branch=True
    )
    reuse = SimpleNamespace(leave_out=lambda run, node: False)
    node = SimpleNamespace(
        unique_id="snapshot.s", resource_type="snapshot", schema="s", alias="t", config={}
    )
    statements = SimpleNamespace(at_work=SimpleNamespace())
    nodes = Nodes(cast(Any, runs), cast(Any, statements), cast(Any, reuse))
    with pytest.raises(CatalogError, match="can no longer be published"):
        nodes.begin(node)
    assert begun == []
