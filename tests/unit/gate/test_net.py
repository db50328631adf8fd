"""The origin of a change of `main`: this run by evidence, or another writer."""

from __future__ import annotations

import pytest

from sparkwap.gate.net import (
    GONE,
    MAIN,
    NEW,
    REPLACED,
    TAGS,
    Application,
    MainChange,
    SentCommand,
    Writer,
    about,
    is_command,
    judge,
    named,
    unmarks,
)

RUN = "1a2b3c4d-0000-4000-8000-000000000000"
OTHER = "2b3c4d5e-0000-4000-8000-000000000000"
PREY = ("shop", "prey")
APP = "local-1"


def sent(text: str, since: int = 100, until: int | None = 200, marked: bool = True) -> SentCommand:
    return SentCommand("model.culprit", text, since, until, marked)


def wrote(run_id: str | None, at: int = 150, app: str | None = APP, **more: bool) -> Writer:
    return Writer(7, run_id, app, at, **more)


def by(
    *commands: str | SentCommand,
    what: str = MAIN,
    writers: tuple[Writer, ...] = (),
    times: tuple[int, ...] = (150,),
    same_clock: bool = True,
    marks: bool = True,
) -> str:
    change = MainChange(PREY, (what,), times, writers)
    given = [sent(one) if isinstance(one, str) else one for one in commands]
    return judge(change, RUN, given, application=Application(APP, marks), same_clock=same_clock).by


class TestRowsWithAnId:
    def test_of_this_run_belong_to_it(self) -> None:
        assert by(writers=(wrote(RUN),)) == "run"

    def test_of_a_publish_do_not_belong_to_it(self) -> None:
        assert by(writers=(wrote(RUN, published=True),)) == "others"

    def test_of_another_run_do_not_belong_to_it(self) -> None:
        assert by("insert into shop.prey values (1)", writers=(wrote(OTHER),)) == "others"
        # Unless a session could have set another id.
        insert = "insert into shop.prey.branch_main values (1)"
        assert by(sent(insert, marked=False), writers=(wrote(OTHER),)) == "run"

    def test_of_a_maintenance_do_not_belong_to_it(self) -> None:
        # On the same server, it rewrites what this run only reads.
        reads = "delete from shop.mine where id in (select id from shop.prey)"
        for marked in (True, False):
            command = sent(reads, marked=marked)
            assert by(command, writers=(wrote(OTHER, maintained=True),)) == "others"


class TestReceipts:
    WHAT = f"{TAGS}wap_pub_1a2b3c4d"

    def test_that_are_gone_while_a_run_reads_the_table_are_not_its_work(self) -> None:
        reads = "create table shop.mine as select * from shop.prey"
        assert by(reads, what=self.WHAT) == "others"

    def test_that_a_run_has_dropped_are(self) -> None:
        assert by("alter table shop.prey drop tag wap_pub_1a2b3c4d", what=self.WHAT) == "run"
        call = "call lake.system.expire_snapshots(table => 'shop.prey')"
        assert by(call, what=self.WHAT) == "run"


class TestRowsWithoutAnId:
    CALL = "call lake.system.add_files(table => 'shop.prey', source_table => 'x')"

    def test_during_a_command_that_writes_no_id_belong_to_it(self) -> None:
        assert by(self.CALL, writers=(wrote(None),)) == "run"
        assert by("delete from shop.prey.branch_main", writers=(wrote(None),)) == "run"

    def test_of_a_session_without_its_settings_belong_to_it(self) -> None:
        insert = "insert into shop.prey.branch_main values (1)"
        assert by(insert, writers=(wrote(None),)) == "others"
        assert by(sent(insert, marked=False), writers=(wrote(None),)) == "run"

    @pytest.mark.parametrize(
        "text",
        [
            "insert into shop.prey.branch_main values (1)",
            "insert overwrite table `lake`.`shop`.`prey`.`branch_main` select 1",
            "from shop.log insert into shop.prey.branch_main select *",
            "with new as (select 1) insert into shop.prey.branch_main select * from new",
            "merge into shop.prey.branch_main using new on true when matched then delete",
            "update shop.prey.branch_main set id = 1",
            "create table if not exists shop.prey using iceberg as select 1",
            "create or replace table lake.shop.prey as select 1",
            "create external table shop.prey location 'x' as select 1",
            "replace table shop.prey as select 1",
        ],
    )
    def test_of_a_server_that_writes_no_ids_belong_to_the_command_that_writes_main(
        self, text: str
    ) -> None:
        assert by(text, writers=(wrote(None),), marks=False) == "run"
        assert by(text, writers=(wrote(None, at=300),), marks=False) == "others"
        of_log = f"{text.replace('shop.log', 'shop.old').replace('prey', 'log')} /* shop.prey */"
        assert by(of_log, writers=(wrote(None),), marks=False) == "others"

    @pytest.mark.parametrize(
        "text",
        [
            "create table shop.mine as select * from shop.prey",
            "create table prey.mine as select * from shop.prey",
            "insert into shop.mine.branch_main (table shop.prey)",
            # The session has the run's audit branch.
            "insert into shop.prey values (1)",
            "merge into shop.prey using new on true when matched then delete",
            "insert into shop.prey.branch_pr_1 values (1)",
            "insert into shop.prey.branch_main_2 values (1)",
        ],
    )
    def test_of_a_server_that_writes_no_ids_do_not_belong_to_others_commands(
        self, text: str
    ) -> None:
        assert by(text, writers=(wrote(None),), marks=False) == "others"

    @pytest.mark.parametrize("app", [None, "local-2"])
    def test_of_another_application_do_not_belong_to_it(self, app: str | None) -> None:
        assert by(self.CALL, writers=(wrote(None, app=app),)) == "others"

    def test_at_another_time_do_not_belong_to_it(self) -> None:
        assert by(self.CALL, writers=(wrote(None, at=300),)) == "others"

    def test_on_another_table_do_not_belong_to_it(self) -> None:
        assert by(self.CALL.replace("prey", "log"), writers=(wrote(None),)) == "others"


class TestWithoutASnapshot:
    @pytest.mark.parametrize(
        "text",
        [
            "alter table lake.shop.prey set tblproperties ('current-snapshot-id' = '1')",
            "CALL lake.system.rollback_to_snapshot('shop.Prey', 1)",
            "/* harmless */ alter table `shop` . `prey` add column x int",
            "execute immediate 'alter table ' || 'shop.pr' || 'ey'",
            "begin alter table identifier('shop.' || 'x') add column x int; end",
            "use shop; alter table prey add column x int",
        ],
    )
    def test_during_a_command_that_names_the_table_or_hides_its_names(self, text: str) -> None:
        assert by(text) == "run"

    @pytest.mark.parametrize(
        "text",
        [
            "insert into shop.prey select 1",
            "alter table shop.log add column x int",
            "create or replace table shop__wap_1a2b3c4d.prey using iceberg as select 1",
            "alter table shop.preys add column x int",
        ],
    )
    def test_during_another_command_it_belongs_to_others(self, text: str) -> None:
        assert by(text) == "others"

    def test_at_another_time_it_is_unknown_only_if_clocks_differ(self) -> None:
        alter = "alter table shop.prey add column x int"
        assert by(alter, times=(300,)) == "others"
        assert by(alter, times=(300,), same_clock=False) == "unknown"
        assert by(alter, same_clock=False) == "run"

    def test_an_unanswered_command_is_running(self) -> None:
        assert by(sent("alter table shop.prey add column x int", until=None), times=(900,)) == "run"


class TestTheWholeTable:
    def test_only_a_drop_or_rename_removes_a_table(self) -> None:
        gone = {"what": GONE, "times": ()}
        assert by("drop table shop.prey", **gone) == "run"
        assert by("drop schema shop cascade", **gone) == "run"
        assert by("alter table shop.prey rename to shop.x", **gone) == "run"
        assert by("create table shop.x as select * from shop.prey", **gone) == "others"
        assert by(**gone) == "others"

    @pytest.mark.parametrize("what", [NEW, REPLACED])
    def test_a_new_table_with_rows_of_others_belongs_to_them(self, what: str) -> None:
        create = "create or replace table shop.prey as select 1"
        assert by(create, what=what, times=(), writers=(wrote(OTHER),)) == "others"
        assert by(create, what=what, times=(), writers=(wrote(RUN),)) == "run"


def test_a_command_that_names_the_table_is_reported_first() -> None:
    hiding = SentCommand("model.other", "execute immediate x", 100, 200)
    naming = sent("drop table shop.prey")
    change = MainChange(PREY, (GONE,), ())
    found = judge(change, RUN, [naming, hiding], application=Application(APP), same_clock=True)
    assert found.node == "model.culprit"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select 1", False),
        ("-- insert\n select 1", False),
        ("with a as (select 1) select * from a", False),
        ("with a as (select 1) insert into t select * from a", True),
        ("from a insert into t select *", True),
        ("what nobody knows", True),
        ("explain execute immediate 'drop table a.b'", True),
        ("/* a /* b */ select */ insert into a.b values (1)", True),
        ("with a as (select '--' as x) insert into a.b select x from a", True),
        ("-- a\\\nselect 1\ninsert into a.b values (1)", True),
        ("(select 1)", False),
    ],
)
def test_commands_and_queries(text: str, expected: bool) -> None:
    assert is_command(text) is expected


def test_statements_that_remove_the_id_from_a_session() -> None:
    assert unmarks("RESET")
    assert unmarks("set spark.sql.iceberg.snapshot-property.wap_run = x")
    assert not unmarks("set spark.sql.shuffle.partitions = 2")


def test_the_tables_that_commands_may_have_moved() -> None:
    assert ("s", "t") in (about([sent("insert into lake.s.t select 1")]) or ())
    assert about([sent("execute immediate x")]) is None
    assert about([sent("use lake.s"), sent("drop table t")]) is None
    assert about([sent("drop schema s cascade")]) is None


@pytest.mark.parametrize(
    ("text", "hides"),
    [
        ("call lake.system.rollback_to_snapshot('a.b', 1)", False),
        ("call lake.system.rollback_to_snapshot('a.' 'b', 1)", True),
        ("call system.set_current_snapshot('a.' || 'b', 1)", True),
        ("CALL system.set_current_snapshot(table => lower('A.B'), snapshot_id => 1)", True),
        ("call system.rewrite_data_files(table => 'a.b', options => map('x', 'y'))", False),
        ("execute /* x */ immediate 'a'", True),
        ("delete from identifier /**/ ('a.b')", True),
        ("insert into ${x} values (1)", True),
        ("alter table a/* ' */./* /* */ */b drop column c -- identifier(x)", False),
    ],
)
def test_a_statement_that_computes_names_hides_them(text: str, hides: bool) -> None:
    found = about([SentCommand("model.x", text, 0)])
    assert found is None if hides else ("a", "b") in (found or ())


def test_names_of_a_statement() -> None:
    assert named("insert into lake.`s`.t.branch_main select a from x") >= {("s", "t")}
