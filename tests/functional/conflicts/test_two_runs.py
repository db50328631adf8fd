"""Two runs on the same tables at once: as if one had come after the other."""

from __future__ import annotations

from typing import Any

import pytest

Log = Any
MINUTES = 5 * 60


def test_two_builds_at_once(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    before, builds = log.entries(), []
    for n in (10, 20):
        monkeypatch.setenv("LOG_N", str(n))
        target = str(log.project.folder / f"target_{n}")
        variables = {"wap_rebuild_wait": 0.1, "wap_rebuilds": 3}
        builds.append(log.project.start("build", "--target-path", target, **variables))
    assert [build.wait(MINUTES) for build in builds] == [0, 0]
    # Each has added its entry once, and the totals are of one state of the log.
    entries = log.entries()
    assert entries == sorted([*before, 10, 20])
    assert log.totals() == (len(entries), sum(entries))
    assert log.branches() == {"main"}


def test_a_run_inside_another_one_comes_before_it(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = log.entries()

    def another() -> None:
        monkeypatch.setenv("LOG_N", "30")
        target = str(log.project.folder / "target_30")
        try:
            assert log.project.start("build", "--target-path", target).wait(MINUTES) == 0
        finally:
            monkeypatch.setenv("LOG_N", "40")

    with log.when("totals", another):
        outcome = log.build(40).succeeded()
    entries = log.entries()
    assert entries == sorted([*before, 30, 40])
    assert log.totals() == (len(entries), sum(entries))
    # The notes are those of the later one.
    assert log.reader.table(log.project.schema, "notes").values("n") == [40]
    (run,) = log.reader.ledger("runs", run_id=outcome.run_id)
    assert (run["outcome"], run["tries"]) == ("published", 1)
