"""The kill matrix: every step of the gate, and each way to die there.

The cells come from `sparkwap.core.checkpoints.CHECKPOINTS`. Steps inside dbt have theirs in
``tests/functional/crashes``. What must hold is asserted through PyIceberg and plain SQLite. Steps
of a sequential publish have theirs on a REST catalog, for which Java is needed.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from helpers.crashes import cells
from helpers.crashes.cells import ALL
from helpers.crashes.injector import Injector
from helpers.crashes.scenarios import (
    BRANCH,
    JOURNALLED,
    SCENARIOS,
    SECOND,
    open_lake,
    operate,
    publishes,
)
from helpers.crashes.table import table
from helpers.crashes.world import RAISED, TOLD, SequentialWorld, State, World
from helpers.rest import running_rest_server

from sparkwap.core import checkpoints
from sparkwap.runs.state import LastRun

pytestmark = pytest.mark.long

TESTS = Path(__file__).parents[2]
KILLED = -9


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
        patch.setenv("PYTHONPATH", str(TESTS))
        yield World(folder)


@pytest.fixture(scope="module")
def sequential(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SequentialWorld]:
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as made,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("PYTHONPATH", str(TESTS))
        jars = os.environ.get("SPARKWAP_JARS", str(TESTS.parent / ".lake/jars"))
        patch.setenv("SPARKWAP_JARS", jars)
        folder = Path(made) / "lake"
        folder.mkdir()
        with running_rest_server(folder) as rest:
            yield SequentialWorld(folder, rest)


# -- the matrix --------------------------------------------------------------------------------


def cells_of(world: World, step: str, action: str) -> list[tuple[str, int]]:
    """Where a step is reached: scenario, and which time of how many.

    With SOAK=1 all of them. Else one: SIGKILL takes the first, an exception the last.
    """
    found = []
    for name in world.scenarios:
        found += [(name, time + 1) for time in range(Counter(world.told(name)[0])[step])]
        if found and action != "raise" and not ALL:
            # What other scenarios do need not be told then.
            break
    assert found, f"no scenario reaches {step}: it has no cell"
    if ALL:
        return found
    return found[-1:] if action == "raise" else found[:1]


@pytest.mark.parametrize(("step", "action"), cells.CELLS, ids=lambda value: value)
def test_cell(world: World, step: str, action: str) -> None:
    for name, occurrence in cells_of(world, step, action):
        _try(world, name, step, action, occurrence)


@pytest.mark.parametrize(
    ("step", "action"),
    cells.SEQUENTIAL_SOAK if ALL else cells.SEQUENTIAL_CELLS,
    ids=lambda value: value,
)
def test_cell_of_a_sequential_publish(sequential: SequentialWorld, step: str, action: str) -> None:
    for name, occurrence in cells_of(sequential, step, action):
        _try(sequential, name, step, action, occurrence)


@pytest.mark.parametrize("step", cells.ROLLED_BACK)
def test_a_sequential_rollback(sequential: SequentialWorld, step: str) -> None:
    _try(sequential, "sequential back", step, "kill-process", 1)


@pytest.mark.parametrize("step", cells.RETRIED)
def test_a_retry_after_a_sequential_publish(sequential: SequentialWorld, step: str) -> None:
    _try(sequential, "sequential retried", step, "kill-process", 1)


@pytest.mark.parametrize(("step", "occurrence"), cells.UNBEGUN)
def test_verdicts_without_a_journal_are_none(
    sequential: SequentialWorld, step: str, occurrence: int
) -> None:
    """The ledger's rows of the nodes are there, and the journal is not yet."""
    _try(sequential, "sequential", step, "kill-process", occurrence, promise="before")


@pytest.mark.skipif(not ALL, reason="long: only in the soak")
@pytest.mark.parametrize("name", JOURNALLED)
def test_every_other_step_of_a_sequential_publish(sequential: SequentialWorld, name: str) -> None:
    """Where a sequential publish passes steps that others pass too, it has promised less."""
    for step, times in Counter(sequential.told(name)[0]).items():
        if checkpoints.CHECKPOINTS[step].where != "sequential":
            for time in range(times):
                _try(sequential, name, step, "kill-process", time + 1, promise="between")


def _try(
    world: World,
    name: str,
    step: str,
    action: str,
    occurrence: int,
    promise: checkpoints.Side | None = None,
) -> None:
    scenario, (_, before, after) = world.scenarios[name], world.told(name)
    passing = world.told(scenario.passing)[2] if scenario.passing else after
    assert world.begin(name) == before
    with world.reader.polling("s") as poller:
        code = world.run(name, "act", f"{step}:{action}:{occurrence}")
    assert code == {"kill-process": KILLED, "raise": RAISED}[action]
    # Readers: the old state or the new one, whole, and at no time anything else.
    now = world.look()
    promise = promise or checkpoints.CHECKPOINTS[step].readers
    if promise in ("between", "gap"):
        assert_between(now, before, passing, after, gap=promise == "gap")
    else:
        expected = before if promise == "before" else after
        # Nothing of a publish that is undone is seen at the end; what others wrote may be.
        legal = [after] if code == 0 else [expected, after] if scenario.passing else [expected]
        assert now in legal, f"{name}, {occurrence}"
    if isinstance(world, SequentialWorld):
        assert_turns(poller.states, 3 if scenario.passing else 2)
    else:
        assert len(poller.states) <= 2
    assert_free(world.database)
    if code == 0:
        return
    lake = world.open()
    try:
        assert_told(lake, name in ("build", "sequential retried"), published=now == after)
        scenario.go_on(lake)
        assert world.look() == after
        counts = Counter(publishes(lake))
        assert set(counts.values()) <= {scenario.publishes}
        # Once more, and it is harmless; then everything can be dropped.
        scenario.again(lake)
        assert world.look() == after
        assert Counter(publishes(lake)) == counts
        still = [one.branch for one in lake.branches.all()]
        assert still == ([BRANCH] if scenario.leaves else [])
        if still:
            operate(lake, "wap_discard", branch=BRANCH)
        assert lake.branches.all() == []
        assert (world.look(), world.aside()) == (after, [])
        assert not any(schema.endswith(BRANCH) for schema in lake.schemas())
    finally:
        lake.close()


def assert_between(now: State, *states: State, gap: bool) -> None:
    """Each table is as in one of the states: there, or not there; in a gap one is away."""
    names = {name for state in (now, *states) for name in state}
    other = {n for n in names if now.get(n) not in [state.get(n) for state in states]}
    assert len(other) == int(gap), other
    assert not other & set(now)


def assert_turns(states: list[dict[str, Any]], most: int) -> None:
    """No table had more than so many states while a sequential publish was at work.

    One that is replaced, or comes anew, is away at first, which is no state of its own.
    """
    for name in {name for state in states for name in state}:
        seen = [state[name] for state in states if name in state]
        turns = 1 + sum(one != other for one, other in pairwise(seen))
        assert turns <= most, name


def assert_free(database_file: Path) -> None:
    """Nothing holds a lock on the catalog."""
    with closing(sqlite3.connect(database_file, timeout=1)) as database:
        database.execute("begin immediate").fetchall()
        database.rollback()


def assert_told(lake: Any, a_run: bool, *, published: bool) -> None:
    """`wap_status` says what was found."""
    text = operate(lake, "wap_status", LastRun(SECOND, BRANCH, "open") if a_run else None)
    open_ones, half_way = lake.branches.all(), bool(lake.publishing.on_their_way())
    assert ("No audit branch is open" in text) == (not open_ones)
    assert all(one.branch in text and "wap_discard" in text for one in open_ones)
    assert ("has not ended: some of its tables" in text) == half_way
    if a_run:
        word = (
            "has completed its publish of 4 tables"
            if published and not half_way
            else "has not ended"
        )
        assert word in text
        assert ("It has published nothing" in text) == (not published and not half_way)


# -- a full disk, a lost database -----------------------------------------------------------------


@pytest.mark.parametrize("name", cells.FULL_DISK)
def test_full_disk(world: World, name: str) -> None:
    """No file grows beyond a size: of data, metadata, manifests, or of the database itself."""
    scenario, (_, before, after) = SCENARIOS[name], world.told(name)
    told = 0
    for size in cells.SIZES_SOAK if ALL else cells.SIZES:
        world.begin(name)
        code = world.run(name, "act", limit=size * 1024)
        # Also lets the database take back what it could not: one who may only read cannot.
        assert_free(world.database)
        now = world.look()
        assert now in ((after,) if code == 0 else (before, after)), size
        assert code in (0, TOLD), (size, (world.folder / "error").read_text())
        if code == TOLD:
            told += 1
            text = (world.folder / "error").read_text()
            assert any(word in text for word in ("Nothing was", "othing has changed")), text
        lake = open_lake(world.folder)
        operate(lake, "wap_status")
        scenario.go_on(lake)
        assert world.look() == after, size
        lake.close()
    assert told > 0


@pytest.mark.parametrize("part", cells.PARTS)
@pytest.mark.parametrize(("name", "operation"), cells.LOST_DATABASE)
def test_lost_database(world: World, name: str, operation: str, part: str) -> None:
    """The connection breaks in a transaction: before its commit, or before the answer to it."""
    _, before, after = world.told(name)
    world.begin(name)
    code = world.run(name, "act", f"{operation}.{part}:lost-network")
    if part == "committed":
        # It looks, finds its commit made, and goes on.
        assert code == 0
        assert world.look() == after
        return
    assert world.look() == before
    if code == TOLD:
        assert "Nothing was changed" in (world.folder / "error").read_text()
    lake = open_lake(world.folder)
    SCENARIOS[name].go_on(lake)
    assert world.look() == after
    lake.close()


# -- the list itself -------------------------------------------------------------------------------


def test_the_documents_have_all_steps() -> None:
    assert table() in (TESTS.parent / "docs/crashes.md").read_text(), (
        "print the table anew: PYTHONPATH=tests python -m helpers.crashes.table"
    )


def test_every_step_is_reached_by_some_code() -> None:
    """Steps of commits go by their operation, the others by their constant."""
    sources = [
        p.read_text() for p in (TESTS.parent / "src").rglob("*.py") if p.name != "checkpoints.py"
    ]
    constants = {
        n for n, value in vars(checkpoints).items() if isinstance(value, checkpoints.Checkpoint)
    }
    assert {c for c in constants if not any(f"{c}" in text for text in sources)} == set()
    named = {
        name
        for name in checkpoints.CHECKPOINTS
        if name.partition(".")[0] not in checkpoints.COMMIT_STEPS
    }
    assert named | {"publish.verified"} == {getattr(checkpoints, c).name for c in constants}


@pytest.mark.parametrize("text", ["publish.begun", "publish.begun:die", "x:raise:0", "x:raise:y"])
def test_a_fault_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="a fault is <step>"):
        Injector.parse(text)


def test_nobody_listens_by_default() -> None:
    code = "from sparkwap.core import checkpoints; print(checkpoints._listeners)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "None"


def test_a_listener_is_told_of_runs_and_tables_until_it_ends(world: World) -> None:
    world.begin("wap_publish")
    told: list[tuple[str, dict[str, Any]]] = []
    end = checkpoints.listen(lambda step, facts: told.append((step.name, dict(facts))))
    lake = open_lake(world.folder)
    try:
        operate(lake, "wap_publish", branch=BRANCH)
    finally:
        end()
    facts = dict(told)["publish.committed"]
    assert facts["branch"] == BRANCH
    assert facts["run_id"].startswith("3a2b3c4d")
    count = len(told)
    operate(lake, "wap_status")
    assert len(told) == count
    lake.close()
