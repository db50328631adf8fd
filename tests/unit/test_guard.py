import time

import pytest

from sparkwap.errors import GateError
from sparkwap.guard import END_SESSION, check, session_changes, undoing

LIVE = {"s.t", "lake.s.t", "t", "s.v"}


def refused(sql: str) -> bool:
    try:
        check(sql, LIVE.__contains__)
    except GateError:
        return True
    return False


HARMFUL = [
    "create or replace table s.t as select 1",
    "create or replace table s.t using iceberg as select 1",
    "create or replace view s.v as select 1",
    "replace table s.t as select 1",
    "drop table s.t",
    "drop table if exists s.t purge",
    "drop view if exists s.v",
    "alter table s.t add column c int",
    "alter table s.t add columns (c int)",
    "alter table s.t drop column c",
    "alter table s.t rename column a to b",
    "alter table s.t alter column a type bigint",
    "alter table s.t alter a type bigint",
    "alter table s.t change column a a bigint",
    "alter table s.t change a a bigint comment 'x'",
    "alter table s.t replace columns (a int)",
    "alter table s.t rename to s.u",
    "alter view s.v rename to s.w",
    "alter view s.v as select 2",
    "alter table s.t set tblproperties ('write.wap.enabled' = 'false')",
    "alter table s.t set tblproperties ('a'='b', `write.wap.enabled` 'false')",
    "alter table s.t set tblproperties (write.wap.enabled = false)",
    "alter table s.t unset tblproperties if exists ('x', 'write.wap.enabled')",
    "alter table s.t create branch b",
    "alter table s.t create or replace tag g as of version 1",
    "alter table s.t replace branch b as of version 1",
    "alter table s.t drop branch if exists b",
    "call lake.system.fast_forward('s.t', 'main', 'b')",
    "call system.rollback_to_snapshot(table => 's.t', snapshot_id => 1)",
    "call lake.system.rollback_to_timestamp('s.t', timestamp '2026-01-01')",
    "call lake.system.set_current_snapshot('s.t', 1)",
    "call `lake`.`system`.`cherrypick_snapshot`('s.t', 1)",
    "call lake.system.publish_changes('s.t', 'x')",
    "call lake.system.expire_snapshots('s.t')",
    "call lake.system.remove_orphan_files(table => 's.t')",
    "insert into s.t.branch_main select 1",
    "insert overwrite table s.t.branch_b select 1",
    "insert into s.t.`branch_b` (a) values (1)",
    "merge into s.t.branch_b as x using y on true when matched then delete",
    "delete from s.t.branch_b where true",
    "update s.t.branch_b set a = 1",
    "truncate table s.t.branch_b",
    "create table s.t.branch_b as select 1",
    "create table if not exists s.t.branch_b (a int)",
    "create or replace table s.t.branch_b as select 1",
    "merge with schema evolution into s.t using y on true when matched then update set *",
    "set spark.wap.branch = main",
    "set `spark.wap.branch`=main",
    "SET spark.wap.id=7",
    "reset",
    "reset spark.wap.branch;",
]


@pytest.mark.parametrize("sql", HARMFUL)
def test_harm_to_a_live_table_is_refused(sql: str) -> None:
    assert refused(sql)
    assert refused(sql.upper())


@pytest.mark.parametrize(
    "sql",
    [
        "drop table `s`.`t`",
        'drop table "s"."t"',
        "drop table lake.s.t",
        "drop table LAKE . `S` . t;",
        "drop table identifier('s.t')",
        "  \n\t drop\n  table\r\n s.t",
        "-- a comment; drop nothing\ndrop table s.t",
        "/* {'app': 'dbt', 'node': \"x\"} */ drop /* a */ table -- b\n s.t",
        "/* outer /* inner */ still a comment */ drop table s.t",
        "drop table s/* x */./* y */t",
        "with a as (select ')' from x), b(c, d) as (select (1)) insert into s.t.branch_b select *",
        "with recursive r(n) max recursion level 9 as (select 1) insert into s.t.branch_b select 1",
        "with a as (select 1 /* ) insert into q */ -- )\n) insert into s.t.branch_b select 1",
        "with `a)` as (select r'\\' , \"(\" ) merge into s.t.branch_b using a on true",
    ],
)
def test_blanks_comments_quotes_and_ctes_hide_nothing(sql: str) -> None:
    assert refused(sql)


@pytest.mark.parametrize(
    "sql",
    [
        *(sql.replace("s.t", "s.other").replace("s.v", "s.w") for sql in HARMFUL[:27]),
        "alter schema t rename to u",
        "",
        "-- drop table s.t",
        "/* drop table s.t",
        "select 'drop table s.t'",
        "select 1 -- \n; drop table s.t",
        "with a as (select 'x) drop table s.t') select * from a",
        "with a as (select 1) select * from a where x in (select 1) and drop_table = 's.t'",
        "with a as (select 1",
        "insert into s.t select 'drop table s.t'",
        "insert into s.t values ('create or replace table s.t')",
        "insert into s.branch_offices select 1",
        "insert into lake.s.branch_offices select 1",
        "insert overwrite s.t partition (p = 1) select 1",
        "delete from s.t where a = 'x'",
        "truncate table s.t",
        "merge into s.t using x on true when matched then delete",
        "create table s.t (a int)",
        "create table s.new as select 1",
        "create or replace temporary view t as select 1",
        "create or replace global temporary view t as select 1",
        "create temp view t as select 1",
        "create schema s",
        "create or replace function s.t as 'x'",
        "drop function s.t",
        "alter table s.t set tblproperties ('write.wap.enabled' = 'true')",
        "alter table s.t set tblproperties ('comment' = 'write.wap.enabled')",
        "alter table s.t set tblproperties ('owner' = 'me', 'a' = '(')",
        "alter table s.t write ordered by a",
        "alter table s.t add partition field days(ts)",
        "alter table s.t drop partition field p",
        "alter view s.v set tblproperties ('a' = 'b')",
        "call lake.system.rewrite_data_files('s.t', 'expire_snapshots')",
        "call lake.system.ancestors_of('s.t')",
        "set spark.sql.shuffle.partitions = 2",
        "set spark.wap.branch",
        "reset spark.sql.ansi.enabled",
        "show tables in s",
        "describe extended s.t",
        "refresh table s.t",
    ],
)
def test_all_else_goes_through(sql: str) -> None:
    check(sql, LIVE.__contains__)


def test_is_live_gets_the_plain_name() -> None:
    seen: list[str] = []
    check("drop table `Lake`.`My``S` . T", lambda name: bool(seen.append(name)))
    assert seen == ["lake.my`s.t"]


def test_the_message_says_what_happened_and_what_to_do() -> None:
    with pytest.raises(GateError) as error:
        check("ALTER TABLE s.t ADD COLUMN c int", LIVE.__contains__)
    assert str(error.value) == (
        "The guard refused alter table s.t add column: s.t is live, and columns and names belong "
        "to all of its branches, so its readers would see the change at once. "
        "It was not sent to Spark, and readers of main see no change. "
        "Change the model instead: a run builds changed columns beside the table and publishes "
        "them with the rows. "
        "To do it all the same, run it outside of a run, or add --vars 'wap_guard: false'."
    )


def test_the_guard_is_not_to_be_turned_off_for_the_sake_of_a_branch() -> None:
    with pytest.raises(GateError) as error:
        check("set spark.wap.branch = x", LIVE.__contains__)
    assert "wap_branch" in str(error.value)
    assert "wap_guard" not in str(error.value)


@pytest.mark.parametrize(
    "sql",
    [
        "insert into s.t values " + "('it''s; drop table', 1), " * 200_000,
        "select " + "'a', " * 200_000,
        "with a as (select " + "'(' || x, " * 100_000 + "1) select * from a",
        "/*" + "*" * 1_000_000 + "/ drop",
        "with a as (" + "'" * 200_001,
    ],
)
def test_large_statements_are_read_fast(sql: str) -> None:
    start = time.process_time()  # not the clock: other processes may have the machine
    check(sql, LIVE.__contains__)
    session_changes(sql)
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    ("sql", "undo"),
    [
        ("set spark.sql.ansi.enabled = false", "reset spark.sql.ansi.enabled"),
        ("/* dbt */ SET spark.Some.Key=a=b;", "reset spark.Some.Key"),
        ("set `odd-key` = 1", "reset `odd-key`"),
        ("set time zone 'UTC'", "reset spark.sql.session.timeZone"),
        ("set", None),
        ("set -v", None),
        ("set spark.sql.ansi.enabled", None),
        ("set var x = 1", None),
        ("set catalog lake", END_SESSION),
        ("reset", END_SESSION),
        ("reset spark.sql.ansi.enabled", END_SESSION),
        ("use lake.s", END_SESSION),
        ("add jar '/x.jar'", END_SESSION),
        ("ADD FILE /x", END_SESSION),
        ("create temporary view V as select 1", "drop view if exists V"),
        ("create or replace temp view `a b` as select 1", "drop view if exists `a b`"),
        ("create temp view if not exists v using csv", "drop view if exists v"),
        ("create or replace global temporary view g as", "drop view if exists global_temp.g"),
        ("create temporary function f as 'x'", "drop temporary function if exists f"),
        ("create or replace view s.v as select 1", None),
        ("create table s.temporary as select 1", None),
        ("declare or replace variable x int", "drop temporary variable if exists x"),
        ("declare x = 1", "drop temporary variable if exists x"),
        ("cache lazy table c as select 1", "uncache table if exists c"),
        ("select 'set a = 1'", None),
        ("with a as (select 1) select * from a", None),
        ("(select 1)", None),
        ("insert into t values (1)", None),
        ("execute immediate 'set a = 1'", END_SESSION),
        ("begin set spark.a = 1; end", END_SESSION),
        ("clear cache", END_SESSION),
        ("something Spark learns next year", END_SESSION),
        ("", None),
    ],
)
def test_what_a_session_must_undo(sql: str, undo: str | None) -> None:
    assert session_changes(sql) == undo


def test_changes_are_undone_once_each_and_the_last_one_first() -> None:
    view = "drop view if exists v"
    changes = [
        "reset a",
        view,
        END_SESSION,
        "reset `b-c`",
        view,
        "drop view if exists global_temp.g",
    ]
    assert undoing(changes, {"b-c": "1", "view": "2"}) == [
        "drop view if exists global_temp.g",
        # Where the node has dropped its view itself, the name may mean one that others read.
        "create or replace temporary view v as select 1 as nothing",
        view,
        "set `b-c`=1",
        "reset a",
    ]


@pytest.mark.parametrize(
    "sql",
    [
        "insert into s.log values (1)",
        "insert overwrite table s.log select 1",
        "with x as (select 1) insert into s.log select * from x",
        "merge into s.log using u on true when not matched then insert *",
        "delete from s.log where true",
        "update s.log set a = 1",
        "truncate table s.log",
    ],
)
def test_a_write_to_a_gated_table_that_the_run_does_not_build_is_refused(sql: str) -> None:
    with pytest.raises(GateError, match="does not build it"):
        check(sql, LIVE.__contains__, {"s.log"}.__contains__)
    check(sql, LIVE.__contains__, {"s.other"}.__contains__)


def test_a_write_to_a_gated_table_after_the_gate_has_decided_is_refused() -> None:
    gated = {"s.t"}.__contains__
    with pytest.raises(GateError, match="without an audit"):
        check("insert into s.t values (1)", gated, gated, closed=True)
    with pytest.raises(GateError, match="it moves main"):
        check("call lake.system.fast_forward('s.t', 'main', 'b')", gated, gated, closed=True)
    for sql in (
        "insert into s.log values (1)",
        "create or replace table s.log as select 1",
        "call lake.system.expire_snapshots('s.t')",
        "call lake.system.remove_orphan_files(table => 's.t')",
    ):
        check(sql, gated, gated, closed=True)
