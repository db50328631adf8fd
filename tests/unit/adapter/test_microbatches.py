"""The calls of the incremental materialization for batches."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from dbt_common.exceptions import DbtRuntimeError

from dbt.adapters.sparkwap import microbatches
from dbt.adapters.sparkwap.relation import SparkWapRelation


@pytest.mark.parametrize(
    ("begin", "first", "last", "lost"),
    [
        # dbt builds the whole first and last day.
        ("2020-01-01", datetime(2020, 1, 1, 6), datetime(2025, 12, 31, 10, 30), ""),
        ("2020-01-01", None, datetime(2025, 12, 30, 10, 30), "2025-12-31T00:00 to 2026-01-01"),
        ("2020-01-01", datetime(2020, 1, 2, 6), None, "2020-01-01T00:00 to 2020-01-02T00:00"),
        ("2020-01-01", 2024, 2025, "2020-01-01T00:00 to 2024-01-01T00:00, 2025-01-01"),
        ("2020-01-01", 2020, None, ""),
        ("2020-01-01", None, 2025, "2025-01-01T00:00 to 2026-01-01T00:00"),
        ("2023-01-01", 2024, None, "2023-01-01T00:00 to 2024-01-01T00:00"),
        ("2024-01-01", 2024, 2026, ""),
        ("2020-01-01", None, None, ""),
    ],
)
def test_a_full_refresh_of_some_batches_loses_no_others(
    monkeypatch: pytest.MonkeyPatch,
    begin: str,
    first: datetime | int | None,
    last: datetime | int | None,
    lost: str,
) -> None:
    start, end = (datetime(at, 1, 1) if isinstance(at, int) else at for at in (first, last))
    flags = SimpleNamespace(EVENT_TIME_START=start, EVENT_TIME_END=end)
    monkeypatch.setattr(microbatches, "get_flags", lambda: flags)
    row = {
        "batches": ["2020-01-01T00:00:00+00:00/2026-01-01T00:00:00+00:00"],
        "built_at": datetime(2026, 1, 1, tzinfo=UTC),
        "reason": None,
    }
    ledger = SimpleNamespace(builds=lambda node_id, table: [(row, True)])
    live = SimpleNamespace(main=7)
    lake = SimpleNamespace(ledger=ledger, state=lambda table: live)
    run = SimpleNamespace(replay=None, lake=lake)
    calls = microbatches.Microbatches(
        cast(Any, SimpleNamespace(current=lambda: run)), cast(Any, None)
    )
    relation = SparkWapRelation.create(schema="s", identifier="t", type="table")
    model = {"unique_id": "model.shop.t", "config": {"begin": begin, "batch_size": "day"}}
    if not lost:
        calls.require_all(model, relation)
        return
    with pytest.raises(DbtRuntimeError, match=f"Its batches from {lost}.* would be lost"):
        calls.require_all(model, relation)
    # What the publishes do not tell is not lost, either: those of another tool have no rows here.
    ledger.builds = lambda node_id, table: []
    with pytest.raises(DbtRuntimeError, match="would be lost"):
        calls.require_all(model, relation)
    live.main = None
    calls.require_all(model, relation)
