import pytest

from sparkwap.spark_types import widens


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
