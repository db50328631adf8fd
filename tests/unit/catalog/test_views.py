"""The SQL of a view, from the side schema to the schema."""

import pytest

from sparkwap.catalog.views import rewrite_sql

SCHEMAS = {"s__b": "s", "raw_s__b": "raw_s", "Mixed__b": "Mixed"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("select * from s__b.t", "select * from s.t"),
        ("select * from `s__b`.`t`", "select * from `s`.`t`"),
        ("select * from lake.s__b.t", "select * from lake.s.t"),
        ("select * from `lake`.`s__b`.t", "select * from `lake`.`s`.t"),
        ("select * from s__b . t", "select * from s . t"),
        ("select * from S__B.t", "select * from s.t"),
        ("select * from mixed__b.t", "select * from Mixed.t"),
        ("select * from raw_s__b.t", "select * from raw_s.t"),
        ("select * from x_s__b.t", "select * from x_s__b.t"),
        ("select * from s__bb.t", "select * from s__bb.t"),
        ("select s__b from t", "select s__b from t"),
        ("select 's__b.t', \"s__b.t\" from s__b.t", "select 's__b.t', \"s__b.t\" from s.t"),
        (r"select 'it\'s s__b.t' from s__b.t", r"select 'it\'s s__b.t' from s.t"),
        ("-- s__b.t\nselect 1 /* s__b.t */ from s__b.t", None),
        ("select * from `odd s__b.t`", "select * from `odd s__b.t`"),
    ],
)
def test_rewrite(before: str, after: str | None) -> None:
    if after is None:
        after = "-- s__b.t\nselect 1 /* s__b.t */ from s.t"
    assert rewrite_sql(before, SCHEMAS) == after


def test_nothing_to_rewrite() -> None:
    assert rewrite_sql("select * from s__b.t", {}) == "select * from s__b.t"
