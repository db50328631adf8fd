"""The tables of a subject, and the conditions that find its rows."""

from __future__ import annotations

from typing import Any

import pytest

from sparkwap.core.errors import ConfigError
from sparkwap.erasure.conditions import Conditions
from sparkwap.erasure.search import Search
from sparkwap.erasure.subject_tables import (
    NodeColumns,
    SubjectTable,
    derived,
    key_texts,
    key_values,
    places,
    with_columns,
)

KEY = {"subject": "customer"}
PERSONAL = {"personal": "customer"}


def node(name: str, kind: str = "model", parents: tuple[str, ...] = (), **columns: Any) -> Any:
    schema = "audits" if kind == "test" else "s"
    return NodeColumns(f"{kind}.{name}", (schema, name), kind, columns, frozenset(parents))


def test_marks_name_the_tables_of_a_subject() -> None:
    nodes = [
        node("orders", customer_id=KEY, note={"subject_text": "customer"}, amount={}),
        node("customers", "snapshot", id=KEY, email=PERSONAL),
        node("shops", shop_id={"subject": "shop"}),
        node("totals"),
    ]
    assert places(nodes, "customer") == (
        SubjectTable(("s", "customers"), ("id",), ("email",)),
        SubjectTable(("s", "orders"), ("customer_id",), (), ("note",)),
    )


def test_a_column_may_have_several_subjects() -> None:
    nodes = [node("calls", person={"subject": ["customer", "agent"]})]
    assert places(nodes, "agent")[0].keys == ("person",)


def test_on_erase_clear_keeps_the_rows() -> None:
    nodes = [node("sales", customer_id={**KEY, "on_erase": "clear"})]
    assert places(nodes, "customer")[0].action == "clear"


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"email": PERSONAL}, "no column is marked as the key"),
        ({"id": {**KEY, "on_erase": "drop"}}, "on_erase is drop; legal: one of delete, clear"),
        ({"id": {"subject": "shop"}}, "marked subjects: shop"),
        ({"id": {**KEY, "nobody": -1}}, "nobody is -1; legal: a list"),
        ({"id": KEY, "email": {**PERSONAL, "nobody": [""]}}, "on a column with `subject`"),
    ],
)
def test_contradictory_marks_are_refused(columns: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        places([node("t", **columns)], "customer")


def test_keys_and_headers_of_messages_may_name_the_subject() -> None:
    columns = ["id", "_raw", "_message_key", "_message_time", "_message_headers"]
    found = with_columns(SubjectTable(("s", "raw_t"), ("id",)), columns)
    assert found.texts == ("_raw", "_message_key", "_message_headers")
    stays = with_columns(SubjectTable(("s", "raw_t"), ("id",), action="clear"), columns)
    assert stays.texts == ("_raw",)


def test_quarantines_and_stored_failures_need_no_marks() -> None:
    nodes = [
        node("raw_shop__customers", id=KEY),
        node("quarantine_shop__customers", parents=("model.raw_shop__customers",)),
        node("quarantine_shop__goods", parents=("model.raw_shop__goods",)),
        node("quarantine_shop__orders", parents=("model.raw_shop__customers",)),
        node("notes", parents=("model.raw_shop__customers",)),
        node("unique_id", "test", parents=("model.raw_shop__customers",)),
    ]
    tables = {
        ("s", "raw_shop__customers"): ["id", "_raw"],
        ("s", "quarantine_shop__customers"): ["_raw"],
        ("s", "quarantine_shop__goods"): ["_raw"],
        ("s", "quarantine_shop__orders"): ["file_path", "line", "reason", "raw_text", "run_id"],
        ("s", "notes"): ["line", "raw_text"],
        ("audits", "unique_id"): ["unique_field"],
        ("audits", "of_a_test_that_is_gone"): ["id"],
    }
    found = derived(nodes, places(nodes, "customer"), tables)
    assert {place.name: place.any_cell for place in found} == {
        "s.quarantine_shop__customers": False,
        "s.quarantine_shop__orders": False,
        "audits.unique_id": True,
        "audits.of_a_test_that_is_gone": True,
    }


def test_a_place_has_only_columns_of_its_table() -> None:
    place = SubjectTable(("s", "t"), ("ID",), ("email", "phone"))
    found = with_columns(place, ["id", "email", "_raw"])
    assert (found.keys, found.personal, found.texts) == (("id",), ("email",), ("_raw",))


def test_keys_are_compared_as_text() -> None:
    assert key_texts([42, "42", " C-7 ", None]) == ("42", "C-7")
    with pytest.raises(ConfigError, match="no key"):
        key_texts([None, ""])


@pytest.mark.parametrize("key", ["1e3", "1_000", "٤٢", "nan", "9" * 39, "9" * 5000])
def test_only_digits_are_a_number(key: str) -> None:
    assert key_values([key], {"string", "bigint"}) == {key: {key}}
    assert key_values([key, "42"], {"bigint"}, skip=True) == {"42": {"42"}}
    with pytest.raises(ConfigError, match="1 of 2 keys cannot"):
        key_values([key, "42"], {"bigint"})


@pytest.mark.parametrize(
    ("key", "number"),
    [("9" * 38, "9" * 38), ("-007.0", "-7"), ("+42.", "42"), ("-0", "0"), ("0" * 5000, "0")],
)
def test_a_number_is_a_key_in_each_spelling(key: str, number: str) -> None:
    assert key_values([key], {"decimal(38,0)"}) == {key: {key, number}}


def test_no_statement_contains_a_key() -> None:
    conditions = Conditions("ab")
    place = SubjectTable(("s", "t"), ("id",))
    sql = conditions.rows(place, Search(frozenset({"anna-berg"})), {}, {"id": "string"})
    assert "anna" not in sql
    assert conditions.digest("anna-berg") in sql
    assert "sha2(concat('ab:', trim(regexp_replace(cast(`id` as string), '" in sql


def test_a_key_in_text_may_have_another_spelling() -> None:
    sql = Conditions("ab").spelled("id", ["42"])
    assert "42" not in sql.replace(Conditions("ab").digest("42"), "")
    assert "regexp_replace(trim(`id`), '^[+]?(-?)0*([0-9]+)([.]0*)?$', '$1$2')" in sql


def test_an_empty_search_finds_no_row() -> None:
    assert (
        Conditions("ab").rows(SubjectTable(("s", "t")), Search(frozenset({"1"})), {}, {"a": "int"})
        == "false"
    )


def test_all_unicode_forms_of_a_name_are_searched_for() -> None:
    conditions = Conditions("ab")
    for key in ("J\u00f6rg von B", "Jo\u0308rg  von\u00a0B"):
        sql = conditions.is_in("name", [key])
        for form in ("J\u00f6rg von B", "Jo\u0308rg von B"):
            assert conditions.digest(form) in sql
    assert r"\\u00a0" in conditions.hashed("name")


def test_a_table_of_two_nodes_has_the_marks_of_both() -> None:
    nodes = [
        node("crm", customer_id={**KEY, "on_erase": "clear"}, email=PERSONAL),
        node("crm", "source", phone=PERSONAL, email=PERSONAL),
    ]
    for one in (nodes, nodes[::-1]):
        (place,) = places(one, "customer")
        assert (place.keys, set(place.personal)) == (("customer_id",), {"email", "phone"})
        assert place.action == "clear"
    with pytest.raises(ConfigError, match="on_erase is clear and delete in two nodes"):
        places([*nodes, node("crm", "seed", id=KEY)], "customer")
