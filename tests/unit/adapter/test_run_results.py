"""The results of an open run, which a killed retry needs too."""

from __future__ import annotations

import json
from pathlib import Path

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
