"""Tests that look at the keys of changed rows alone have the verdict of a look at all rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb
import pytest
from helpers.examples import examples
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sparkwap.audits.forms import form_of
from sparkwap.audits.incremental import added_files, lost_files
from sparkwap.audits.shared_statement import Changed, counts_of, statement
from sparkwap.catalog.file_plan import DataFile, DeleteFile, StateFiles

UNIQUE = """
select id as unique_field, count(*) as n_records from s.t
where id is not null group by id having count(*) > 1
"""
COMBINATION = """
with validation_errors as (
    select id, other from s.t group by id, other having count(*) > 1
)
select * from validation_errors
"""
ONE_CURRENT = """
select id, other, count(*) as current_versions
from s.t
where ended_on is null or cast(ended_on as string) >= '9999-12-31'
group by id, other
having count(*) > 1
"""
VERSIONS = """
with versions as (
    select
        id, began,
        if(cast(ended_on as string) < '9999-12-31', ended_on, null) as ended,
        lead(began) over (
            partition by id order by began, ended_on nulls last
        ) as next_valid_from
    from s.t
)
select * from versions where
"""
NO_OVERLAP = (
    f"{VERSIONS} next_valid_from is not null and (ended is null or next_valid_from < ended)"
)
NO_GAP = f"{VERSIONS} next_valid_from > ended"
IN_ORDER = """
select * from s.t
where began is null
    or if(cast(ended_on as string) < '9999-12-31', ended_on, null) <= began
"""
RELATIONSHIPS = """
with child as (select other as from_field from s.t where other is not null),
parent as (select id as to_field from s.p)
select from_field from child left join parent on child.from_field = parent.to_field
where parent.to_field is null
"""
KNOWN = (UNIQUE, COMBINATION, ONE_CURRENT, NO_OVERLAP, NO_GAP, RELATIONSHIPS)
ROWS = "select * from s.t where id is null"
FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "other", "type": "int"},
    {"name": "began", "type": "date"},
    {"name": "ended_on", "type": "date"},
]

Row = tuple[Any, ...]
DAYS = [None, *(dt.date(2026, 1, day) for day in range(1, 6)), dt.date(9999, 12, 31)]
ROW = st.tuples(
    st.sampled_from([None, 1, 2, 3]),
    st.sampled_from([None, 1, 2]),
    st.sampled_from(DAYS[:-1]),
    st.sampled_from(DAYS),
)
STEP = st.tuples(
    st.sampled_from(["append", "delete", "rewrite", "compact"]),
    st.lists(ROW, min_size=1, max_size=3),
    st.sets(st.integers(0, 3), min_size=1, max_size=3),
)


@dataclass(frozen=True)
class Table:
    """A table of Iceberg: rows by file, and the deleted positions."""

    files: dict[str, list[Row]] = field(default_factory=dict)
    deleted: dict[str, frozenset[int]] = field(default_factory=dict)

    def rows(self, paths: Sequence[str] | None = None) -> list[Row]:
        return [
            row
            for path in (self.files if paths is None else paths)
            for at, row in enumerate(self.files[path])
            if at not in self.deleted.get(path, ())
        ]

    def state(self) -> StateFiles:
        data = tuple(DataFile(path, 1, len(rows)) for path, rows in self.files.items())
        deletes = (
            DeleteFile(f"{path}-{len(at)}", 4, path, rows=len(at))
            for path, at in self.deleted.items()
        )
        return StateFiles(data, tuple(deletes))

    def after(self, number: int, what: str, new: list[Row], positions: set[int]) -> Table:
        name = f"{number}-{what}"
        if what == "append":
            return replace(self, files={**self.files, name: new})
        if what == "compact":
            return Table({name: self.rows()})
        first = next(iter(self.files), None)
        if first is None:
            return self
        if what == "delete":
            at = self.deleted.get(first, frozenset()) | positions
            return replace(self, deleted={**self.deleted, first: frozenset(at)})
        others = {path: rows for path, rows in self.files.items() if path != first}
        kept = [row for at, row in enumerate(self.rows([first])) if at not in positions]
        deleted = {path: at for path, at in self.deleted.items() if path != first}
        return Table({**others, name: kept + new}, deleted)


def fill(connection: duckdb.DuckDBPyConnection, name: str, rows: list[Row]) -> None:
    connection.execute(
        f"create or replace table {name} (id int, other int, began date, ended_on date)"
    )
    values = ", ".join(f"({', '.join(map(_literal, row))})" for row in rows)
    if values:
        connection.execute(f"insert into {name} values {values}")


def _literal(value: Any) -> str:
    return "null" if value is None else f"'{value}'"


def count(connection: duckdb.DuckDBPyConnection, sql: str) -> int:
    for spark, duck in (
        ("left semi", "semi"),
        ("left anti", "anti"),
        ("<=>", "is not distinct from"),
    ):
        sql = sql.replace(spark, duck)
    (found,) = counts_of(connection.execute(sql).fetchall()).values()
    return found


@settings(
    max_examples=examples(25),
    phases=[Phase.generate],
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(STEP, min_size=2, max_size=5), st.lists(STEP, min_size=5, max_size=5))
def test_the_changed_keys_answer_as_all_rows(
    steps: list[tuple[str, list[Row], set[int]]], of_parent: list[tuple[str, list[Row], set[int]]]
) -> None:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("create schema s")
    parents: list[Row] = [(key, None, None, None) for key in (1, 2, 3)]
    children: list[Row] = [(key, key, DAYS[key], DAYS[key + 1]) for key in (1, 2)]
    states = [(Table({"c": children}), Table({"a": parents}))]
    for number, (step, other) in enumerate(zip(steps, of_parent, strict=False)):
        child, parent = states[-1]
        states.append((child.after(number, *step), parent.after(number, *other)))
    bases: dict[str, tuple[Table, Table]] = {}
    for child, parent in states:
        fill(connection, "s.t", child.rows())
        fill(connection, "s.p", parent.rows())
        for sql in KNOWN:
            form = form_of(sql)
            assert form is not None
            whole = count(connection, f"select '0', count(*) from ({sql}) as audited")
            if sql in bases:
                changed = _changed(connection, form.parent is not None, bases[sql], (child, parent))
                if changed is not None:
                    assert (count(connection, statement({0: sql}, {0: changed})) == 0) == (
                        whole == 0
                    )
            if whole == 0:
                bases[sql] = (child, parent)


def _changed(
    connection: duckdb.DuckDBPyConnection,
    has_parent: bool,
    before: tuple[Table, Table],
    after: tuple[Table, Table],
) -> Changed | None:
    of = 1 if has_parent else 0
    added = added_files(before[0].state(), after[0].state())
    lost = lost_files(before[of].state(), after[of].state())
    if added is None or lost is None:
        return None
    names: list[Any] = []
    for name, table, files in (("added", after[0], added), ("lost", before[of], lost)):
        fill(connection, name, table.rows([file.path for file in files]))
        names += [name if files else None, None]
    return Changed(*names)


@pytest.mark.parametrize("sql", [*KNOWN, IN_ORDER, ROWS])
def test_they_follow_from_rows_with_these_columns(sql: str) -> None:
    form = form_of(sql)
    assert form is not None
    assert form.follows_from_rows(FIELDS, FIELDS)
    assert not form.follows_from_rows([], FIELDS)
    # Names of functions, and columns that are variables where case counts.
    for name in {one["name"] for one in FIELDS if one["name"] in sql}:
        other = [{**one, "name": one["name"].upper()} for one in FIELDS]
        assert not form.follows_from_rows(other, other), name
    assert form.on("x.y").replace("x.y", "s.t") == sql


@pytest.mark.parametrize(
    ("sql", "name", "kind"),
    [
        # Several keys of the parent may be equal to one.
        (RELATIONSHIPS, "other", "string"),
        (RELATIONSHIPS, "id", "decimal(9,0)"),
        # Spark reads the text `12:00` as a time of today.
        (NO_OVERLAP, "ended_on", "string"),
        (NO_GAP, "began", "string"),
        (IN_ORDER, "ended_on", "string"),
    ],
)
def test_columns_of_two_types_are_read_whole(sql: str, name: str, kind: str) -> None:
    form = form_of(sql)
    fields = [{**one, "type": kind if one["name"] == name else one["type"]} for one in FIELDS]
    assert form is not None
    assert not form.follows_from_rows(fields, fields)


@pytest.mark.parametrize(
    "sql",
    [
        UNIQUE.replace("group by id", "group by ID"),
        COMBINATION.replace("group by id, other", "group by other, id"),
        COMBINATION.replace("> 1", "> 2"),
        COMBINATION.replace("from s.t", "from s.t where id > 1"),
        ONE_CURRENT.replace("or cast", "and cast"),
        ONE_CURRENT.replace("is null or cast(ended_on", "is null or cast(began"),
        NO_OVERLAP.replace("partition by id", "partition by other"),
        NO_OVERLAP.replace("ended_on nulls last", "began nulls last"),
        NO_OVERLAP.replace("lead(began)", "lead(began, 2)"),
        NO_GAP.replace("> ended", "> ended and began > date '2026-01-01'"),
        RELATIONSHIPS.replace("s.p", "(select * from s.p where other > 1)"),
        RELATIONSHIPS.replace("left join", "join"),
        RELATIONSHIPS.replace("child.from_field =", "child.from_field <="),
        RELATIONSHIPS.replace("where other is not null", "where OTHER is not null"),
        RELATIONSHIPS.replace("parent as (", "unused as (select 1), parent as ("),
    ],
)
def test_another_query_has_no_form(sql: str) -> None:
    assert form_of(sql) is None


@pytest.mark.parametrize(
    "sql",
    [
        IN_ORDER.replace("began is null", "ended_on is null"),
        IN_ORDER.replace("<= began", "<= id"),
        IN_ORDER.replace("ended_on, null", "current_date(), null"),
    ],
)
def test_another_condition_with_texts_of_dates_is_read_whole(sql: str) -> None:
    form = form_of(sql)
    assert form is not None
    assert not form.follows_from_rows(FIELDS)


@pytest.mark.parametrize("name", ["true", "NULL", "1", "1e5"])
def test_a_literal_is_no_key_although_a_column_has_its_name(name: str) -> None:
    fields = [{"name": one, "type": "long"} for one in ("id", "true", "NULL", "1", "1e5")]
    form = form_of(COMBINATION.replace("other", name))
    assert form is None or not form.follows_from_rows(fields)
    form = form_of(RELATIONSHIPS.replace("id as to_field", f"{name} as to_field"))
    assert form is None or not form.follows_from_rows(FIELDS, fields)


@pytest.mark.parametrize(
    "change",
    [
        {"type": {"type": "map", "key": "int", "value": "int"}},
        {"type": {"type": "struct", "fields": [{"name": "a", "type": "int"}]}},
        {"initial-default": 5},
    ],
)
def test_keys_that_cannot_be_compared_are_read_whole(change: dict[str, Any]) -> None:
    fields = [{**one, **(change if one["name"] == "other" else {})} for one in FIELDS]
    form = form_of(COMBINATION)
    assert form is not None
    assert form.follows_from_rows(FIELDS)
    assert not form.follows_from_rows(fields)


def test_another_letter_that_is_alike_without_case_is_another_name() -> None:
    dotted = NO_GAP.replace("by id", "by \u0130").replace("id,", "i,")
    assert form_of(dotted) is None
    assert form_of(dotted.replace("\u0130", "i")) is not None
    # To Spark, these are another function, and a table instead of the query's own rows.
    assert form_of(IN_ORDER.replace(" if(", " \u0131f(")) is None
    assert form_of(NO_GAP.replace("* from versions", "* from ver\u017fions")) is None


def test_the_ranges_of_changed_keys_skip_files() -> None:
    changed = Changed("p.new", (1, 9), "p.gone", (4, 20))
    gap = statement({0: NO_GAP}, {0: changed})
    assert "where (present.id between 1 and 20 or present.id is null)" in gap
    overlap = statement({0: NO_OVERLAP}, {0: changed})
    assert "where (present.id between 1 and 20 or present.id is null)" in overlap
    combination = statement({0: COMBINATION}, {0: changed})
    assert "where (present.id between 1 and 9 or present.id is null)" in combination
    assert "p.gone" not in combination
    related = statement({0: RELATIONSHIPS}, {0: changed})
    assert "from s . p as parent where (parent.id between 1 and 9)" in related
    assert "from s . p as parent where (parent.id between 4 and 20)" in related
    assert "from s . t as child where (child.other between 4 and 20)" in related
    only_lost = statement({0: RELATIONSHIPS}, {0: replace(changed, added=None)})
    assert "p.new" not in only_lost
