"""A pull request's branch: how it stands, what it is compared with, what its comment says."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.documents import commands

from sparkwap import diff
from sparkwap.catalog.model import PublishedEntry
from sparkwap.cli import main
from sparkwap.core import dbt_cli
from sparkwap.core.errors import ConfigError, SparkwapError
from sparkwap.gate.placement import Desired
from sparkwap.gate.settings import GateSettings, from_environment
from sparkwap.gate.verdicts import PUBLISHING_OFF, UNTESTED
from sparkwap.ledger import manifests
from sparkwap.ledger.records import LedgerPublish
from sparkwap.pr import base, comment, life
from sparkwap.pr.code import name_of
from sparkwap.pr.merging import differing
from sparkwap.pr.standing import BranchState, standing
from sparkwap.publish.lake import Lake
from sparkwap.runs.run import Run
from sparkwap.runs.types import Invocation, NodeFact

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
ORDERS = ("shop", "orders")
KEY = "model.shop.orders"
REFUSED = "main moved"


def node(name: str = "orders", run_id: str = "r1", minutes: int = 1, **more: Any) -> dict[str, Any]:
    """A model that was built well and is held, as nothing is to be published."""
    return {
        "run_id": run_id,
        "node_id": f"model.shop.{name}",
        "resource_type": "model",
        "schema": "shop",
        "name": name,
        "how": "branch",
        "base_metadata": "file",
        "candidate_snapshot": 7,
        "candidate_metadata": None,
        "status": "built",
        "verdict": "held",
        "reason": PUBLISHING_OFF,
        "refusal": None,
        "built_at": NOW + timedelta(minutes=minutes),
        **more,
    }


def audit(name: str, run_id: str = "r1", **more: Any) -> dict[str, Any]:
    """A test that passed on that model."""
    return {
        "run_id": run_id,
        "test_id": f"test.shop.{name}.1a2b",
        "test_name": name,
        "status": "pass",
        "failures": 0,
        "audited": {KEY: "7"},
        "executed_at": NOW + timedelta(minutes=1),
        **more,
    }


def run(run_id: str = "r1", minutes: int = 0, **more: Any) -> dict[str, Any]:
    """A run that built and held."""
    return {
        "run_id": run_id,
        "started_at": NOW + timedelta(minutes=minutes),
        "outcome": "held",
        "message": None,
        "publish_id": None,
        "manifest_hash": f"code of {run_id}",
        **more,
    }


def stands(
    *nodes: dict[str, Any],
    tests: tuple[dict[str, Any], ...] = (),
    runs: tuple[dict[str, Any], ...] = (run(),),
    is_open: bool = True,
) -> BranchState:
    return standing("pr_1", is_open=is_open, nodes=nodes, tests=tests, runs=runs)


# --- standing -----------------------------------------------------------------------------------


REJECTED = node(verdict="rejected", reason="test ids failed (1 row)")
MOVED = node(verdict="rejected", reason=REFUSED, refusal="main", run_id="op", minutes=2)
OPERATION = run("op", 2, outcome="rejected", message=REFUSED)


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ("nothing", stands(is_open=False, runs=())),
        ("discarded", stands(is_open=False, runs=(run(outcome="discarded"),))),
        ("unfinished", stands()),
        ("ready", stands(node(), node("totals"))),
        ("held", stands(node(), node("totals", reason=UNTESTED))),
        ("rejected", stands(node(), node("totals", verdict="rejected"))),
        ("moved", stands(node(), MOVED, runs=(OPERATION, run()))),
        ("published", stands(node(verdict="published"), is_open=False)),
        ("gone", stands(node(), is_open=False)),
    ],
)
def test_how_a_branch_stands(expected: str, found: BranchState) -> None:
    assert found.outcome == expected


def test_the_latest_row_of_a_node_counts() -> None:
    assert stands(REJECTED, node(minutes=2)).outcome == "ready"
    assert stands(node(minutes=2), node(minutes=3, verdict="rejected")).outcome == "rejected"


def test_a_candidate_that_others_touched_is_not_moved_but_rejected() -> None:
    touched = {**MOVED, "refusal": "candidate"}
    assert stands(node(), touched, runs=(OPERATION, run())).outcome == "rejected"
    # A test failed, and of the refused publish another table is told.
    other = {**MOVED, "node_id": "model.shop.totals", "name": "totals"}
    assert stands(REJECTED, other, runs=(OPERATION, run())).outcome == "rejected"
    assert stands(node(), {**MOVED, "refusal": None}, runs=(OPERATION,)).outcome == "rejected"


def test_stored_failures_do_not_count() -> None:
    failures = node("failed", resource_type="failures", reason="stored", verdict="held")
    assert stands(node(), failures).outcome == "ready"


def test_what_an_earlier_life_of_the_branch_published_is_not_on_it() -> None:
    found = stands(node(verdict="published"), node("totals", "r2", 9), runs=(run("r2", 8), run()))
    assert [row["name"] for row in found.nodes] == ["totals"]
    assert found.makers == {"model.shop.totals": "r2"}


def test_a_candidate_is_of_the_run_that_built_it_not_of_one_that_tested_it() -> None:
    tested = node(run_id="r2", minutes=5)
    assert stands(node(), tested, runs=(run("r2", 4), run())).makers == {KEY: "r1"}
    built_again = node(run_id="r2", minutes=5, candidate_snapshot=8)
    assert stands(node(), built_again, runs=(run("r2", 4), run())).makers == {KEY: "r2"}


def test_tests_of_before_do_not_count() -> None:
    tests = (audit("old"), audit("new", "r2"))
    found = stands(node(run_id="r2", minutes=5), tests=tests, runs=(run("r2", 4), run()))
    assert [row["test_name"] for row in found.tests] == ["new"]


# --- what is merged -----------------------------------------------------------------------------


def differs(now: dict[str, str], lake: dict[str, str] | None = None, **tests: str) -> Any:
    found = stands(node(), tests=(audit("ids"),))
    audited = {"code of r1": {KEY: "a", "test.shop.ids.1a2b": "t", "model.shop.notes": "n"}}
    return differing(found, now, audited, lake or {})


def test_the_audited_code_may_be_merged() -> None:
    now = {KEY: "a", "test.shop.ids.1a2b": "t", "model.shop.notes": "n"}
    assert not differs(now)
    assert not differs({KEY: "a"}), "a test less is no other code"
    # Another pull request was merged and published meanwhile.
    assert not differs({**now, "model.shop.notes": "m"}, {"model.shop.notes": "m"})


def test_other_code_may_not() -> None:
    now = {KEY: "a", "test.shop.ids.1a2b": "t", "model.shop.notes": "n"}
    assert differs({**now, KEY: "b"}).changed == (KEY,)
    assert differs({**now, "test.shop.ids.1a2b": "u"}).changed == ("test.shop.ids.1a2b",)
    assert differs({"model.shop.notes": "n"}).absent == (KEY,)
    assert differs({**now, "model.shop.notes": "m"}).unaudited == ("model.shop.notes",)
    assert differs({**now, "seed.shop.new": "s"}).unaudited == ("seed.shop.new",)
    # Of the node that is on the branch the lake's code is no excuse.
    assert differs({**now, KEY: "b"}, {KEY: "b"}).changed == (KEY,)


def test_code_that_was_not_kept_is_other_code() -> None:
    found = stands(node(), runs=(run(manifest_hash=None),))
    assert differing(found, {KEY: "a"}, {}, {KEY: "a"}).changed == (KEY,)


def test_differences_are_named() -> None:
    told = differs({KEY: "b", "test.shop.ids.1a2b": "t", "snapshot.shop.snap": "s"}).lines()
    assert told == ["  audited with other code: orders", "  changed, and not audited: snap"]


# --- the base -----------------------------------------------------------------------------------


def publish(number: int, *tables: tuple[str, str], **more: Any) -> LedgerPublish:
    entries = tuple(PublishedEntry(t, "branch", 1, "", 2, "") for t in tables or (ORDERS,))
    given = {"left": entries, "manifest_hash": f"h{number}", **more}
    return LedgerPublish(f"p{number}", f"r{number}", "b", NOW, entries, **given)


def test_the_newest_publish_of_the_projects_tables_is_the_base() -> None:
    projects = {f"h{n}": "shop" for n in range(9)} | {"h7": "other"}
    found = [
        publish(8, left=()),
        publish(7),  # another project's
        publish(6, ("dev_ann", "orders")),  # a developer's own schema
        publish(5, manifest_hash=None),  # a clone
        publish(4, ("Shop", "ORDERS"), ("dev_ann", "x")),
        publish(3),
    ]
    assert base.choose(found, projects, "shop", {ORDERS}) == found[4]
    assert base.choose(found[:4], projects, "shop", {ORDERS}) is None


def test_selection() -> None:
    assert life.selection([]) == ["state:modified+"]
    chosen = life.selection(["orders+ tag:daily", "notes"])
    assert chosen == [f"{one},state:modified+" for one in ("orders+", "tag:daily", "notes")]


# --- the comment --------------------------------------------------------------------------------


def test_the_comment_names_what_failed_and_the_way_on() -> None:
    failed = audit("ids", status="fail", failures=1234)
    bad = node(verdict="rejected", reason="test ids failed (1,234 rows)")
    good = node("totals", how="side", base_metadata=None)
    text = comment.render(stands(good, bad, tests=(failed, audit("known"))))
    lines = text.splitlines()
    assert lines[:2] == ["<!-- sparkwap pr pr_1 -->", "### sparkwap: `pr_1` was rejected"]
    row = "| `shop.orders` | on a branch of the table | **rejected**: test ids failed (1,234 rows)"
    assert f"{row} | 1 of 2 |" in lines
    assert "| `shop.totals` | new | passed | none |" in lines
    assert "| `ids` | failed | 1,234 |" in lines
    assert "sparkwap pr audit --branch pr_1   # after a fix" in lines
    assert not any("known" in line for line in lines), "tests that passed are counted only"


def test_the_comment_holds_no_value_and_no_markup() -> None:
    values = "build failed: cannot cast 'Ann Smith' to int"
    error = "test ids ended in an error (division of 'Ann Smith')"
    rows = [node(verdict="rejected", reason=one) for one in (values, error)]
    for row in rows:
        assert "Ann" not in comment.render(stands(row))
    text = comment.render(stands(node(verdict="rejected", reason="a | b\n@team <img> `x`")))
    assert "a \\| b @\u200bteam &lt;img> 'x' |" in text


def test_a_published_branch_says_how_to_undo_it() -> None:
    done = stands(node(verdict="published"), is_open=False, runs=(run(publish_id="1a2b3c4d"),))
    assert "wap_rollback --args '{run: 1a2b3c4d}'" in comment.render(done)


def test_the_comment_is_limited_and_the_diff_goes_first() -> None:
    found = stands(*(node(f"table_{n}") for n in range(200)))
    assert "THE DIFF" in comment.render(found, "THE DIFF")
    assert "and 150 more" in comment.render(found, "")
    short = comment.render(found, "THE DIFF" + "x" * 60_000)
    assert len(short) < comment.LIMIT
    assert "wap_diff" in short
    assert "sparkwap pr publish" in short
    assert len(comment.render(found, "y" * 500, limit=1_000)) <= 1_000


def test_names_for_people() -> None:
    assert name_of("model.shop.orders.v2") == "orders.v2"
    assert name_of("test.shop.not_null_orders_id.0a1b2c") == "not_null_orders_id"


# --- the commands -------------------------------------------------------------------------------

BEFORE = {
    "metadata": {"project_name": "shop"},
    "nodes": {
        KEY: {
            "resource_type": "model",
            "schema": "shop",
            "alias": "orders",
            "name": "orders",
            "raw_code": "select 1",
            "depends_on": {"macros": []},
        }
    },
    "macros": {},
    "unit_tests": {},
}


def with_code(text: str) -> dict[str, Any]:
    changed = {**BEFORE["nodes"][KEY], "raw_code": text}  # type: ignore[index]
    return {**BEFORE, "nodes": {KEY: changed}}


class World:
    """A lake, and in dbt's place a function that builds, publishes or discards by PyIceberg."""

    def __init__(self, folder: Path) -> None:
        self.code = "select 1"
        self.ok = True
        self.commands: list[list[str]] = []
        self.numbers = iter(range(1, 99))
        properties = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"{folder}/warehouse"}
        self.found = dbt_cli.LakePlace("lake", properties)
        self.lake = Lake("lake", properties)
        self.lake.ensure_schema("shop")
        self.lake.catalog.create_table(ORDERS, pa.schema({"id": pa.int64()})).append(self.rows(0))
        self.then: Callable[[], None] = lambda: None

    def rows(self, *ids: int) -> pa.Table:
        return pa.table({"id": pa.array(ids, pa.int64())})

    def live(self) -> list[int]:
        table = self.lake.catalog.load_table(ORDERS)
        return sorted(table.scan().to_arrow()["id"].to_pylist())

    def a_run(self, variables: dict[str, Any], command: str = "build") -> Run:
        settings = GateSettings.from_vars(variables)
        run_id = f"{next(self.numbers):08}-0000-4000-8000-000000000000"
        packed = manifests.pack(with_code(self.code))
        run = Run(
            self.lake,
            Invocation(
                run_id=run_id,
                branch=settings.branch or f"wap_{run_id[:8]}",
                settings=settings,
                command=command,
                project="shop",
                target_name="test",
            ),
            manifest=lambda: packed,
        )
        run.candidates.load_side_schemas()
        return run

    def build(self, **variables: Any) -> int:
        run = self.a_run(variables)
        run.begin(KEY, ORDERS)
        run.candidates.place_table(ORDERS, Desired())
        number = int(run.run_id[:8])
        self.lake.catalog.load_table(ORDERS).append(self.rows(number), branch=run.branch)
        run.built(KEY, ORDERS, must_write=True)
        status = "success" if self.ok else "error"
        run.close([NodeFact(KEY, ORDERS, "model", status, None, frozenset())], [], [])
        return 0 if self.ok else 1

    def dbt(self, call: dbt_cli.DbtCall, *command: str, **more: Any) -> int:
        variables = {**call.variables, **from_environment({**call.environment, **more})}
        self.commands.append(list(command[:2] if command[0] == "run-operation" else command))
        if command[0] == "build":
            state = Path(command[command.index("--state") + 1]) if "--state" in command else None
            kept = json.loads((state / "manifest.json").read_text()) if state else None
            if kept is not None and kept["nodes"][KEY]["raw_code"] == self.code:
                return 0  # nothing is modified
            return self.build(**variables)
        if command[1] == "wap_discard":
            self.lake.branches.discard(variables["wap_branch"])
            return 0
        self.then()
        run = self.a_run({**variables, "wap_publish": "run"}, "wap_publish")
        return 1 if run.close([], [], [], [KEY]).refused else 0


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        dbt_cli.DbtCall, "run", lambda call, *c, **more: world.dbt(call, *c, **more)
    )
    monkeypatch.setattr(dbt_cli.DbtCall, "lake", lambda call: world.found)
    monkeypatch.setattr(dbt_cli.DbtCall, "manifest", lambda call, again: with_code(world.code))
    return world


def pr(action: str, *more: str) -> int:
    return main(["pr", action, "--branch", "pr_1", *more])


def by_hand(*beginning: str, state: str) -> list[str]:
    """What `docs/pull-requests.md` has people type for a build, less what is the same each time."""
    (found,) = (
        list(one.words[1:])
        for one in commands("dbt")
        if one.page.endswith("pull-requests.md") and one.words[:2] == beginning and not one.inline
    )
    at = found.index("--state") + 1
    found[at] = str(Path.cwd() / state)
    return found[: found.index("--vars")]


def test_a_life(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert pr("audit") == 0, "the whole build of the first time"
    assert world.commands.pop() == ["build"]
    assert pr("publish") == 0
    assert world.live() == [0, 1]
    world.code = "select 2"
    assert pr("audit") == 0
    assert world.commands[-1] == by_hand("dbt", "build", state="target/pr/pr_1")
    assert world.live() == [0, 1]
    assert pr("audit") == 0
    assert world.commands[-2] == ["run-operation", "wap_discard"], "each audit begins anew"
    capsys.readouterr()
    assert pr("comment", "--no-diff") == 0
    assert "passed its audit" in capsys.readouterr().out
    assert pr("publish") == 0
    assert [command[0] for command in world.commands].count("build") == 2, "no rebuild"
    live = world.live()
    assert len(live) == 3
    assert world.lake.branches.all() == []
    assert pr("publish") == 0, "a job that runs again has nothing to do"
    assert pr("close") == 0
    assert world.live() == live


def test_each_code_is_kept_once_and_named_by_its_publish(world: World) -> None:
    for _ in range(3):
        world.build()
    kept = world.lake.ledger.rows("manifests")
    assert [row["hash"] for row in kept] == [manifests.pack(with_code("select 1")).hash]
    assert {row["manifest_hash"] for row in world.lake.ledger.rows("publishes")} == {
        kept[0]["hash"]
    }
    world.code = "select 2"
    world.build()
    assert len(world.lake.ledger.rows("manifests")) == 2


def test_a_run_of_its_own_that_publishes_nothing_keeps_no_code(world: World) -> None:
    world.build(wap_publish="never")
    assert world.lake.ledger.rows("manifests") == []
    world.build(wap_publish="never", wap_branch="pr_1")
    assert len(world.lake.ledger.rows("manifests")) == 1


def test_nothing_that_differs_is_nothing_to_audit(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.build()
    assert pr("audit") == 0
    assert "nothing that is built differs" in capsys.readouterr().err
    assert pr("publish") == 0


def test_a_rejected_branch_is_not_published(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.build()
    world.code, world.ok = "select 2", False
    assert pr("audit") == 1
    assert pr("publish") == 1
    assert "was rejected, so nothing was published" in capsys.readouterr().err
    assert world.live() == [0, 1]


def test_other_code_than_was_audited_is_not_published(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.build()
    world.code = "select 2"
    assert pr("audit") == 0
    world.code = "select 3"
    assert pr("publish") == 1
    assert "audited with other code: orders" in capsys.readouterr().err
    assert world.live() == [0, 1]
    assert pr("close") == 0
    assert pr("publish") == 1
    assert "changed, and not audited: orders" in capsys.readouterr().err


def test_a_main_that_moved_is_built_upon(world: World) -> None:
    world.build()
    world.code = "select 2"
    assert pr("audit") == 0
    world.then = lambda: world.lake.catalog.load_table(ORDERS).append(world.rows(77))
    assert pr("publish") == 0
    steps = [command[1] if command[0] == "run-operation" else "build" for command in world.commands]
    assert steps == ["build", "wap_publish", "wap_discard", "build"]
    live = world.live()
    assert len(live) == 4
    assert {0, 1, 77} < set(live)


def test_a_job_that_died_after_a_refusal_goes_on(world: World) -> None:
    world.build()
    world.code = "select 2"
    assert pr("audit") == 0
    world.lake.catalog.load_table(ORDERS).append(world.rows(77))
    variables = {"wap_branch": "pr_1", "wap_publish": "run"}
    assert world.a_run(variables, "wap_publish").close([], [], [], [KEY]).refused
    assert pr("publish") == 0
    assert 77 in world.live()


def test_the_state_folder(world: World, tmp_path: Path) -> None:
    given = ["pr", "state", "--output", str(tmp_path / "state")]
    assert main(given) == 1, "nothing is published yet"
    world.build()
    first = world.lake.ledger.publishes()[0].run_id
    world.code = "select 2"
    world.build()

    def code() -> str:
        found = json.loads((tmp_path / "state/manifest.json").read_text())
        return str(found["nodes"][KEY]["raw_code"])

    assert main(given) == 0
    assert code() == "select 2"
    assert main([*given, "--base", first]) == 0
    assert code() == "select 1"
    assert main([*given, "--base", "99999999"]) == 1


def test_an_illegal_branch(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("main", "PR-1", "wap_1a2b3c4d"):
        assert main(["pr", "close", "--branch", name]) == 1
    assert "Nothing was done" in capsys.readouterr().err


def test_the_data_diff_is_asked_for_in_one_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    call = dbt_cli.parse_call(["--project-dir", str(tmp_path), "--target", "pr"])
    asked: list[tuple[Any, ...]] = []

    def told(branch: str, **more: Any) -> str:
        asked.append((branch, more["limit"], more["project_dir"], more["dbt_arguments"]))
        return "### Data diff"

    monkeypatch.setattr(diff, "comment", told)
    assert life.diff_section("pr_1", call, 100) == "### Data diff"
    ((*given, arguments),) = asked
    assert given == ["pr_1", 100, tmp_path.resolve()]
    assert arguments[arguments.index("--target") + 1] == "pr"
    assert arguments[arguments.index("--target-path") + 1] == "target/pr"


def test_a_comment_without_its_diff_still_has_the_verdict(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed(branch: str, **more: Any) -> str:
        raise SparkwapError("Nothing was compared.")

    world.build()
    world.code = "select 2"
    assert pr("audit") == 0
    monkeypatch.setattr(diff, "comment", failed)
    assert pr("comment") == 0
    told = capsys.readouterr()
    assert "passed its audit" in told.out
    assert "the comment has no data diff: Nothing was compared." in told.err


def test_base_named_wrongly(world: World) -> None:
    with pytest.raises(ConfigError, match="is no publish or run"):
        base.find(world.lake.ledger, BEFORE, "12345678")
