"""The results of an open run, which a killed retry needs too."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dbt.adapters.sparkwap import run_results
from dbt.adapters.sparkwap.run_results import to_retry

STATUSES = (
    "success", "pass", "warn", "no-op", "error", "fail", "skipped", "runtime error",
    "partial success",
)  # fmt: skip


def test_a_retry_selects_the_unfinished_nodes(tmp_path: Path) -> None:
    path = tmp_path / "run_results.json"
    results = [{"unique_id": f"model.shop.{one}", "status": one} for one in STATUSES]
    results.append({"unique_id": "operation.shop.hook", "status": "error"})
    path.write_text(json.dumps({"results": results}))
    assert to_retry(path) == [f"model.shop.{one}" for one in STATUSES[4:]]


def test_failures_that_stay_on_the_branch_are_named_where_they_are() -> None:
    def stored(name: str) -> Any:
        node = SimpleNamespace(
            unique_id=f"test.{name}", schema="audit", alias=name, relation_name=f"audit.{name}",
            should_store_failures=True,
        )  # fmt: skip
        return SimpleNamespace(node=node)

    held, published, live = results = [stored(name) for name in ("held", "published", "live")]
    beside = {("audit", "held"): "audit__wap_1", ("audit", "published"): "audit__wap_1"}
    run_results.locate_failures(results, beside.get, {"test.published"})
    assert held.node.relation_name == "`audit__wap_1`.`held`"
    assert published.node.relation_name == "audit.published"
    assert live.node.relation_name == "audit.live"
