"""Loads on a lake in a folder: what readers of main see, and what is left on branches."""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkwap import steps
from sparkwap.catalog import Lake
from sparkwap.cli import main
from sparkwap.errors import ConfigError, SparkwapError
from sparkwap.load import Audits, LoadError, Request, from_arguments, load, open_drop
from sparkwap.load.audits import own_node
from sparkwap.load_command import STAYS, identifier_of, run, told
from sparkwap.operations import NotPublished, Operations
from sparkwap.plan import Desired
from sparkwap.run import NodeFact, Run, TestFact, TestSeen
from sparkwap.settings import GateSettings

pytestmark = pytest.mark.long

EVENTS = ("web", "events")
RUN = "2b3c4d5e-0000-4000-8000-000000000000"


class World:
    """A lake with one table, files to load, and what readers see."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        uri = f"sqlite:///{folder}/catalog.db"
        self.lake = Lake("lake", {"type": "sql", "uri": uri, "warehouse": f"{folder}/warehouse"})
        self.lake.ensure_schema("web")
        self.lake.catalog.create_table(EVENTS, rows(1).schema).append(rows(1))

    def request(self, *ids: Any, name: str = "drop", **more: Any) -> Request:
        path = self.folder / f"{name}.parquet"
        pq.write_table(more.pop("rows", rows(*ids)), path)
        audits = more.pop("audits", None)
        if audits is None:
            given = from_arguments(EVENTS, ["id"], ["id"], between=["id=0..99"])
            audits = Audits(own_node(EVENTS)).also(given)
        return Request(EVENTS, open_drop(path), audits, **{"publish": True, **more})

    def live(self, name: str = "events", schema: str = "web") -> list[Any]:
        table = self.lake.catalog.load_table((schema, name))
        return sorted(table.scan().to_arrow()["id"].to_pylist(), key=repr)

    def write(self, *ids: int) -> None:
        """Another writer."""
        self.lake.catalog.load_table(EVENTS).append(rows(*ids))

    def dbt(self, branch: str) -> Run:
        """What a dbt on the branch opens."""
        run = Run(
            self.lake,
            run_id=str(uuid.uuid4()),
            branch=branch,
            settings=GateSettings(),
            command="build",
            project="shop",
            target_name="dev",
        )
        run.load_side_schemas()
        run.find_candidates()
        return run

    def operate(self, name: str, **arguments: Any) -> str:
        operations = Operations(
            self.lake,
            run_id=RUN,
            settings=GateSettings(),
            project="",
            target_name="",
            tests=list,
            known=frozenset,
        )
        return "\n".join(operations.call(name, arguments))


def rows(*ids: Any, **more: pa.Array) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), **more})


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.lake.close()


def test_a_clean_file_is_published_with_its_receipt(world: World) -> None:
    done = load(world.lake, world.request(2, 3))
    assert (done.outcome, done.tries) == ("published", 1)
    assert world.live() == [1, 2, 3]
    assert world.lake.open_branches() == []
    table = world.lake.catalog.load_table(EVENTS)
    summary = table.current_snapshot().summary.additional_properties
    assert summary["wap_run"] == done.run_id
    assert summary["wap_load_file"] == "drop.parquet"
    assert f"wap_pub_{done.run_id[:8]}" in table.metadata.refs
    (row,) = world.lake.ledger.rows("loads")
    assert (row["file"], row["rows"], row["run_id"]) == ("drop.parquet", 2, done.run_id)
    assert row["sha256"] == summary["wap_load_sha256"]
    (ran,) = world.lake.ledger.of_run("runs", done.run_id)
    assert (ran["command"], ran["outcome"]) == ("load", "published")
    assert {r["status"] for r in world.lake.ledger.of_run("tests", done.run_id)} == {"pass"}


@pytest.mark.parametrize(
    ("ids", "why"),
    [
        ((2, None), "not_null_id failed (1)"),
        ((1,), "unique_id failed (1)"),
        ((2, 2), "unique_id failed (1)"),
        ((2, 100), "accepted_range_id failed (1)"),
    ],
)
def test_what_an_audit_rejects_stays_on_the_branch(
    world: World, ids: tuple[Any, ...], why: str
) -> None:
    before = world.lake.catalog.load_table(EVENTS).current_snapshot()
    request = world.request(*ids, branch="pr_7")
    done = load(world.lake, request)
    assert done.outcome == "rejected"
    assert why in "; ".join(done.reasons)
    assert world.lake.catalog.load_table(EVENTS).current_snapshot() == before
    text = "\n".join(told(request, done))
    assert "wap_discard --args '{branch: pr_7}'" in text
    # No later command publishes it: its audits are in no project.
    with pytest.raises(NotPublished, match="failed"):
        world.operate("wap_publish", branch="pr_7")
    assert world.live() == [1]
    world.operate("wap_discard", branch="pr_7")
    assert world.lake.open_branches() == []


def test_a_corrected_file_on_the_same_branch_starts_from_main(world: World) -> None:
    assert load(world.lake, world.request(2, None, branch="pr_7")).outcome == "rejected"
    assert load(world.lake, world.request(3, branch="pr_7")).outcome == "published"
    assert world.live() == [1, 3]


def test_what_an_audit_rejected_stays_so_whatever_a_test_says_later(world: World) -> None:
    rule = TestFact("test.rule", "rule", "data", frozenset({own_node(EVENTS)}), "error")
    failing = replace(from_arguments(EVENTS, ["id"])[0], test_id=rule.test_id)
    audits = Audits(own_node(EVENTS), (failing,), (rule,))
    assert load(world.lake, world.request(2, None, audits=audits, branch="pr_7")).reasons
    for _ in range(2):
        closing = world.dbt("pr_7").close([], [rule], [TestSeen(rule.test_id, "pass", 0, None)])
        assert closing.published == 0
    assert world.live() == [1]


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        ([], "web.orders is held: its tests are not known to this command"),
        (
            [TestSeen("test.ids", "fail", 1, None)],
            "web.orders is rejected: test ids failed (1 row)",
        ),
    ],
)
def test_it_does_not_publish_what_dbt_has_left_on_the_branch(
    world: World, seen: list[TestSeen], why: str
) -> None:
    orders, node_id = ("web", "orders"), "model.shop.orders"
    world.lake.catalog.create_table(orders, rows(1).schema).append(rows(1))
    run = world.dbt("pr_7")
    run.begin(node_id, orders)
    run.place_table(orders, Desired())
    world.lake.catalog.load_table(orders).append(rows(666), branch="pr_7")
    run.built(node_id, orders, must_write=True)
    node = NodeFact(node_id, orders, "model", "success", None, frozenset())
    test = TestFact("test.ids", "ids", "data", frozenset({node_id}), "error")
    assert run.close([node], [test], seen).published == 0

    request = world.request(2, branch="pr_7")
    done = load(world.lake, request)
    assert (done.outcome, world.live(), world.live("orders")) == ("held", [1], [1])
    text = "\n".join(told(request, done))
    assert why in text
    assert "wap_status --args '{branch: pr_7}'" in text
    # dbt, which knows the tests of both, publishes both.
    if not seen:
        passed = [TestSeen(test.test_id, "pass", 0, None)]
        assert world.dbt("pr_7").close([], [test], passed, {node_id}).published == 2
        assert (world.live(), world.live("orders")) == ([1, 2], [1, 666])


def test_files_on_one_branch_go_together(world: World) -> None:
    other = ("web", "other")
    world.lake.catalog.create_table(other, rows(1).schema).append(rows(1))
    load(world.lake, world.request(2, branch="pr_7", publish=False))
    audits = Audits(own_node(other)).also(from_arguments(other, ["id"]))
    second = world.request(3, audits=audits, branch="pr_7")
    assert load(world.lake, replace(second, table=other)).outcome == "published"
    assert (world.live(), world.live("other")) == ([1, 2], [1, 3])


def test_the_tests_of_a_source_are_those_of_its_project(world: World) -> None:
    source = "source.shop.web.events"
    audits = Audits(source).also(from_arguments(EVENTS, ["id"]))
    load(world.lake, world.request(2, audits=audits, branch="pr_7", publish=False))
    with pytest.raises(NotPublished, match="its tests are not known to this command"):
        world.operate("wap_publish", branch="pr_7")
    assert world.live() == [1]
    assert world.dbt("pr_7").close([], [], [], {source}).published == 1
    assert world.live() == [1, 2]


def test_without_publish_it_waits_on_the_branch(world: World) -> None:
    request = world.request(2, publish=False)
    done = load(world.lake, request)
    assert (done.outcome, world.live()) == ("held", [1])
    assert done.branch == f"wap_{request.drop.sha256[:8]}"
    assert f"wap_publish --args '{{branch: {done.branch}}}'" in "\n".join(told(request, done))
    world.operate("wap_publish", branch=done.branch)
    assert world.live() == [1, 2]
    assert load(world.lake, request).outcome == "already"


def test_the_same_file_is_loaded_once_whatever_its_name(world: World) -> None:
    first = load(world.lake, world.request(2))
    again = world.request(2, name="copy")
    found = load(world.lake, again)
    assert (found.outcome, found.run_id) == ("already", first.run_id)
    assert "--again" in "\n".join(told(again, found))
    assert world.live() == [1, 2]
    lenient = Audits(own_node(EVENTS)).also(from_arguments(EVENTS, ["id"]))
    assert load(world.lake, replace(again, again=True, audits=lenient)).outcome == "published"
    assert world.live() == [1, 2, 2]


def test_after_a_rollback_it_can_be_loaded_again(world: World) -> None:
    done = load(world.lake, world.request(2))
    world.operate("wap_rollback", run=done.run_id)
    assert world.live() == [1]
    assert load(world.lake, world.request(2)).outcome == "published"
    assert world.live() == [1, 2]


def test_a_table_is_made_on_demand_and_seen_with_its_rows(world: World) -> None:
    request = replace(world.request(5), table=("web", "new"))
    with pytest.raises(LoadError, match="--create makes it"):
        load(world.lake, request)
    assert load(world.lake, replace(request, create=True)).outcome == "published"
    assert world.live("new") == [5]
    assert load(world.lake, replace(world.request(6), table=("web", "new"))).outcome == "published"
    assert world.live("new") == [5, 6]


def test_a_new_table_that_is_rejected_is_seen_by_nobody(world: World) -> None:
    request = replace(world.request(5, 5), table=("web", "new"), create=True)
    assert load(world.lake, request).outcome == "rejected"
    assert set(world.lake.relations("web")) == {"events"}


def test_a_table_that_was_never_written_gets_its_first_rows(world: World) -> None:
    world.lake.catalog.create_table(("web", "empty"), rows().schema)
    assert load(world.lake, replace(world.request(5), table=("web", "empty"))).tries == 1
    assert world.live("empty") == [5]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"rows": pa.table({"id": ["a"]})}, "column id is string, and int64"),
        ({"rows": rows(2, note=pa.array(["x"]))}, "column note .* is not in the table"),
        ({"rows": pa.table({"key": [1]})}, "column id .* is not in the file"),
        ({"audits": Audits(own_node(EVENTS))}, "No audit looks at web.events"),
        (
            {"audits": Audits("load.x").also(from_arguments(EVENTS, ["gone"]))},
            "the audit not_null_gone is on gone, which is no column",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    world: World, more: Mapping[str, Any], why: str
) -> None:
    before = world.lake.state(EVENTS)
    with pytest.raises(LoadError, match=why) as error:
        load(world.lake, world.request(2, **more))
    assert "Nothing was loaded" in str(error.value)
    assert world.lake.state(EVENTS) == before
    assert world.lake.open_branches() == []


def meanwhile(step: steps.Step, act: Callable[[], None], times: int = 1) -> Callable[[], None]:
    """Do something when a step is reached, so many times."""
    left = [times]

    def listen(seen: steps.Step, _: Mapping[str, Any]) -> None:
        if seen is step and left[0]:
            left[0] -= 1
            act()

    return steps.listen(listen)


def test_it_is_loaded_on_top_of_a_main_that_moved(world: World) -> None:
    lines: list[str] = []
    end = meanwhile(steps.DECIDED, lambda: world.write(50))
    try:
        done = load(world.lake, world.request(2), lines.append)
    finally:
        end()
    assert (done.outcome, done.tries) == ("published", 2)
    assert world.live() == [1, 2, 50]
    assert "moved meanwhile" in lines[0]
    assert len(world.lake.ledger.publishes()) == 1


def test_its_audits_are_those_of_the_main_that_moved(world: World) -> None:
    end = meanwhile(steps.DECIDED, lambda: world.write(2))
    try:
        done = load(world.lake, world.request(2))
    finally:
        end()
    assert (done.outcome, done.tries) == ("rejected", 2)
    assert world.live() == [1, 2]


def test_it_gives_up_on_a_main_that_moves_each_time(world: World) -> None:
    ids = iter(range(50, 60))
    request = world.request(2)
    end = meanwhile(steps.DECIDED, lambda: world.write(next(ids)), times=9)
    try:
        done = load(world.lake, request)
    finally:
        end()
    assert (done.outcome, done.tries) == ("held", 3)
    assert "nothing was published" in done.reasons[0].lower()
    assert 2 not in world.live()
    assert "the same command" in "\n".join(told(request, done))


def test_a_test_that_only_dbt_can_run_holds_it(world: World) -> None:
    source = "source.shop.web.events"
    custom = TestFact("test.shop.rule", "rule", "data", frozenset({source}), "error")
    request = world.request(2, audits=Audits(source, (), (custom,)))
    done = load(world.lake, request)
    assert (done.outcome, world.live()) == ("held", [1])
    text = "\n".join(told(request, done))
    assert f"SPARKWAP_BRANCH={done.branch} dbt test --select source:web.events" in text


def test_a_warning_lets_it_through_unless_told_otherwise(world: World) -> None:
    given = [replace(one, severity="warn") for one in from_arguments(EVENTS, ["id"])]
    request = world.request(2, None, audits=Audits(own_node(EVENTS)).also(given))
    strict = replace(request, settings=GateSettings(warnings="hold"))
    assert load(world.lake, strict).outcome == "held"
    assert load(world.lake, request).outcome == "published"


def test_a_branch_that_is_none_is_refused(world: World) -> None:
    with pytest.raises(ConfigError, match="cannot be an audit branch"):
        load(world.lake, world.request(2, branch="main"))
    assert world.live() == [1]


def test_what_a_dead_load_left_is_begun_anew(world: World) -> None:
    def die() -> None:
        raise RuntimeError("killed")

    request = world.request(2)
    for step in (steps.LOAD_WRITING, steps.LOAD_WRITTEN, steps.LOAD_AUDITING, steps.DECIDED):
        end = meanwhile(step, die)
        with pytest.raises(RuntimeError, match="killed"):
            load(world.lake, request)
        end()
        assert world.live() == [1]
    assert load(world.lake, request).outcome == "published"
    assert world.live() == [1, 2]
    assert world.lake.open_branches() == []


# ---------------------------------------------------------------- the command


class Call:
    """What `sparkwap.build.DbtCall` tells of a project, without dbt."""

    variables: Mapping[str, Any] = {}
    target = "dev"

    def __init__(self, world: World) -> None:
        self._world = world

    def manifest(self) -> Mapping[str, Any]:
        return {"metadata": {"project_name": "shop"}, "nodes": {}, "sources": {}}

    def lake(self) -> Any:
        world = self._world

        class Place:
            name = "lake"
            properties = world.lake.properties

            def open(self) -> Any:
                return world.lake.catalog

        return Place()


def command(world: World, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str]:
    parsed = argparse.Namespace()
    from sparkwap import cli

    arguments = [str(world.folder / "drop.parquet"), "--table", "web.events", *more]
    parsed = cli._parser().parse_args(["load", *arguments])
    code = run(parsed, Call(world), print)  # type: ignore[arg-type]
    return code, capsys.readouterr().out


def test_exit_codes_tell_what_became_of_it(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.request(2)
    code, text = command(world, capsys, "--not-null", "id")
    assert (code, world.live()) == (0, [1])
    assert "Held drop.parquet (1 rows) into web.events" in text
    code, text = command(world, capsys, "--between", "id=5..", "--publish")
    assert (code, world.live()) == (STAYS, [1])
    assert "Rejected" in text
    code, text = command(world, capsys, "--not-null", "id", "--publish")
    assert (code, world.live()) == (0, [1, 2])
    assert "wap_rollback --args '{run: " in text
    code, text = command(world, capsys, "--not-null", "id", "--publish")
    assert (code, world.live()) == (0, [1, 2])
    assert "Already published" in text


def test_a_new_table_on_a_branch_that_has_a_name(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.request(2)
    new = ("--table", "web.new", "--create", "--unique", "id")
    code, text = command(world, capsys, *new, "--branch", "pr_7")
    assert code == 0
    assert "wap_publish --args '{branch: pr_7}'" in text
    assert not world.lake.catalog.table_exists("web.new")
    assert world.live("new", "web__pr_7") == [2]
    code, _ = command(world, capsys, *new, "--publish")
    assert (code, world.live("new")) == (0, [2])


def test_audits_come_from_a_file_too(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.request(2, None)
    audits = world.folder / "audits.yml"
    audits.write_text("columns: [{name: id, data_tests: [not_null]}]")
    code, _ = command(world, capsys, "--audits", str(audits), "--publish")
    assert (code, world.live()) == (STAYS, [1])
    with pytest.raises(ConfigError, match="There is no file"):
        command(world, capsys, "--audits", str(world.folder / "none.yml"))


@pytest.mark.parametrize("text", ["events", "a.b.c", ".events", "web."])
def test_a_table_is_named_with_its_schema(text: str) -> None:
    with pytest.raises(ConfigError, match=r"it is schema\.table"):
        identifier_of(text)


def test_a_file_that_is_not_there_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["load", str(tmp_path / "none.parquet"), "--table", "web.events"]) == 1
    assert "There is no file" in capsys.readouterr().err


def test_errors_of_writing_say_that_main_is_as_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.table import Table

    def refuse(*_: Any, **__: Any) -> None:
        raise NotImplementedError("no such partitions")

    monkeypatch.setattr(Table, "append", refuse)
    with pytest.raises(SparkwapError, match=r"could not write web\.events: no such partitions"):
        load(world.lake, world.request(2))


def built_by_a_model(world: World) -> None:
    """The table is published by a model of the project shop, which tests it."""
    run = Run(
        world.lake,
        run_id=RUN,
        branch="wap_2b3c4d5e",
        settings=GateSettings(),
        command="build",
        project="shop",
        target_name="dev",
    )
    run.begin("model.shop.events", EVENTS)
    run.place_table(EVENTS, Desired())
    world.lake.catalog.load_table(EVENTS).append(rows(5), branch=run.branch)
    run.built("model.shop.events", EVENTS, must_write=True)
    node = NodeFact("model.shop.events", EVENTS, "model", "success", None, frozenset())
    test = TestFact("test.a", "a", "data", frozenset({node.node_id}), "error")
    assert run.close([node], [test], [TestSeen("test.a", "pass", 0, None)]).published == 1


def test_a_table_that_another_project_builds_is_not_published(world: World) -> None:
    built_by_a_model(world)
    with pytest.raises(LoadError, match=r"model\.shop\.events of project shop"):
        load(world.lake, world.request(2, project="other"))
    held = load(world.lake, world.request(2, project="other", publish=False))
    assert (held.outcome, world.live()) == ("held", [1, 5])
    # Nor by a command that does not know the model's tests, whatever the load has audited.
    closing = Run(
        world.lake,
        run_id=str(uuid.uuid4()),
        branch=held.branch,
        settings=GateSettings(),
        command="test",
        project="other",
        target_name="dev",
    ).close([], [], [], frozenset())
    assert (closing.published, world.live()) == (0, [1, 5])
    assert "tests are not known" in str(closing.decision.verdicts)


def test_the_project_that_builds_a_table_loads_it(world: World) -> None:
    built_by_a_model(world)
    audits = from_arguments(EVENTS, ["id"])
    own = world.request(2, audits=Audits("model.shop.events").also(audits), project="shop")
    assert load(world.lake, own).outcome == "published"
    # It may have left its model off since.
    later = world.request(3, name="later", project="shop")
    assert load(world.lake, later).outcome == "published"
    assert world.live() == [1, 2, 3, 5]
