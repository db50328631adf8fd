from dataclasses import dataclass, field, replace

import pytest

from sparkwap.gate.placement import (
    BuildPlan,
    Desired,
    decide_build,
    in_place,
    is_exact,
    partition_term,
    sort_term,
    stored_type,
)


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    required: bool = False
    doc: str | None = None


@dataclass(frozen=True)
class Table:
    columns: tuple[Column, ...] = (Column("id", "bigint", True, "the key"), Column("price", "int"))
    partitioning: tuple[str, ...] = ("days(ts)", "region")
    sort_order: tuple[str, ...] = ("id asc nulls first",)
    properties: dict[str, str] = field(default_factory=lambda: {"write.wap.enabled": "true"})
    format_version: int = 2
    comment: str | None = "policies"


SAME = Desired(
    columns=(("id", "bigint", False, "the key"), ("price", "int", True, "")),
    partitioning=("day(`ts`)", "identity(region)"),
    sort_order=("id",),
    properties={"write.wap.enabled": True, "format-version": 2, "comment": "policies"},
    format_version=2,
    comment="policies",
)


def changes(**desired: object) -> tuple[str, ...]:
    plan = decide_build(Table(), replace(SAME, **desired))  # type: ignore[arg-type]
    assert plan.where == ("clone" if plan.changes else "branch")
    return plan.changes


def test_a_missing_table_is_new() -> None:
    assert decide_build(None, SAME) == BuildPlan("new", ())


def test_an_unchanged_table_is_built_on_a_branch() -> None:
    assert decide_build(Table(), SAME) == BuildPlan("branch", ())
    assert decide_build(Table(), Desired()) == BuildPlan("branch", ())


def test_columns() -> None:
    assert changes(
        columns=(
            ("ID", "BIGINT", True, "a key"),
            ("price", "decimal(10, 2)", False, None),
            ("vat", "int", None, None),
        )
    ) == (
        "column id renamed to ID",
        "column ID: not null -> nullable",
        "column ID: comment changed",
        "column price: int -> decimal(10,2)",
        "column price: nullable -> not null",
        "column vat added",
    )
    assert changes(columns=(("id", None, None, None),)) == ("column price removed",)
    assert changes(columns=()) == ("column id removed", "column price removed")


def test_the_order_of_columns_matters() -> None:
    turned = (("price", "int", None, None), ("id", "bigint", None, None))
    assert changes(columns=turned) == ("column order: id, price -> price, id",)
    added_first = (("vat", "int", None, None), *SAME.columns)  # type: ignore[misc]
    assert changes(columns=added_first) == ("column vat added",)


@pytest.mark.parametrize(
    ("desired", "change"),
    [
        ({"partitioning": ()}, "partitioning: days(ts), region -> none"),
        (
            {"partitioning": ("region", "days(ts)")},
            "partitioning: days(ts), region -> region, days(ts)",
        ),
        ({"sort_order": ("id desc",)}, "sort order: id asc nulls first -> id desc nulls last"),
        ({"sort_order": ()}, "sort order: id asc nulls first -> none"),
        ({"properties": {"a": 1}}, "property a: none -> 1"),
        ({"properties": {"a": "Zstd"}}, "property a: none -> Zstd"),
        ({"properties": {"format-version": "3"}, "format_version": None}, "format version: 2 -> 3"),
        ({"format_version": 3}, "format version: 2 -> 3"),
        ({"comment": ""}, "table comment changed"),
        ({"comment": None, "properties": {"comment": "x"}}, "table comment changed"),
    ],
)
def test_changes_of_layout_and_properties(desired: dict[str, object], change: str) -> None:
    assert changes(**desired) == (change,)


@pytest.mark.parametrize(
    ("term", "plain"),
    [
        ("Region", "region"),
        ("`region`", "region"),
        ("identity( region )", "region"),
        ("day(ts)", "days(ts)"),
        ("DATE(ts)", "days(ts)"),
        ("hours(`a`.`ts`)", "hours(a.ts)"),
        ("month(ts)", "months(ts)"),
        ("year(ts)", "years(ts)"),
        ("bucket(16,id)", "bucket(16, id)"),
        ("truncate(name, 4)", "truncate(4, name)"),
        ("void(x)", ""),
    ],
)
def test_partition_terms(term: str, plain: str) -> None:
    assert partition_term(term) == plain
    assert partition_term(plain) == plain


@pytest.mark.parametrize(
    ("term", "plain"),
    [
        ("`ID`", "id asc nulls first"),
        ("id DESC", "id desc nulls last"),
        ("id  desc nulls  first", "id desc nulls first"),
        ("id nulls last", "id asc nulls last"),
        ("bucket(16,id) desc", "bucket(16, id) desc nulls last"),
    ],
)
def test_sort_terms(term: str, plain: str) -> None:
    assert sort_term(term) == plain
    assert sort_term(plain) == plain


def test_one_text_may_contain_several_terms() -> None:
    assert changes(partitioning=("day(ts), region",)) == ()
    assert changes(partitioning="day(ts), region") == ()


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("TinyInt", "int"),
        ("smallint", "int"),
        ("INTEGER", "int"),
        ("long", "bigint"),
        ("varchar(20)", "string"),
        ("char( 3 )", "string"),
        ("string collate UTF8_LCASE", "string"),
        ("decimal", "decimal(10,0)"),
        ("numeric(5)", "decimal(5,0)"),
        ("DECIMAL( 10 , 2 )", "decimal(10,2)"),
        ("timestamp_ltz", "timestamp"),
        ("timestamp_ntz", "timestamp_ntz"),
        ("real", "float"),
        ("array< SMALLINT >", "array<int>"),
        ("list<long>", "array<bigint>"),
        ("map<varchar(3), decimal(4, 1)>", "map<string,decimal(4,1)>"),
        (
            "struct<Ab: tinyint, c :array<struct<D:string>>>",
            "struct<Ab:int,c:array<struct<D:string>>>",
        ),
        ("STRUCT<`a b`: int NOT NULL COMMENT 'x, y>', c: int>", "struct<a b:int,c:int>"),
        ("struct<a int, b string>", "struct<a:int,b:string>"),
        ("struct<>", "struct<>"),
        ("no<type", "no<type"),
    ],
)
def test_types_as_iceberg_stores_them(text: str, stored: str) -> None:
    assert stored_type(text) == stored
    assert stored_type(stored) == stored


def test_the_case_of_struct_fields_is_kept() -> None:
    plan = decide_build(
        Table(columns=(Column("s", "struct<A:int>"),)),
        Desired(columns=(("s", "struct<a:int>", None, None),)),
    )
    assert plan.changes == ("column s: struct<A:int> -> struct<a:int>",)


def test_what_protects_a_clone_is_no_change_of_the_table() -> None:
    deletes = {"write.metadata.delete-after-commit.enabled": "true"}
    wanted: dict[str, object] = {**deletes, "gc.enabled": True, "write.wap.enabled": "false"}
    assert in_place(wanted) == deletes
    assert decide_build(Table(), Desired(properties=wanted)) == BuildPlan("branch")


def test_commit_retries_need_no_clone() -> None:
    wanted: dict[str, object] = {"commit.retry.num-retries": 20, "write.merge.mode": "x", "b": None}
    assert in_place(wanted) == {"commit.retry.num-retries": "20"}
    assert in_place(None) == {}
    assert decide_build(Table(), Desired(properties=in_place(wanted))) == BuildPlan("branch")
    # Other write properties change with a publish only.
    isolation: dict[str, object] = {"write.merge.isolation-level": "snapshot"}
    assert in_place(isolation) == {}
    assert decide_build(Table(), Desired(properties=isolation)).where == "clone"


@pytest.mark.parametrize(
    ("given", "kept", "exact"),
    [
        ("smallint", "bigint", True),
        ("bigint", "int", False),
        ("int", "decimal(12,2)", True),
        ("int", "decimal(11,2)", False),
        ("bigint", "decimal(38,0)", True),
        ("decimal(9,0)", "int", True),
        ("decimal(10,0)", "int", False),
        ("decimal(3,1)", "bigint", False),
        ("decimal(10,2)", "decimal(12,4)", True),
        ("decimal(10,2)", "decimal(12,5)", False),
        ("decimal(10,4)", "decimal(12,2)", False),
        ("decimal(10,4)", "string", True),
        ("double", "decimal(38,4)", False),
        ("int", "double", True),
        ("int", "float", False),
        ("bigint", "double", False),
        ("double", "float", False),
        ("int", "varchar(10)", True),
        ("string", "int", False),
        ("date", "timestamp", True),
        ("timestamp", "date", False),
        ("timestamp_ntz", "timestamp", False),
        ("boolean", "int", False),
        ("void", "decimal(4,0)", True),
        ("array<int>", "array<bigint>", True),
        ("array<bigint>", "array<int>", False),
        ("map<string,void>", "map<string,int>", True),
        ("struct<a:int,b:void>", "struct<a:bigint,b:string>", True),
        ("struct<a:int,b:int>", "struct<b:int,a:int>", False),
        ("struct<a:int>", "struct<a:int,b:int>", False),
    ],
)
def test_casts_that_change_no_value(given: str, kept: str, exact: bool) -> None:
    assert is_exact(given, kept) == exact
