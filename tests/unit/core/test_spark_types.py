import pytest

from sparkwap.core.spark_types import family, normal, widens, wider


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("int", "bigint", True),
        ("INT", "bigint ", True),
        ("float", "double", True),
        ("decimal(10,2)", "decimal(12, 2)", True),
        ("string", "string", True),
        ("bigint", "int", False),
        ("decimal(10,2)", "decimal(12,3)", False),
        ("decimal(10,2)", "decimal(9,2)", False),
        ("int", "string", False),
        ("int", "double", False),
    ],
)
def test_only_what_iceberg_widens_in_place_widens(old: str, new: str, expected: bool) -> None:
    assert widens(old, new) is expected


@pytest.mark.parametrize(
    ("kind", "known"),
    [("INTEGER", "int"), ("numeric(12, 2)", "decimal(12,2)"), ("Decimal", "decimal(38,0)"),
     ("decimal(2,3)", None), ("varchar(3)", None)],
)  # fmt: skip
def test_types_are_spelled_as_spark_does(kind: str, known: str | None) -> None:
    assert normal(kind) == known


def test_a_narrow_type_has_a_wider_one() -> None:
    assert wider("int") == "bigint"
    assert wider("decimal(12,4)") == "decimal(38,4)"
    assert wider("bigint") is None


def test_a_family_has_no_size_precision_or_scale() -> None:
    assert family("decimal(4,2)") == family("decimal (38, 0)") == family("decimal") == "decimal"
    nested = "struct<a:array<decimal(4,2)>,b:map<string,varchar(3)>,c:timestamp>"
    assert family(nested) == "struct<a:array<decimal>,b:map<string,varchar>,c:timestamp>"
