"""Which snapshots and receipts of a table are no longer needed."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sparkwap.maintenance.history import Outdated, outdated

DAY = 86_400_000
NOW = 1_000 * DAY


def table(
    ages: dict[int, float],
    parents: dict[int, int | None] | None = None,
    *,
    main: int,
    refs: dict[str, tuple[int, str]] | None = None,
    staged: tuple[int, ...] = (),
    **more: Any,
) -> dict[str, Any]:
    """Snapshots with their ages in days; without parents, each follows the one before it."""
    order = list(ages)
    above = parents or dict(zip(order, [None, *order], strict=False))
    return {
        "properties": more.pop("properties", {}),
        "current-snapshot-id": main,
        "snapshots": [
            {
                "snapshot-id": number,
                "parent-snapshot-id": above[number],
                "timestamp-ms": int(NOW - age * DAY),
                "summary": {"wap_run": "r"} if number not in staged else {},
            }
            for number, age in ages.items()
        ],
        "refs": {
            "main": {"snapshot-id": main, "type": "branch", **more},
            **{name: {"snapshot-id": n, "type": kind} for name, (n, kind) in (refs or {}).items()},
        },
    }


def found(document: dict[str, Any], keep: int = 100, **bases: set[int]) -> Outdated:
    return outdated(document, NOW, keep_ms=7 * DAY, keep_publishes=keep, bases=bases)


def receipts(*numbers: int) -> dict[str, tuple[int, str]]:
    return {f"wap_pub_0000000{n}": (n, "tag") for n in numbers}


def test_old_snapshots_of_main_go() -> None:
    document = table({1: 30, 2: 20, 3: 8, 4: 2, 5: 1}, main=5)
    # The third was the state of `main` until two days ago.
    assert found(document) == Outdated((), (1, 2))
    # A state that `main` has gone back to was shown until it was left again.
    log = [(1, 30), (2, 20), (1, 9), (4, 2), (5, 1)]
    document["snapshot-log"] = [
        {"snapshot-id": number, "timestamp-ms": NOW - age * DAY} for number, age in log
    ]
    assert found(document) == Outdated((), (2,))
    assert found(table({1: 30}, main=1)) == Outdated()
    assert found({**document, "properties": {"gc.enabled": "false"}}) == Outdated()


def test_the_settings_of_the_table_count() -> None:
    ages: dict[int, float] = {1: 40, 2: 30, 3: 20, 4: 8, 5: 2}
    longer = {"history.expire.max-snapshot-age-ms": str(25 * DAY)}
    assert found(table(ages, main=5)).snapshots == (1, 2, 3)
    assert found(table(ages, main=5, properties=longer)).snapshots == (1,)
    more = {"history.expire.min-snapshots-to-keep": "4"}
    assert found(table(ages, main=5, properties=more)).snapshots == (1,)
    of_main: dict[str, Any] = {"min-snapshots-to-keep": 5}
    assert found(table(ages, main=5, **of_main)).snapshots == ()
    of_main = {"max-snapshot-age-ms": 90 * DAY}
    assert found(table(ages, main=5, **of_main)).snapshots == ()
    wrong = {"history.expire.max-snapshot-age-ms": "7 days"}
    assert found(table(ages, main=5, properties=wrong)) == Outdated()


def test_tags_branches_and_the_history_of_branches_stay() -> None:
    document = table(
        {1: 40, 2: 30, 3: 20, 4: 10, 5: 1},
        {1: None, 2: 1, 3: 1, 4: 2, 5: 4},
        main=5,
        refs={"theirs": (3, "branch")},
    )
    assert found(document).snapshots == (2,)
    tagged = table({1: 30, 2: 20, 3: 10, 4: 1}, main=4, refs={"kept": (1, "tag")})
    assert found(tagged).snapshots == (2,)


def test_what_a_rollback_needs_stays() -> None:
    document = table({1: 30, 2: 20, 3: 10, 4: 1}, main=4, refs=receipts(3, 4))
    assert found(document).snapshots == (1, 2)
    assert found(document, wap_pub_00000003={2}).snapshots == (1,)


def test_a_snapshot_that_another_tool_has_staged_stays() -> None:
    above: dict[int, int | None] = {1: None, 2: None, 3: None}
    document = table({1: 30, 2: 30, 3: 1}, above, main=3, staged=(1,))
    assert found(document).snapshots == (2,)


def test_of_old_publishes_the_last_of_each_day_stays() -> None:
    ages: dict[int, float] = {1: 30.2, 2: 30.1, 3: 29, 4: 8.3, 5: 8.2, 6: 2.2, 7: 2.1}
    document = table(ages, main=7, refs=receipts(*ages))
    assert found(document) == Outdated()
    thinned = found(document, keep=1)
    assert thinned.tags == ("wap_pub_00000001", "wap_pub_00000004")
    assert thinned.snapshots == (1, 4)
    # Those of the last days stay, however many there are.
    assert found(document, keep=4).tags == ("wap_pub_00000001",)


@given(
    st.lists(st.tuples(st.floats(0, 60), st.booleans(), st.booleans()), min_size=1, max_size=25),
    st.integers(1, 10),
)
def test_what_is_named_or_young_stays(steps: list[tuple[float, bool, bool]], keep: int) -> None:
    steps = sorted(steps, reverse=True)
    ages = {number: age for number, (age, _, _) in enumerate(steps, 1)}
    refs = {
        f"wap_pub_{number:08d}" if receipt else f"v{number}": (number, "tag")
        for number, (_, named, receipt) in enumerate(steps, 1)
        if named
    }
    document = table(ages, main=len(steps), refs=refs)
    gone = found(document, keep=keep)
    assert len(steps) not in gone.snapshots
    assert all(ages[number] > 7 for number in gone.snapshots)
    left = {name: number for name, (number, _) in refs.items() if name not in gone.tags}
    assert not set(left.values()) & set(gone.snapshots)
    assert {name for name in refs if name.startswith("v")} <= set(left)
    pubs = sorted((number for name, (number, _) in refs.items() if "wap_pub" in name))
    assert {f"wap_pub_{number:08d}" for number in pubs[-keep:]} <= set(left)
    # A second call finds nothing more.
    again = {
        **document,
        "snapshots": [o for o in document["snapshots"] if o["snapshot-id"] not in gone.snapshots],
        "refs": {name: ref for name, ref in document["refs"].items() if name not in gone.tags},
    }
    assert found(again, keep=keep) == Outdated()
