"""Commit retries belong to the table, and are set without a clone of it."""

from __future__ import annotations

from typing import Any

import pytest

Log = Any


def test_commit_retries_are_set_on_the_branch_of_a_live_table(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, schema = log.entries(), log.project.schema
    uuid = log.reader.metadata(schema, "log")["table-uuid"]
    monkeypatch.setenv("LOG_RETRIES", "33")
    outcome = log.build(7, "--select", "log").succeeded()
    assert log.entries() == sorted([*before, 7])
    document = log.reader.metadata(schema, "log")
    assert document["properties"]["commit.retry.num-retries"] == "33"
    assert document["table-uuid"] == uuid
    (row,) = log.reader.ledger("nodes", run_id=outcome.run_id)
    assert row["how"] == "branch"
