"""The rewriting of a view's SQL from the side schema to the live schema."""

import pytest

from sparkwap.catalog.views import publishable, reads_unaudited, requalify_sql, rewrite_sql

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
        # Literals are rewritten as if the run had built on the live tables.
        ("select 's__b.t', \"`s__b`.t\" from s__b.t", "select 's.t', \"`s`.t\" from s.t"),
        (r"select 'it\'s s__b.t' from s__b.t", r"select 'it\'s s.t' from s.t"),
        ("select 'xs__b.t', 's__bb'", "select 'xs__b.t', 's__bb'"),
        # A raw string ends at its first quote, and comments nest.
        (r"replace(p, r'\', '/') from s__b.t", r"replace(p, r'\', '/') from s.t"),
        ("from s__b /* /* ' */ */ -- x\n . t", "from s /* /* ' */ */ -- x\n . t"),
        ("from `lake` /**/ . /**/ `s__b`. t", "from `lake` /**/ . /**/ `s`. t"),
        ("from identifier('s__b.t')", "from identifier('s.t')"),
        ("/*+ broadcast(s__b.t) */ from s__b.t", "/*+ broadcast(s.t) */ from s.t"),
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


def view(sql: str, *namespace: str) -> dict[str, object]:
    version = {
        "version-id": 2,
        "default-namespace": list(namespace or ("s",)),
        "representations": [{"type": "sql", "sql": sql, "dialect": "spark"}],
    }
    return {
        "view-uuid": "u",
        "location": "w/s__b/v",
        "current-version-id": 2,
        "versions": [version],
    }


SAFE = [
    "select * from s__b.t join lake.`s__b`.u",
    "select 's__b.t' as origin from s__b.t -- of s__b.t",
    r"select replace(p, r'\', '/') from s__b.t",
    "select * from identifier('s__b.t')",
    "select identifier, `identifier`('x') from s.t",
    "select 'b', branch_b from s.branch_offices where b = 'b'",
    "with c as (select 'b' as b) select * from c join s.t with ('split-size' = 1) where x = ('b')",
]
UNSAFE = {
    r"select * from identifier('\u0073__b.t')": "s__b",
    r"select * from identifier(r's__' || 'b.t')": "identifier",
    "select * from identifier('s__' 'b.t')": "identifier",
    'select * from identifier("s__" || "b.t")': "identifier",
    "select * from identifier('${schema}.t')": "identifier",
    "select * from identifier(x)": "identifier",
    "select * from `s__b.t`": "s__b",
    "select * from parquet.`w/s__b/t`": "s__b",
    "select * from s__other.t": "s__other",
    "select * from s.t.branch_b": "audit branch",
    "select * from s.t version as of 'b'": "audit branch",
    "select * from s.t version as of 'C'": "audit branch c",
    "select * from s.t with ('branch' = 'b')": "audit branch",
    "select * from s.t with (branch b)": "audit branch",
    "select * from identifier('s.t.branch_c')": "audit branch c",
    "select * from s.t where x = 'open": "unclosed quote",
}


@pytest.mark.parametrize("sql", SAFE)
def test_a_view_that_names_published_tables_is_published(sql: str) -> None:
    document = publishable(view(sql), None, SCHEMAS)
    assert reads_unaudited(document, [*SCHEMAS, "s__other"], {"b", "c"}) is None


@pytest.mark.parametrize(("sql", "told"), UNSAFE.items())
def test_a_view_that_may_name_a_side_schema_is_not(sql: str, told: str) -> None:
    document = publishable(view(sql), None, SCHEMAS)
    found = reads_unaudited(document, [*SCHEMAS, "s__other"], {"b", "c"})
    assert found is not None
    assert told in found


def test_unqualified_names_resolve_in_the_schema() -> None:
    ours = publishable(view("select * from t", "s__b"), None, SCHEMAS)
    assert reads_unaudited(ours, SCHEMAS, {"b"}) is None
    other = publishable(view("select * from t", "s__other"), None, SCHEMAS)
    assert reads_unaudited(other, [*SCHEMAS, "s__other"], {"b", "c"}) is not None


def test_reopening_finds_names_as_publishing_does() -> None:
    sql = r"select r'\', `s` /* . */ . `t`, s.u from s.t"
    sides = {("s", "t"): "s__b"}
    assert requalify_sql(sql, sides) == r"select r'\', `s__b` /* . */ . `t`, s.u from `s__b`.t"
