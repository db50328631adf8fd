"""What a command leaves out, and when it leaves out nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dbt.adapters.sparkwap.reuse import Reuse
from sparkwap.catalog.model import Read
from sparkwap.runs.trail import Trail

TABLE, SOURCE = ("shop", "a"), ("out", "raw")


def test_what_others_have_written_since_the_plan_is_seen() -> None:
    states = {TABLE: "1", SOURCE: "2"}
    manifest = SimpleNamespace(
        parents=lambda node: {"source.shop.out.raw"},
        read_by=lambda node: [SOURCE],
        table=lambda key: TABLE,
    )
    lake = SimpleNamespace(read=lambda names: [Read(one, states[one]) for one in names])
    runs: Any = SimpleNamespace(command=SimpleNamespace(manifest=manifest, lake=lake))
    run: Any = SimpleNamespace(trail=Trail())
    node = SimpleNamespace(unique_id="model.shop.a")
    reuse = Reuse(runs)
    assert not reuse.covers(run, node)
    reuse._known = frozenset({node.unique_id})
    reuse._planned = dict(states)
    assert reuse.covers(run, node)
    for table in (TABLE, SOURCE):
        states[table] = "3"
        assert not reuse.covers(run, node)
        states[table] = reuse._planned[table]
    run.trail.written.add(SOURCE)
    assert not reuse.covers(run, node)
