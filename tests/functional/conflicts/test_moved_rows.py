"""Rows that a candidate deletes in files that were compacted meanwhile (format version 3)."""

from __future__ import annotations

import random
import uuid

from helpers.lake import Reader, SparkReader

from sparkwap.catalog import Candidate
from sparkwap.publish.lake import Lake

BRANCH = "wap_moved"
PROPERTIES = {
    "format-version": "3",
    "write.wap.enabled": "true",
    **{f"write.{what}.mode": "merge-on-read" for what in ("delete", "update", "merge")},
}
COPY = {f"write.{what}.mode": "copy-on-write" for what in ("delete", "update", "merge")}


class Table:
    """A table of merge-on-read, which Spark writes and PyIceberg reads."""

    def __init__(self, reader: Reader, spark: SparkReader, name: str, **properties: str) -> None:
        self.reader, self.spark, self.name = reader, spark, name
        self.lake = Lake("lake", dict(reader.catalog.properties))
        self.lake.ensure_schema("moved")
        listed = ", ".join(
            f"'{key}' = '{value}'" for key, value in (PROPERTIES | properties).items()
        )
        spark.run(
            f"create table lake.moved.{name} (id bigint, part string, v double, tags array<string>)"
            f" using iceberg partitioned by (part) tblproperties ({listed})"
        )

    def write(self, statement: str, branch: str | None = None) -> None:
        """Send a statement, in which ``{t}`` is the table."""
        place = f"lake.moved.{self.name}"
        self.spark.run(statement.format(t=f"{place}.branch_{branch}" if branch else place))

    def add(self, rows: list[int], branch: str | None = None) -> None:
        values = ", ".join(
            f"({n}, '{'ab'[n % 2]}', {n / 4 if n % 5 else 'null'}, array('x{n % 3}'))" for n in rows
        )
        self.write(f"insert into {{t}} values {values}", branch)

    def compact(self, where: str | None = None) -> None:
        chosen = f', where => "{where}"' if where else ""
        self.spark.run(
            f"call lake.system.rewrite_data_files(table => 'moved.{self.name}'{chosen}, "
            "options => map('rewrite-all', 'true'))"
        )

    def row_ids(self) -> dict[int, int]:
        """The ids of rows on main, by ``id``."""
        found = self.spark.rows(f"select id, _row_id from lake.moved.{self.name}")
        assert len({one[1] for one in found}) == len(found)
        return {one[0]: one[1] for one in found}

    def rows(self, branch: str = "main") -> list[str]:
        table = self.reader.catalog.load_table(("moved", self.name))
        snapshot = table.metadata.refs[branch].snapshot_id
        return sorted(map(str, table.scan(snapshot_id=snapshot).to_arrow().to_pylist()))

    def open(self) -> int | None:
        return self.lake.branches.open(("moved", self.name), BRANCH).base

    def moved(self, base: int | None) -> Candidate | None:
        """The candidate of the branch on the present main."""
        state = self.lake.state(("moved", self.name))
        assert state is not None
        head = state.refs[BRANCH].snapshot_id
        candidate = Candidate(("moved", self.name), BRANCH, "branch", base, token=str(head))
        return self.lake.branches.cherry_pick(candidate)

    def publish(self, candidate: Candidate) -> None:
        run = str(uuid.uuid4())
        self.lake.publishing.publish(
            [candidate], run_id=run, tag=f"wap_pub_{run[:8]}", tag_max_age_ms=None, branch=BRANCH
        )


def test_any_change_gives_the_audited_rows(reader: Reader, spark: SparkReader) -> None:
    for seed in range(8):
        draw = random.Random(seed)
        table = Table(reader, spark, f"any_{seed}")
        for n in range(draw.randint(2, 4)):
            # Some rows are equal.
            table.add([draw.randrange(n * 4, n * 4 + 8) for _ in range(draw.randint(2, 6))])
        if draw.random() < 0.4:
            table.write("delete from {t} where id % 7 = 1")
        if draw.random() < 0.4:
            # So rows have ids that are written beside them.
            table.compact()
            table.add([draw.randrange(20) for _ in range(3)])
        base = table.open()
        for n in range(draw.randint(1, 3)):
            k = draw.randrange(20)
            kind = draw.randrange(4)
            if kind == 0:
                table.write(f"delete from {{t}} where id in ({k}, {k + 1})", BRANCH)
            elif kind == 1:
                table.write(f"update {{t}} set v = {n} where id % 5 = {k % 5}", BRANCH)
            elif kind == 2:
                table.write(
                    "merge into {t} t using (select id, 'b' as part from "
                    f"range({k}, {k + 4})) s on t.id = s.id "
                    f"when matched then update set t.v = {n}.5 when not matched then insert "
                    "(id, part, v, tags) values (s.id, s.part, 0, array())",
                    BRANCH,
                )
            else:
                table.add([100 + k], BRANCH)
        audited, before = table.rows(BRANCH), table.rows()
        table.compact(draw.choice([None, "part = 'a'"]))
        assert table.rows() == before
        candidate = table.moved(base)
        assert candidate is not None, seed
        # Readers see nothing of it yet.
        assert table.rows() == before
        table.publish(candidate)
        assert table.rows() == audited, seed
        name = f"lake.moved.{table.name}"
        ((count, ids),) = spark.rows(f"select count(*), count(distinct _row_id) from {name}")
        assert count == ids == len(audited)
        # Spark goes on from there: it deletes the rest by vectors, and compacts.
        table.write("delete from {t} where id % 2 = 0")
        table.compact()
        assert len(table.rows()) == spark.rows(f"select count(*) from {name}")[0][0]


def test_rows_of_an_upgraded_table_keep_their_ids(reader: Reader, spark: SparkReader) -> None:
    """Files of format version 2 have ids by their order in a manifest only."""
    table = Table(reader, spark, "upgraded", **{"format-version": "2", **COPY})
    # One manifest of files of the parts a and c; two of part b.
    table.write("insert into {t} values (1, 'a', 0, array()), (3, 'c', 0, array())")
    table.add([5])
    table.add([7])
    spark.run("alter table lake.moved.upgraded set tblproperties ('format-version' = '3')")
    table.add([4])
    known = table.row_ids()
    base = table.open()
    table.write("delete from {t} where id = 1", BRANCH)
    table.compact("part = 'b'")
    candidate = table.moved(base)
    if candidate is not None:
        table.publish(candidate)
    assert table.row_ids().items() <= known.items()
    assert candidate is None


def test_rows_that_a_run_has_changed_twice_are_built_again(
    reader: Reader, spark: SparkReader
) -> None:
    """The second statement copies rows of the first, as rows from before the compaction."""
    table = Table(reader, spark, "twice", **COPY)
    table.add([1, 2, 3, 4])
    table.add([5])
    base = table.open()
    table.write("update {t} set v = 9 where id = 2", BRANCH)
    table.write("update {t} set v = 9 where id = 4", BRANCH)
    table.compact("part = 'b'")
    assert table.moved(base) is None
    table.lake.branches.discard(BRANCH)
    # With one statement, all rows that it has changed come after the compaction.
    table.add([7])
    base = table.open()
    table.write("update {t} set v = 8 where id in (2, 4)", BRANCH)
    table.compact("part = 'b'")
    main = table.reader.catalog.load_table(("moved", "twice")).current_snapshot()
    candidate = table.moved(base)
    assert candidate is not None
    table.publish(candidate)
    later = f"_last_updated_sequence_number > {main.sequence_number}"
    found = spark.rows(f"select id from lake.moved.twice where {later}")
    assert [one[0] for one in found] == [2, 4]
