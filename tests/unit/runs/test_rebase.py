"""The decision on a rebase: by kinds of differences, bounded, and never too few nodes."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkwap.catalog import Difference
from sparkwap.gate.facts import BuiltNode
from sparkwap.runs.rebase import (
    FOLLOWED,
    GiveUp,
    Rebase,
    decide,
    downstream,
    limit_seconds,
    moved_by_others,
)

KINDS: tuple[Difference, ...] = get_args(Difference)


def node(node_id: str, *parents: str, kind: str = "model") -> BuiltNode:
    return BuiltNode(node_id, f"shop.{node_id}", kind, "built", "1", None, frozenset(parents))


NODES = [
    node("a"),
    node("b", "a"),
    node("c", "b", "x"),
    node("d"),
    node("audit", "a", "d", kind="failures"),
]
ALL = {one.node_id for one in NODES}


def decided(refusals: dict[str, Any], **more: Any) -> Rebase | GiveUp:
    given = {"buildable": ALL, "tried": 0, "tries": 2, **more}
    return decide(refusals, NODES, given.pop("buildable"), **given)


def test_moved_nodes_and_all_downstream_nodes_are_built_again() -> None:
    assert decided({"b": ["main"]}) == Rebase(("b", "c"), ("b",))
    # The table of stored failures comes with its test.
    assert decided({"a": ["standing"], "d": ["read"]}) == Rebase(("a", "b", "c", "d"), ("a", "d"))


@pytest.mark.parametrize(
    ("refusals", "more", "reason"),
    [
        ({}, {}, ""),
        ({"b": ["alike"], "c": ["main"]}, {}, ""),
        ({"b": ["branch"]}, {}, "the audited state of shop.b is no longer on the audit branch"),
        ({"b": ["main", "side"]}, {}, "the audited state of shop.b"),
        ({"b": []}, {}, "the audited state of shop.b"),
        ({"z": ["main"]}, {}, "the catalog refused tables that this run does not know"),
        ({"b": ["main"]}, {"tries": 0}, "rebuilds are off (wap_rebuilds: 0)"),
        ({"b": ["main"]}, {"tried": 2}, "it was built again 2 times, and main moved again"),
        ({"b": ["main"]}, {"buildable": {"a", "b"}}, "shop.c was built by an earlier run"),
        ({"audit": ["standing"]}, {}, "only stored failures of tests were refused"),
    ],
)
def test_reasons_to_give_up(refusals: dict[str, Any], more: dict[str, Any], reason: str) -> None:
    given_up = decided(refusals, **more)
    assert isinstance(given_up, GiveUp)
    assert given_up.reason.startswith(reason)
    assert bool(given_up.reason) == bool(reason)


@st.composite
def graphs(draw: st.DrawFn) -> list[BuiltNode]:
    names = [f"n{number}" for number in range(draw(st.integers(1, 8)))]
    return [
        node(name, *draw(st.sets(st.sampled_from(names[:at]))) if at else ())
        for at, name in enumerate(names)
    ]


@given(st.data())
def test_all_readers_of_a_rebuilt_table_are_rebuilt(data: st.DataObject) -> None:
    nodes = data.draw(graphs())
    ids = [one.node_id for one in nodes]
    kinds = st.lists(st.sampled_from(KINDS), max_size=2)
    refusals = data.draw(st.dictionaries(st.sampled_from(ids), kinds))
    buildable = data.draw(st.sets(st.sampled_from(ids)))
    tried, tries = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 4))
    decision = decide(refusals, nodes, buildable, tried=tried, tries=tries)
    if isinstance(decision, GiveUp):
        return
    again = set(decision.nodes)
    assert tried < tries
    assert refusals.keys() <= again <= buildable
    assert all(kinds and FOLLOWED.issuperset(kinds) for kinds in refusals.values())
    for one in nodes:
        assert one.node_id in again or not one.parents & again
    # And no other nodes: each one is refused itself, or reads a rebuilt node.
    by_id = {one.node_id: one for one in nodes}
    assert all(n in refusals or by_id[n].parents & again for n in again)


def test_a_cycle_of_parents_terminates() -> None:
    assert downstream(["a"], {"a": ["b"], "b": ["a"]}) == {"a", "b"}


@pytest.mark.parametrize(
    ("given", "taken", "limit"),
    [(None, 5, 3600), (None, 7200, 21600), (90, 7200, 90), (0, 7200, None)],
)
def test_the_time_limit_of_a_rebuild(
    given: float | None, taken: float, limit: float | None
) -> None:
    assert limit_seconds(given, taken) == limit


@pytest.mark.parametrize(
    ("writers", "wrote", "others"),
    [
        (["other"], False, True),
        (["other", "mine"], False, False),
        (["other", "mine"], True, False),
        # The writer is unknown: it may be this run, if its writes do not go to the branch.
        ([None], False, False),
        (["other", None], False, False),
        ([None], True, True),
        # `main` went back to an older snapshot.
        ([], True, True),
        ([], False, False),
    ],
)
def test_who_moved_main(writers: list[str | None], wrote: bool, others: bool) -> None:
    summaries = [{"wap_run": one} if one else {} for one in writers]
    assert moved_by_others(summaries, "mine", wrote_to_branch=wrote) is others
