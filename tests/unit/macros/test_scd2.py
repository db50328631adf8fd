"""The macros of histories, rendered without dbt and Spark, and the types that they ask for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import pytest

from sparkwap.cdc.event_sql import absent_column
from sparkwap.cdc.widening import Widening
from sparkwap.landing.row_sql import checked, plain_cast

FOLDER = Path(__file__).parents[3] / "macros" / "scd2"


class Refused(Exception):
    """What dbt's compiler errors are here."""


def refuse(message: str) -> None:
    raise Refused(message)


@pytest.fixture(scope="module")
def macros() -> Any:
    """The macros of all files, by name."""
    text = "\n".join(path.read_text() for path in sorted(FOLDER.glob("*.sql")))
    environment = jinja2.Environment(extensions=["jinja2.ext.do"])
    environment.globals |= {
        "adapter": SimpleNamespace(
            quote=lambda name: f"`{name}`",
            wap=SimpleNamespace(
                plain_cast=plain_cast, checked_cast=checked, absent_column=absent_column
            ),
        ),
        "exceptions": SimpleNamespace(raise_compiler_error=refuse),
    }
    # dbt's own `return`; what these macros return is not looked at in a render.
    environment.globals["return"] = lambda value: value
    return environment.from_string(text).module


def words(sql: str) -> str:
    return " ".join(sql.split())


def test_a_column_is_left_out_where_what_it_is_made_of_is(macros: Any) -> None:
    sql = words(macros.change_events("log", {"name": "concat(first, ' ', last)", "id": "id"}))
    assert "concat(first, ' ', last) as `name`" in sql
    assert "if(exists(_absent, one -> lower(one) in ('first', 'last')), 'name', null)" in sql
    assert sql.endswith("from log where _kind = 'row' or (_kind = 'file' and _load = 'full')")


@pytest.mark.parametrize(
    ("expression", "columns"),
    [
        ("`größe` || `a``b`", "'a`b', 'größe'"),
        ("`first name`", "'first name'"),
        ("größe", "'größe'"),
        ("cast(ordered as date)", "'ordered'"),
        ("cast(Amount as decimal(10, 2))", "'amount'"),
        ("try_cast(a as struct<date: int, b: map<int, date>>).date + b", "'a', 'b', 'date'"),
        ("coalesce(nick, 'name', \"city\", r'town')", "'nick'"),
        ("day::date > date '2024-01-01'", "'day'"),
        ("struct(a as b, c as d)", "'a', 'c'"),
        ("a -- b\n + /* c */ 1", "'a'"),
        ("'one'", "''"),
    ],
)
def test_a_column_is_made_of_the_names_in_its_sql(expression: str, columns: str) -> None:
    assert absent_column("it's", expression) == (
        f"if(exists(_absent, one -> lower(one) in ({columns})), 'it\\'s', null)"
    )


def test_absent_columns_are_not_looked_for_where_there_are_none(macros: Any) -> None:
    assert "_absent" not in macros.change_events("log", {"id": "id"}, partial=False)


def test_a_history_from_snapshots_compares_times_with_microseconds(macros: Any) -> None:
    sql = words(macros.scd2_from_changes("s.t", "id", ["name", "seen_at"]))
    assert "to_json( struct(name, seen_at), map( 'timestampFormat', '" in sql
    assert sql.count(".SSSSSS") == 2


def test_a_history_from_snapshots_has_the_keys_that_no_snapshot_has_changed(macros: Any) -> None:
    sql = words(macros.scd2_from_changes("s.t", "id", ["name"]))
    assert "cast(null as timestamp) as _committed_at from s.t )" in sql
    assert "if(_oldest, _since, _committed_at) ) as _at" in sql
    by_column = words(macros.scd2_from_changes("s.t", "id", ["name"], valid_from="at"))
    assert by_column.count("at as _from") == 2 and "_committed_at, _from ) as _at" in by_column


def test_a_plain_cast_rounds_nothing(macros: Any) -> None:
    columns = {
        "n": "cast(n as bigint)",
        "p": "cast(`p` as decimal(10, 2))",
        "q": "cast(p as int)*2",
    }
    sql = words(macros.change_events("log", columns))
    assert "cast(n as bigint) as `n`" in sql
    assert "cast(p as int)*2 as `q`" in sql
    assert f"{checked('`p`', 'decimal(10, 2)', 'p')} as `p`" in sql
    assert "raise_error('Values of column p have more decimal places than decimal(10, 2)" in sql


COLUMNS = {"id": "cast(id as bigint)", "size": "cast(`size` as int)",
           "price": "cast(p as decimal(10, 2))", "double": "cast(size as int) * 2"}  # fmt: skip


class Build:
    """A build of a model whose table has some types, over values that are counted."""

    def __init__(self, standing: dict[str, str] | None, counts: list[int]) -> None:
        self.asked: list[str] = []
        self.told: list[str] = []
        self._counts = counts
        self._widening = Widening(standing or {}, self._answer, self.told.append)
        self.typed = self._widening.typed

    def events(self, table: str | None = "dim") -> dict[str, str]:
        casts = {n: cast for n, sql in COLUMNS.items() if (cast := plain_cast(sql))}
        return self._widening.events(COLUMNS, casts, "log", table)

    def _answer(self, sql: str) -> list[int]:
        if ".files" in sql:
            return [7, 0]
        self.asked.append(sql)
        return self._counts


def test_a_column_gets_the_wider_type_that_new_values_need() -> None:
    build = Build({"id": "bigint", "size": "int", "price": "decimal(10,2)"}, [3, 0])
    found = build.events()
    assert found == {**COLUMNS, "size": "cast(`size` as bigint)"}
    assert build.asked == [
        "select count_if(`size` is not null and try_cast(`size` as int) is null), "
        "count_if(p is not null and try_cast(p as decimal(10, 2)) is null) "
        "from log where _kind = 'row' and _batch > 7"
    ]
    assert build.told == ["column size: 3 values do not fit int; its type is now bigint"]


def test_a_column_that_is_wider_stays_so() -> None:
    build = Build({"id": "bigint", "size": "bigint", "price": "decimal(38,2)"}, [])
    found = build.events()
    assert (found["size"], found["price"]) == ("cast(`size` as bigint)", "cast(p as decimal(38,2))")
    assert (build.asked, build.told) == ([], [])


def test_a_build_of_all_rows_asks_the_whole_log() -> None:
    build = Build(None, [0, 1])
    assert build.events(table=None) == {**COLUMNS, "price": "cast(p as decimal(38,2))"}
    assert build.asked[0].endswith("_batch > -1")


@pytest.mark.parametrize(
    ("standing", "given", "count", "kind"),
    [
        ("int", ("n", "int", "orders"), 2, "bigint"),
        ("int", ("n", "int", "orders"), 0, "int"),
        ("decimal(38,2)", ("sum", "decimal(10,2)", "orders"), None, "decimal(38,2)"),
        ("string", ("x", "string", "orders"), None, "string"),
    ],
)
def test_an_exact_cast_gets_the_wider_type_that_values_need(
    standing: str, given: tuple[str, str, str], count: int | None, kind: str
) -> None:
    build = Build({"orders": standing}, [] if count is None else [count])
    assert build.typed(*given, "state") == kind
    if count is not None:
        assert build.asked == [
            "select count_if(`n` is not null and try_cast(`n` as int) is null) "
            "from state where not _is_deleted"
        ]
    told = ["column n: 2 values do not fit int; its type is now bigint"]
    assert build.told == (told if count else [])


@pytest.mark.parametrize(
    ("expire", "end"), [("next_start", "h.ended"), ("day_before", "date_add(h.ended, 1)")]
)
def test_the_end_of_a_version_belongs_to_it_or_not(macros: Any, expire: str, end: str) -> None:
    sql = words(macros.scd2_valid_at("at", "h", "began", "ended", expire))
    assert sql == f"(h.began <= at and (h.ended is null or at < {end}))"
    with pytest.raises(Refused, match="legal values: next_start, day_before"):
        macros.scd2_valid_at("at", "h", expire="later")


def test_a_join_says_which_kinds_there_are(macros: Any) -> None:
    with pytest.raises(Refused, match="how is 'left'; legal values: outer, inner"):
        macros.scd2_join("id", [], how="left")
