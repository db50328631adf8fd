"""The marks of personal values, for all features that show values."""

from __future__ import annotations

from typing import Any

import pytest

from sparkwap.audits.anomaly import METRICS, AnomalyResult
from sparkwap.core.personal import (
    MARKS,
    OF_TABLES,
    RAW_TEXT,
    WHOLE,
    Hidden,
    PersonalMarks,
    named_in,
)


def node(name: str, *parents: str, meta: Any = None, **columns: Any) -> dict[str, Any]:
    return {
        "unique_id": f"model.shop.{name}",
        "name": name,
        "columns": {
            key: {"name": key, "meta": {}, "config": {"meta": marks}}
            for key, marks in columns.items()
        },
        "depends_on": {"nodes": [f"model.shop.{parent}" for parent in parents]},
        "config": {"meta": meta or {}},
    }


def marks(*nodes: dict[str, Any]) -> PersonalMarks:
    known = {one["unique_id"]: one for one in nodes}
    return PersonalMarks(known.get, named_in(known))


def hidden(*nodes: dict[str, Any], patterns: tuple[str, ...] = ()) -> Hidden:
    tables = {one["unique_id"]: ("S", one["unique_id"].rpartition(".")[2]) for one in nodes}
    return Hidden.of_project(marks(*nodes), tables, patterns)


@pytest.mark.parametrize("mark", MARKS)
def test_a_mark_hides_its_column_in_every_table(mark: str) -> None:
    found = hidden(node("people", Email={mark: "customer"}, city={mark: False}, id={}))
    assert found.of(("s", "people"), ["EMAIL", "city", "id"]) == ("EMAIL",)
    assert found.hides(("other", "table"), "email")


@pytest.mark.parametrize("mark", OF_TABLES)
def test_a_mark_of_a_table_hides_the_table_and_its_descendants(mark: str) -> None:
    found = hidden(node("people", meta={mark: True}), node("facts", "people"), node("others"))
    assert found.hides(("s", "PEOPLE"), "anything")
    assert found.hides(("s", "facts"), "renamed")
    assert not found.hides(("s", "others"), "anything")
    assert not found.hides(("t", "people"), "anything")
    assert WHOLE not in found.marked


def test_raw_rows_and_patterns_are_hidden_without_a_mark() -> None:
    found = hidden(node("x"), patterns=("Customers.na*", "s.orders.note", "iban"))
    shown = {
        ("customers", "name"): True,
        ("orders", "name"): False,
        ("orders", "note"): True,
        ("customers", "note"): False,
        ("orders", "iban"): True,
        ("orders", "id"): False,
        **{("quarantine", name): True for name in RAW_TEXT},
    }
    for (table, column), expected in shown.items():
        assert found.hides(("s", table), column) is expected, (table, column)
    assert Hidden().hides(("s", "quarantine"), "raw_text")


def test_an_error_of_a_personal_table_keeps_its_class_only() -> None:
    known = marks(node("people", email={"pii": True}), node("facts", "people"), node("others"))
    error = "[CAST_INVALID_INPUT] The value 'ann@example.org' cannot be cast"
    cut = "[CAST_INVALID_INPUT] (its text is withheld: personal columns)"
    assert known.error_class(error, "model.shop.facts") == cut
    assert known.error_class(error, "model.shop.others") == error
    assert known.harmless(f"build failed: {error}", "model.shop.facts") == f"build failed: {cut}"
    assert known.harmless("test ids failed (1 row)", "model.shop.facts").endswith("(1 row)")


def test_an_error_of_a_test_that_also_reads_a_personal_table_keeps_its_class_only() -> None:
    both = {**node("both", "people", "orders"), "unique_id": "test.shop.both"}
    own = {**node("own", "orders"), "unique_id": "test.shop.own"}
    known = marks(node("people", email={"pii": True}), node("orders"), both, own)
    error = "ended in an error ([CAST_INVALID_INPUT] The value 'ann@example.org' cannot be cast)"
    shown = {name: known.harmless(f"test {name} {error}", "model.shop.orders") for name in
             ("both", "own", "unknown", "with a space")}  # fmt: skip
    assert [name for name, text in shown.items() if "ann" in text] == ["own"]
    assert "ann" not in known.harmless(
        f"test own failed (1 row); test both {error}", "model.shop.orders"
    )


def test_an_error_of_an_unknown_table_keeps_its_class_only() -> None:
    error = "[CAST_INVALID_INPUT] The value 'ann@example.org' cannot be cast"
    known = marks(node("orders"))
    assert "ann" not in known.harmless(f"build failed: {error}", "model.shop.gone")
    assert "ann" not in known.error_class(error, "test.shop.gone")
    assert known.shown("test.shop.gone", ["id"]) == []


def test_figures_that_may_be_a_value_of_a_personal_table_are_withheld() -> None:
    audit = {**node("audit", "people"), "unique_id": "test.shop.audit"}
    people = node("people", born={"pii": True}, city={})
    known = marks(people, node("orders"), audit)

    def finding(metric: str) -> str:
        column = metric.partition(":")[2]
        result = AnomalyResult(metric, 184_250, "anomalous", 12, 97_000, 1, 95_000, 99_000)
        found = known.harmless(f"test audit failed ({result.words()})", "model.shop.people")
        assert known.harmless(result.words(), "test.shop.audit") in found
        assert column in found
        return found

    ids = ["model.shop.people", "test.shop.audit"]
    for metric in METRICS:
        shown = metric.endswith("_share") or metric == "distinct_count"
        assert ("184,250" in finding(f"{metric}:the city")) is shown, metric
        assert known.is_withheld(f"{metric}:city", ids) is not shown
        assert not known.is_withheld(f"{metric}:city", ["model.shop.orders"])
    assert "184,250" not in finding("age_hours:born") and "184,250" in finding("age_hours:city")
    assert "184,250" in finding("row_count")
    assert known.is_withheld("max:x", ["model.shop.gone"])
    more = (
        "a note: it is old; test audit failed (age_hours:city has no value, but had one in 9 "
        "published runs; max:city is 7 (mean 5): expected 4 to 5, by 9 published runs)"
    )
    assert "is 7" not in known.harmless(more, "model.shop.people")
    both = known.harmless(
        "max:born is 7 (mean 5): expected 4 to 5, by 9 published runs; null_share:born is 0.5 "
        "(mean 0): expected 0 to 0.1, by 9 published runs", "test.shop.audit",
    )  # fmt: skip
    assert both == (
        "max:born is an anomaly (its value is withheld: personal columns); null_share:born is 0.5 "
        "(mean 0): expected 0 to 0.1, by 9 published runs"
    )


def test_a_mark_of_a_nested_field_hides_its_whole_column() -> None:
    found = hidden(node("people", **{"Address.street.name": {"pii": True}, "id": {}}))
    assert found.of(("s", "people"), ["address", "street", "id"]) == ("address",)
