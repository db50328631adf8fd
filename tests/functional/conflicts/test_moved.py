"""Main moves while a run builds: it builds again on main as it is, or says that it does not."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest
from helpers.catalogs import STAMPED
from pyiceberg.exceptions import CommitFailedException

Log = Any


@pytest.mark.smoke
def test_a_run_follows_main_with_what_moved_and_all_downstream(log: Log) -> None:
    before = log.entries()
    with log.when("totals", lambda: log.append(100)):
        outcome = log.build(2).succeeded()
    # As if the other writer had been first: nothing is lost, and nothing is there twice.
    assert log.entries() == sorted([*before, 100, 2])
    assert log.totals() == (len(before) + 2, sum(before) + 102)
    # What had not moved was not built again.
    (rebuilt,) = log.reader.ledger("runs", rebuild_of=outcome.run_id)
    assert rebuilt["run_id"] != outcome.run_id
    if STAMPED:
        assert log.writer("totals") == rebuilt["run_id"]
        assert log.writer("notes") == outcome.run_id
    assert {outcome.verdict(name) for name in ("log", "totals", "notes")} == {"published"}
    assert "main moved: built 2 nodes again" in outcome.text
    (run,) = log.reader.ledger("runs", run_id=outcome.run_id)
    assert (run["outcome"], run["tries"], run["rebuild_of"]) == ("published", 1, None)
    assert 0.05 <= run["waited_seconds"] <= 0.15
    assert run["publish_id"] == rebuilt["publish_id"] is not None
    assert log.branches() == {"main"}


def test_a_run_does_not_follow_where_that_is_off_and_a_retry_does(log: Log) -> None:
    before = log.entries()
    with log.when("totals", lambda: log.append(300)):
        outcome = log.build(3, wap_rebuilds=0).failed()
    assert log.entries() == sorted([*before, 300])
    assert "rebuilds are off (wap_rebuilds: 0)" in outcome.text
    log.project.dbt("retry").succeeded()
    assert log.entries() == sorted([*before, 300, 3])
    assert log.totals() == (len(before) + 2, sum(before) + 303)


def test_a_rebuild_that_takes_too_long_is_ended_and_a_retry_goes_on(log: Log) -> None:
    before = log.entries()
    with log.when("totals", lambda: log.append(400)):
        # By then it has just begun.
        outcome = log.build(5, wap_rebuild_timeout=1).failed()
    assert log.entries() == sorted([*before, 400])
    assert "was still building after 1 s and was stopped; `dbt retry` builds again" in outcome.text
    assert outcome.verdict("log") == "held"
    log.project.dbt("retry").succeeded()
    assert log.entries() == sorted([*before, 400, 5])
    assert log.totals() == (len(before) + 2, sum(before) + 405)


def test_tries_are_bounded(log: Log) -> None:
    before, stop = log.entries(), threading.Event()

    def write() -> None:
        while not stop.wait(0.5):
            # Where it loses a race with the publish, PyIceberg gives up in either way.
            with suppress(CommitFailedException, ValueError):
                log.append(0)

    writer = threading.Thread(target=write)

    try:
        with log.when("log", writer.start):
            outcome = log.build(4, wap_rebuilds=1).failed()
    finally:
        stop.set()
        writer.join()
    assert [n for n in log.entries() if n] == before
    assert "it was built again 1 time, and main moved again" in outcome.text
    (run,) = log.reader.ledger("runs", run_id=outcome.run_id)
    assert (run["outcome"], run["tries"]) == ("rejected", 1)
