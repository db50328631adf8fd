"""The choice of compactions: what is gained, what it costs, and what fits a budget."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparkwap.catalog.file_plan import DataFile, DeleteFile, StateFiles
from sparkwap.core.errors import ConfigError
from sparkwap.maintenance.choice import Fact, choose, readings
from sparkwap.maintenance.file_choice import Compaction, compaction, options, target_size
from sparkwap.maintenance.rules import MB, Rules

TARGET = 16 * MB


def files(*sizes: float, partition: str = "", sequence: int = 1) -> tuple[DataFile, ...]:
    return tuple(
        DataFile(f"{partition}/{number}", sequence, 100, int(size * MB), partition)
        for number, size in enumerate(sizes)
    )


def work_of(state: StateFiles, **more: object) -> Compaction:
    found = compaction(state, TARGET, Rules(), **more)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_small_files_become_few() -> None:
    found = work_of(StateFiles(files(*[2] * 10, 15, 20)))
    assert (found.files, found.into, found.bytes) == (10, 2, 20 * MB)
    assert found.saved > 0 and found.seconds > 1


def test_nothing_to_merge() -> None:
    for state in ((), files(*[1] * 7), files(*[15] * 9), files(16, 1)):
        assert compaction(StateFiles(state), TARGET, Rules()) is None
    # One file of each partition cannot be merged with those of others.
    apart = tuple(one for n in range(9) for one in files(1, partition=f"p{n}"))
    assert compaction(StateFiles(apart), TARGET, Rules()) is None


def test_a_large_file_is_not_rewritten_for_a_few_small_ones() -> None:
    state = StateFiles(files(11, *[0.01] * 9))
    assert work_of(state).files == 9
    assert work_of(state, everything=True).files == 10
    # A day later nothing is added any more, and the partition gets its last form.
    assert work_of(state, cold=1).files == 10


def test_files_with_many_deletes_are_rewritten() -> None:
    (big,) = files(20)

    def state(rows: int, count: int = 1) -> StateFiles:
        deletes = tuple(DeleteFile(f"d{n}", None, big.path, False, 2, rows) for n in range(count))
        return StateFiles((big,), deletes)

    assert compaction(state(29), TARGET, Rules()) is None
    found = work_of(state(30))
    assert (found.files, found.into, found.delete_files) == (1, 1, 1)
    assert work_of(state(1, count=10)).delete_files == 10
    assert work_of(state(100)).into == 0
    old = StateFiles((big,), (DeleteFile("d", None, big.path, False, 0, 90),))
    assert compaction(old, TARGET, Rules(delete_ratio=0.95)) is None


def test_manifests_are_rewritten_if_there_are_many() -> None:
    big = StateFiles(files(20))
    assert compaction(big, TARGET, Rules(), manifests=99) is None
    found = work_of(big, manifests=100)
    assert (found.files, found.manifests) == (0, 100)
    assert found.saved > 0


def test_the_target_fits_the_table() -> None:
    assert target_size(MB, 2, Rules(), None) == 16 * MB
    assert target_size(800 * MB, 2, Rules(), None) == 100 * MB
    assert target_size(10**15, 2, Rules(), None) == 512 * MB
    assert target_size(MB, 2, Rules(), "1048576") == MB
    assert target_size(MB, 2, Rules(target_mb=7), "1048576") == 7 * MB


def test_iceberg_selects_the_same_files() -> None:
    found = options(work_of(StateFiles(files(*[2] * 10))), Rules(), 7)
    assert int(found["min-file-size-bytes"]) < int(found["target-file-size-bytes"])
    assert int(found["target-file-size-bytes"]) < int(found["max-file-size-bytes"])
    assert found["max-files-to-rewrite"] == "7"


@given(st.lists(st.floats(0.001, 30), max_size=40), st.integers(1, 4))
def test_a_compaction_never_makes_more_files(sizes: list[float], partitions: int) -> None:
    state = StateFiles(
        tuple(
            one
            for n in range(partitions)
            for one in files(*sizes[n::partitions], partition=f"p{n}")
        )
    )
    for everything in (False, True):
        found = compaction(state, TARGET, Rules(), everything=everything)
        if found is not None:
            assert 0 < found.into < found.files <= len(state.data)
            assert found.bytes <= sum(one.size for one in state.data)


def grown(commits: int, size: float, cold: bool = False) -> tuple[float, int]:
    """Bytes rewritten for each byte added, and the files at the end, if each commit adds a file."""
    state: tuple[DataFile, ...] = ()
    rewritten, names = 0, itertools.count()
    for number in range(commits):
        state += (DataFile(str(next(names)), number, 100, int(size * MB)),)
        target = target_size(sum(one.size for one in state), 2, Rules(), None)
        found = compaction(StateFiles(state), target, Rules())
        if found is not None and number % 10 == 0:
            small = [one for one in state if one.size < found.below]
            rewritten += sum(one.size for one in small)
            parts = math.ceil(sum(one.size for one in small) / target)
            each = sum(one.size for one in small) // parts
            merged = (DataFile(str(next(names)), number, 100, each) for _ in range(parts))
            state = (*(one for one in state if one.size >= found.below), *merged)
    return rewritten / (commits * size * MB), len(state)


@pytest.mark.parametrize("size", [0.01, 0.2, 2.0])
def test_bytes_are_rewritten_a_few_times_while_a_table_grows(size: float) -> None:
    times, left = grown(1440, size)
    assert times <= 5.5
    assert left <= 24


def fact(name: str, seconds: float, saved: float, readings: float = 1.0, **more: object) -> Fact:
    """A table whose compaction takes and saves about so many seconds."""
    size = int((seconds - 1 - 101 * 0.006) * 20e6)
    work = Compaction(TARGET, 5, TARGET, 101, max(0, size), 1)
    return Fact(name, work, readings * saved / (100 * 0.006), **more)  # type: ignore[arg-type]


def test_the_best_come_first_and_only_what_pays_off() -> None:
    found = choose([fact("a", 10, 20), fact("b", 10, 90), fact("c", 10, 5)], 25)
    assert [(one.fact.name, one.compact) for one in found] == [
        ("b", True), ("a", True), ("c", False)
    ]  # fmt: skip
    assert "does not pay off: takes 10 s, saves 5.0 s" in found[2].reason
    assert all(one.compact for one in choose([fact("c", 10, 5)], everything=True))


def test_what_is_not_to_be_touched_stays() -> None:
    busy = fact("a", 2, 100, reason="in use by run 1")
    (one,) = choose([busy], everything=True)
    assert (one.compact, one.reason) == (False, "in use by run 1")
    (one,) = choose([Fact("b", None)])
    assert (one.compact, one.reason) == (False, "nothing to merge")


def test_a_part_is_rewritten_if_the_budget_does_not_suffice() -> None:
    (one,) = choose([fact("a", 101, 1000)], 51)
    assert one.compact and one.seconds == 51
    assert one.max_files is not None
    assert 0.4 < one.max_files / one.fact.work.files < 0.6  # type: ignore[union-attr]
    (one,) = choose([fact("a", 101, 1000)], 1)
    assert (one.compact, one.waits) == (False, True)


def test_a_table_that_waits_gets_its_turn() -> None:
    best, other = fact("a", 10, 90), fact("b", 10, 30)
    assert [one.fact.name for one in choose([best, other], 10) if one.compact] == ["a"]
    waiting = fact("b", 10, 30, waited_days=3)
    assert [one.fact.name for one in choose([best, waiting], 10) if one.compact] == ["b"]


costs = st.tuples(st.floats(1.7, 30), st.floats(0.1, 300), st.floats(0, 5))


@settings(max_examples=200)
@example([(2.0, 1.0, 2.0), (4.0, 1.0, 5.0)], 2.0)
@given(st.lists(costs, max_size=8), st.floats(0, 100))
def test_a_choice_keeps_the_budget_and_saves_almost_as_much_as_the_best(
    tables: list[tuple[float, float, float]], budget: float
) -> None:
    facts = [fact(f"t{n}", *one) for n, one in enumerate(tables)]
    found = choose(facts, budget)
    assert sorted(one.fact.name for one in found) == sorted(one.name for one in facts)
    assert sum(one.seconds for one in found) <= budget + 1e-9
    worth = [one for one in facts if one.score >= 1]
    assert {one.fact.name for one in found if one.compact} <= {one.name for one in worth}
    best = max(
        sum(one.saved for one in some)
        for size in range(len(worth) + 1)
        for some in itertools.combinations(worth, size)
        if sum(one.seconds for one in some) <= budget
    )
    saved = sum(
        one.fact.saved * (1 if one.max_files is None else one.max_files / one.fact.work.files)  # type: ignore[union-attr]
        for one in found
        if one.compact
    )
    assert saved >= 0.9 * best - 1e-6


def test_an_overwritten_table_is_read_until_its_next_overwrite() -> None:
    assert readings(10, None) == 70
    assert readings(10, 0.5) == 5
    assert readings(10, 30) == 70


def test_the_rules_of_a_table() -> None:
    assert Rules.of(None, "s.t") == Rules()
    assert not Rules.of(False, "s.t").compact
    assert Rules.of(True, "s.t").compact
    given = {"target_mb": 64, "sort": "zorder(a, b)", "keep_days": None}
    assert Rules.of(given, "s.t") == Rules(target_mb=64, sort="zorder(a, b)")


@pytest.mark.parametrize(
    "wrong",
    [
        "often", 3, [], {"target": 3}, {"target_mb": 0}, {"target_mb": True}, {"min_files": 1},
        {"delete_ratio": 0}, {"delete_ratio": 2}, {"sort": " "}, {"compact": "no"},
        {"keep_days": 1.5}, {"readings_per_day": -1},
    ],
)  # fmt: skip
def test_illegal_rules_are_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match=r"wap_maintain in the config of s\.t") as error:
        Rules.of(wrong, "s.t")
    assert "Nothing was changed" in str(error.value)
