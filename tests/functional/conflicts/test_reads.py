"""Tables that a run reads and does not build: what they were when the run publishes."""

from __future__ import annotations

from typing import Any

Log = Any


def test_a_parent_that_moved_is_told(log: Log) -> None:
    before = log.entries()
    with log.when("totals", lambda: log.append(500)):
        outcome = log.build(0, "--select", "totals").succeeded()
    assert log.totals() == (len(before), sum(before))
    assert f"{log.project.schema}.log was read at snapshot" in outcome.text


def test_strict_reads_build_on_the_parent_as_it_is(log: Log) -> None:
    before = log.entries()
    with log.when("totals", lambda: log.append(600)):
        outcome = log.build(0, "--select", "totals", wap_reads="strict").succeeded()
    assert log.totals() == (len(before) + 1, sum(before) + 600)
    (run,) = log.reader.ledger("runs", run_id=outcome.run_id)
    assert (run["outcome"], run["tries"]) == ("published", 1)
