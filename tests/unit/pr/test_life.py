"""Pull requests on a lake, with a function in the place of dbt."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.documents import commands

from sparkwap import diff
from sparkwap.catalog import UndonePublish
from sparkwap.cli import main
from sparkwap.core import dbt_cli
from sparkwap.core.command_end import EXIT_CODES
from sparkwap.core.errors import ConfigError, SparkwapError
from sparkwap.gate.placement import Desired
from sparkwap.gate.settings import GateSettings, from_environment
from sparkwap.ledger import manifests
from sparkwap.pr import base, life
from sparkwap.publish.lake import Lake
from sparkwap.runs.operations.context import Context
from sparkwap.runs.operations.publish import PublishBranch
from sparkwap.runs.run import Run
from sparkwap.runs.types import Invocation, NodeFact

from .conftest import KEY, ORDERS


def test_the_selection_adds_all_downstream_nodes() -> None:
    assert life.selection([]) == ["state:modified+"]
    chosen = life.selection(["orders+ tag:daily", "notes"])
    assert chosen == [f"{one},state:modified+" for one in ("orders+", "tag:daily", "notes")]


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


OTHER, OTHER_KEY = ("shop", "other"), "model.shop.other"


def with_code(text: str) -> dict[str, Any]:
    text, _, least = text.partition(" with ")
    changed: dict[str, Any] = {**BEFORE["nodes"][KEY], "raw_code": text}  # type: ignore[index]
    other = {**changed, "alias": "other", "name": "other", "raw_code": "select 0"}
    found = {**BEFORE, "nodes": {KEY: changed, OTHER_KEY: other}}
    if "source" in text:
        changed["depends_on"] = {"macros": [], "nodes": ["source.shop.raw"]}
        source = {"schema": "raw", "identifier": least}
        found, least = {**found, "sources": {"source.shop.raw": source}}, ""
    return (
        {**found, dbt_cli.VARIABLES: {"least": {"": least}, "other": {"": 1}}} if least else found
    )


class World:
    """A lake, with a function in the place of dbt that builds, publishes or discards."""

    def __init__(self, folder: Path) -> None:
        self.code = "select 1"
        self.ok = self.places = True
        self.commands: list[list[str]] = []
        self.numbers = iter(range(1, 99))
        properties = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"{folder}/warehouse"}
        self.found = dbt_cli.LakePlace("lake", properties)
        self.lake = Lake("lake", properties)
        self.lake.ensure_schema("shop")
        self.lake.catalog.create_table(ORDERS, pa.schema({"id": pa.int64()})).append(self.rows(0))
        self.lake.catalog.create_table(OTHER, pa.schema({"id": pa.int64()})).append(self.rows(0))
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
        run.candidates.load()
        return run

    def build_other(self) -> None:
        run = self.a_run({})
        run.begin(OTHER_KEY, OTHER)
        run.candidates.place_table(OTHER, Desired())
        self.lake.catalog.load_table(OTHER).append(self.rows(5), branch=run.branch)
        run.built(OTHER_KEY, OTHER, must_write=True)
        run.close([NodeFact(OTHER_KEY, OTHER, "model", "success", None, frozenset())], [], [])

    def build(self, **variables: Any) -> int:
        run = self.a_run(variables)
        run.begin(KEY, ORDERS)
        if not self.places:
            run.close([NodeFact(KEY, ORDERS, "model", "error", "no column", frozenset())], [], [])
            return 1
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
            code = with_code(self.code)["nodes"][KEY]["raw_code"]
            same = kept and kept["nodes"].get(KEY, {}).get("raw_code") == code
            if same or "nothing,state:modified+" in command:
                return 0  # nothing is modified
            return self.build(**variables)
        if command[1] == "wap_discard":
            self.lake.branches.discard(variables["wap_branch"])
            return 0
        self.then()
        context = Context(
            self.lake,
            run_id=f"{next(self.numbers):08}-0000-4000-8000-000000000000",
            settings=GateSettings.from_vars(variables),
            project="shop",
            target_name="test",
            tests=list,
            known=lambda: [KEY],
            manifest=lambda: manifests.pack(with_code(self.code)),
        )
        arguments = json.loads(command[command.index("--args") + 1])
        try:
            list(PublishBranch.of(arguments).operate(context))
        except SparkwapError:
            return 1
        return 0


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        dbt_cli.DbtCall,
        "run",
        lambda call, *c, **more: dbt_cli.DbtEnd(world.dbt(call, *c, **more)),
    )
    monkeypatch.setattr(dbt_cli.DbtCall, "lake", lambda call: world.found)
    monkeypatch.setattr(dbt_cli.DbtCall, "manifest", lambda call, again: with_code(world.code))
    return world


def pr(action: str, *more: str) -> int:
    return main(["pr", action, "--branch", "pr_1", *more])


def by_hand(*beginning: str, state: str) -> list[str]:
    """Return the words of a command in `docs/pull-requests.md`, up to `--vars`."""
    (found,) = (
        list(one.words[1:])
        for one in commands("dbt")
        if one.page.endswith("pull-requests.md") and one.words[:2] == beginning and not one.inline
    )
    at = found.index("--state") + 1
    found[at] = str(Path.cwd() / state)
    return found[: found.index("--vars")]


def test_a_pull_request_is_audited_published_and_closed(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert pr("publish") == 0, "a second publish has nothing to do"
    assert pr("close") == 0
    assert world.live() == live


def test_each_code_is_stored_once_and_publishes_refer_to_it(world: World) -> None:
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


def test_a_run_stores_its_code_for_a_later_publish(world: World) -> None:
    world.build(wap_publish="never")
    assert len(world.lake.ledger.rows("manifests")) == 1
    world.build(wap_publish="never", wap_branch="pr_1")
    assert len(world.lake.ledger.rows("manifests")) == 1


def test_without_a_difference_there_is_nothing_to_audit(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.build()
    assert pr("audit") == 0
    assert "no model, seed or snapshot differs" in capsys.readouterr().err
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


def test_a_reverted_change_that_failed_before_it_had_a_candidate(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.build()
    world.code, world.places = "select 2", False
    assert pr("audit") == EXIT_CODES["failed"]
    assert world.lake.branches.all() == []
    world.code, world.places = "select 1", True
    assert pr("audit") == 0
    assert world.commands[-2] == ["run-operation", "wap_discard"]
    assert "no model, seed or snapshot differs" in capsys.readouterr().err
    assert pr("audit") == 0
    assert world.commands[-2] != ["run-operation", "wap_discard"], "it is discarded once"


def test_a_change_that_failed_before_it_had_a_candidate_is_closed(world: World) -> None:
    world.build()
    world.code, world.places = "select 2", False
    assert pr("audit") == EXIT_CODES["failed"]
    for _ in range(2):
        assert pr("close") == 0
    assert [command[0] for command in world.commands].count("run-operation") == 1


def test_code_that_was_not_audited_is_not_published(
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
    assert "changed, but not audited: orders" in capsys.readouterr().err


def test_after_main_moved_a_publish_builds_again(world: World) -> None:
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


def test_only_the_compared_candidates_are_published(world: World) -> None:
    world.build()
    world.code = "select 2"
    assert pr("audit") == 0

    def later_push() -> None:
        world.lake.branches.discard("pr_1")
        world.code = "select 3"
        world.build(wap_branch="pr_1", wap_publish="never")
        world.code = "select 2"

    world.then = later_push
    assert pr("publish") == EXIT_CODES["failed"]
    assert world.live() == [0, 1]


def test_a_publish_that_was_rolled_back_is_not_published(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.build()
    world.code = "select 2"
    assert pr("audit") == 0
    assert pr("publish") == 0
    done = world.lake.ledger.publishes()[0]
    world.lake.publishing.rollback(
        done.entries,
        run_id="77777777-0000-4000-8000-000000000000",
        publish_id=done.publish_id,
        branch=done.branch,
        undone=[UndonePublish(done.publish_id, done.branch, done.left)],
    )
    assert pr("publish") == EXIT_CODES["held"]
    assert "its publish was rolled back, so nothing was published" in capsys.readouterr().err
    assert pr("comment") == 0
    comment = capsys.readouterr().out
    assert "live" not in comment
    assert "sparkwap pr audit --branch pr_1" in comment
    assert f"{{run: {done.publish_id}, reopen: true}}" in comment
    assert pr("audit") == 0
    assert pr("publish") == 0
    assert len(world.live()) == 3


def test_a_publish_of_other_tables_with_the_merged_code_loses_no_audited_table(
    world: World,
) -> None:
    world.build()
    world.code = "select 2"
    assert pr("audit") == 0

    def meanwhile() -> None:
        world.build_other()
        world.lake.catalog.load_table(ORDERS).append(world.rows(77))

    world.then = meanwhile
    assert pr("publish") == 0
    assert 77 in world.live()
    assert len(world.live()) == 4


def test_a_publish_that_selects_nothing_says_so(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.build()
    world.code = "select 2"
    assert pr("audit") == 0
    world.then = lambda: world.lake.catalog.load_table(ORDERS).append(world.rows(77))
    assert pr("publish", "--select", "nothing") == EXIT_CODES["failed"]
    printed = capsys.readouterr().err
    assert "selected nothing to build" in printed
    assert "is published" not in printed
    assert pr("publish") == EXIT_CODES["rejected"]
    assert "changed, but not audited: orders" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["select var('least') with", "select source() with"])
def test_a_changed_variable_or_table_of_a_source_is_a_change(
    world: World, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """dbt does not compare variables, and sources only as it is told."""
    world.code = f"{text} 0"
    world.build()
    world.code = f"{text} 500"
    assert pr("audit") == 0
    assert len(world.commands[-1]) > 1
    assert "no model, seed or snapshot differs" not in capsys.readouterr().err
    world.code = f"{text} 7"
    assert pr("publish") == EXIT_CODES["rejected"]
    assert "audited with other code: orders" in capsys.readouterr().err
    world.code = f"{text} 500"
    assert pr("publish") == 0
    assert len(world.live()) == 3
    assert pr("audit") == 0
    assert world.lake.branches.all() == [], "nothing differs"


def test_an_audited_table_that_the_newest_publish_has_left_out_is_modified(world: World) -> None:
    world.build()
    world.code, world.ok = "select 2", False
    assert pr("audit") == EXIT_CODES["rejected"]
    world.lake.branches.discard("pr_1")
    world.build_other()
    assert pr("publish") == EXIT_CODES["rejected"], "its change is not live"
    world.ok = True
    assert pr("audit") == 0
    assert pr("publish") == 0
    assert len(world.live()) == 3


def test_a_table_that_others_have_merged_does_not_reject(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.build()
    world.code, world.ok = "select 2", False
    world.build_other()
    for _ in range(2):
        assert pr("publish") == 0, "such as of a change of the documentation"
        assert "merged earlier, and not published yet: orders" in capsys.readouterr().err
        assert pr("audit") == 0
        assert "merged earlier, and not published yet: orders" in capsys.readouterr().err
    assert world.live() == [0, 1]
    world.code, world.ok = "select 3", True
    assert pr("audit") == 0
    assert pr("publish") == 0
    world.code, world.ok = "select 4", False
    world.build_other()
    assert pr("audit") == 0, "of a later pull request of this name"


def test_a_publish_continues_after_a_refused_publish(world: World) -> None:
    world.build()
    world.code = "select 2"
    assert pr("audit") == 0
    world.lake.catalog.load_table(ORDERS).append(world.rows(77))
    variables = {"wap_branch": "pr_1", "wap_publish": "run"}
    assert world.a_run(variables, "wap_publish").close([], [], [], [KEY]).refused
    assert pr("publish") == 0
    assert 77 in world.live()


def test_the_state_folder_has_the_code_of_a_publish(world: World, tmp_path: Path) -> None:
    given = ["pr", "state", "--dir", str(tmp_path / "state")]
    assert main(given) == EXIT_CODES["failed"], "nothing is published yet"
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
    assert main([*given, "--base", "99999999"]) == EXIT_CODES["usage"]


def test_an_illegal_branch_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("main", "PR-1", "wap_1a2b3c4d", "wap_former"):
        assert main(["pr", "close", "--branch", name]) == EXIT_CODES["usage"]
    assert "Nothing was done" in capsys.readouterr().err


def test_the_data_diff_has_its_own_target_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    call = dbt_cli.parse_call(["--project-dir", str(tmp_path), "--target", "pr"])
    calls: list[tuple[Any, ...]] = []

    def compared(branch: str, **more: Any) -> str:
        calls.append((branch, more["limit"], more["project_dir"], more["dbt_arguments"]))
        return "### Data diff"

    monkeypatch.setattr(diff, "comment", compared)
    assert life.diff_section("pr_1", call, 100) == "### Data diff"
    ((*given, arguments),) = calls
    assert given == ["pr_1", 100, tmp_path.resolve()]
    assert arguments[arguments.index("--target") + 1] == "pr"
    assert arguments[arguments.index("--target-path") + 1] == "target/pr"


def test_a_comment_without_a_diff_has_the_verdict(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed(branch: str, **more: Any) -> str:
        raise SparkwapError("Nothing was compared.")

    world.build()
    world.code = "select 2"
    assert pr("audit") == 0
    monkeypatch.setattr(diff, "comment", failed)
    assert pr("comment") == 0
    printed = capsys.readouterr()
    assert "passed its audit" in printed.out
    assert "the comment has no data diff: Nothing was compared." in printed.err


def test_a_comment_is_about_the_present_code(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(call: Any, again: str) -> Any:
        raise ConfigError("dbt cannot parse the project: x.")

    world.build()
    world.code = "select 2"
    assert pr("audit") == 0
    world.code = "select 3"
    assert pr("comment") == 0
    printed = capsys.readouterr()
    assert "`pr_1` was audited with other code" in printed.out
    assert "audited with other code: orders" in printed.err
    monkeypatch.setattr(dbt_cli.DbtCall, "manifest", broken)
    assert pr("audit") == EXIT_CODES["usage"]
    assert pr("comment") == 0
    comment = capsys.readouterr().out
    assert "passed its audit" not in comment
    assert "pr publish" not in comment
    assert "sparkwap pr audit --branch pr_1" in comment


def test_a_comment_after_an_audit_that_built_nothing(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def comment() -> str:
        capsys.readouterr()
        assert pr("comment") == 0
        return capsys.readouterr().out

    world.build()
    world.code = "select 2"
    assert pr("audit") == 0
    monkeypatch.setattr(world, "build", lambda **_: 2)
    assert pr("audit") == EXIT_CODES["usage"], "such as by an unknown option after --"
    assert "has an unfinished audit" in comment()
    world.code = "select 1"
    assert pr("audit") == 0
    assert "has nothing to audit" in comment()
    assert pr("close") == 0
    assert "is closed" in comment()


def test_a_comment_does_not_show_the_rejected_tables_of_an_earlier_push(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.build()
    world.code, world.ok = "select 2", False
    assert pr("audit") == EXIT_CODES["rejected"]
    assert pr("comment", "--no-diff") == 0
    assert "| `shop.orders` |" in capsys.readouterr().out
    monkeypatch.setattr(world, "dbt", lambda *_, **__: 1)  # another run uses the branch
    assert pr("audit") != 0
    assert "nothing was built on pr_1" in capsys.readouterr().err
    assert pr("comment", "--no-diff") == 0
    comment = capsys.readouterr().out
    assert "has an unfinished audit" in comment
    assert "shop.orders" not in comment


@pytest.mark.parametrize("before", ["nothing", "published"])
def test_a_comment_after_a_first_audit_that_built_nothing(
    before: str, world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(call: Any, again: str) -> Any:
        raise ConfigError("dbt cannot parse the project: x.")

    world.build()
    world.code = "select 2"
    if before == "published":
        assert pr("audit") == 0
        assert pr("publish") == 0
        assert pr("audit") == 0
        assert pr("comment") == 0
        assert "All its changes are live" in capsys.readouterr().out
        world.code = "select 3"
    parse = dbt_cli.DbtCall.manifest
    monkeypatch.setattr(dbt_cli.DbtCall, "manifest", broken)
    assert pr("audit") == EXIT_CODES["usage"]
    assert pr("comment") == 0
    assert "has an unfinished audit" in capsys.readouterr().out
    monkeypatch.setattr(dbt_cli.DbtCall, "manifest", parse)
    build = world.build
    monkeypatch.setattr(world, "build", lambda **_: 2)
    assert main(["pr", "audit", "--branch", "pr_1", "--output", "json"]) == EXIT_CODES["usage"]
    printed = capsys.readouterr()
    assert json.loads(printed.out)["result"]["state"] == "unfinished"
    assert "dbt ended with code 2" in printed.err
    monkeypatch.setattr(world, "build", build)
    assert pr("audit") == 0
    world.lake.branches.discard("pr_1")
    assert pr("comment") == 0
    assert "is closed" in capsys.readouterr().out


def test_the_next_commands_are_for_the_same_target(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.build()
    world.code = "select 2"
    assert pr("audit", "--target", "prod") == 0
    assert "sparkwap pr publish --branch pr_1 --target prod" in capsys.readouterr().err
    monkeypatch.setenv("DBT_TARGET", "prod")
    assert pr("comment", "--no-diff") == 0
    assert "sparkwap pr publish --branch pr_1 --target prod " in capsys.readouterr().out


def test_an_unknown_base_is_refused(world: World) -> None:
    with pytest.raises(ConfigError, match="is no publish or run"):
        base.find(world.lake.ledger, BEFORE, "12345678")


def test_the_code_of_an_older_version_is_compared_without_variables(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.code = "select least"
    world.build()
    world.code = "select least with 5"
    assert pr("audit") == 0
    assert "no model, seed or snapshot differs" in capsys.readouterr().err
    assert pr("publish") == 0, "as of a change of the documentation"
    world.code = "select 2, least"
    assert pr("audit") == 0
    world.code = "select 2, least with 5"
    assert pr("publish") == 0
    assert len(world.live()) == 3
