"""A comparison as text, Markdown, HTML and JSON."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkwap.diff.model import (
    AddedColumn,
    RemovedColumn,
    RenamedColumn,
    RetypedColumn,
    RowSample,
    RunDiff,
    SchemaChange,
    TableDiff,
)
from sparkwap.diff.operation import rendered
from sparkwap.diff.render import markdown, page, text, visible

AT = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
ORDERS = TableDiff(
    ("shop", "orders"),
    "table",
    "changed",
    schema=SchemaChange(
        (AddedColumn("vat", "int", 2, 8),),
        (RemovedColumn("tax", "int"),),
        (RetypedColumn("amount", "int", "bigint", True),),
        (RenamedColumn("a", "b"),),
    ),
    added=3,
    removed=1,
    changed=2,
    columns={"amount": 2, "city": 1},
    key=("id",),
    hidden=("email",),
    samples=(
        RowSample("removed", 1, before={"id": "9", "city": None}),
        RowSample("added", 3, after={"id": "7", "city": "Oslo"}),
        RowSample("changed", 1, {"id": "1", "city": "Oslo"}, {"id": "1", "city": "Bergen"}),
    ),
    rows_before=10,
    rows_after=12,
    notes=("main has moved since the branch was opened",),
)
SAME = TableDiff(("shop", "same"), "table", "unchanged")
HOSTILE = [
    "<script>alert(1)</script>",
    "</code></td><img src=x onerror=alert(1)>",
    "a | b `c` **d** [x](http://evil.example) ![i](http://evil.example/i.png)",
    "@everyone #1 https://evil.example www.evil.example",
    "</details>\n\n# a heading\n\n- a list",
    "\u202egpj.exe\x00\x1b[31m",
    '" onmouseover="alert(1)',
    "{{ 7 * 7 }} ${x}",
]


def run(*tables: TableDiff) -> RunDiff:
    return RunDiff("pr_1", "main", AT, tables)


def named(name: str, added: int, **more: object) -> TableDiff:
    made = TableDiff(("s", name), "table", "changed", added=added)
    return replace(made, **more)  # type: ignore[arg-type]


def hostile(value: str) -> RunDiff:
    sample = RowSample("changed", 1, {value: value}, {value: value + "x"})
    schema = SchemaChange((AddedColumn(value, value),))
    table = TableDiff(
        ("s", value),
        "table",
        "changed",
        schema=schema,
        changed=1,
        columns={value: 1},
        key=(value,),
        hidden=(value,),
        samples=(sample,),
        notes=(value,),
    )
    return RunDiff(value, value, AT, (table, replace(SAME, identifier=("s", value))))


class Tags(HTMLParser):
    """The tags and attributes of a text."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_markdown_has_counts_columns_and_rows() -> None:
    found = markdown(run(SAME, ORDERS))
    assert "1 of 2 tables differ. Rows: 3 added, 1 removed, 2 changed." in found
    row = "| <code>shop&#46;orders</code> | 3 | 1 | 2 | +1 −1 ~2 |"
    assert row in found
    assert "column <code>vat</code> added, <code>int</code>: 8 values, 2 NULL" in found
    assert "column <code>tax</code> removed" in found
    assert "column <code>amount</code> was <code>int</code>, is <code>bigint</code>" in found
    assert "column <code>a</code> renamed to <code>b</code>" in found
    assert "<code>city</code> differs in 1 row\n" in found
    assert "(10 before, 12 now)" in found
    assert "| added ×3 | <code>7</code> | <code>Oslo</code> |" in found
    assert "| changed | <code>1</code> | <code>Oslo</code> → <code>Bergen</code> |" in found
    assert "| removed | <code>9</code> | <i>NULL</i> |" in found
    assert "not shown: <code>email</code>" in found
    assert "Unchanged: <code>shop&#46;same</code>" in found


def test_failures_come_first_then_tables_with_most_changes() -> None:
    failed = TableDiff(("s", "broken"), "table", "failed", notes=("not compared: x",))
    found = markdown(run(named("few", 1), named("many", 100), SAME, failed))
    places = [found.index(name) for name in ("broken", "many", "few", "same")]
    assert places == sorted(places)
    assert "1 could not be compared" in found


def test_a_comparison_without_differences() -> None:
    assert "No difference in 1 table." in markdown(run(SAME))
    assert "The branch has no tables." in markdown(run())
    assert text(run())[-1] == "  the branch has no tables"


@pytest.mark.parametrize("others", [(), (ORDERS,)])
def test_notes_of_a_table_without_a_difference_are_shown(others: tuple[TableDiff, ...]) -> None:
    note = "values of v (variant) are not compared"
    diff = run(*others, SAME, replace(SAME, identifier=("shop", "noted"), notes=(note,)))
    lines, comment, html = "\n".join(text(diff)), markdown(diff), page(diff)
    assert f"shop.noted   no difference in what was compared\n      {note}" in lines
    assert "unchanged: shop.same" in lines
    for found in (comment, html):
        assert "are not compared" in found
        assert "See the notes of 1 table without a difference." in found
        assert "Unchanged: <code>shop&#46;same</code>" in found


@pytest.mark.parametrize("limit", [2_000, 5_000, 20_000, 60_000])
def test_markdown_stays_within_the_limit_and_counts_omissions(limit: int) -> None:
    samples = tuple(
        RowSample("added", 1, after={f"column_{i}": "x" * 200 for i in range(10)})
        for _ in range(50)
    )
    tables = [
        named(f"t{i:03}", 1000 - i, samples=samples, columns={f"c{k}": 1 for k in range(300)})
        for i in range(400)
    ]
    unchanged = [replace(SAME, identifier=("s", f"u{i}")) for i in range(2000)]
    found = markdown(run(*tables, *unchanged), limit)
    assert len(found) <= limit
    assert "t000" in found
    assert "more tables" in found and "left out: no space" in found
    assert "Unchanged: 2000 tables" in found
    assert found.count("<details>") == found.count("</details>")


def test_samples_are_left_out_before_details_with_some_of_each_kind() -> None:
    samples = [
        RowSample("removed", 1, before={"id": f"old {i}", "text": "y" * 70}) for i in range(40)
    ] + [RowSample("added", 1, after={"id": f"new {i}", "text": "y" * 70}) for i in range(40)]
    found = markdown(run(named("t", 1, samples=tuple(samples))), 6_000)
    assert "old 0" in found and "new 0" in found
    assert "sample rows left out: no space." in found


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_values_are_escaped_in_markdown(value: str) -> None:
    found = markdown(hostile(value))
    inside = [part.split("</code>")[0] for part in found.split("<code>")[1:]]
    assert inside
    for part in inside:
        plain = part.replace("&#", "")
        assert not set(plain) & set("<>|`*[](){}@#\\\n!_/:$")
    assert Tags(found).seen <= {"details", "summary", "code", "i"}
    assert Tags(found).attributes == set()
    assert "evil.example" not in found


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_values_are_escaped_in_html(value: str) -> None:
    found = page(hostile(value))
    allowed = {"html", "head", "meta", "title", "style", "body", "h1", "p", "table", "tr", "th"}
    allowed |= {"td", "code", "details", "summary", "ul", "li", "i"}
    assert Tags(found).seen <= allowed
    assert Tags(found).attributes <= {"lang", "charset", "http-equiv", "content", "class"}
    assert "default-src 'none'" in found


@given(st.text(max_size=40))
def test_any_value_is_escaped(value: str) -> None:
    assert Tags(markdown(hostile(value))).seen <= {"details", "summary", "code", "i"}
    assert "script" not in Tags(page(hostile(value))).seen
    assert len(text(hostile(value))) == len("\n".join(text(hostile(value))).split("\n"))


def test_invisible_characters_are_written_as_codes() -> None:
    assert visible("a\u202eb\x1b\n") == "a\\u{202e}b\\u{1b}\\u{a}"


def test_json_has_all_values_except_hidden_ones() -> None:
    found = json.loads(rendered(run(ORDERS, SAME), "json"))
    assert (found["version"], found["branch"], found["against"]) == (1, "pr_1", "main")
    orders = found["tables"][0]
    assert orders["rows"] == {"added": 3, "removed": 1, "changed": 2, "before": 10, "after": 12}
    assert orders["columns"]["added"] == [{"name": "vat", "type": "int", "nulls": 2, "values": 8}]
    assert orders["columns"]["hidden"] == ["email"]
    assert orders["samples"][2]["before"] == {"id": "1", "city": "Oslo"}


def test_the_lines_for_a_terminal() -> None:
    found = rendered(run(ORDERS, SAME), "text")
    assert "shop.orders   columns differ; rows: 3 added, 1 removed, 2 changed" in found
    assert "changed: id=1, city=Oslo -> Bergen" in found
    assert "unchanged: shop.same" in found


def test_a_value_that_differs_after_the_cut_is_shown_as_changed() -> None:
    before, after = {"id": "1", "note": "x" * 80 + "OLD"}, {"id": "1", "note": "x" * 80 + "NEW"}
    sample = RowSample("changed", 1, before, after)
    table = named("t", 0, changed=1, key=("id",), samples=(sample,))
    cut = "x" * 79 + "…"
    for form, arrow in (("text", "->"), ("markdown", "→"), ("html", "→")):
        found = html.unescape(re.sub("</?code>", "", rendered(run(table), form)))  # type: ignore[arg-type]
        assert f"{cut} {arrow} {cut} (differs in what is not shown)" in found
        assert f"1 {arrow} 1" not in found
