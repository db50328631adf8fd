"""Statements against a gated table, written from a grammar: every one of them must be refused.

What is attacked is the class, not a list of texts: each verb that changes a table or its session,
in each way to name the table, in each case, in each place where Spark reads a statement. Pure.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

ROWS = {
    "insert": "insert into {t} select 9 as id",
    "insert table": "insert into table {t} values (9)",
    "insert columns": "insert into {t} (id) values (9)",
    "insert by name": "insert into {t} by name select 9 as id",
    "overwrite": "insert overwrite {t} select 9 as id",
    "overwrite table": "insert overwrite table {t} select 9 as id",
    "replace where": "insert into {t} replace where id > 0 select 9 as id",
    "insert to a branch": "insert into {t} with ('branch' = 'main') select 9 as id",
    "insert that evolves": "insert with schema evolution into {t} select 9 as id, 1 as more",
    "delete": "delete from {t}",
    "delete some": "delete from {t} as x where x.id > 0",
    "update": "update {t} set id = 9",
    "truncate": "truncate table {t}",
    "merge": "merge into {t} as x using (select 9 as id) as y on x.id = y.id"
    " when matched then delete when not matched then insert *",
    "merge that evolves": "merge with schema evolution into {t} as x using (select 9 as id, 1 as b)"
    " as y on x.id = y.id when not matched then insert *",
    "from insert": "from (select 9 as id) insert into {t} select id",
    "from overwrite": "from (select 9 as id) as x insert overwrite table {t} select id",
    "second insert": "from (select 9 as id) insert into {free} select id insert into {t} select id",
}
"""Verbs that change rows, of a table `id int`."""

DEFINITIONS = {
    "drop": "drop table {t}",
    "drop if exists": "drop table if exists {t} purge",
    "drop as a view": "drop view if exists {t}",
    "replace": "create or replace table {t} using iceberg as select 9 as id",
    "replace table": "replace table {t} using iceberg as select 9 as id",
    "replace by a view": "create or replace view {t} as select 9 as id",
    "rename": "alter table {t} rename to {free}_2",
    "add column": "alter table {t} add column more int",
    "drop column": "alter table {t} drop column id",
    "rename column": "alter table {t} rename column id to di",
    "widen": "alter table {t} alter column id type bigint",
    "comment": "comment on table {t} is 'x'",
    "comment on a column": "alter table {t} alter column id comment 'x'",
    "gate off": "alter table {t} set tblproperties ('write.wap.enabled' = 'false')",
    "unset": "alter table {t} unset tblproperties if exists ('write.wap.enabled')",
    "snapshot by a property": "alter table {t} set tblproperties ('current-snapshot-id' = '{id}')",
    "branch": "alter table {t} create or replace branch main as of version {id}",
    "replace branch": "alter table {t} replace branch main as of version {id}",
    "drop branch": "alter table {t} drop branch main",
    "tag": "alter table {t} create tag mine",
    "order": "alter table {t} write ordered by id",
    "partitions": "alter table {t} add partition field bucket(2, id)",
    "location": "alter table {t} set location '/tmp/elsewhere'",
}
"""Verbs that change the table itself."""

CALLS = {
    "rollback": "call {c}.system.rollback_to_snapshot({s}, {id})",
    "set current": "call {c}.system.set_current_snapshot(table => {s}, snapshot_id => {id})",
    "fast forward": "call system.fast_forward({s}, 'main', 'other')",
    "cherry-pick": "call `{c}`.`system`.`cherrypick_snapshot`({s}, {id})",
    "add files": "call {c}.system.add_files(table => {s}, source_table => '`parquet`.`/tmp/x`')",
    "compact": "call {c}.SYSTEM.rewrite_data_files({s})",
    "expire": "call {c}.system.expire_snapshots({s})",
    "orphans": "call {c}.system.remove_orphan_files(table => {s})",
    "register": "call {c}.system.register_table('{free}_3', '/tmp/x.metadata.json')",
}
"""Procedures, to which a table's name is a text."""

SESSION = (
    "set spark.wap.branch = main",
    "set `spark.wap.branch`=main",
    "SET spark.wap.id=7",
    "set\nspark.sql.catalog.{c}.uri = jdbc:sqlite:/tmp/other.db",
    "set spark.sql.iceberg.snapshot-property.wap_run = other",
    "set spark.sql.variable.substitute = true",
    "set spark.sql.defaultCatalog = spark_catalog",
    "set spark.sql.extensions = x",
    "reset",
    "RESET /* all */",
    "reset spark.wap.branch",
    "use {c}.{schema}",
    "use schema {schema}",
    "set catalog spark_catalog",
)
"""What would let the next statement of the session mean something else."""


LINES = {
    "from insert": (
        "from (select 9 as id) insert into {s}.{t} select id",
        "with a as (select 9 as id) from a insert overwrite {s}.`{t}` select id",
        "FROM {s}.{o} INSERT INTO lake.{s}.{t} SELECT id WHERE id > 0 INSERT INTO {s}.{o}"
        " SELECT id",
    ),
    "execute immediate": (
        "execute immediate 'insert into {s}.{t} values (9)'",
        "EXECUTE IMMEDIATE r'truncate table {s}.{t}'",
        "explain execute immediate 'drop table {s}.{t}'",
    ),
    "block": (
        "begin insert into {s}.{t} values (9); end",
        "/* a */ BEGIN\n declare x = 1;\n delete from {s}.{t};\nEND",
        "begin if true then truncate table {s}.{t}; end if; end",
    ),
    "identifier": (
        "insert into identifier('{s}.{t}') values (9)",
        "insert overwrite IDENTIFIER ('{s}' || '.{t}') values (9)",
        "delete from identifier(r'lake.{s}.`{t}`')",
    ),
    "call": (
        "call lake.system.add_files(table => '{s}.{t}', source_table => '`parquet`.`{files}`')",
        "CALL `lake`.system.rollback_to_snapshot('{s}.{t}', {id})",
        "call system.rewrite_data_files(table => '{s}.{t}', options => map('a', 'b'))",
    ),
    "use": (
        "use {s} | insert into {t} values (9)",
        "use lake.{s} | delete from `{t}`",
        "USE SCHEMA {s} | truncate table {t}",
        "use {s} | alter table {t} unset tblproperties ('write.wap.enabled')",
        "use lake.{s} | drop table {t}",
        "USE {s} | call system.rollback_to_snapshot('{t}', {id})",
    ),
    "snapshot by a property": (
        "alter table {s}.{t} set tblproperties ('current-snapshot-id' = '{id}')",
        "ALTER TABLE `{s}`.`{t}` SET TBLPROPERTIES ('a' = 'b', 'current-snapshot-id' '{id}')",
        "alter table lake.{s}.{t} set tblproperties (`write.wap.enabled` = false)",
    ),
    "branch": (
        "insert into {s}.{t} with ('branch' = 'main') values (9)",
        "insert into {s}.{t}.branch_main values (9)",
        "delete from lake.{s}.{t}.`branch_main`",
    ),
    "drop": (
        "drop table identifier('{s}.{t}')",
        "drop table if exists lake . {s} -- `\n . `{t}` purge",
        "drop view {s}.{t}",
    ),
    "capital letters": (
        "insert into {s}.{t} values (9)",
        "create or replace table {s}.{t} using iceberg as select cast(null as int) as id",
        "alter table {s}.{t} rename to {s}.{l}",
    ),
    "session": (
        "set spark.wap.branch = main | insert into {s}.{t} values (9)",
        "reset | insert into {s}.{t} values (9)",
        "set `spark.sql.variable.substitute` = true | ${{spark.app.name}}",
    ),
}
"""Statements of the issue's lines, each in several spellings; ` | ` parts those of one session."""


def lines(
    schema: str, table: str, other: str, snapshot: int | str, files: str
) -> dict[str, list[str]]:
    """The statements of LINES by the name of the line and a number.

    Args:
        schema: of the tables.
        table: the gated table that they attack.
        other: another gated table.
        snapshot: id of some snapshot of the table.
        files: a folder of Parquet files.
    """
    given = {"s": schema, "t": table, "l": table.lower(), "o": other, "id": snapshot}
    return {
        f"{line.replace(' ', '_')}_{number}": text.format(**given, files=files).split(" | ")
        for line, spellings in LINES.items()
        for number, text in enumerate(spellings)
    }


@dataclass(frozen=True)
class Written:
    """A statement, and how it was made: for the name of a test."""

    sql: str
    how: str


@dataclass(frozen=True)
class Grammar:
    """The grammar over one gated table.

    Attributes:
        catalog: Spark's name of the lake's catalog.
        schema: of the table.
        name: of the table.
        free: a table of the same schema that no gate stands before.
        snapshot: id of some snapshot of the table.
    """

    catalog: str
    schema: str
    name: str
    free: str = "free"
    snapshot: int = 1

    def names(self) -> dict[str, str]:
        """Ways to name the table, or a branch of it."""
        c, s, t = self.catalog, self.schema, self.name
        return {
            "plain": f"{s}.{t}",
            "with its catalog": f"{c}.{s}.{t}",
            "quoted": f"`{s}`.`{t}`",
            "half quoted": f"{c}.`{s}`.{t}",
            "blanks": f"{s} . {t}",
            "comments": f"{s}/* ' */./* /* */ */{t}",
            "line comment": f"{s} -- `\n.{t}",
            "identifier": f"identifier('{s}.{t}')",
            "IDENTIFIER": f'IDENTIFIER ( "`{s}`.`{t}`" )',
            "raw identifier": f"identifier(r'{s}.{t}')",
            "escaped": f"identifier('{s}\\u002e{t}')",
            "worked out": f"identifier('{s}' || '.{t}')",
            "joined texts": f"identifier('{s}.' '{t}')",
            "main": f"{s}.{t}.branch_main",
            "main, quoted": f"{c}.{s}.{t}.`branch_main`",
            "main by identifier": f"identifier('{c}.{s}.{t}.branch_main')",
        }

    def plain(self) -> Iterator[Written]:
        """Each verb with each way to name the table."""
        known = {"free": f"{self.schema}.{self.free}", "id": self.snapshot, "c": self.catalog}
        for verb, text in (ROWS | DEFINITIONS).items():
            for way, name in self.names().items():
                yield Written(text.format(t=name, **known), f"{verb}, {way}")
        for verb, text in CALLS.items():
            for table in (f"'{self.schema}.{self.name}'", f'"{self.schema}.{self.name}"'):
                yield Written(text.format(s=table, **known), verb)

    def nested(self, written: Written) -> Iterator[Written]:
        """A statement in each place where Spark reads one."""
        sql = written.sql
        text = sql.replace("\\", "\\\\").replace("'", "\\'")
        places = {
            "alone": sql,
            "upper case": self._cased(sql),
            "comment before": f"/* {{'app': \"dbt\"}} */ {sql}",
            "nested comment before": f"/* /* select 1 */ ' */\n-- select '\n{sql};",
            "execute immediate": f"execute immediate '{text}'",
            "explained and run": f"explain execute immediate '{text}'",
            "block": f"begin\n  {sql};\nend",
            "block with a variable": f"BEGIN declare x int; {sql}; END",
        }
        if sql.split()[0] in ("insert", "merge", "delete", "update", "from"):
            places |= {
                "cte": f"with a as (select 1) {sql}",
                "raw string in a cte": f"with a as (select r'\\' as x, ')' as y) {sql}",
                "ctes": f"with recursive `a(`(n) as (select ')'), b (select \"(\") {sql}",
                "comment in a cte": f"with a as (select 1 /* ) select 1 */ -- )\n) {sql}",
            }
        for place, nested in places.items():
            yield Written(nested, f"{written.how}, {place}")

    def _cased(self, sql: str) -> str:
        """The same with keywords in another case; names and what stands in quotes stay."""
        names = {self.catalog, self.schema, self.name}
        return " ".join(
            word if word in names or set(word) & set("'\"`./") else word.swapcase()
            for word in sql.split(" ")
        )

    def all(self) -> Iterator[Written]:
        """Every statement of the grammar."""
        for written in self.plain():
            yield from self.nested(written)
        yield from self.session()

    def session(self) -> Iterator[Written]:
        """What changes what the session means by later statements."""
        for text in SESSION:
            yield Written(text.format(c=self.catalog, schema=self.schema), "session")

    def sample(self, seed: int, count: int) -> list[Written]:
        """Some statements: each verb once, then others, by chance but the same for a seed."""
        chance = random.Random(seed)
        verbs: dict[str, list[Written]] = {}
        for written in self.all():
            verbs.setdefault(written.how.split(",")[0], []).append(written)
        chosen = [chance.choice(of_verb) for of_verb in verbs.values()]
        rest = [one for of_verb in verbs.values() for one in of_verb if one not in chosen]
        return [*chosen, *chance.sample(rest, max(0, count - len(chosen)))]
