"""What a command leaves out, and when it leaves out nothing."""

from __future__ import annotations

from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import pytest
from dbt.flags import set_from_args

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


def test_a_var_that_asks_for_a_rebuild_counts_also_in_the_scope_of_a_package() -> None:
    config = SimpleNamespace(vars=SimpleNamespace(to_dict=lambda: {"shop": {"landing_replay": 1}}))
    command = SimpleNamespace(is_retry=False, lake=None, config=config, given_vars={})
    run: Any = SimpleNamespace(replay=None, invocation=SimpleNamespace(is_own=True))
    runs: Any = SimpleNamespace(command=command)
    assert Reuse(runs)._why_none(run) == "landing_replay"


@pytest.mark.parametrize(
    ("rows", "open_branches", "is_own", "runs"),
    [
        ([], ["other"], False, False),
        ([{"verdict": "rejected", "candidate_snapshot": None}], [], False, True),
        ([], ["mine"], False, True),
        ([{"verdict": "rejected"}], ["mine"], True, False),
    ],
)
def test_on_a_branch_with_anything_of_an_earlier_command_everything_runs(
    rows: list[Any], open_branches: list[str], is_own: bool, runs: bool
) -> None:
    lake = SimpleNamespace(
        ledger=SimpleNamespace(branch_history=lambda branch: SimpleNamespace(nodes=rows)),
        branches=SimpleNamespace(all=lambda: [SimpleNamespace(branch=b) for b in open_branches]),
    )
    command = SimpleNamespace(
        is_retry=False,
        lake=lake,
        config=SimpleNamespace(vars=SimpleNamespace(to_dict=dict)),
        given_vars={},
    )
    invocation = SimpleNamespace(is_own=is_own)
    run: Any = SimpleNamespace(replay=None, branch="mine", invocation=invocation)
    set_from_args(Namespace(), None)
    why = Reuse(SimpleNamespace(command=command))._why_none(run)  # type: ignore[arg-type]
    assert why == ("the branch mine has nodes of earlier commands" if runs else None)
