"""The diff of copy-on-write tables with row lineage compares only rows that changed."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from sparkwap.diff import sources
from sparkwap.diff.differ import Differ

from .conftest import Desk, Truth

PEOPLE = "(id bigint, city string, amount int) using iceberg tblproperties ('format-version'='{v}')"
LATEST = PEOPLE.format(v=3)
SCATTERED = [
    "update {t} set amount = amount + 1 where id % 10 = 3",
    "delete from {t} where id % 10 = 4",
]


def rows(first: int, last: int) -> str:
    return (
        "insert into {t} select id, concat('city ', id % 3), cast(id * 2 as int) "
        f"from range({first}, {last}, 1, 1)"
    )


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows count as many."""
    monkeypatch.setattr(sources, "_AT_ONCE", 0)


# Name: definition, statements on main, statements on the branch, what is to be compared.
CASES = {
    "scattered": (LATEST, [rows(0, 40), rows(40, 80)], SCATTERED, "rows"),
    "some_files": (LATEST, [rows(0, 40), rows(40, 80)], [f"{SCATTERED[0]} and id < 40"], "rows"),
    "changed_twice": (LATEST, [rows(0, 80)], [*SCATTERED, *SCATTERED, rows(90, 95)], "rows"),
    "changed_before": (LATEST, [rows(0, 80), *SCATTERED], SCATTERED[:1], "rows"),
    "changed_to_the_same": (
        LATEST,
        [rows(0, 80)],
        ["update {t} set amount = amount where id > 3"],
        "rows",
    ),
    "only_deleted": (LATEST, [rows(0, 80)], SCATTERED[1:], "rows"),
    "merged": (
        LATEST,
        [rows(0, 40), rows(40, 80)],
        [
            "merge into {t} as t using (select id * 9 as id, 'm' as city, 1 as amount "
            "from range(12)) as s on t.id = s.id when matched and s.id = 9 then delete "
            "when matched then update set * when not matched then insert *"
        ],
        "rows",
    ),
    "overwritten": (
        LATEST,
        [rows(0, 40)],
        ["insert overwrite {t} select id, city, amount from {t} version as of 'main' where id > 1"],
        "files",
    ),
    "duplicates": (LATEST, [rows(0, 40), rows(0, 40), rows(0, 5)], SCATTERED, "rows"),
    "partitioned": (
        LATEST.replace(" tbl", " partitioned by (city) tbl"),
        [rows(0, 40), rows(40, 80)],
        [*SCATTERED, "update {t} set city = 'city 1' where id % 10 = 5"],
        "rows",
    ),
    "many_ids": (LATEST, [rows(0, 100_000), rows(100_000, 150_000)], SCATTERED, "rows"),
    # Names that Spark could take for those of the query.
    "names": (
        LATEST.replace("city string", "r struct<_row_id: bigint>, k struct<bits: bigint>"),
        [
            "insert into {t} select id, named_struct('_row_id', 79 - id), "
            "named_struct('bits', 0L), cast(id as int) from range(0, 80, 1, 1)"
        ],
        SCATTERED,
        "rows",
    ),
    "name_of_an_id": (
        LATEST.replace("city string", "_LAST_UPDATED_SEQUENCE_NUMBER bigint"),
        [rows(0, 80).replace("concat('city ', id % 3)", "0L")],
        SCATTERED,
        "whole",
    ),
    # Without row ids, or without proof, all rows of the files are compared.
    "format_2": (PEOPLE.format(v=2), [rows(0, 80)], SCATTERED, "whole"),
    "upgraded": (
        PEOPLE.format(v=2),
        [rows(0, 80), "alter table {t} set tblproperties ('format-version'='3')"],
        SCATTERED,
        "files",
    ),
    "upgraded_and_committed": (
        PEOPLE.format(v=2),
        [
            rows(0, 80),
            "alter table {t} set tblproperties ('format-version'='3')",
            rows(80, 90),
        ],
        SCATTERED,
        "files",  # the manifests of version 2 have no place for row ids
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_diff_equals_the_difference_by_pandas(desk: Desk, name: str) -> None:
    definition, main, changes, how = CASES[name]
    desk.table(name, definition, *main)
    desk.branch(name, *changes)
    key = () if name == "duplicates" else ("id",)
    found = desk.diff(name, *key)
    assert Truth.told(found) == desk.truth(name, *key)
    assert found.how == how


def test_a_compaction_after_the_changes_keeps_the_ids(desk: Desk) -> None:
    full = f"{desk.schema}.{desk.table('compacted', LATEST, rows(0, 40), rows(40, 80))}"
    before = desk.sql(f"select * from {full}")
    desk.sql(f"alter table {full} create tag was")
    desk.run(full, *SCATTERED, rows(90, 95))
    compact = (
        f"call lake.system.rewrite_data_files('{full}', options => map('rewrite-all', 'true'))"
    )
    assert desk.sql(compact)[0][0] > 1
    differ = Differ(desk.lake, desk.sql, keys={(desk.schema, "compacted"): ("id",)})
    (found,) = differ.compare("main", "was", [full]).tables
    after = desk.sql(f"select * from {full}")
    assert Truth.told(found) == Truth.of(before, after, ("id", "city", "amount"), ("id",))
    assert (found.how, found.changed, found.removed) == ("rows", 8, 8)


def test_an_old_file_that_is_added_again_has_no_ids_of_its_own(desk: Desk, tmp_path: Path) -> None:
    full = f"{desk.schema}.{desk.table('added', LATEST, rows(0, 40))}"
    desk.run(full, "update {t} set amount = -2 where id = 3")
    ((path,),) = desk.sql(f"select file_path from {full}.data_files")
    shutil.copy(path.removeprefix("file:"), tmp_path)
    desk.run(full, "update {t} set amount = -3 where id = 5")
    before = desk.sql(f"select * from {full}")
    desk.sql(f"alter table {full} create tag earlier")
    desk.run(full, "delete from {t} where id = 39", "delete from {t} where true")
    source = f"`parquet`.`{tmp_path}`"
    desk.sql(f"call lake.system.add_files(table => '{full}', source_table => '{source}')")
    desk.run(full, "update {t} set amount = 9 where id = 7")
    (found,) = Differ(desk.lake, desk.sql).compare("main", "earlier", [full]).tables
    after = desk.sql(f"select * from {full}")
    assert Truth.told(found) == Truth.of(before, after, ("id", "city", "amount"))
    assert found.added == found.removed == 2


@pytest.mark.parametrize("seed", range(6))
def test_any_changes(desk: Desk, seed: int) -> None:
    chance = random.Random(seed)
    kinds = [
        "update {t} set amount = coalesce(amount, 0) + 1 where id % {a} = {b}",
        "delete from {t} where id % {a} = {b}",
        "update {t} set city = null where id % {a} = {b}",
        "insert into {t} select id + {b}, 'new', 1 from range({a})",
        "merge into {t} as t using (select id * {b} as id, 'm' as city, {a} as amount "
        "from range({a})) as s on t.id = s.id when matched then update set * "
        "when not matched then insert *",
        "insert overwrite {t} select id, city, amount from {t} where id % {a} <> {b}",
    ]

    def changes(count: int) -> list[str]:
        return [
            chance.choice(kinds).replace("{a}", str(a)).replace("{b}", str(chance.randrange(1, a)))
            for a in (chance.randrange(3, 12) for _ in range(count))
        ]

    name = f"any_{seed}"
    desk.table(name, LATEST, rows(0, 60), rows(60, 90), *changes(chance.randrange(4)))
    desk.branch(name, *changes(chance.randrange(1, 5)))
    for key in ((), ("id",)):
        assert Truth.told(desk.diff(name, *key)) == desk.truth(name, *key)
