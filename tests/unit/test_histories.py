"""What readers see while many write, die and come back: nothing but audited, whole, serial states.

Some seconds of it, without Spark; ``SOAK=1`` takes minutes (``SPARKWAP_SECONDS`` says how many
seconds).
"""

from __future__ import annotations

import multiprocessing
import os
import random
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from histories import writers
from histories.checker import Fact, Version, faults
from pyiceberg.table import StaticTable
from vocabulary.lake import Reader

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
        self._context.set_forkserver_preload(["histories.writers", "pyiceberg.io.pyarrow"])
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


class Watcher:
    """A reader that notes each state of the catalog's pointers that it finds."""

    def __init__(self, folder: Path) -> None:
        self._reader = Reader(folder)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.states: list[dict[str, str]] = []
        self.looks = 0
        self._thread.start()

    def _watch(self) -> None:
        last = False
        while not last:
            last = self._stop.is_set()
            pointers = self._reader.pointers(writers.SCHEMA)
            state = {name: location for name, (_, location) in pointers.items()}
            self.looks += 1
            if not self.states or self.states[-1] != state:
                self.states.append(state)
            time.sleep(0.002)

    def end(self) -> None:
        self._stop.set()
        self._thread.join()


@cache
def rows_of_file(path: str) -> frozenset[Fact]:
    import pyarrow.parquet as pq

    found = pq.read_table(path.removeprefix("file://")).to_pylist()
    return frozenset(Fact(row["by"], row["number"], row["ok"]) for row in found)


@cache
def rows_at(location: str) -> frozenset[Fact]:
    """The rows of ``main``, by PyIceberg's plan of its files."""
    tasks = StaticTable.from_metadata(location).scan().plan_files()
    return frozenset(row for task in tasks for row in rows_of_file(task.file.file_path))


def told(folder: Path) -> list[str]:
    """The runs that were told that they have published."""
    return [run for log in folder.glob("told-*") for run in log.read_text().split()]


def versions(states: list[dict[str, str]]) -> list[Version]:
    found: list[Version] = []
    for state in states:
        version = {name: rows_at(location) for name, location in state.items()}
        if not found or found[-1] != version:
            found.append(version)
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # The fork server does not take sys.path over before it imports.
    tests = Path(__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tests), str(tests / "functional")]))
    writers.create(tmp_path)
    yield tmp_path


def test_readers_see_audited_whole_and_serial_states(folder: Path) -> None:
    seed = int(os.environ.get("SPARKWAP_SEED") or 7)
    watcher, chaos = Watcher(folder), Chaos(folder, seed)
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
        watcher.end()
    seen = versions(watcher.states)
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
