"""The kill matrix: every step of the gate, and each way to die there.

The cells come from `sparkwap.steps.STEPS`. Steps inside dbt have theirs in
``tests/functional/crashes``. What must hold is asserted through PyIceberg and plain SQLite.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from crashes.scenarios import BRANCH, SCENARIOS, SECOND, open_lake, operate, publishes
from crashes.world import RAISED, World

from sparkwap import steps
from sparkwap.state import LastRun

ALL = bool(os.environ.get("SOAK"))
TESTS = Path(__file__).parents[1]
KILLED = -9
CELLS = [
    (step.name, action)
    for step in steps.STEPS.values()
    if step.where != "dbt"
    for action in ("kill-dbt", "raise", "kill-server")
]


# -- a lake that comes back ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Where the lake is: always the same path, as metadata names absolute ones."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
        yield Path(made) / "lake"


@pytest.fixture(scope="module")
def world(folder: Path) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        # The fork server does not take sys.path over before it imports.
        patch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), str(TESTS / "functional")]))
        yield World(folder)


# -- the matrix --------------------------------------------------------------------------------


def cells_of(world: World, step: str) -> Iterator[tuple[str, int]]:
    """Where a step is reached: scenario, and which time. The first and last ones, or all."""
    for name in SCENARIOS:
        count = Counter(world.told(name)[0])[step]
        times = range(1, count + 1) if ALL else sorted({1, count} - {0})
        yield from ((name, time) for time in times[: count or None] if count)


@pytest.mark.parametrize(("step", "action"), CELLS, ids=lambda value: value)
def test_cell(world: World, step: str, action: str) -> None:
    tried = 0
    for name, occurrence in cells_of(world, step):
        _try(world, name, step, action, occurrence)
        tried += 1
    assert tried, f"no scenario reaches {step}: it has no cell"


def _try(world: World, name: str, step: str, action: str, occurrence: int) -> None:
    scenario, (_, before, after) = SCENARIOS[name], world.told(name)
    assert world.begin(name) == before
    with world.reader.polling("s") as poller:
        code = world.run(name, "act", f"{step}:{action}:{occurrence}")
    assert code == {"kill-dbt": KILLED, "raise": RAISED, "kill-server": 0}[action]
    # Readers: the old state or the new one, whole, and at no time anything else.
    now = world.look()
    expected = before if steps.STEPS[step].readers == "before" else after
    assert now == (after if code == 0 else expected), f"{name}, {occurrence}"
    assert len(poller.states) <= 2
    assert_free(world.folder)
    if code == 0:
        return
    lake = open_lake(world.folder)
    try:
        assert_told(lake, scenario is SCENARIOS["build"], published=now == after)
        scenario.go_on(lake)
        assert world.look() == after
        counts = Counter(publishes(lake))
        assert set(counts.values()) <= {scenario.publishes}
        # Once more, and it is harmless; then everything can be dropped.
        scenario.again(lake)
        assert world.look() == after
        assert Counter(publishes(lake)) == counts
        still = [one.branch for one in lake.open_branches()]
        assert still == ([BRANCH] if scenario.leaves else [])
        if still:
            operate(lake, "wap_discard", branch=BRANCH)
        assert lake.open_branches() == []
        assert world.look() == after
        assert not any(schema.endswith(BRANCH) for schema in lake.schemas())
    finally:
        lake.close()


def assert_free(folder: Path) -> None:
    """Nothing holds a lock on the catalog."""
    with closing(sqlite3.connect(folder / "catalog.db", timeout=1)) as database:
        database.execute("begin immediate").fetchall()
        database.rollback()


def assert_told(lake: Any, a_run: bool, *, published: bool) -> None:
    """`wap_status` says what was found."""
    text = operate(lake, "wap_status", LastRun(SECOND, BRANCH, "open") if a_run else None)
    open_ones = lake.open_branches()
    assert ("No audit branch is open" in text) == (not open_ones)
    assert all(one.branch in text and "wap_discard" in text for one in open_ones)
    if a_run:
        word = "has published 4 tables" if published else "has not come to its end"
        assert word in text
