"""A process that dies in the transaction of a publish leaves nothing."""

from __future__ import annotations

import os
from typing import Any

import pytest
from helpers.bench import BRANCH, TAG, Bench

from sparkwap.catalog.sql_backend import SqlBackend
from sparkwap.publish.lake import Lake


def test_killed_in_the_transaction(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for table in "ab":
        bench.table(table, 1)
    items = [bench.candidate(table, 2) for table in "ab"]
    bench.lake.ledger.ensure({"publishes"})
    before = bench.pointers()
    child = os.fork()
    if child == 0:
        try:
            lake, real, calls = Lake("lake", bench.properties), SqlBackend._apply_one, []

            def die_at_the_second(self: SqlBackend, connection: Any, swap: Any) -> None:
                calls.append(swap)
                if len(calls) == 2:
                    os._exit(9)
                real(self, connection, swap)

            monkeypatch.setattr(SqlBackend, "_apply_one", die_at_the_second)
            lake.publishing.publish(items, run_id="x", tag=TAG, tag_max_age_ms=None, branch=BRANCH)
        finally:
            os._exit(0)  # else it would go on as a second pytest, and end what is shared
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert bench.pointers() == before
    bench.publish(*items)
    assert [bench.read(table) for table in "ab"] == [[1, 2], [1, 2]]
