"""Random histories by Spark: the changed rows answer a test as all rows do.

Each history writes one table in many ways. After each step, tests are answered from all rows, and
from the rows that have changed since states on which they have passed.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from helpers.catalogs import RunningCatalog
from helpers.lake import Reader
from pyhive import hive

from sparkwap.audits.forms import form_of
from sparkwap.audits.incremental import Passed, added_files, basis, key_range, latest, lost_files
from sparkwap.audits.shared_statement import Changed, statement
from sparkwap.catalog import metadata as md
from sparkwap.catalog.private_catalog import PrivateCatalog
from sparkwap.catalog.snapshot_files import Part, Snapshot, common_manifests
from sparkwap.publish.lake import Lake

SCHEMA = "increment_histories"
HISTORIES = int(os.environ.get("SPARKWAP_HISTORIES", "4"))
STEPS = 12
NOW = datetime(2026, 5, 1, tzinfo=UTC)

VERSIONS = """
with versions as (
    select id, p, if(cast(v as string) < '9999-12-31', v, null) as ended,
        lead(p) over (partition by id order by p, v nulls last) as next_valid_from
    from {t}
)
select * from versions where
"""
QUERIES = (
    "select * from {t} where v < 0",
    "select v from {t} where v is null",
    "select id as unique_field, count(*) as n_records from {t} "
    "where id is not null group by id having count(*) > 1",
    "with validation_errors as (select id, p from {t} group by id, p having count(*) > 1) "
    "select * from validation_errors",
    "select id, count(*) as current_versions from {t} "
    "where v is null or cast(v as string) >= '9999-12-31' group by id having count(*) > 1",
    VERSIONS + "next_valid_from is not null and (ended is null or next_valid_from < ended)",
    VERSIONS + "next_valid_from > ended",
    # The table is its own parent.
    "with child as (select v as from_field from {t} where v is not null), "
    "parent as (select id as to_field from {t}) select from_field from child "
    "left join parent on child.from_field = parent.to_field where parent.to_field is null",
)
"""Of tests that may build on earlier results."""

Sql = Callable[[str], list[Any]]


@pytest.fixture(scope="module")
def sql(config: Any, running: RunningCatalog) -> Iterator[Sql]:
    endpoint = running.endpoint(config)
    with hive.connect(endpoint.host, endpoint.thrift_port, username="t", auth="NONE") as session:
        cursor = session.cursor()

        def run(text: str) -> list[Any]:
            cursor.execute(text)
            return list(cursor.fetchall()) if cursor.description else []

        run(f"create namespace if not exists lake.{SCHEMA}")
        run("set `spark.sql.catalog.lake.cache-enabled`=false")
        run("set spark.sql.shuffle.partitions=2")
        yield run


@pytest.fixture(scope="module")
def lake(reader: Reader) -> Iterator[Lake]:
    found = Lake("lake", dict(reader.catalog.properties))
    yield found
    found.close()


class History:
    """A table, and the states on which tests have passed."""

    def __init__(self, sql: Sql, lake: Lake, seed: int) -> None:
        self.random = random.Random(seed)
        self.sql, self.lake, self.name = sql, lake, f"t{seed}"
        self.table = f"lake.{SCHEMA}.{self.name}"
        self.next = 100
        self.passed: dict[str, list[Passed]] = {}
        self.seen: Counter[str] = Counter()
        pick = self.random.choice
        how = {f"write.{what}.mode": self._mode() for what in ("delete", "update", "merge")}
        properties = {
            **how,
            "format-version": pick(["2", "3", "3"]),
            "write.delete.granularity": pick(["file", "partition"]),
            "commit.manifest.min-count-to-merge": pick(["2", "100"]),
        }
        written = ", ".join(f"'{key}'='{value}'" for key, value in properties.items())
        by = pick(["", "partitioned by (p)", "partitioned by (bucket(2, id))"])
        self.log = [f"{by} {written}"]
        sql(f"drop table if exists {self.table}")
        sql(
            f"create table {self.table} (id bigint, v int, p int) using iceberg {by} "
            f"tblproperties({written})"
        )
        sql(f"insert into {self.table} select id, 1, cast(id % 3 as int) from range(12)")

    def compare(self) -> None:
        """Answer each test in both ways."""
        row = self.lake.store.backend.get((SCHEMA, self.name))
        assert row is not None
        document = self.lake.store.load(row.location)
        head = md.main_of(document)
        if head is None:
            return
        changes = Changes(self, document, head)
        for query in (one.format(t=self.table) for one in QUERIES):
            expected = int(self.sql(f"select count(*) from ({query}) as audited")[0][0])
            self.seen["failing"] += expected != 0
            known = self.passed.setdefault(basis(query, [document], []), [])
            for base in known:
                # One by one, because `latest` would always take the newest.
                if latest([base], md.ancestors(document, head)):
                    self._compare(query, changes, base.snapshot, expected)
            if expected == 0:
                known.append(Passed(head, NOW, 0))
                del known[:-3]
        changes.remove()

    def _compare(self, query: str, changes: Changes, base: int, expected: int) -> None:
        changed = changes.since(base, query)
        if changed is None:
            self.seen["whole"] += 1
            return
        found = int(self.sql(statement({0: query}, {0: changed}))[0][1])
        self.seen["compared"] += 1
        self.seen["compared and failing"] += expected != 0
        assert bool(found) == bool(expected), (query, base, changes.head, self.log)

    def step(self) -> None:
        """Change the table."""
        ids = [row[0] for row in self.sql(f"select id from {self.table}")] or [0]
        one, other = self.random.choice(ids), self.random.choice(ids)
        self.next += 5
        what, weight = zip(*self._steps(one, other).items(), strict=True)
        (chosen,) = self.random.choices(what, weight)
        try:
            self.sql(chosen)
            self.log.append(chosen)
        except hive.OperationalError as error:
            # Not every statement fits every table, such as a type that is wide already.
            self.seen["refused"] += 1
            self.log.append(f"refused: {chosen}: {str(error)[:200]}")

    def _steps(self, one: int, other: int) -> dict[str, float]:
        """Statements and their weights."""
        t, new, pick = self.table, self.next, self.random.choice
        of = f"table => '{SCHEMA}.{self.name}'"
        insert = f"insert into {t} (id, v, p) "
        snapshot = pick(self.sql(f"select snapshot_id from {t}.snapshots"))[0]
        return {
            insert + f"select id + {new}, 1, cast(id % 3 as int) from range(3)": 4,
            insert + f"values ({new}, {pick(['-1', 'null'])}, {pick([0, 1, 2])})": 4,
            insert + f"values ({one}, 2, {pick([0, 1, 2])})": 3,
            f"delete from {t} where id in ({one}, {other})": 6,
            f"delete from {t} where v < 0 or v is null": 6,
            f"delete from {t} where id in (select id from {t} group by id having count(*) > 1)": 4,
            f"update {t} set v = {pick(['-1', '3', 'null'])} where id = {one}": 4,
            f"update {t} set id = {other} where id = {one}": 2,
            f"merge into {t} using (select {new}L as id, {pick([-2, 4])} as w) x on {t}.id = x.id "
            "when matched then update set v = w when not matched then insert (id, v, p) values "
            "(x.id, w, 1)": 3,
            f"insert overwrite {t} (id, v, p) values ({one}, 1, 1), ({new}, 2, 2)": 0.7,
            f"call lake.system.rewrite_data_files({of}, options => map('rewrite-all', 'true', "
            f"'use-starting-sequence-number', '{pick(['true', 'false'])}'))": 2,
            f"call lake.system.rewrite_position_delete_files({of}, options => "
            "map('rewrite-all', 'true'))": 2,
            f"call lake.system.rewrite_manifests({of})": 2,
            f"call lake.system.set_current_snapshot({of}, snapshot_id => {snapshot})": 4,
            f"alter table {t} set tblproperties('format-version'='3')": 1,
            f"alter table {t} set tblproperties('write.delete.mode'='{self._mode()}')": 1,
            f"alter table {t} add partition field bucket({new}, id)": 0.7,
            f"alter table {t} add column c{new} int": 0.5,
            f"alter table {t} alter column v type bigint": 0.5,
            f"create or replace table {t} using iceberg as select id, v, p from {t}": 0.3,
        }

    def _mode(self) -> str:
        return self.random.choice(["merge-on-read", "merge-on-read", "copy-on-write"])


class Changes:
    """The private tables of what has changed until a state, each made once."""

    def __init__(self, history: History, document: md.Document, head: int) -> None:
        self.head = head
        self._lake, self._document = history.lake, document
        self._private = PrivateCatalog(history.sql, "lake")
        self._parts: dict[int, list[Part] | None] = {}

    def since(self, base: int, query: str) -> Changed | None:
        if base not in self._parts:
            self._parts[base] = self._made(base)
        parts, form = self._parts[base], form_of(query)
        assert form is not None
        if parts is None:
            return None
        added, lost = parts
        key = form.keys[0] if form.keys else None
        return Changed(*self._found(added, key), *self._found(lost, form.field or key))

    def remove(self) -> None:
        for part in (one for parts in self._parts.values() for one in parts or ()):
            part.remove()

    def _made(self, base: int) -> list[Part] | None:
        old, new = (
            Snapshot(self._lake.store, self._document, md.snapshot(self._document, one) or {})
            for one in (base, self.head)
        )
        common = common_manifests(old, new)
        added = added_files(old.files(common), new.files(common))
        lost = lost_files(old.files(), new.files())
        if added is None or lost is None:
            return None
        return [
            new.part({file.path for file in added}, common),
            old.part({file.path for file in lost}),
        ]

    def _found(self, part: Part, key: str | None) -> tuple[str | None, tuple[int, int] | None]:
        within = key_range(key, self._document, part.bounds) if key else None
        return (self._private.register(part.location) if part.files else None), within


def test_changed_rows_answer_as_all_rows(sql: Sql, lake: Lake) -> None:
    seen: Counter[str] = Counter()
    for seed in range(HISTORIES):
        history = History(sql, lake, seed)
        for _ in range(STEPS):
            history.compare()
            history.step()
        history.compare()
        sql(f"drop table {history.table}")
        seen += history.seen
    print(dict(seen))
    assert seen["refused"] < HISTORIES * STEPS / 10
    assert seen["compared"] > 10 * HISTORIES
    assert seen["compared and failing"] > HISTORIES
