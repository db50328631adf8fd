"""What readers see while many write, die and come back: nothing but audited, whole, serial states.

Some seconds of it, without Spark; ``SOAK=1`` takes minutes (``SPARKWAP_SECONDS`` says how many
seconds).
"""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.histories import writers
from helpers.histories.checker import Fact, Version, faults
from helpers.histories.watcher import Watcher
from helpers.lake import Reader

pytestmark = pytest.mark.long

SECONDS = float(os.environ.get("SPARKWAP_SECONDS") or (300 if os.environ.get("SOAK") else 12))
ENOUGH = 3
PAUSE = 4.0
"""Seconds between two kills, or two writes of others: a run takes about one."""
BRANCHES = ("w1", "w2", "w3")


class Chaos:
    """Processes that write to a lake, of which one is killed every now and then."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.killed = folder, 0
        self._chance = random.Random(seed)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["helpers.histories.writers", "pyiceberg.io.pyarrow"])
        self._writers = {branch: self._start(branch) for branch in BRANCHES}
        arguments = (str(folder), seed, PAUSE)
        self._noise = self._context.Process(target=writers.noise, args=arguments, daemon=True)
        self._noise.start()

    def _start(self, branch: str) -> Any:
        arguments = (str(self.folder), branch, self._chance.getrandbits(32))
        process = self._context.Process(target=writers.runs, args=arguments, daemon=True)
        process.start()
        return process

    def kill_one(self) -> None:
        """SIGKILL one of the runs, wherever it is, and let another go on with its branch."""
        branch = self._chance.choice(BRANCHES)
        self._writers[branch].kill()
        self._writers[branch].join()
        self._writers[branch] = self._start(branch)
        self.killed += 1

    def end(self) -> None:
        """Kill all."""
        for process in (*self._writers.values(), self._noise):
            process.kill()
            process.join()


def told(folder: Path) -> list[str]:
    """The runs that were told that they have published."""
    return [run for log in folder.glob("told-*") for run in log.read_text().split()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # The fork server does not take sys.path over before it imports.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    writers.create(tmp_path)
    yield tmp_path


def test_readers_see_audited_whole_and_serial_states(folder: Path) -> None:
    seed = int(os.environ.get("SPARKWAP_SEED") or 7)
    chaos = Chaos(folder, seed)
    with Watcher(Reader(folder), writers.SCHEMA) as watcher:
        try:
            began = time.monotonic()
            # On a machine that is busy, longer: until something has happened.
            while (spent := time.monotonic() - began) < SECONDS or (
                spent < 10 * SECONDS and len(told(folder)) < ENOUGH
            ):
                time.sleep(PAUSE)
                chaos.kill_one()
        finally:
            chaos.end()
    seen = watcher.versions()
    lake = writers.open_lake(folder)
    published = [publish.run_id for publish in reversed(lake.ledger.publishes())]
    lake.close()
    print(f"{watcher.looks} looks, {len(seen)} versions, {len(published)} publishes, "
          f"{chaos.killed} killed")  # fmt: skip
    assert faults(seen, published, told(folder)) == []
    assert len(published) >= ENOUGH, "too little has happened"
    assert len(seen) > len(published), "the other writers were not seen"


# -- the checker finds what it is for --------------------------------------------------------------

GOOD = Fact("r1", 1, ok=True), Fact("r2", 2, ok=True)


def version(a: tuple[Fact, ...], b: tuple[Fact, ...] | None = None) -> Version:
    return {"a": frozenset(a), "b": frozenset(a if b is None else b)}


@pytest.mark.parametrize(
    ("seen", "published", "heard", "fault"),
    [
        ([version(GOOD[:1]), version(GOOD)], ["r1", "r2"], ["r1", "r2"], None),
        ([version(GOOD), version((*GOOD, Fact("noise-1", 0, ok=True)))], ["r1", "r2"], [], None),
        ([version((Fact("r1", 1, ok=False),))], ["r1"], [], "no audit passed"),
        ([version(GOOD)], ["r1"], [], "never published"),
        ([version(GOOD, GOOD[:1])], ["r1", "r2"], [], "not whole"),
        ([version(GOOD), version(GOOD[:1])], ["r1", "r2"], [], "a lost"),
        ([version(GOOD[:1])], ["r1", "r2"], [], "lost publishes"),
        ([version(GOOD)], ["r1", "r2"], ["r3"], "told of a publish"),
        ([version((GOOD[0], Fact("r2", 1, ok=True)))], ["r1", "r2"], [], "serial"),
        ([version(GOOD)], ["r2", "r1"], [], "serial"),
    ],
)
def test_the_checker(
    seen: list[Version], published: list[str], heard: list[str], fault: str | None
) -> None:
    found = faults(seen, published, heard)
    assert (found == []) if fault is None else any(fault in one for one in found)


@pytest.mark.parametrize(
    ("seen", "fault"),
    [
        (version(GOOD, GOOD[:1]), None),
        (version(GOOD[:1], GOOD), "not whole"),
        (version((*GOOD, Fact("r3", 3, ok=True)), GOOD[:1]), "never published"),
    ],
)
def test_the_checker_knows_which_tables_a_run_builds(seen: Version, fault: str | None) -> None:
    found = faults([seen], ["r1", "r2"], [], {"r2": {"a"}})
    assert (found == []) if fault is None else any(fault in one for one in found)


def test_the_checker_finds_a_run_that_is_there_twice() -> None:
    found = faults([version((GOOD[0], Fact("r1", 2, ok=True)))], ["r1"], [])
    assert any("a has a run twice" in one for one in found)
