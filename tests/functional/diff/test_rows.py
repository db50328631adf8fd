"""The diff equals pandas' difference for all layouts, types and kinds of deletes."""

from __future__ import annotations

import pytest

from sparkwap.core.personal import Hidden
from sparkwap.diff.differ import Differ

from .conftest import BRANCH, Desk, Truth

MERGE_ON_READ = (
    "'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read', "
    "'write.merge.mode'='merge-on-read'"
)
PEOPLE = "(id bigint, city string, amount int)"


def rows(first: int, last: int) -> str:
    """Return an insert that writes a file."""
    return (
        "insert into {t} select id, concat('city ', id % 3), cast(id * 2 as int) "
        f"from range({first}, {last}, 1, 1)"
    )


# Name: definition, statements on main, statements on the branch, key, what is to be read.
CASES = {
    "copy_on_write": (
        PEOPLE,
        [rows(0, 10), rows(10, 20), rows(20, 30)],
        [
            "update {t} set city = 'x', amount = amount + 1 where id in (3, 4)",
            "update {t} set amount = null where id = 5",
            "delete from {t} where id = 6",
            "insert into {t} values (99, 'new', 1), (98, null, null)",
        ],
        ("id",),
        "files",
    ),
    "overwritten": (
        PEOPLE,
        [rows(0, 30)],
        ["insert overwrite {t} select id, city, amount from {t} version as of 'main' where id > 1"],
        ("id",),
        "whole",
    ),
    "overwritten_alike": (
        PEOPLE,
        [rows(0, 30)],
        ["insert overwrite {t} select id, city, amount from {t} version as of 'main'"],
        ("id",),
        "whole",
    ),
    "merge_on_read": (
        f"{PEOPLE} tblproperties ('format-version'='2', {MERGE_ON_READ})",
        [rows(0, 20), rows(20, 40), "delete from {t} where id in (1, 2, 25)"],
        [
            "delete from {t} where id in (3, 26)",
            "update {t} set city = 'x' where id = 4",
            "insert into {t} values (99, 'new', 1)",
        ],
        ("id",),
        "files",
    ),
    "deletion_vectors": (
        f"{PEOPLE} tblproperties ('format-version'='3', {MERGE_ON_READ})",
        [rows(0, 20), rows(20, 40), "delete from {t} where id in (1, 2, 25)"],
        [
            "delete from {t} where id in (3, 26)",
            "update {t} set city = 'x' where id = 4",
            "insert into {t} values (99, 'new', 1)",
        ],
        ("id",),
        "files",
    ),
    "loose_deletes": (
        f"{PEOPLE} tblproperties ('format-version'='2', {MERGE_ON_READ}, "
        "'write.delete.granularity'='partition')",
        [rows(0, 20), rows(20, 40)],
        ["delete from {t} where id in (3, 26)"],
        ("id",),
        "whole",
    ),
    "partitions_evolved": (
        f"{PEOPLE} partitioned by (city)",
        [
            rows(0, 20),
            "alter table {t} add partition field bucket(4, id)",
            rows(20, 40),
            "alter table {t} drop partition field city",
        ],
        ["delete from {t} where city = 'city 1' and id < 20", rows(50, 55)],
        ("id",),
        "files",
    ),
    "no_key_duplicates": (
        PEOPLE,
        [rows(0, 5), rows(0, 5), rows(0, 3)],
        [
            "delete from {t} where id = 4",
            "insert into {t} values (0, 'city 0', 0), (0, 'city 0', 0), (null, null, null)",
            "insert into {t} values (null, null, null)",
        ],
        (),
        "files",
    ),
    "key_not_unique": (
        PEOPLE,
        ["insert into {t} values (1, 'a', 1), (1, 'b', 1), (2, 'c', 1), (null, 'd', 1)"],
        ["insert overwrite {t} values (1, 'a', 2), (1, 'b', 2), (2, 'c', 2), (null, 'd', 2)"],
        ("id",),
        "whole",
    ),
    "nulls_change_places": (
        "(id bigint, a int, b int)",
        ["insert into {t} values (1, null, 7), (2, 7, null), (3, null, null)"],
        ["insert overwrite {t} values (1, 7, null), (2, null, 7), (3, null, null)"],
        ("id",),
        "whole",
    ),
    "nested": (
        "(id int, l array<int>, m map<string, int>, s struct<x: int, y: array<string>>)",
        [
            "insert into {t} values "
            "(1, array(1, null), map('a', 1, 'b', 2), named_struct('x', 1, 'y', array('p'))), "
            "(2, array(), map('a', null), named_struct('x', null, 'y', array())), "
            "(3, null, null, null), "
            "(4, array(1, 2), map('a', 1), named_struct('x', 1, 'y', array('ab', 'c')))"
        ],
        [
            "insert overwrite {t} values "
            "(1, array(null, 1), map('b', 2, 'a', 1), named_struct('x', 1, 'y', array('p'))), "
            "(2, null, map(), named_struct('x', null, 'y', null)), "
            "(3, array(), null, named_struct('x', null, 'y', null)), "
            "(4, array(1, 2), map('a', 1), named_struct('x', 1, 'y', array('a', 'bc')))"
        ],
        ("id",),
        "whole",
    ),
    "types": (
        "(id int, b binary, d date, n decimal(20, 4), f double, t timestamp, w timestamp_ntz)",
        [
            "insert into {t} values "
            "(1, X'00', date'2020-01-01', 1.5, double('nan'), "
            "timestamp'2020-01-01 00:00:00.000001', timestamp_ntz'2020-01-01 00:00:00'), "
            "(2, X'01', date'2020-01-01', 1.5, 0.0, timestamp'2020-01-01 00:00:00.000001',"
            " timestamp_ntz'2020-01-01 00:00:00')"
        ],
        [
            "insert overwrite {t} values "
            "(1, X'00', date'2020-01-01', 1.5, double('nan'), "
            "timestamp'2020-01-01 00:00:00.000001', timestamp_ntz'2020-01-01 00:00:00'), "
            "(2, X'0100', date'2020-01-02', 1.5001, 0.1, timestamp'2020-01-01 00:00:00.000002',"
            " timestamp_ntz'2020-01-01 00:00:00.000001')"
        ],
        ("id",),
        "whole",
    ),
    "emptied": (PEOPLE, [rows(0, 5)], ["delete from {t} where true"], ("id",), "whole"),
    "first_rows": (PEOPLE, [], [rows(0, 5)], ("id",), "whole"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_diff_equals_the_difference_by_pandas(desk: Desk, name: str) -> None:
    definition, main, changes, key, how = CASES[name]
    desk.table(name, definition, *main)
    desk.branch(name, *changes)
    found = desk.diff(name, *key)
    if main:
        # The entries of a map have no order.
        shown = {"m": "array_sort(map_entries(m))"} if name == "nested" else {}
        assert Truth.told(found) == desk.truth(name, *key, **shown)
    else:
        assert Truth.told(found) == Truth(5, 0)
    assert found.how == how
    assert found.change == ("unchanged" if name == "overwritten_alike" else "changed")


def test_samples_show_differences_without_hidden_values(desk: Desk) -> None:
    name = desk.table("samples", PEOPLE, rows(0, 10))
    desk.branch(
        name,
        "update {t} set city = 'x' where id = 3",
        "delete from {t} where id = 4",
        "insert into {t} values (77, null, 5)",
    )
    found = desk.diff(name, "id")
    assert [(s.change, s.before, s.after) for s in found.samples] == [
        ("removed", {"id": "4", "city": "city 1", "amount": "8"}, None),
        ("added", None, {"id": "77", "city": None, "amount": "5"}),
        ("changed", {"id": "3", "city": "city 0"}, {"id": "3", "city": "x"}),
    ]
    hidden = desk.diff(name, "id", hidden=Hidden(frozenset({"city"})))
    assert hidden.hidden == ("city",) and hidden.columns == {"city": 1}
    assert [(s.before, s.after) for s in hidden.samples] == [
        ({"id": "4", "amount": "8"}, None),
        (None, {"id": "77", "amount": "5"}),
        ({"id": "3"}, {"id": "3"}),
    ]
    assert not [s for s in desk.statements if "cast(a.c1" in s or "cast(b.c1" in s]
    # Without a key, rows are only added and removed.
    plain = desk.diff(name)
    assert (plain.added, plain.removed, len(plain.samples)) == (2, 2, 4)


def test_an_unchanged_table_needs_no_statement(desk: Desk) -> None:
    name = desk.table("untouched", PEOPLE, rows(0, 10))
    desk.branch(name)
    found = desk.diff(name, "id")
    assert (found.change, found.how) == ("unchanged", "metadata")
    assert desk.statements == []
    # A commit without a change.
    desk.branch(name, "insert into {t} select * from {t} where false")
    assert desk.diff(name, "id").change == "unchanged"
    assert desk.statements == []


def test_an_integer_equals_the_same_number_as_a_double(desk: Desk) -> None:
    name = desk.table(
        "numbers",
        "(id int, n bigint)",
        "insert into {t} values (1, 7), (2, 9007199254740993), (3, null), "
        "(4, 9223372036854775807), (5, 8)",
    )
    desk.clone(
        name,
        "create or replace table {t} using iceberg as select * from values (1, 7D), "
        "(2, 9007199254740992D), (3, null), (4, 9223372036854775807D), (5, 8.5D) as t(id, n)",
    )
    found = desk.diff(name, "id")
    # A double has no 2^53 + 1, and its next number after the greatest bigint is another one.
    assert (found.changed, found.columns) == (3, {"n": 3})
    assert not any("as text" in note for note in found.notes)


def test_added_removed_and_retyped_columns(desk: Desk) -> None:
    name = desk.table("columns", PEOPLE, rows(0, 6))
    desk.clone(
        name,
        "alter table {t} add column note string",
        "alter table {t} drop column city",
        "alter table {t} alter column amount type bigint",
    )
    found = desk.diff(name, "id")
    # The files are those of main; only the columns differ.
    assert (found.rows, found.how) == (0, "metadata")
    assert [(c.name, c.nulls, c.values) for c in found.schema.added] == [("note", 6, 0)]
    assert [c.name for c in found.schema.removed] == ["city"]
    assert [(c.name, c.before, c.after) for c in found.schema.retyped] == [
        ("amount", "int", "bigint")
    ]
    desk.clone(
        name,
        "update {t} set note = 'n', amount = amount + 5000000000 where id = 2",
        "insert into {t} values (9, 1, 'm')",
    )
    found = desk.diff(name, "id")
    assert (found.added, found.removed, found.changed) == (1, 0, 1)
    assert found.columns == {"amount": 1}
    assert [(c.name, c.nulls, c.values) for c in found.schema.added] == [("note", 5, 2)]


def test_columns_with_swapped_names_are_other_columns(desk: Desk) -> None:
    name = desk.table("swapped", "(id bigint, a int, b int)", "insert into {t} values (1, 2, 3)")
    desk.clone(
        name,
        "alter table {t} rename column a to c",
        "alter table {t} rename column b to a",
        "alter table {t} rename column c to b",
    )
    found = desk.diff(name, "id")
    assert (found.changed, found.columns, found.how) == (1, {"a": 1, "b": 1}, "whole")


def test_a_renamed_column_keeps_its_values(desk: Desk) -> None:
    name = desk.table("renamed", PEOPLE, rows(0, 6))
    desk.clone(
        name,
        "alter table {t} rename column city to town",
        "update {t} set town = 'x' where id = 2",
    )
    found = desk.diff(name, "id")
    assert [(c.before, c.after) for c in found.schema.renamed] == [("city", "town")]
    assert (found.changed, found.columns) == (1, {"town": 1})


def test_a_view_that_fails_leaves_no_files(desk: Desk) -> None:
    side = f"{desk.schema}__{BRANCH}"
    desk.lake.ensure_schema(side, BRANCH)
    desk.sql(f"create view {desk.schema}.v as select id, 1L as n from range(3)")
    desk.sql(f"create view {side}.v as select id, 1 div (id - 1) as n from range(3)")
    left = desk.left()
    # The view of the branch may be read before or after the view of main.
    for pair in ((BRANCH, "main"), ("main", BRANCH)):
        differ = Differ(desk.lake, desk.sql)
        (found,) = differ.compare(*pair, tables=[f"{desk.schema}.v"]).tables
        assert found.change == "failed"
        assert "DIVIDE_BY_ZERO" in found.notes[0]
        assert desk.left() == left
    desk.sql(f"create or replace view {side}.v as select id, if(id = 1, 2L, 1L) as n from range(3)")
    found = desk.diff("v", "id")
    assert Truth.told(found) == Truth(0, 0, 1, {"n": 1})
    assert [(s.before, s.after) for s in found.samples] == [
        ({"id": "1", "n": "1"}, {"id": "1", "n": "2"})
    ]
