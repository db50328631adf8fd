import time

import pytest
from helpers.statements import Grammar

from sparkwap.catalog.model import Identifier
from sparkwap.core.errors import GateError
from sparkwap.gate.guard import NameState, Phase, Scope, check
from sparkwap.gate.session_changes import END_SESSION, session_changes, undo_statements
from sparkwap.gate.statement_effects import classify, name_of, written_tables
from sparkwap.gate.statement_reader import Name

STANDS: dict[Identifier, NameState] = {
    ("s", "t"): "placed",
    ("s", "Big"): "gated",
    ("s", "model"): "node",
    ("s", "log"): "table",
    ("s", "shown"): "view",
    ("lake", "log"): "table",
    ("s__wap_1", "t"): "side",
    ("s__other", "t"): "own",
    ("wap_ledger", "runs"): "own",
}


def scope(phase: Phase = "run", *named: Name) -> Scope:
    return Scope("lake", lambda name: STANDS.get(name, "absent"), phase, named)


def refusal(sql: str, phase: Phase = "run", *named: Name) -> str | None:
    try:
        check(sql, scope(phase, *named))
    except GateError as error:
        return str(error)
    return None


GATED = Grammar("lake", "s", "Big", free="log")
BUILT = Grammar("lake", "s", "t", free="log")


@pytest.mark.parametrize("phase", ["run", "closed", "outside"])
def test_no_statement_of_the_grammar_reaches_a_gated_table(phase: Phase) -> None:
    # After the gate's decision, a hook may maintain tables.
    maintains = ("expire", "orphans") if phase == "closed" else ()
    sent = [
        one
        for one in GATED.all()
        if refusal(one.sql, phase, ("s", "Big"), ("lake", "s", "Big")) is None
        and not one.how.startswith(maintains)
    ]
    assert sent == []


def test_the_grammar_is_large() -> None:
    assert len(list(GATED.all())) > 5000
    assert len({one.sql for one in GATED.sample(1, 60)}) == 60


def test_a_run_may_only_write_to_a_table_that_it_builds() -> None:
    sent = {one.how.split(",")[0] for one in BUILT.all() if refusal(one.sql) is None}
    assert sent == {
        *("insert", "insert table", "insert columns", "insert by name", "replace where"),
        *("overwrite", "overwrite table", "delete", "delete some", "update", "truncate", "merge"),
        *("from insert", "from overwrite", "second insert"),
    }
    with pytest.raises(GateError, match=r"The guard refused drop table s\.t"):
        check("drop table s.t", scope())


@pytest.mark.parametrize(
    "sql",
    [
        # Names are case-sensitive, as in the catalog.
        "insert into s.Big values (1)",
        "insert into lake.s.Big values (1)",
        # Possibly no table of the lake: another catalog, a schema within a schema, no schema.
        "insert into LAKE.s.log values (1)",
        "insert into other.s.log values (1)",
        "insert into a.b.c.d values (1)",
        "insert into lake.log values (1)",
        "insert into log values (1)",
        "create table log (a int)",
        "drop table log",
        "insert overwrite directory '/data' select 1",
        "insert overwrite local directory '/data' using csv select 1",
        "insert into s.t.branch_other values (1)",
        "insert into s.log.branch_main values (1)",
        # Nodes of the project, also before they are built and if they are ungated.
        "create table s.model (a int)",
        "create or replace view s.model as select 1",
        "insert into s.model values (1)",
        "alter table s.log rename to s.model",
        "alter table s__wap_1.t rename to s.model",
        # Objects of sparkwap and of other runs.
        "delete from wap_ledger.runs",
        "insert into s__other.t values (1)",
        "drop table s__wap_1.t purge",
        # A view whose readers are not known.
        "drop view s.shown",
        "create or replace view s.shown as select 1",
        "create function s.f as 'x.Y'",
        "drop function s.f",
        # A location with other files.
        "create table s.new using iceberg location '/lake/s/Big' as select 1",
        "create table s.new (a int) using iceberg options (path '/lake/s/Big')",
        "alter table s.log set location '/lake/s/Big'",
        "load data inpath '/x' into table s.log",
        # Unknown statements.
        "grant select on table s.log to bob",
        "optimize s.log",
        "drop schema s cascade",
        "alter schema s set location '/x'",
        "create materialized view s.m as select 1",
        "msck repair table s.log",
        "-- nothing",
        "/* a comment without an end",
        "/* /*+ */ insert into s.Big select 1 -- */",
        "with a as (select 1",
        "with a select 1",
        "with a as (select 1) drop table s.log",
        "merge s.log using x on true",
    ],
)
def test_statements_that_are_not_known_to_be_harmless_are_refused(sql: str) -> None:
    for one in (sql, f"\n {sql} ;", f"/* dbt */ {sql}"):
        told = refusal(one)
        assert told is not None
        assert "It was not sent to Spark, and readers of main see no change." in told


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "select * from s.Big",
        "SELECT 'insert into s.Big values (1)'",
        "/* {'app': 'dbt'} */ select 1 -- ; drop table s.Big",
        "(select 1) union all (select 2)",
        "from s.Big select count(*)",
        "from s.Big select insert",
        "with a as (select 'x) insert into s.Big') select * from a",
        "with a as (select 1), b as (select r'\\' || ')') from a, b select *",
        "values (1), (2)",
        "table s.Big",
        "show tables in s",
        "show tblproperties s.Big",
        "describe extended s.Big",
        "describe query select 1",
        "desc s.Big",
        "explain formatted insert into s.Big select 1",
        "refresh table s.Big",
        "call lake.system.ancestors_of('s.Big')",
        "set",
        "set -v",
        "set spark.wap.branch",
        "set spark.sql.shuffle.partitions = 2",
        "set `spark.sql.shuffle.partitions` = 2",
        "set spark.sql.adaptive.coalescePartitions.enabled=false",
        "set time zone 'UTC'",
        "set spark.sql.session.timeZone = UTC",
        "set spark.sql.sources.partitionOverwriteMode = DYNAMIC",
        "set var x = 1",
        "reset spark.sql.ansi.enabled",
        "declare or replace variable x int default 1",
        "create or replace temporary view Big as select 1",
        "create global temp view Big as select 1",
        "create temporary function f as 'x.Y'",
        "create schema if not exists other",
        "drop view if exists big__dbt_tmp",
        "drop temporary variable if exists x",
        "cache lazy table kept as select 1",
        "uncache table if exists kept",
        "add jar '/x.jar'",
    ],
)
@pytest.mark.parametrize("phase", ["run", "closed", "outside"])
def test_reads_and_changes_of_the_session_are_allowed(sql: str, phase: Phase) -> None:
    assert refusal(sql, phase) is None


CHANGES_OF_A_LOG = [
    "create table if not exists s.new (at timestamp, location string) using iceberg",
    "create or replace table s.log using iceberg as select 1 as a",
    "create view s.new as select 1",
    "insert into s.log values (1)",
    "insert into lake.s.log select * from s.Big",
    "from s.Big insert into s.log select 1 insert into `s`.`log` select 2",
    "with a as (select 1) delete from s.log where true",
    "merge with schema evolution into s.log using x on true when not matched then insert *",
    "alter table s.log add column a int",
    "alter table s.log rename to s.new",
    "drop table if exists s.log purge",
    "drop table if exists s.nothing",
    "comment on table s.log is 'x'",
    "truncate table s.log",
]


@pytest.mark.parametrize("sql", CHANGES_OF_A_LOG)
def test_ungated_tables_may_be_changed(sql: str) -> None:
    assert refusal(sql, "run") is None
    assert refusal(sql, "closed") is None
    if "nothing" not in sql:
        assert "wap_writes" in str(refusal(sql, "outside"))
    named = {("s", "log"), ("lake", "s", "new")}
    assert refusal(sql, "outside", *named) is None or "nothing" in sql


@pytest.mark.parametrize(
    "sql",
    [
        "create or replace table s__wap_1.t using iceberg location '/lake/s/t' as select 1",
        "insert into s__wap_1.t values (1)",
        "alter table s__wap_1.t add columns (a int)",
        "alter table s__wap_1.t write ordered by a",
        "alter table s__wap_1.t alter column c comment 'gc.enabled'",
        "alter table s__wap_1.t set tblproperties ('a' = '(gc.enabled, x', 'b' = 'gc.enabled')",
        "comment on table s__wap_1.t is 'x'",
        "create or replace view s__wap_1.t as select 1",
        "drop table if exists s__wap_1.t",
        "update s__wap_1.t set a = 1",
    ],
)
def test_a_run_may_change_its_side_schemas(sql: str) -> None:
    assert refusal(sql, "run") is None


@pytest.mark.parametrize(
    "sql",
    [
        "alter table {} set tblproperties ('write.metadata.delete-after-commit.enabled' = true)",
        "alter table {} set tblproperties ('a' = 'b', 'gc.enabled' = 'true')",
        "alter table {} unset tblproperties if exists ('write.wap.enabled')",
        "alter table {} set tblproperties (a = 1, gc . enabled = true)",
        "alter table {} set tblproperties (`gc`.`Enabled` true)",
        "alter table {} set tblproperties ('gc.en' 'abled' = 'true')",
        r"alter table {} set tblproperties ('gc\u002eenabled' = 'true')",
    ],
)
def test_a_clone_keeps_what_protects_the_files_of_the_live_table(sql: str) -> None:
    assert "shares files with the live table" in str(refusal(sql.format("s__wap_1.t"), "run"))
    assert refusal(sql.format("s.log"), "run") is None


def test_wap_writes_allows_ungated_tables_only() -> None:
    view, other = ("s", "shown"), ("archive", "s", "x")
    assert refusal("create or replace view lake.s.shown as select 1", "run", view) is None
    assert refusal("insert into archive.s.x values (1)", "outside", other) is None
    assert refusal("insert into archive.s.X values (1)", "run", other) is not None
    assert refusal("create function s.f as 'x'", "run", ("s", "f")) is None
    at = "create table s.new (a int) using iceberg location '/x'"
    assert refusal(at, "run", ("s", "new")) is None
    # It never allows a gated table, or a name that may refer to one.
    for name in ("s.Big", "s.model", "s.t", "wap_ledger.runs", "archive.s.Big", "s.t.branch_b"):
        assert refusal(f"drop table {name}", "run", name_of(name)) is not None
        assert refusal(f"insert into {name} values (1)", "outside", name_of(name)) is not None


def test_names_are_looked_up_case_sensitively() -> None:
    seen: list[Identifier] = []

    def look(name: Identifier) -> NameState:
        seen.append(name)
        return "table"

    check("delete from `lake`.`My``S` . T", Scope("lake", look, "run"))
    assert set(seen) == {("My`S", "T")}


def test_the_messages_have_reason_and_alternative() -> None:
    assert refusal("ALTER TABLE s.Big ADD COLUMN c int") == (
        "The guard refused alter table s.Big: s.Big is live, or will be once it is published: "
        "columns, properties, branches and the table itself belong to all of its branches, so its "
        "readers would see the change at once. It was not sent to Spark, and readers of main see "
        "no change. Change the model instead (`tblproperties` in its config, its columns): a run "
        "builds the changed table beside the live one and publishes it with the rows."
    )
    assert refusal("drop table s.Big") == (
        "The guard refused drop table s.Big: s.Big is live, or will be once it is published, and "
        "its readers would lose it at once. It was not sent to Spark, and readers of main see no "
        "change. Leave it out. To give the table up, disable or delete its model, then drop the "
        "table by a program other than dbt, such as beeline or PyIceberg."
    )
    stray = str(refusal("insert into s.Big values (1)"))
    assert "has not begun" in stray
    assert "without an audit" in str(refusal("insert into s.Big values (1)", "closed"))
    branch = str(refusal("insert into s.t.branch_main values (1)"))
    assert "it names a branch of s.t and so bypasses the gate" in branch
    assert "wap_branch" in str(refusal("set spark.wap.branch = x"))
    assert "Write the schema in front" in str(refusal("insert into t values (1)"))
    outside = str(refusal("insert into s.log values (1)", "outside"))
    assert "opens no run" in outside
    assert "wap_writes: [schema.table]" in outside


def test_maintenance_is_allowed_after_the_gate_has_decided() -> None:
    for procedure in ("expire_snapshots('s.Big')", "remove_orphan_files(table => 's.Big')"):
        sql = f"call lake.system.{procedure}"
        assert "while no run is open" in str(refusal(sql))
        assert refusal(sql, "outside") is not None
        assert refusal(sql, "closed") is None


@pytest.mark.parametrize("text", ["t", "s.t.", "s t", "s.t; drop", "'s'.t", "", "s.`t", "s..t"])
def test_illegal_names(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        name_of(text)


def test_names() -> None:
    assert name_of("`My Lake`.s.T") == ("My Lake", "s", "T")


@pytest.mark.parametrize(
    "sql",
    [
        "insert into s.t values " + "('it''s; drop table', 1), " * 200_000,
        "select " + "'a', " * 200_000,
        "with a as (select " + "'(' || x, " * 5_000 + "1) select * from a",
        "/*" + "*" * 1_000_000 + "/ drop",
        "with a as (" + "'" * 200_001,
    ],
)
def test_large_statements_are_read_fast(sql: str) -> None:
    start = time.process_time()
    classify(sql)
    session_changes(sql)
    # A quadratic reader takes minutes.
    assert time.process_time() - start < 15


@pytest.mark.parametrize(
    ("sql", "undo"),
    [
        ("set spark.sql.ansi.enabled = false", "reset spark.sql.ansi.enabled"),
        ("/* dbt */ SET spark.Some.Key=a=b;", "reset spark.Some.Key"),
        ("set `odd-key` = 1", "reset `odd-key`"),
        ("SET `spark.sql.session.timeZone` = UTC", "reset spark.sql.session.timeZone"),
        ("set /* a */ spark.sql.session.timeZone = UTC", END_SESSION),
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
        ("set 'a", END_SESSION),
        ("create temporary view 'a", END_SESSION),
        ("create temporary view V as select 1", "drop view if exists V"),
        ("create or replace temp view `a b` as select 1", "drop view if exists `a b`"),
        ("create temp view if not exists v using csv", "drop view if exists v"),
        ("create or replace global temporary view g as", "drop view if exists global_temp.g"),
        ("create temporary function f as 'x'", "drop temporary function if exists f"),
        ("create or replace view s.v as select 1", None),
        ("create table s.temporary as select 1", None),
        ("declare or replace variable x int", "drop temporary variable if exists x"),
        ("declare x = 1", "drop temporary variable if exists x"),
        ("cache lazy table c as select 1", "drop view if exists c"),
        ("cache table C select 1", "drop view if exists C"),
        ("cache table c options ('a' = 'b') (select 1)", "drop view if exists c"),
        ("cache table s.t", "uncache table if exists s.t"),
        ("cache lazy table t options ('a' = 'b');", "uncache table if exists t"),
        ("call lake.system.create_changelog_view(table => 's.t')", END_SESSION),
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
def test_the_undo_of_a_statement(sql: str, undo: str | None) -> None:
    assert session_changes(sql) == undo


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("insert into s.T values (1)", (("s", "T"),)),
        ("with x as (select 1) insert overwrite table lake.s.t select 1", (("lake", "s", "t"),)),
        ("from x insert into a.b select 1 insert into a.c select 2", (("a", "b"), ("a", "c"))),
        ("create table s.t as select 1", ()),
        ("select 1", ()),
        ("explain delete from s.t", ()),
    ],
)
def test_the_tables_that_a_statement_writes_to(sql: str, tables: tuple[Name, ...]) -> None:
    assert written_tables(sql) == tables


def test_changes_are_undone_once_in_reverse_order() -> None:
    view = "drop view if exists v"
    changes = [
        "reset a",
        view,
        END_SESSION,
        "reset `b-c`",
        view,
        "drop view if exists global_temp.g",
    ]
    assert undo_statements(changes, {"b-c": "1", "view": "2"}) == [
        "drop view if exists global_temp.g",
        # If the node has dropped its view itself, the name may refer to a view of others.
        "create or replace temporary view v as select 1 as nothing",
        view,
        "set `b-c`=1",
        "reset a",
    ]
