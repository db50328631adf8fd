"""The ledger names the caller of each command that changes the lake."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from helpers.lake import Reader
from helpers.project import ORDERS_AND_PEOPLE, MakeProject, Outcome


def test_who_did_what_from_where(
    make_project: MakeProject, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project("called", ORDERS_AND_PEOPLE, settings={"name": "called"})
    host = socket.gethostname()

    def by(name: str, *arguments: str, ok: bool = True, **variables: Any) -> Outcome:
        monkeypatch.setenv("SPARKWAP_ACTOR", name)
        ended = project.dbt(*arguments, **variables)
        return ended.succeeded() if ok else ended.failed()

    def operation(name: str, operation: str, **arguments: Any) -> Outcome:
        return by(name, "run-operation", operation, "--args", json.dumps(arguments))

    def callers(table: str, run_id: str) -> set[tuple[Any, ...]]:
        return {
            (row["actor"], row["host"], row["project"], row["command"])
            for row in reader.ledger(table, run_id=run_id)
        }

    first = by("anna", "build")
    for table in ("runs", "publishes"):
        assert callers(table, first.run_id) == {("anna", host, "called", "build")}

    rejected = by("bo", "build", "--select", "orders", ok=False, amount=9)
    shown = operation("bo", "wap_status", branch=rejected.branch).text
    assert f"last run: project called, by bo on {host}" in shown
    accepted = operation(
        "carla", "wap_accept", branch=rejected.branch, test="small", reason="a new product"
    )
    assert callers("acceptances", accepted.run_id) == {("carla", host, "called", "wap_accept")}
    (row,) = reader.ledger("acceptances", run_id=accepted.run_id)
    assert row["accepted_by"] == "carla"
    published = operation("dora", "wap_publish", branch=rejected.branch)
    assert callers("publishes", published.run_id) == {("dora", host, "called", "wap_publish")}
    listed = by("dora", "run-operation", "wap_rollback", ok=False).text
    assert f"project called, by dora on {host}" in listed
    undone = operation("emil", "wap_rollback", run=published.run_id)
    assert callers("publishes", undone.run_id) == {("emil", host, "called", "wap_rollback")}

    held = by("anna", "run", "--select", "orders")
    dropped = operation("fay", "wap_discard", branch=held.branch)
    assert callers("runs", dropped.run_id) == {("fay", host, "called", "wap_discard")}
    swept = operation("gil", "wap_sweep")
    assert callers("sweeps", swept.run_id) == {("gil", host, "called", "wap_sweep")}
    by("hana", "build", "--select", "orders", amount=2)
    tables = [f"{project.schema}.orders"]
    kept = operation("ivo", "wap_maintain", tables=tables, everything=True)
    assert callers("maintenance", kept.run_id) <= {("ivo", host, "called", "wap_maintain")}
    erased = operation("jo", "wap_erase", subject="person", keys=["1"], confirm=True)
    for table in ("runs", "publishes"):
        assert callers(table, erased.run_id) == {("jo", host, "called", "wap_erase")}

    hidden = by("anna", "build", "--select", "orders", wap_actor="never")
    for table in ("runs", "publishes"):
        assert callers(table, hidden.run_id) == {(None, None, "called", "build")}
