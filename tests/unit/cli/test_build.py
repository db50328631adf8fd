"""``sparkwap build``: which drops are built, in which order, and where it stops."""

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkwap.catalog.model import PublishedEntry
from sparkwap.cli import build, build_reasons, main
from sparkwap.core import dbt_cli, next_command
from sparkwap.core.command_end import EXIT_CODES
from sparkwap.core.dbt_cli import DbtCall, DbtEnd
from sparkwap.core.errors import ConfigError, SparkwapError
from sparkwap.landing import LandingError, list_files, raw_models
from sparkwap.landing.entry import UNTIL
from sparkwap.landing.raw_models import RawModel
from sparkwap.ledger.manifests import pack
from sparkwap.ledger.records import LedgerPublish
from sparkwap.plan.decide import Plan, Step

Known = Mapping[tuple[str, str], Mapping[str, str]]
JANUARY, FEBRUARY, MARCH = date(2024, 1, 31), date(2024, 2, 29), date(2024, 3, 31)


def entry(entity: str) -> dict[str, Any]:
    return {
        "entity": entity,
        "kind": "extract",
        "key": ["id"],
        "columns": {"id": "bigint"},
        "files": [{"match": "*.csv"}],
    }


def manifest(root: Path, *entities: str) -> dict[str, Any]:
    nodes = {
        f"model.demo.raw_{e}": {
            "resource_type": "model",
            "name": f"raw_{e}",
            "schema": "demo",
            "alias": f"raw_{e}",
            "config": {"meta": {"landing": entry(e), "drop": {"root": str(root), "until": ""}}},
        }
        for e in entities
    }
    other = {"resource_type": "model", "name": "dim", "config": {"meta": {}}}
    return {"nodes": {"model.demo.dim": other, "test.demo.x": {"resource_type": "test"}, **nodes}}


def deliver(root: Path, entity: str, *days: date) -> None:
    for day in days:
        path = root / entity / f"load_date={day}" / "all.csv"
        path.parent.mkdir(parents=True)
        path.write_text("id\n1\n")


def gated(outcome: str) -> dict[str, Any]:
    """Return the document of a run."""
    return {"outcome": outcome, "message": None, "result": {"branch": "wap_1"}}


class Lake:
    """A fake of dbt and the lake: a build of a drop publishes its files, or fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path, *entities: str) -> None:
        self.root, self.published, self.builds = root, set[date](), list[date | None]()
        self.bad: dict[date | None, int] = {}
        self.held = set[str]()
        self.lines: list[str] = []
        self.commands: list[tuple[str, ...]] = []
        self.why: str | None = None
        self.summaries = ""
        lake = self

        def run(_: DbtCall, *command: str, **environment: str) -> DbtEnd:
            day = environment.get(UNTIL)
            until = date.fromisoformat(day) if day else None
            lake.builds.append(until)
            lake.commands.append(command)
            steps = f"  Next: commands of {until}\n"
            if file := environment.get(next_command.VARIABLE):
                Path(file).write_text(steps)
            else:
                lake.summaries += steps
            if until in lake.bad:
                return DbtEnd(lake.bad[until], gated("rejected" if lake.bad[until] else "held"))
            if until:
                lake.published.add(until)
            return DbtEnd(0, gated("published"))

        monkeypatch.setattr(DbtCall, "run", run)
        monkeypatch.setattr(DbtCall, "manifest", lambda _: manifest(root, *entities))
        monkeypatch.setattr(DbtCall, "lake", lambda _: dbt_cli.LakePlace("lake", {}))
        monkeypatch.setattr(build, "known_files", self.known)
        monkeypatch.setattr(build, "why_build", lambda *_: self.why)

    def known(
        self, _: object, models: Sequence[RawModel], names: Sequence[str] | None = None
    ) -> Known:
        return {
            model.table: {
                file.name: file.sha256
                for file in list_files(model.root, model.entry)
                if file.load_date in self.published and (names is None or file.name in names)
            }
            for model in models
            if self.published and model.name not in self.held
        }

    def build(self, *arguments: str) -> int:
        self.end = build.build(["--project-dir", str(self.root), *arguments], self.lines.append)
        return self.end.exit_code


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Lake:
    deliver(tmp_path, "a", MARCH, JANUARY, FEBRUARY)
    deliver(tmp_path, "b", FEBRUARY)
    return Lake(monkeypatch, tmp_path, "a", "b")


def test_drops_are_built_oldest_first_one_by_one(lake: Lake) -> None:
    assert lake.build() == 0
    assert lake.builds == [JANUARY, FEBRUARY, MARCH]
    assert lake.lines == [
        "drop 2024-01-31 (1 of 3): 1 file",
        "drop 2024-02-29 (2 of 3): 2 files",
        "drop 2024-03-31 (3 of 3): 1 file",
        "3 drops published, up to 2024-03-31",
    ]
    assert lake.end.result.builds[1] == build.Built(
        "published",
        FEBRUARY,
        ("a/load_date=2024-02-29/all.csv", "b/load_date=2024-02-29/all.csv"),
        {"branch": "wap_1"},  # type: ignore[arg-type]
    )


def test_nothing_new_and_nothing_changed_builds_nothing(lake: Lake) -> None:
    lake.build()
    lake.builds.clear()
    assert lake.build() == 0
    assert lake.builds == []
    assert "nothing to build (to build anyway: sparkwap build --again)" in lake.lines[-1]


def test_a_change_without_new_files_is_one_plain_build(lake: Lake) -> None:
    lake.build()
    lake.builds.clear()
    lake.why = "the code has changed since the last publish"
    assert lake.build() == 0
    assert lake.builds == [None]
    assert lake.lines[-1].endswith(f"one build: {lake.why}")


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["--again"], None),
        (["--select", "x"], None),
        (["--full-refresh"], None),
        (["--vars", "{x: 1}"], None),
        ([], "SPARKWAP_PUBLISH"),
        ([], "SPARKWAP_LANDING_REPLAY"),
        ([], "DBT_FULL_REFRESH"),
        ([], "DBT_ENGINE_EMPTY"),
    ],
)
def test_a_requested_build_runs(
    arguments: list[str], environment: str | None, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.published = {JANUARY, FEBRUARY, MARCH}
    if environment:
        monkeypatch.setenv(environment, "true")
    assert lake.build(*arguments) == 0
    assert lake.builds == [None]
    assert lake.lines == ["no unread landing files; one build: as requested"]


def planned(monkeypatch: pytest.MonkeyPatch, *stale: str) -> None:
    steps = tuple(Step(key, "build", ("new",), None, None) for key in stale)
    monkeypatch.setattr(build, "plan_of", lambda *_: Plan(steps, ()))
    monkeypatch.setattr(build, "selection", lambda plan, _: list(plan.stale))


@pytest.mark.parametrize(
    ("arguments", "environment", "why"),
    [
        (["--full-refresh"], None, "--full-refresh"),
        (["--sample=3 days"], None, "--sample"),
        (["--vars", "{scd2_restate: {model: h, where: x = 1}}"], None, "scd2_restate"),
        (["--vars", "{shop: {landing_replay: true}}"], None, "landing_replay"),
        ([], "SPARKWAP_LANDING_REPLAY", "landing_replay"),
        ([], "DBT_ENGINE_FULL_REFRESH", "--full-refresh"),
    ],
)
def test_what_asks_for_a_rebuild_builds_all_in_the_place_of_what_is_stale(
    arguments: list[str], environment: str | None, why: str, lake: Lake, monkeypatch: Any
) -> None:
    planned(monkeypatch)
    lake.published = {JANUARY, FEBRUARY, MARCH}
    if environment:
        monkeypatch.setenv(environment, "true")
    assert lake.build("--stale", *arguments) == 0
    assert lake.builds == [None]
    assert lake.lines[0] == f"--stale: everything is built ({why})"
    assert not {"--select"} & set(lake.commands[0])


@pytest.mark.parametrize(("count", "selects"), [(1, True), (90_000, False)])
def test_the_selection_of_what_is_stale(
    count: int, selects: bool, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(monkeypatch, *(f"fqn:a{number:05}" for number in range(count)))
    lake.published = {JANUARY, FEBRUARY, MARCH}
    assert lake.build("--stale", "--threads", "4") == 0
    (command,) = lake.commands
    assert command[-2:] == ("--indirect-selection", "eager")
    assert ("--select" in command) == selects


def test_without_anything_stale_nothing_is_built(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(monkeypatch)
    assert lake.build("--stale", "--threads", "4", "--no-defer") == 0
    assert lake.builds == []


def test_unread_messages_are_one_build(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.published = {JANUARY, FEBRUARY, MARCH}
    monkeypatch.setattr(build, "unread_topics", lambda *_: ({"raw_t": 1234}, []))
    assert lake.build() == 0
    assert lake.builds == [None]
    assert lake.lines[-1].endswith("one build: raw_t has 1,234 unread messages")


def test_a_broker_that_is_down_does_not_stop_the_files(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "unread_topics", lambda *_: ({}, ["no broker"]))
    assert lake.build() == 0
    assert lake.lines[0] == "no broker"
    assert lake.builds == [JANUARY, FEBRUARY, MARCH]


def test_files_that_cannot_be_used_are_left_to_the_build(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "list_unread", lambda *_: ([], ["not as it was"]))
    lake.bad = {None: 1}
    assert lake.build() == 1
    assert lake.builds == [None]


# ---------------------------------------------------------------- what a build would publish

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
PROJECT: dict[str, Any] = {
    "metadata": {"project_name": "shop"},
    "nodes": {
        "model.shop.a": {
            "resource_type": "model", "name": "a", "schema": "shop", "alias": "a",
            "raw_code": "select 1", "config": {"materialized": "table"},
            "checksum": {"name": "sha256", "checksum": "1"}, "depends_on": {"nodes": []},
        },
        "model.shop.inlined": {
            "resource_type": "model", "name": "inlined", "schema": "shop", "alias": "inlined",
            "raw_code": "select 1", "config": {"materialized": "ephemeral"},
        },
        "analysis.shop.look": {
            "resource_type": "analysis", "name": "look", "raw_code": "{{ var('x') }}", "config": {},
        },
    },
    "macros": {
        "macro.dbt_sparkwap.own": {
            "name": "own", "package_name": "dbt_sparkwap", "macro_sql": "{{ var('wap_publish') }}",
        }
    },
    "unit_tests": {},
}  # fmt: skip
PARTS = {
    "project": PROJECT,
    "entry": PublishedEntry(("shop", "a"), "branch", 1, "m1", 2, "m2"),
    "undone": False,
    "run": {"publish_id": "p", "session": "1"},
    "session": "1",
    "main": 2,
    "files": {"dbt_project.yml": AT - timedelta(hours=1)},
    "now": AT + timedelta(hours=1),
}


def reason(**other: Any) -> str | None:
    given = {**PARTS, **other}
    entry = given["entry"]
    entries = (entry,)
    publish = LedgerPublish(
        "p", "r", "wap_1", AT, entries, () if given["undone"] else entries, pack(PROJECT).hash
    )
    state = SimpleNamespace(main=given["main"], metadata_location="m2")
    return build_reasons.reason_to_build(
        given["project"], [publish], given["run"], {("shop", "a"): state},  # type: ignore[dict-item]
        given["files"], given["now"], given["session"],
    )  # fmt: skip


def changed(node: str = "model.shop.a", **more: Any) -> dict[str, Any]:
    nodes = PROJECT["nodes"]
    return {**PROJECT, "nodes": {**nodes, node: {**nodes["model.shop.a"], **more}}}


def test_a_publish_of_the_same_code_is_not_built_again() -> None:
    assert reason() is None
    no_input = "{{ builtins.ref('b') }} {# var('n') #} as var"
    assert "has changed" in str(reason(project=changed(raw_code=no_input)))
    view = PublishedEntry(("shop", "a"), "view", None, None, None, "m2")
    assert reason(entry=view, main=None) is None


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"project": changed(raw_code="select 2")}, "the code has changed since the last publish"),
        ({"project": changed("model.shop.b", alias="b")}, "does not have all tables"),
        ({"project": changed(raw_code="{{ env_var('X') }}")}, "a uses variables"),
        ({"project": changed(config={"pre-hook": [{"sql": "{{ var('x') }}"}]})}, "uses variables"),
        ({"project": changed(raw_code="{% set v = var %}{{ v('n') }}")}, "a uses variables"),
        ({"project": changed(raw_code="{{ builtins['var']('n') }}")}, "a uses variables"),
        ({"project": changed(raw_code="{{ run_query('select 1') }}")}, "a uses variables"),
        ({"session": "2"}, "settings of Spark"),
        ({"project": changed(depends_on={"nodes": ["source.shop.s.t"]})}, "a reads a source"),
        ({"project": changed(checksum={"name": "path"})}, "a is too large"),
        ({"entry": PublishedEntry(("shop", "z"), "branch", 1, "m1", 2, "m2")}, "does not have all"),
        ({"undone": True}, "was rolled back"),
        ({"run": {"publish_id": None}}, "a later run has not published"),
        ({"run": None}, "a later run has not published"),
        ({"main": 3}, "shop.a has changed since"),
        ({"files": {"dbt_project.yml": AT + timedelta(minutes=1)}}, "dbt_project.yml is newer"),
        ({"now": AT + timedelta(days=1)}, "not today"),
    ],
)
def test_a_possible_difference_is_built_again(other: dict[str, Any], message: str) -> None:
    assert message in str(reason(**other))


def test_a_macro_that_uses_variables_is_a_reason_to_build() -> None:
    macro = {"name": "m", "package_name": "shop", "macro_sql": "{% set x = var.has_var('y') %}"}
    assert reason(project={**PROJECT, "macros": {"macro.shop.m": macro}}) == (
        "the macro m uses variables or queries"
    )


# ---------------------------------------------------------------- drops


def test_the_outcome_is_that_of_the_last_build(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `wap_publish: lineage`, a drop may leave tables held and later drops continue."""
    ends = iter(["held", "published", "held"])
    run = DbtCall.run
    monkeypatch.setattr(
        DbtCall,
        "run",
        lambda call, *c, **more: DbtEnd(run(call, *c, **more).code, gated(next(ends))),
    )
    assert lake.build() == EXIT_CODES["held"]
    assert lake.builds == [JANUARY, FEBRUARY, MARCH]
    assert lake.lines[-1].endswith("up to 2024-03-31; the last build has left held tables")


def test_the_first_rejected_drop_stops_it(lake: Lake) -> None:
    lake.bad = {FEBRUARY: 1}
    assert lake.build() == 1
    assert lake.builds == [JANUARY, FEBRUARY]
    last = lake.lines[-1]
    assert "drop 2024-02-29 was not published as a whole (dbt ended with code 1)" in last
    assert "Waiting: 2024-03-31." in last
    assert [one.outcome for one in lake.end.result.builds] == ["published", "rejected"]
    assert lake.end.result.waiting == (str(MARCH),)
    assert str(lake.root / "b" / "load_date=2024-02-29" / "all.csv") in last
    # The lines above this message are the commands for the drop.
    assert "then: sparkwap build" in last
    assert "dbt run-operation" not in last
    lake.bad = {}
    assert lake.build() == 0
    assert lake.builds == [JANUARY, FEBRUARY, FEBRUARY, MARCH]


def test_a_held_drop_stops_the_build_although_dbt_succeeds(lake: Lake) -> None:
    lake.bad = {JANUARY: 0}
    assert lake.build() == EXIT_CODES["held"]
    assert lake.builds == [JANUARY]
    assert "dbt succeeded, but the gate held it" in lake.lines[-1]


def test_files_that_the_selection_does_not_read_are_not_held(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "known_files", lambda *_: {})
    assert lake.build("--select", "other") == 0
    assert lake.builds == [JANUARY, FEBRUARY], "no drop only of files that it does not read"
    assert lake.end.outcome == "published"
    assert lake.end.result.waiting == (str(JANUARY), str(FEBRUARY), str(MARCH))
    assert "not read all files of the drops 2024-01-31, 2024-02-29, 2024-03-31" in lake.lines[-1]


def test_a_selection_reads_its_files_after_older_ones_of_others(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def known(*given: Any) -> Known:
        return {table: files for table, files in lake.known(*given).items() if table[1] == "raw_b"}

    monkeypatch.setattr(build, "known_files", known)
    assert lake.build("--select", "raw_b+") == 0
    assert lake.builds == [JANUARY, FEBRUARY]
    assert "not read all files of the drops 2024-01-31, 2024-02-29, 2024-03-31" in lake.lines[-1]
    assert lake.build("--select", "raw_b+") == 0
    lake.bad = {JANUARY: 0}
    assert lake.build("--select", "raw_b+") == EXIT_CODES["held"]


@pytest.mark.parametrize("stops", [JANUARY, MARCH, None])
def test_the_next_commands_are_shown_once_for_all_drops(
    stops: date | None, lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    # As with `wap_publish: lineage`: each drop publishes its files and leaves other tables held.
    lake.bad = {stops: 1} if stops else {}
    lake.build()
    told = lake.summaries + capsys.readouterr().out
    assert told == f"  Next: commands of {stops or MARCH}\n"


def test_landing_until_is_the_last_drop(lake: Lake) -> None:
    assert lake.build("--vars", "{landing_until: 2024-02-29, other: 1}") == 0
    assert lake.builds == [JANUARY, FEBRUARY]


@pytest.fixture
def two_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Lake:
    """Two raw models whose landing folders have files of the same names."""
    deliver(tmp_path / "shop", "customers", JANUARY)
    deliver(tmp_path / "crm", "customers", JANUARY, FEBRUARY)
    lake = Lake(monkeypatch, tmp_path, "shop", "crm")
    found = manifest(tmp_path, "shop", "crm")
    for name in ("shop", "crm"):
        meta = found["nodes"][f"model.demo.raw_{name}"]["config"]["meta"]
        meta |= {"landing": entry("customers"), "drop": {"root": str(tmp_path / name)}}
    monkeypatch.setattr(DbtCall, "manifest", lambda _: found)
    return lake


def test_files_of_one_name_in_two_folders_are_two_files(two_folders: Lake) -> None:
    file = two_folders.root / "crm" / "customers" / f"load_date={JANUARY}" / "all.csv"
    file.write_text("id\n2\n")
    two_folders.published = {JANUARY}
    assert two_folders.build() == 0
    assert two_folders.builds == [FEBRUARY]
    assert two_folders.end.result.faults == ()


def test_a_file_is_not_published_by_another_table_with_its_name(two_folders: Lake) -> None:
    two_folders.held = {"raw_crm"}
    assert two_folders.build() == EXIT_CODES["held"]
    assert two_folders.builds == [JANUARY]
    two_folders.builds.clear()
    assert two_folders.build() == EXIT_CODES["held"]
    assert two_folders.builds == [JANUARY]
    assert two_folders.lines[-2] == f"drop {JANUARY} (1 of 2): 1 file"


def test_a_drop_that_comes_late_is_built(lake: Lake) -> None:
    lake.published = {JANUARY, MARCH}
    assert lake.build() == 0
    assert lake.builds == [FEBRUARY]


def test_many_waiting_drops_are_counted() -> None:
    later = [build.Drop(date(2024, 1, day), ()) for day in range(2, 8)]
    text = build.stopped(build.Drop(date(2024, 1, 1), ()), later, 2)
    assert "Waiting: 2024-01-02, 2024-01-03, 2024-01-04 and 3 more." in text


def test_a_missing_landing_folder_is_one_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = Lake(monkeypatch, tmp_path / "nowhere", "a", "b")
    with pytest.raises(LandingError, match="There is no landing folder"):
        lake.build()
    assert lake.builds == []
    assert main(["build", "--select", "x"]) == EXIT_CODES["failed"]
    assert capsys.readouterr().err.count("There is no landing folder") == 1


def test_arguments_are_split() -> None:
    call = dbt_cli.parse_call(
        ["--select", "a+", "--target", "pr", "--vars", "{x: 1}", "--full-refresh", "-d"]
    )
    assert call.build == ("--select", "a+", "--full-refresh", "-d")
    assert (call.target, call.variables) == ("pr", {"x": 1})


@pytest.mark.parametrize(("text", "message"), [("[1]", "not a YAML mapping"), ("{", "is not YAML")])
def test_vars_must_be_a_mapping(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        dbt_cli.parse_call(["--vars", text])


def test_dbt_gets_the_project_and_the_variables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[tuple[Sequence[str], Mapping[str, str]]] = []

    monkeypatch.setattr(dbt_cli, "_run_interruptible", lambda *given: calls.append(given) or 0)
    call = dbt_cli.parse_call(["--project-dir", str(tmp_path), "-t", "pr", "--vars", "{x: 1}"])
    assert call.run("build", **{UNTIL: "2024-01-31"}) == DbtEnd(0)
    command, environment = list(calls[0][0]), calls[0][1]
    assert command[3:5] == ["build", "--project-dir"]
    assert command[command.index("--target") + 1] == "pr"
    # The same vars in each call, or dbt would parse the whole project again.
    assert command[-1] == '{"x": 1}'
    assert environment[UNTIL] == "2024-01-31"
    assert environment["PATH"] == os.environ["PATH"]


def test_a_project_that_dbt_cannot_parse_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dbt_project.yml").write_text("name: [")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SparkwapError, match=r"(?s)cannot parse the project: .*Syntax error"):
        dbt_cli.parse_call(["--profiles-dir", str(tmp_path)]).manifest()


def test_help_is_not_dbts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "--help"]) == 0
    assert "one gated dbt build per drop" in capsys.readouterr().out


def test_a_missing_lake_has_no_files(tmp_path: Path) -> None:
    lake = dbt_cli.LakePlace("lake", {"uri": f"sqlite:///{tmp_path}/catalog.db?timeout=60"})
    assert raw_models.known_files(lake, []) == {}
    assert not (tmp_path / "catalog.db").exists()


def test_all_sources_disabled_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nodes = manifest(tmp_path, "a")["nodes"]
    off = {**nodes["model.demo.raw_a"], "fqn": ["demo", "raw", "shop", "raw_a"]}
    found = {"nodes": {}, "disabled": {"model.demo.raw_a": [off]}}
    monkeypatch.setattr(DbtCall, "manifest", lambda _: found)
    monkeypatch.setattr(DbtCall, "lake", lambda _: None)
    with pytest.raises(ConfigError, match=r"Enable a model \(`enabled`\) of: shop"):
        build.build([])


@pytest.mark.parametrize("meta", [{}, {"drop": None}, {"drop": {"until": ""}}])
def test_a_raw_model_without_a_landing_folder_is_an_error(
    meta: dict[str, Any], lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = manifest(tmp_path, "a")
    found["nodes"]["model.demo.raw_a"]["config"]["meta"] = {"landing": entry("a"), **meta}
    monkeypatch.setattr(DbtCall, "manifest", lambda _: found)
    with pytest.raises(ConfigError, match="model raw_a has a landing entry, but no landing folder"):
        lake.build()
    assert lake.builds == [], "nothing was built"


# ---------------------------------------------------------------- project and profile


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with models below it, a home, and an environment that names neither."""
    for name in ("project/models", "home/.dbt", "named", "given"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "project/dbt_project.yml").write_text("{name: shop, profile: shop}")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("PROFILES_DIR", "PROJECT_DIR", "PROFILE", "TARGET", "TARGET_PATH"):
        for prefix in ("DBT_", "DBT_ENGINE_"):
            monkeypatch.delenv(prefix + name, raising=False)
    monkeypatch.chdir(tmp_path / "project/models")
    return tmp_path


PROFILE = """
shop:
  target: "{{ env_var('WHICH') }}"
  outputs:
    one: {type: sparkwap, lake: .lake, schema: s}
    two: {type: other, schema: s}
"""


def test_folders_are_found_as_dbt_finds_them(folders: Path) -> None:
    from dbt.cli.resolvers import default_profiles_dir, default_project_dir

    assert dbt_cli.find_project() == default_project_dir() == folders / "project"
    (folders / "project/profiles.yml").write_text(PROFILE)
    # If dbt finds none: the project's folder.
    assert dbt_cli.find_profiles(None, dbt_cli.find_project()) == folders / "project"
    for place in ("home/.dbt", "project/models"):
        (folders / place / "profiles.yml").write_text(PROFILE)
        found = dbt_cli.find_profiles(None, dbt_cli.find_project())
        assert found == default_profiles_dir() == folders / place


def test_the_option_overrides_the_variable(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBT_PROFILES_DIR", str(folders / "named"))
    monkeypatch.setenv("DBT_PROJECT_DIR", str(folders / "project"))
    monkeypatch.chdir(folders)
    call = dbt_cli.parse_call([])
    assert (call.project_dir, call.profiles_dir) == (folders / "project", folders / "named")
    assert dbt_cli.parse_call(["--profiles-dir", "given"]).profiles_dir == folders / "given"


@pytest.mark.parametrize(
    "option", ["project-dir", "profiles-dir", "profile", "target", "target-path"]
)
def test_sparkwap_obeys_the_variables_of_dbt_and_passes_them_on(
    option: str, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def value() -> str:
        given = dbt_cli.parse_call([]).arguments("build")
        return given[given.index(f"--{option}") + 1]

    name = option.upper().replace("-", "_")
    for variable in (f"DBT_{name}", f"DBT_ENGINE_{name}"):
        monkeypatch.setenv(variable, f"{folders}/{variable}")
        assert value() == f"{folders}/{variable}"
    for variable in (f"DBT_{name}", f"DBT_ENGINE_{name}"):
        monkeypatch.setenv(variable, "")
    assert "" not in dbt_cli.parse_call([]).arguments("build")


def test_the_lake_is_that_of_the_target_in_the_environment(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folders / "home/.dbt/profiles.yml").write_text(
        PROFILE.replace("{{ env_var('WHICH') }}", "two")
    )
    monkeypatch.setenv("DBT_TARGET", "one")
    assert dbt_cli.parse_call([]).lake().target == "one"


def test_a_profile_with_variables_of_the_environment_is_read(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folders / "home/.dbt/profiles.yml").write_text(PROFILE)
    monkeypatch.setenv("WHICH", "one")
    assert dbt_cli.parse_call([]).lake().target == "one"
    monkeypatch.setenv("WHICH", "two")
    with pytest.raises(ConfigError, match=r"cannot be read|has type"):
        dbt_cli.parse_call([]).lake()
    monkeypatch.delenv("WHICH")
    with pytest.raises(
        ConfigError, match=rf"(?s)provided: 'WHICH'.*profiles folder {folders}/home"
    ):
        dbt_cli.parse_call([]).lake()


def test_the_variables_of_a_project_are_those_of_all_packages() -> None:
    def found(least: Any, **more: Any) -> dict[str, dict[str, str]]:
        return dbt_cli.project_variables({"min": 1, "shop": {"min": least, 3: 4, **more}, **more})

    assert {name: list(by) for name, by in found(2).items()} == {
        "min": ["", "shop"],
        "shop": [""],
        "3": ["shop"],
    }
    assert found(2)["min"] != found("2")["min"]
    assert found(2) == found(2, wap_guard=True), "settings of the gate are no code"
