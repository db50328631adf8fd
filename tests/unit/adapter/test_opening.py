"""The opening of a run: first the recovery of the last run, then the branch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pyarrow as pa
import pytest
from dbt_common.exceptions import DbtRuntimeError

from dbt.adapters.sparkwap import command
from dbt.adapters.sparkwap.impl import SparkWapAdapter
from sparkwap.gate.placement import Desired
from sparkwap.gate.settings import GateSettings
from sparkwap.publish.lake import Lake
from sparkwap.publish.publishing import Publishing
from sparkwap.runs import relation_overlay, replay_moment, state
from sparkwap.runs.run import Run
from sparkwap.runs.state import UNFINISHED, Continuation, LastRun
from sparkwap.runs.types import Invocation, NodeFact

DEAD = "1a2b3c4d-0000-4000-8000-000000000000"
OTHER = "2b3c4d5e-0000-4000-8000-000000000000"
NOW = "3c4d5e6f-0000-4000-8000-000000000000"
ORDERS = ("shop", "orders")
NODE = NodeFact("model.orders", ORDERS, "model", "success", None, frozenset())
NOTHING_TO_RETRY = "So there is nothing to retry, and nothing was run"

Open = Callable[..., Run | None]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    lake = Lake("lake", {"type": "sql", "uri": uri, "warehouse": f"{tmp_path}/warehouse"})
    lake.ensure_schema("shop")
    lake.catalog.create_table(ORDERS, rows(1).schema).append(rows(1))
    return lake


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


@pytest.fixture
def open_run(lake: Lake, target: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens the run of a command on the lake, as the adapter does at its first use."""
    monkeypatch.setattr(command, "get_invocation_id", lambda: NOW)
    opened: list[Any] = []

    def start(called: str = "retry", empty: bool = False, **variables: str) -> Run | None:
        config: Any = SimpleNamespace(
            args=SimpleNamespace(which="build", state=None, EMPTY=empty),
            vars=SimpleNamespace(to_dict=lambda: variables),
            cli_vars=variables,
            project_name="shop",
            project_root=str(target.parent),
            target_path=target.name,
            target_name="dev",
            log_cache_events=False,
            credentials=SimpleNamespace(embedded=False, session_token=lambda root: "settings"),
        )
        with click.Context(click.Command(called), info_name=called):
            adapter = SparkWapAdapter(config, get_context("spawn"))
        adapter.gate.command.lake = lake
        manifest: Any = SimpleNamespace(nodes={}, unit_tests={}, macros={})
        adapter.set_macro_resolver(manifest)
        opened.append(adapter)
        return adapter.gate.runs.current()

    yield start
    for adapter in opened:
        adapter.gate.runs.end()
    relation_overlay.activate(None)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def live(lake: Lake) -> list[int]:
    table = lake.catalog.load_table(ORDERS)
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def built(lake: Lake, branch: str, run_id: str = DEAD, row: int = 2) -> Run:
    """A run that has added a row on its branch, and was killed."""
    run = Run(
        lake,
        Invocation(
            run_id=run_id,
            branch=branch,
            settings=GateSettings(),
            command="build",
            project="shop",
            target_name="dev",
        ),
    )
    run.begin(NODE.node_id, ORDERS)
    run.candidates.place_table(ORDERS, Desired())
    lake.catalog.load_table(ORDERS).append(rows(row), branch=branch)
    run.built(NODE.node_id, ORDERS, must_write=True)
    return run


def publish(run: Run) -> None:
    assert run.close([NODE], [], []).published == 1


def on_record(target: Path, branch: str, *failed: str) -> None:
    """Write the results that a run writes at its start, for `dbt retry`."""
    LastRun(DEAD, branch, "open").write(target)
    results = [
        {"unique_id": one, "status": "error", "message": UNFINISHED}
        for one in failed or ("operation.shop.hook",)
    ]
    record = {"metadata": {"invocation_id": DEAD}, "results": results}
    (target / "run_results.json").write_text(json.dumps(record))


@pytest.mark.parametrize("named", [None, "march", "april"])
def test_a_retry_of_a_published_run_is_refused_also_on_a_named_branch(
    lake: Lake, target: Path, open_run: Open, named: str | None
) -> None:
    branch = "wap_1a2b3c4d" if named is None else "march"
    publish(built(lake, branch))
    on_record(target, branch)
    for _ in range(2):
        with pytest.raises(DbtRuntimeError, match=NOTHING_TO_RETRY):
            open_run(**({} if named is None else {"wap_branch": named}))
    assert live(lake) == [1, 2]
    assert lake.branches.all() == []


def test_a_retry_of_a_test_that_has_other_arguments_now_names_the_command(
    target: Path, open_run: Open
) -> None:
    on_record(target, "march", "test.shop.row_count_drop_orders_0_4.1a2b")
    with pytest.raises(DbtRuntimeError) as error:
        open_run()
    assert "no longer has row_count_drop_orders_0_4." in str(error.value)
    assert "SPARKWAP_BRANCH=march dbt build" in str(error.value)


@pytest.mark.parametrize("named", [None, "march"])
def test_a_retry_continues_the_branch_of_an_unpublished_run(
    lake: Lake, target: Path, open_run: Open, named: str | None
) -> None:
    branch = named or "wap_1a2b3c4d"
    # Another run has published a branch of this name.
    publish(built(lake, branch, OTHER, 3))
    built(lake, branch)
    on_record(target, branch)
    run = open_run(**({} if named is None else {"wap_branch": named}))
    assert run is not None
    assert (run.run_id, run.branch) == (NOW, branch)
    assert live(lake) == [1, 3]


@pytest.mark.parametrize("empty", [False, True])
def test_a_build_on_a_part_of_the_rows_replaces_no_held_ones(
    lake: Lake, target: Path, open_run: Open, monkeypatch: pytest.MonkeyPatch, empty: bool
) -> None:
    held = LastRun(DEAD, "wap_1a2b3c4d", "held", "run", "dev")
    held.write(target)

    def find(*args: object, part: str | None, **more: object) -> Continuation:
        return Continuation(None if part else held)

    monkeypatch.setattr(state, "find_continuation", find)
    run = open_run("build", empty=empty)
    assert run is not None
    assert (run.branch == held.branch) is not empty


def test_a_retry_may_name_another_branch(lake: Lake, target: Path, open_run: Open) -> None:
    built(lake, "march")
    on_record(target, "march")
    run = open_run(wap_branch="april")
    assert run is not None
    assert run.branch == "april"


def test_a_command_other_than_retry_may_follow_a_publish(
    lake: Lake, target: Path, open_run: Open
) -> None:
    publish(built(lake, "march"))
    on_record(target, "march")
    run = open_run("build", wap_branch="march")
    assert run is not None
    assert run.branch == "march"


def test_a_retry_has_the_settings_of_the_retried_call(
    lake: Lake, target: Path, open_run: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    # dbt repeats only its vars. Without the environment's settings, the retry would publish.
    monkeypatch.delenv("SPARKWAP_PUBLISH", raising=False)
    built(lake, "pr_7")
    on_record(target, "pr_7")
    LastRun(DEAD, "pr_7", "rejected", settings={"SPARKWAP_PUBLISH": "never"}).write(target)
    run = open_run()
    assert run is not None
    assert (run.branch, run.settings.publish) == ("pr_7", "never")


@pytest.fixture
def half_way(lake: Lake, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was killed in a sequential publish, which the next command completes."""
    run = built(lake, "wap_1a2b3c4d")
    on_record(target, "wap_1a2b3c4d")

    def recover(_: Publishing) -> list[str]:
        if not lake.ledger.publish(DEAD):
            publish(run)
        return []

    monkeypatch.setattr(Publishing, "recover", recover)


@pytest.mark.usefixtures("half_way")
def test_a_retry_reads_the_ledger_after_the_recovery(lake: Lake, open_run: Open) -> None:
    with pytest.raises(DbtRuntimeError, match=NOTHING_TO_RETRY):
        open_run()
    assert live(lake) == [1, 2]


@pytest.mark.usefixtures("half_way")
def test_a_replay_reads_the_ledger_after_the_recovery(lake: Lake, open_run: Open) -> None:
    run = open_run("build", **{replay_moment.VARIABLE: "1a2b3c4d"})
    assert run is not None and run.replay is not None
    (done,) = lake.ledger.publish(DEAD)
    assert run.replay.moment == replay_moment.Moment(done.published_at, done.publish_id)
